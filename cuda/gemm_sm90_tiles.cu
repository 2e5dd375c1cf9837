// Kernels of sm_90a for one or two rows of X whose warps have 48, 80 or 96 rows of W (kFewOtherTiles). In a file of their own: beside the
// others (gemm_sm90.cu) they made nvcc 13.0 compile those otherwise, and NVFP4 with K in halves took up to 14 % longer.
#include "backends/sm90/gemm_few.hpp"
#include "cuda/gemm_sm90.hpp"

namespace fp4pa::cuda {
namespace {

constexpr int kParts = 8 / sm90::kFewPairedX;

/// Two blocks are to share a multiprocessor where their memory may be small enough.
template <bool kNvfp4, bool kBf16, int kTiles>
__global__ void __launch_bounds__(sm90::kFewThreads, kTiles < sm90::kFewTiles ? 2 : 1)
    gemm_few_tiles(const __grid_constant__ sm90::FewParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::FewBlock<kNvfp4, kParts, kBf16, sm90::FewForm::kPlain, kTiles>(params, shared).run();
}

template <int kTiles>
const void* tiles_function(bool nvfp4, bool bf16) {
  if (bf16) {
    return nvfp4 ? reinterpret_cast<const void*>(&gemm_few_tiles<true, true, kTiles>)
                 : reinterpret_cast<const void*>(&gemm_few_tiles<false, true, kTiles>);
  }
  return nvfp4 ? reinterpret_cast<const void*>(&gemm_few_tiles<true, false, kTiles>)
               : reinterpret_cast<const void*>(&gemm_few_tiles<false, false, kTiles>);
}

}  // namespace

const void* gemm_few_tiles_function(bool nvfp4, bool bf16, int tiles) noexcept {
  switch (tiles) {
    case 3:
      return tiles_function<3>(nvfp4, bf16);
    case 5:
      return tiles_function<5>(nvfp4, bf16);
    case 6:
      return tiles_function<6>(nvfp4, bf16);
  }
  return nullptr;
}

}  // namespace fp4pa::cuda
