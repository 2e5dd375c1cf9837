// The native attention kernels: rows of sm120::kInstances, for the 120f family.
#pragma once

#include "backends/sm120/exec.hpp"
#include "backends/sm120/prefill_shim.hpp"
#include "cuda/attend_items.cuh"
#include "cuda/variants.hpp"

namespace fp4pa::cuda {

template <int index>
using NativeShim = sm120::ShimFor<sm120::kInstances[index], sm120::WarpExec>;

/// By all threads of the block.
/// @tparam index  row of sm120::kInstances
/// @tparam Shim   its shim; tests have its instructions in software
template <int index, class Shim>
__device__ __forceinline__ void attend_native_items(const AttendArgs& args, std::uint8_t* shared) {
  if constexpr (keeps_items_aside(kFirstNative + index)) {
    attend_items_of_block<Shim>(args, shared);
  } else {
    attend_items<Shim>(args, shared);
  }
}

/// @tparam index  row of sm120::kInstances
template <int index>
__global__ void __launch_bounds__(sm120::kInstances[index].warps * 32, sm120::kInstances[index].blocks)
    attend_native(const __grid_constant__ AttendArgs args) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  attend_native_items<index, NativeShim<index>>(args, shared);
}

// Named by number, because nvcc 13.0 loses the shape of a shim that it meets in an assertion.
template <int index>
constexpr bool native_sizes_agree() {
  return sizes_agree<NativeShim<index>>();
}

}  // namespace fp4pa::cuda

/// Compiles row `index` of sm120::kInstances; see attend_instances.cu.in.
#define FP4PA_INSTANTIATE_ATTEND_NATIVE(index)                                \
  namespace fp4pa::cuda {                                                     \
  static_assert(native_sizes_agree<index>());                                 \
  template <>                                                                 \
  const void* attend_function<kFirstNative + index>() noexcept {                            \
    return reinterpret_cast<const void*>(&attend_native<index>);              \
  }                                                                           \
  }
