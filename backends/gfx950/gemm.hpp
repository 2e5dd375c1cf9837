// The shim of a matrix product of two MXFP4 operands on gfx950: codes and scales enter the instruction as they lie in memory.
//
// A stage is one instruction deep: 128 columns, of which lane (row % 16, g) holds group g: one chunk of 16 bytes and one scale.
#pragma once

#include <cstdint>

#include "backends/gfx950/atoms.hpp"
#include "core/gemm/block.hpp"

namespace fp4pa::gfx950 {

/// @tparam kTiles  of sixteen rows of X
template <int kTiles, class E>
struct GemmShim {
  using Exec = E;
  using Atom = MfmaScaleF32_16x16x128_F8f6f4<core::E2M1, core::E2M1>;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;

  static constexpr bool kFewRows = kTiles == 1;  // of X: memory rules, and more and smaller blocks keep more of it busy
  static constexpr int kWarps = kFewRows ? 2 : 4;
  static constexpr int kWTiles = kFewRows ? 1 : 2;
  static constexpr int kXTiles = kTiles;
  static constexpr int kWBytes = 64;
  static constexpr int kXBytes = 64;
  static constexpr int kRing = 3;
  static constexpr float kUnit = 1.0f;

  struct Scales {
    std::uint32_t w[kWTiles];
    std::uint32_t x[kXTiles];
  };

  /// Four rows fill the banks.
  [[nodiscard]] FP4PA_FN static constexpr int swizzle(int row, int chunk, int) { return chunk ^ (row / 4 % 4); }

  FP4PA_FN static void load_scales(E& exec, const core::GemmScales& w, const core::GemmScales& x, std::int32_t stage,
                                   PerLane<Scales>& out) {
    exec.each_lane([&](Lane lane) {
      // A group's scale in byte 0 of the lane that has the group.
      const int shift = 8 * (lane.id / 16);
      FP4PA_UNROLL
      for (int m = 0; m < kWTiles; ++m) out[lane].w[m] = w.word(exec, 16 * m + lane.id % 16, stage) >> shift;
      FP4PA_UNROLL
      for (int n = 0; n < kXTiles; ++n) out[lane].x[n] = x.word(exec, 16 * n + lane.id % 16, stage) >> shift;
    });
  }

  template <class Sums>
  FP4PA_FN static void multiply(E& exec, std::uint32_t w, std::uint32_t x, const PerLane<Scales>& scales, PerLane<Sums>& sums) {
    PerLane<std::uint32_t[kWTiles][4]> a;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int m = 0; m < kWTiles; ++m) load_group(exec, lane, w, 16 * m, a[lane][m]);
    });
    FP4PA_UNROLL
    for (int n = 0; n < kXTiles; ++n) {
      PerLane<std::uint32_t[4]> b;
      exec.each_lane([&](Lane lane) { load_group(exec, lane, x, 16 * n, b[lane]); });
      FP4PA_UNROLL
      for (int m = 0; m < kWTiles; ++m) {
        exec.template multiply_scaled<Atom, core::ScaleSelect{}, core::ScaleSelect{}>(
            [&](Lane lane) -> auto& { return sums[lane][m][n]; }, [&](Lane lane) -> auto& { return a[lane][m]; },
            [&](Lane lane) -> auto& { return b[lane]; }, [&](Lane lane) { return scales[lane].w[m]; },
            [&](Lane lane) { return scales[lane].x[n]; });
      }
    }
  }

 private:
  FP4PA_FN static void load_group(E& exec, Lane lane, std::uint32_t rows, int first, std::uint32_t (&words)[4]) {
    const int row = first + lane.id % 16;
    exec.load_shared_16(lane, rows + static_cast<std::uint32_t>(row * kWBytes + swizzle(row, lane.id / 16, 4) * 16), words);
  }
};

}  // namespace fp4pa::gfx950
