// The attention kernels that decode: rows of simt::kInstances, for sm_80 and later.
#pragma once

#include "backends/sm80/exec.hpp"
#include "backends/sm80/shims.hpp"
#include "backends/sm80/worker_exec.hpp"
#include "cuda/attend_items.cuh"
#include "cuda/variants.hpp"

namespace fp4pa::cuda {

/// Where warps divide the keys, a block may have several workers.
template <int index>
using DecodingExec = std::conditional_t<core::divides_rows(simt::kInstances[index]), sm80::WarpExec, sm80::WorkerExec>;
template <int index>
using DecodingShim = sm80::ShimFor<simt::kInstances[index], DecodingExec<index>>;

/// The architecture that is being compiled for, 90 for 9.0; the host asks nothing of launch bounds.
#if defined(__CUDA_ARCH__)
inline constexpr int kComputeCapability = __CUDA_ARCH__ / 10;
#else
inline constexpr int kComputeCapability = 0;
#endif

/// @tparam index  row of kInstances; a number, because nvcc cannot name a kernel after a structure
template <int index>
__global__ void __launch_bounds__(simt::most_warps(simt::kInstances[index], kComputeCapability) * 32,
                                  simt::least_blocks(simt::kInstances[index], kComputeCapability))
    attend(const __grid_constant__ AttendArgs args) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  attend_items_of_block<DecodingShim<index>, may_share(index, kComputeCapability)>(args, shared);
}

// Named by number, because nvcc 13.0 loses the shape of a shim that it meets in an assertion.
template <int index>
constexpr bool decoding_sizes_agree() {
  return sizes_agree<DecodingShim<index>>();
}

}  // namespace fp4pa::cuda

/// Compiles row `index` of kInstances; see attend_instances.cu.in.
#define FP4PA_INSTANTIATE_ATTEND(index)                                       \
  namespace fp4pa::cuda {                                                     \
  static_assert(decoding_sizes_agree<index>());                               \
  template <>                                                                 \
  const void* attend_function<index>() noexcept {                             \
    return reinterpret_cast<const void*>(&attend<index>);                     \
  }                                                                           \
  }
