// Which shim computes a product on which path, for the kernels and for those who launch them.
#pragma once

#include "backends/gfx942/atoms.hpp"
#include "backends/gfx942/gemm.hpp"
#include "backends/gfx950/convert.hpp"
#include "backends/gfx950/gemm.hpp"
#include "backends/gfx950/gemm_terms.hpp"
#include "hip/gemm_path.hpp"

namespace fp4pa::hip {

/// What a chip decodes W by.
struct Gfx942Decode {
  using Atom = gfx942::MfmaF32_16x16x16_F16;
  using Codes = gfx942::TableCodes;
};
struct Gfx950Decode {
  using Atom = gfx950::MfmaF32_16x16x32<core::F16>;
  using Codes = gfx950::ConvertedCodes;
};

template <GemmPath path, int kXTiles, class E, class Decode>
struct GemmShimOf {
  using Type = gfx942::GemmDecodeShim<path == GemmPath::kDecodeNvfp4, kXTiles, typename Decode::Atom, E, typename Decode::Codes>;
};
template <int kXTiles, class E, class Decode>
struct GemmShimOf<GemmPath::kNativeMxfp4, kXTiles, E, Decode> {
  using Type = gfx950::GemmShim<kXTiles, E>;
};

template <int kXTiles, class E, class Decode>
struct GemmShimOf<GemmPath::kTermsMxfp4, kXTiles, E, Decode> {
  using Type = gfx950::GemmTermsShim<kXTiles, E>;
};

/// As much of an Exec as a block's sizes depend on.
struct SizesOfWave {
  static constexpr int kLanes = 64;
  struct Lane {
    int id;
  };
  template <class T>
  struct PerLane {
    T value;
  };
};
/// For sizes; those of gfx942's kernels are the same.
template <GemmPath path, int kXTiles>
using GemmSizes = typename GemmShimOf<path, kXTiles, SizesOfWave, Gfx950Decode>::Type;
template <GemmPath path, int kXTiles>
inline constexpr int gemm_threads = SizesOfWave::kLanes * GemmSizes<path, kXTiles>::kWarps;

}  // namespace fp4pa::hip
