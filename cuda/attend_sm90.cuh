// The prefill kernels of sm_90a: rows of sm90::kInstances. Compiled for sm_90a alone.
#pragma once

#include "backends/sm90/exec.hpp"
#include "backends/sm90/prefill_shim.hpp"
#include "cuda/attend_items.cuh"
#include "cuda/variants.hpp"

namespace fp4pa::cuda {

template <int index>
using WgmmaShim = sm90::PrefillShim<sm90::kInstances[index], sm90::WarpExec>;

/// @tparam index  row of sm90::kInstances
template <int index>
__global__ void __launch_bounds__(sm90::kInstances[index].warps * 32, sm90::kInstances[index].blocks)
    attend_sm90(const __grid_constant__ AttendArgs args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  attend_items<WgmmaShim<index>>(args, shared);
}

// Named by number, because nvcc 13.0 loses the shape of a shim that it meets in an assertion.
template <int index>
constexpr bool wgmma_sizes_agree() {
  return sizes_agree<WgmmaShim<index>>();
}

}  // namespace fp4pa::cuda

/// Compiles row `index` of sm90::kInstances; see attend_sm90_instance.cu.in.
#define FP4PA_INSTANTIATE_ATTEND_SM90(index)                                  \
  namespace fp4pa::cuda {                                                     \
  static_assert(wgmma_sizes_agree<index>());                                  \
  template <>                                                                 \
  const void* attend_function<kFirstSm90 + index>() noexcept {                \
    return reinterpret_cast<const void*>(&attend_sm90<index>);                \
  }                                                                           \
  }
