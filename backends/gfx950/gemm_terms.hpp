// The shim of a product of an MXFP4 weight and X of 16 bits on gfx950: codes and scales of W enter the instruction as they lie in
// memory, X as three terms of E4M3 (core/gemm/terms.hpp), whose sum it is. What they leave, if anything, is multiplied in f16 with
// W decoded.
//
// A stage is one instruction deep: 128 columns. Of W lane (row % 16, g) holds group g; of a term columns 16 g and on of each half,
// chunks g and g + 4, and the scales of group g.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/gfx942/gemm.hpp"
#include "backends/gfx950/atoms.hpp"
#include "core/gemm/block.hpp"
#include "core/gemm/terms.hpp"

namespace fp4pa::gfx950 {

/// @tparam kTiles  of sixteen rows of X
template <int kTiles, class E>
struct GemmTermsShim {
  using Exec = E;
  using Atom = MfmaScaleF32_16x16x128_F8f6f4<core::E2M1, core::E4M3>;
  using RestAtom = MfmaF32_16x16x32<core::F16>;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;

  static constexpr bool kFewRows = kTiles == 1;  // of X: memory rules, and more and smaller blocks keep more of it busy
  static constexpr int kWarps = kFewRows ? 2 : 4;
  static constexpr int kWTiles = kFewRows ? 1 : 2;
  static constexpr int kXTiles = kTiles;
  static constexpr int kWBytes = 64;
  static constexpr int kXBytes = core::kTermStageBytes;
  static constexpr int kRing = kTiles <= 2 ? 3 : 2;  // two blocks find room in shared memory
  static constexpr float kUnit = 1.0f;
  static constexpr bool kUsesRest = true;

  struct Scales {
    std::uint32_t w[kWTiles];
    std::uint32_t x[kXTiles];  // all terms' and the rest's
  };

  /// Four rows of W fill the banks; of X two thirds of a row, so that two rows begin in different halves.
  [[nodiscard]] FP4PA_FN static constexpr int swizzle(int row, int chunk, int chunks) {
    return chunks == 4 ? chunk ^ (row / 4 % 4) : chunk ^ (row / 2 % 8);
  }

  FP4PA_FN static void load_scales(E& exec, const core::GemmScales& w, const core::GemmScales& x, std::int32_t stage,
                                   PerLane<Scales>& out) {
    exec.each_lane([&](Lane lane) {
      const int g = lane.id / 16;
      FP4PA_UNROLL
      for (int m = 0; m < kWTiles; ++m) out[lane].w[m] = w.word(exec, 16 * m + lane.id % 16, stage) >> (8 * g);
      FP4PA_UNROLL
      for (int n = 0; n < kXTiles; ++n) out[lane].x[n] = x.template word<true>(exec, 16 * n + lane.id % 16, 4 * stage + g);
    });
  }

  template <class Sums>
  FP4PA_FN static void multiply(E& exec, std::uint32_t w, std::uint32_t x, const PerLane<Scales>& scales, PerLane<Sums>& sums) {
    PerLane<std::uint32_t[kWTiles][4]> a;
    exec.each_lane([&](Lane lane) {
      const int row = lane.id % 16;
      FP4PA_UNROLL
      for (int m = 0; m < kWTiles; ++m) exec.load_shared_16(lane, w_address(w, 16 * m + row, lane.id / 16), a[lane][m]);
    });
    FP4PA_UNROLL
    for (int n = 0; n < kXTiles; ++n) {
      FP4PA_UNROLL
      for (int term = 0; term < core::kXTerms; ++term) {
        PerLane<std::uint32_t[8]> b;
        exec.each_lane([&](Lane lane) {
          const int row = 16 * n + lane.id % 16;
          FP4PA_UNROLL
          for (int half = 0; half < 2; ++half) {
            std::uint32_t words[4];
            const int chunk = swizzle(row, 8 * term + 4 * half + lane.id / 16, 24);
            exec.load_shared_16(lane, x + static_cast<std::uint32_t>(row * kXBytes + chunk * 16), words);
            FP4PA_UNROLL
            for (int i = 0; i < 4; ++i) b[lane][4 * half + i] = words[i];
          }
        });
        FP4PA_UNROLL
        for (int m = 0; m < kWTiles; ++m) {
          exec.template multiply_scaled<Atom, core::ScaleSelect{}, core::ScaleSelect{}>(
              [&](Lane lane) -> auto& { return sums[lane][m][n]; }, [&](Lane lane) -> auto& { return a[lane][m]; },
              [&](Lane lane) -> auto& { return b[lane]; }, [&](Lane lane) { return scales[lane].w[m]; },
              [&](Lane lane) { return scales[lane].x[n] >> (8 * term); });
        }
      }
    }
  }

  /// Rare: nothing of it is staged or asked for ahead. Blocks of 32 columns; of one a lane holds columns 8g to 8g + 7, as decoding
  /// pairs them, and scales multiply its sums.
  template <class Sums>
  FP4PA_FN static void multiply_rest(E& exec, std::uint32_t w, const core::GemmScales& w_scales, const core::GemmScales& x_scales,
                                     const core::GemmRest& rest, std::int32_t stage, const PerLane<Scales>& scales,
                                     PerLane<Sums>& sums) {
    const auto of_all = [&](Lane lane) {
      std::uint32_t all = 0;
      FP4PA_UNROLL
      for (int n = 0; n < kXTiles; ++n) all |= scales[lane].x[n];
      return all >> 24 != 0;
    };
    if (!exec.any(of_all)) return;
    FP4PA_NO_UNROLL
    for (int block = 0; block < 4; ++block) {
      if (!exec.any([&](Lane lane) { return lane.id / 16 == block && of_all(lane); })) continue;
      PerLane<std::uint32_t[kWTiles][4]> a;
      PerLane<float[kWTiles][4]> w_factor;  // of the rows whose sums the lane has
      exec.each_lane([&](Lane lane) {
        const int id = core::anew<E>(lane.id);  // else addresses for this are kept in the loop's registers
        const int g = id / 16;
        FP4PA_UNROLL
        for (int m = 0; m < kWTiles; ++m) {
          const std::uint32_t at = w_address(w, 16 * m + id % 16, block) + static_cast<std::uint32_t>(4 * g);
          gfx942::e2m1_to_f16(exec.template load_shared<std::uint32_t>(lane, at), a[lane][m]);
          FP4PA_UNROLL
          for (int v = 0; v < 4; ++v) {
            w_factor[lane][m][v] = gfx942::e8m0_exact(w_scales.one(exec, 16 * m + 4 * g + v, 4 * stage + block), 0);
          }
        }
      });
      FP4PA_UNROLL
      for (int n = 0; n < kXTiles; ++n) {
        if (!exec.any([&](Lane lane) { return lane.id / 16 == block && scales[lane].x[n] >> 24 != 0; })) continue;
        PerLane<std::uint32_t[4]> b;
        PerLane<float> x_factor;
        exec.each_lane([&](Lane lane) {
          const int id = core::anew<E>(lane.id);
          const int row = 16 * n + id % 16;
          const std::uint32_t scale = x_scales.one(exec, row, 4 * (4 * stage + block) + 3);
          const std::uint16_t* const from = rest.at(row, 128 * std::int64_t{stage} + 32 * block + 8 * (id / 16));
          x_factor[lane] = std::bit_cast<float>(scale << 23);
          FP4PA_UNROLL
          for (int i = 0; i < 4; ++i) b[lane][i] = scale != 0 ? exec.template load_global<std::uint32_t>(from + 2 * i) : 0;
        });
        FP4PA_UNROLL
        for (int m = 0; m < kWTiles; ++m) {
          PerLane<float[4]> part;
          exec.each_lane([&](Lane lane) {
            FP4PA_UNROLL
            for (int v = 0; v < 4; ++v) part[lane][v] = 0.0f;
          });
          exec.template multiply<RestAtom>([&](Lane lane) -> auto& { return part[lane]; },
                                           [&](Lane lane) -> auto& { return a[lane][m]; },
                                           [&](Lane lane) -> auto& { return b[lane]; });
          exec.each_lane([&](Lane lane) {
            FP4PA_UNROLL
            for (int v = 0; v < 4; ++v) {
              float& sum = sums[lane][m][n][v];
              sum = __builtin_fmaf(w_factor[lane][m][v], part[lane][v] * x_factor[lane], sum);
            }
          });
        }
      }
    }
  }

 private:
  FP4PA_FN static std::uint32_t w_address(std::uint32_t rows, int row, int chunk) {
    return rows + static_cast<std::uint32_t>(row * kWBytes + swizzle(row, chunk, 4) * 16);
  }
};

}  // namespace fp4pa::gfx950
