// Which shim computes a product on which path, for the kernels and for those who launch them.
#pragma once

#include "backends/gfx942/gemm.hpp"
#include "backends/gfx950/gemm.hpp"
#include "hip/gemm.hpp"

namespace fp4pa::hip {

inline constexpr int kGemmThreads = 256;

template <GemmPath path, int kXTiles, class E, class F16Atom>
struct GemmShimOf {
  using Type = gfx942::GemmDecodeShim<path == GemmPath::kDecodeNvfp4, kXTiles, F16Atom, E>;
};
template <int kXTiles, class E, class F16Atom>
struct GemmShimOf<GemmPath::kNativeMxfp4, kXTiles, E, F16Atom> {
  using Type = gfx950::GemmShim<kXTiles, E>;
};

}  // namespace fp4pa::hip
