// The matrix product's kernels, one per format, number of rows and order of X's columns.
#include "backends/sm80/gemm.hpp"
#include "cuda/gemm_kernels.hpp"

namespace fp4pa::cuda {
namespace {

template <bool kNvfp4, int kXTiles, bool kPaired>
__global__ void __launch_bounds__(sm80::gemm_rows(kXTiles), sm80::gemm_resident(kXTiles)) gemm(const __grid_constant__ sm80::GemmParams params) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  sm80::GemmBlock<kNvfp4, kXTiles, kPaired>(params, shared).run();
}

template <bool kNvfp4>
const void* function_for(int x_tiles, bool paired) {
  switch (x_tiles) {
    case 1: return paired ? reinterpret_cast<const void*>(&gemm<kNvfp4, 1, true>) : reinterpret_cast<const void*>(&gemm<kNvfp4, 1, false>);
    case 2: return paired ? reinterpret_cast<const void*>(&gemm<kNvfp4, 2, true>) : reinterpret_cast<const void*>(&gemm<kNvfp4, 2, false>);
    case 4: return paired ? reinterpret_cast<const void*>(&gemm<kNvfp4, 4, true>) : nullptr;
    case 8: return paired ? reinterpret_cast<const void*>(&gemm<kNvfp4, 8, true>) : nullptr;
  }
  return nullptr;
}

}  // namespace

const void* gemm_function(bool nvfp4, int x_tiles, bool paired) {
  return nvfp4 ? function_for<true>(x_tiles, paired) : function_for<false>(x_tiles, paired);
}

}  // namespace fp4pa::cuda
