// The native matrix products' kernels, one per format and number of rows. Compiled for the 120f family alone.
#include "backends/sm120/exec.hpp"
#include "backends/sm120/gemm.hpp"
#include "cuda/gemm_native.hpp"

namespace fp4pa::cuda {
namespace {

template <bool kNvfp4, int kXTiles>
using Shim = sm120::GemmShim<kNvfp4, kXTiles, sm120::WarpExec>;

template <bool kNvfp4, int kXTiles>
__global__ void __launch_bounds__(32 * Shim<kNvfp4, kXTiles>::kWarps, 2)
    gemm_native(const __grid_constant__ core::GemmParams params) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  sm120::WarpExec exec(shared);
  const auto tile = static_cast<std::int32_t>(blockIdx.x);
  const auto batch = static_cast<std::int32_t>(blockIdx.y);
  core::GemmBlock<Shim<kNvfp4, kXTiles>>(exec, params, tile, batch).run();
}

template <bool kNvfp4, int kXTiles>
NativeGemm kernel_of() {
  using Block = core::GemmBlock<Shim<kNvfp4, kXTiles>>;
  static_assert(Block::kSharedBytes <= 48 * 1024, "more would have to be asked for");
  return {reinterpret_cast<const void*>(&gemm_native<kNvfp4, kXTiles>), Block::kRows, Block::kXRows,
          32 * Shim<kNvfp4, kXTiles>::kWarps, Block::kSharedBytes};
}

template <bool kNvfp4>
NativeGemm kernel_for(int x_tiles) {
  switch (x_tiles) {
    case 1: return kernel_of<kNvfp4, 1>();
    case 2: return kernel_of<kNvfp4, 2>();
    case 4: return kernel_of<kNvfp4, 4>();
    default: return kernel_of<kNvfp4, 8>();
  }
}

}  // namespace

NativeGemm native_gemm(bool nvfp4, int x_tiles) noexcept {
  return nvfp4 ? kernel_for<true>(x_tiles) : kernel_for<false>(x_tiles);
}

}  // namespace fp4pa::cuda
