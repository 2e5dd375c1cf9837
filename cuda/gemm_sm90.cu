// The matrix product's kernels of sm_90a: for few rows of X one per format, for many one per format and rows of a block.
#include "backends/sm90/gemm_few.hpp"
#include "backends/sm90/gemm_many.hpp"
#include "cuda/gemm_sm90.hpp"

namespace fp4pa::cuda {
namespace {

template <bool kNvfp4>
__global__ void __launch_bounds__(sm90::kFewThreads, 1) gemm_few(const __grid_constant__ sm90::FewParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::FewBlock<kNvfp4, 1>(params, shared).run();
}
template <bool kNvfp4, int kXRows>
__global__ void __launch_bounds__(sm90::kManyThreads, 1) gemm_many(const __grid_constant__ sm90::ManyParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::ManyBlock<kNvfp4, kXRows>(params, shared).run();
}

}  // namespace

const void* gemm_few_function(bool nvfp4) noexcept {
  return nvfp4 ? reinterpret_cast<const void*>(&gemm_few<true>) : reinterpret_cast<const void*>(&gemm_few<false>);
}
const void* gemm_many_function(bool nvfp4, int x_rows) noexcept {
  if (nvfp4) return x_rows == 64 ? reinterpret_cast<const void*>(&gemm_many<true, 64>) : reinterpret_cast<const void*>(&gemm_many<true, 128>);
  return x_rows == 64 ? reinterpret_cast<const void*>(&gemm_many<false, 64>) : reinterpret_cast<const void*>(&gemm_many<false, 128>);
}

}  // namespace fp4pa::cuda
