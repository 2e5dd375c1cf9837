// The matrix products' kernels, one per path and number of rows, for every architecture. In the code object of one that a path
// is not for, the kernel ends at once; it is never launched there.
#include "hip/words.hpp"

#include "hip/gemm.hpp"
#include "hip/gemm_shims.hpp"
#if defined(__gfx950__)
#include "backends/gfx950/exec.hpp"
#elif defined(__gfx942__)
#include "backends/gfx942/exec.hpp"
#endif

namespace fp4pa::hip {
namespace {

#if defined(__gfx950__)
using WaveExec = gfx950::WaveExec;
using Decode = Gfx950Decode;
constexpr bool has_kernel(GemmPath path) { return path != GemmPath::kDecodeMxfp4; }
#elif defined(__gfx942__)
using WaveExec = gfx942::WaveExec;
using Decode = Gfx942Decode;
constexpr bool has_kernel(GemmPath path) { return path == GemmPath::kDecodeMxfp4 || path == GemmPath::kDecodeNvfp4; }
#endif

template <GemmPath path, int kXTiles>
__attribute__((global, visibility("hidden"), amdgpu_waves_per_eu(2),
               amdgpu_flat_work_group_size(gemm_threads<path, kXTiles>, gemm_threads<path, kXTiles>))) void
gemm([[maybe_unused]] const core::GemmParams params) {
#if defined(__HIP_DEVICE_COMPILE__)
  if constexpr (has_kernel(path)) {
    using Shim = typename GemmShimOf<path, kXTiles, WaveExec, Decode>::Type;
    FP4PA_DYNAMIC_SHARED(std::uint8_t, shared);
    WaveExec exec(shared, Shim::kWarps);
    core::GemmBlock<Shim>(exec, params, block_id(), block_id_y()).run();
  }
#endif
}

template <GemmPath path>
const void* function_for(int x_tiles) {
  switch (x_tiles) {
    case 1: return reinterpret_cast<const void*>(&gemm<path, 1>);
    case 2: return reinterpret_cast<const void*>(&gemm<path, 2>);
    default: return reinterpret_cast<const void*>(&gemm<path, 4>);
  }
}

}  // namespace

bool takes_paired_x(bool gfx950) noexcept { return gfx950 ? Gfx950Decode::Codes::kPaired : Gfx942Decode::Codes::kPaired; }

const void* gemm_function(GemmPath path, int x_tiles) noexcept {
  switch (path) {
    case GemmPath::kNativeMxfp4: return function_for<GemmPath::kNativeMxfp4>(x_tiles);
    case GemmPath::kDecodeMxfp4: return function_for<GemmPath::kDecodeMxfp4>(x_tiles);
    case GemmPath::kTermsMxfp4: return function_for<GemmPath::kTermsMxfp4>(x_tiles);
    case GemmPath::kDecodeNvfp4: break;
  }
  return function_for<GemmPath::kDecodeNvfp4>(x_tiles);
}

}  // namespace fp4pa::hip
