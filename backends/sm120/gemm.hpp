// The shim of a matrix product of two FP4 operands on SM120: codes and scales enter the instruction as they lie in memory.
//
// A stage is 128 columns: two instructions deep, four chunks of 16 bytes a row, four scales (MXFP4) or eight (NVFP4) of each
// row. ldmatrix gives the operands' registers: lane (g, t) has codes 8t to 8t + 7 of a chunk of row g. With two tiles of W's
// rows a warp has 32, of which lane (g, t) holds the scales of row g + 8t; thread-id 0 reads rows g and g + 8, 1 the others.
// Of four tiles of X's rows it holds those of row g of tile t. So one load a word of scales, and no lane holds any twice.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/sm120/atoms.hpp"
#include "backends/sm120/convert.hpp"
#include "core/gemm/block.hpp"

namespace fp4pa::sm120 {

/// @tparam kTiles  of eight rows of X
template <bool kNvfp4, int kTiles, class E>
struct GemmShim {
  using Exec = E;
  using Atom = std::conditional_t<kNvfp4, MmaMxf4nvf4Ue4m3M16N8K64, MmaMxf4M16N8K64>;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;

  static constexpr bool kFewRows = kTiles <= 2;  // of X: memory rules, and more and smaller blocks keep more of it busy
  static constexpr int kWarps = kFewRows ? 2 : 4;
  static constexpr int kWTiles = 2;
  static constexpr int kXTiles = kTiles;
  static constexpr int kWBytes = 64;
  static constexpr int kXBytes = 64;
  static constexpr int kRing = kFewRows ? 4 : 3;
  static constexpr float kUnit = 1.0f;
  static constexpr int kSteps = 2 * kWBytes / Atom::kK;
  static constexpr int kWords = kNvfp4 ? 2 : 1;  // of a row's scales of a stage

  struct Scales {
    std::uint32_t w[kWords];
    std::uint32_t x[(kXTiles + 3) / 4][kWords];
  };

  /// Two rows fill the banks.
  [[nodiscard]] FP4PA_FN static constexpr int swizzle(int row, int chunk, int) { return chunk ^ (row / 2 % 4); }

  FP4PA_FN static void load_scales(E& exec, const core::GemmScales& w, const core::GemmScales& x, std::int32_t stage,
                                   PerLane<Scales>& out) {
    exec.each_lane([&](Lane lane) {
      const int g = lane.id / 4;
      const int t = lane.id % 4;
      FP4PA_UNROLL
      for (int i = 0; i < kWords; ++i) {
        out[lane].w[i] = w.word(exec, g + 8 * t, stage * kWords + i);
        FP4PA_UNROLL
        for (int four = 0; four < (kXTiles + 3) / 4; ++four) {
          const int tile = 4 * four + t;
          out[lane].x[four][i] = tile < kXTiles ? x.word(exec, 8 * tile + g, stage * kWords + i) : 0;
        }
      }
    });
  }

  template <class Sums>
  FP4PA_FN static void multiply(E& exec, std::uint32_t w, std::uint32_t x, const PerLane<Scales>& scales, PerLane<Sums>& sums) {
    PerLane<std::uint32_t[kWTiles][kSteps][4]> a;
    FP4PA_UNROLL
    for (int i = 0; i < kWTiles * kSteps; ++i) {
      const int m = i / kSteps;
      const int step = i % kSteps;
      // Registers 0 and 1: rows 0-7 and 8-15 of the first half of k; 2 and 3 of the second.
      exec.template load_matrix<false>(
          [&](Lane lane) { return offset(w, 16 * m + lane.id % 16, 2 * step + lane.id / 16); },
          [&](Lane lane) -> auto& { return a[lane][m][step]; });
    }
    for_constants<kXTiles>([&](auto n) {
      PerLane<std::uint32_t[kSteps][2]> b;
      load_x(exec, x + 8 * n.value * kXBytes, b);
      for_constants<kSteps>([&](auto step) {
        for_constants<kWTiles>([&](auto m) {
          constexpr int kByte = kNvfp4 ? 0 : 2 * step.value;
          constexpr core::ScaleSelect kSelectW{kByte, m.value};
          constexpr core::ScaleSelect kSelectX{kByte, n.value % 4};
          constexpr int kWord = kNvfp4 ? step.value : 0;
          exec.template multiply_scaled<Atom, kSelectW, kSelectX>(
              [&](Lane lane) -> auto& { return sums[lane][m.value][n.value]; },
              [&](Lane lane) -> auto& { return a[lane][m.value][step.value]; },
              [&](Lane lane) -> auto& { return b[lane][step.value]; }, [&](Lane lane) { return scales[lane].w[kWord]; },
              [&](Lane lane) { return scales[lane].x[n.value / 4][kWord]; });
        });
      });
    });
  }

 private:
  [[nodiscard]] FP4PA_FN static std::uint32_t offset(std::uint32_t rows, int row, int chunk) {
    return rows + static_cast<std::uint32_t>(row * kWBytes + swizzle(row, chunk, 4) * 16);
  }
  /// Eight rows of X: all four chunks, which are two registers a step.
  FP4PA_FN static void load_x(E& exec, std::uint32_t rows, PerLane<std::uint32_t[kSteps][2]>& b) {
    PerLane<std::uint32_t[4]> words;
    exec.template load_matrix<false>([&](Lane lane) { return offset(rows, lane.id % 8, lane.id / 8); },
                                     [&](Lane lane) -> auto& { return words[lane]; });
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) b[lane][i / 2][i % 2] = words[lane][i];
    });
  }
};

}  // namespace fp4pa::sm120
