// The shim of a matrix product that decodes W to f16, for gfx942 and gfx950: X is f16, as prepared by kernels/gemm_quantize.hpp.
//
// A stage is 128 columns, four blocks of 32. Of a block lane (row % 16, g) holds columns 8g to 8g + 7, in the order that decoding
// gives: by table column c beside c + 4, by gfx950's conversions each beside the next. NVFP4's scales are multiplied into the decoded
// f16 (six bits, 2^-10 to 2688: nothing is lost); MXFP4's multiply the f32 sums of their 32 columns, which holds for every scale.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/gfx942/convert.hpp"
#include "core/gemm/block.hpp"

namespace fp4pa::gfx942 {

/// Byte `index` of a word as an E8M0 scale: to the bit, but that 2^-127 becomes 0. 255 is infinity as it stands, and infinity
/// times 0 makes it NaN.
FP4PA_FN float e8m0_exact(std::uint32_t word, int index) {
  const float scale = std::bit_cast<float>((word >> (8 * index) & 0xffu) << 23);
  return __builtin_fmaf(scale, 0.0f, scale);
}

/// How a word of W's codes becomes f16.
struct TableCodes {
  static constexpr bool kPaired = true;  // column c beside c + 4, as X has to be
  FP4PA_FN static void to_f16(std::uint32_t codes, std::uint32_t (&pairs)[4]) { e2m1_to_f16(codes, pairs); }
};

/// @tparam kTiles  of sixteen rows of X
/// @tparam A       a product of f16, 16 x 16 x 16 or 16 x 16 x 32
template <bool kNvfp4, int kTiles, class A, class E, class Codes = TableCodes>
struct GemmDecodeShim {
  using Exec = E;
  using Atom = A;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;

  static constexpr bool kFewRows = kTiles == 1;  // of X: memory rules, and more and smaller blocks keep more of it busy
  static constexpr int kWarps = kFewRows ? 2 : 4;
  static constexpr int kWTiles = kFewRows ? 1 : 2;
  static constexpr int kXTiles = kTiles;
  static constexpr int kWBytes = 64;
  static constexpr int kXBytes = 256;
  static constexpr int kRing = kTiles <= 2 ? 3 : 2;  // gfx942 has 64 KB of shared memory
  static constexpr float kUnit = 1.0f;
  static constexpr bool kPaired = Codes::kPaired;
  static constexpr int kBlocks = 4;
  static constexpr int kParts = 32 / Atom::kK;  // instructions of a block
  static constexpr int kPartWords = 4 / kParts;

  /// NVFP4: of the row that the lane decodes. MXFP4: of the four rows whose sums it has.
  static constexpr int kScaleRows = kNvfp4 ? 1 : 4;
  static constexpr int kScaleWords = kNvfp4 ? 2 : 1;
  struct Scales {
    std::uint32_t w[kWTiles][kScaleRows][kScaleWords];
  };

  [[nodiscard]] FP4PA_FN static constexpr int swizzle(int row, int chunk, int chunks) {
    return chunks == 4 ? chunk ^ (row / 4 % 4) : chunk ^ (row % 16);
  }

  FP4PA_FN static void load_scales(E& exec, const core::GemmScales& w, const core::GemmScales&, std::int32_t stage,
                                   PerLane<Scales>& out) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int m = 0; m < kWTiles; ++m) {
        FP4PA_UNROLL
        for (int r = 0; r < kScaleRows; ++r) {
          const int row = 16 * m + (kNvfp4 ? lane.id % 16 : lane.id / 16 * 4 + r);
          FP4PA_UNROLL
          for (int i = 0; i < kScaleWords; ++i) out[lane].w[m][r][i] = w.word(exec, row, stage * kScaleWords + i);
        }
      }
    });
  }

  template <class Sums>
  FP4PA_FN static void multiply(E& exec, std::uint32_t w, std::uint32_t x, const PerLane<Scales>& scales, PerLane<Sums>& sums) {
    PerLane<std::uint32_t[kWTiles][kScaleWords]> twice;  // NVFP4
    if constexpr (kNvfp4) {
      exec.each_lane([&](Lane lane) {
        // Of a word, two blocks' scales: those of the lane's half of each, twice.
        const std::uint32_t bytes = lane.id < 32 ? 0x02020000u : 0x03030101u;
        FP4PA_UNROLL
        for (int i = 0; i < kWTiles * kScaleWords; ++i) {
          twice[lane][i / kScaleWords][i % kScaleWords] =
              permute_bytes(0, scales[lane].w[i / kScaleWords][0][i % kScaleWords], bytes) & 0x7f7f7f7fu;
        }
      });
    }
    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      PerLane<std::uint32_t[kWTiles][kParts][kPartWords]> a;
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int m = 0; m < kWTiles; ++m) decode(exec, lane, w, 16 * m + lane.id % 16, block, twice[lane][m], a[lane][m]);
      });
      FP4PA_UNROLL
      for (int n = 0; n < kXTiles; ++n) {
        PerLane<std::uint32_t[kParts][kPartWords]> b;
        exec.each_lane([&](Lane lane) {
          const int row = 16 * n + lane.id % 16;
          std::uint32_t words[4];
          const int chunk = swizzle(row, 4 * block + lane.id / 16, 16);
          exec.load_shared_16(lane, x + static_cast<std::uint32_t>(row * kXBytes + chunk * 16), words);
          FP4PA_UNROLL
          for (int i = 0; i < 4; ++i) b[lane][i / kPartWords][i % kPartWords] = words[i];
        });
        FP4PA_UNROLL
        for (int m = 0; m < kWTiles; ++m) {
          if constexpr (kNvfp4) {
            multiply_block(
                exec, [&](Lane lane) -> auto& { return sums[lane][m][n]; }, [&](Lane lane) -> auto& { return a[lane][m]; }, b);
          } else {
            PerLane<float[4]> part;
            exec.each_lane([&](Lane lane) {
              FP4PA_UNROLL
              for (int v = 0; v < 4; ++v) part[lane][v] = 0.0f;
            });
            multiply_block(
                exec, [&](Lane lane) -> auto& { return part[lane]; }, [&](Lane lane) -> auto& { return a[lane][m]; }, b);
            exec.each_lane([&](Lane lane) {
              FP4PA_UNROLL
              for (int v = 0; v < 4; ++v) {
                float& sum = sums[lane][m][n][v];
                sum = __builtin_fmaf(e8m0_exact(scales[lane].w[m][v][0], block), part[lane][v], sum);
              }
            });
          }
        }
      }
    }
  }

 private:
  template <class D, class Words>
  FP4PA_FN static void multiply_block(E& exec, D&& d, Words&& a, const PerLane<std::uint32_t[kParts][kPartWords]>& b) {
    FP4PA_UNROLL
    for (int i = 0; i < kParts; ++i) {
      exec.template multiply<Atom>(
          d, [&](Lane lane) -> auto& { return a(lane)[i]; }, [&](Lane lane) -> auto& { return b[lane][i]; });
    }
  }

  /// Eight columns of a row of W.
  /// @param scales  NVFP4's, of the lane's halves of the blocks, twice each
  FP4PA_FN static void decode(E& exec, Lane lane, std::uint32_t rows, int row, int block,
                              [[maybe_unused]] const std::uint32_t (&scales)[kScaleWords],
                              std::uint32_t (&out)[kParts][kPartWords]) {
    const int g = lane.id / 16;
    const std::uint32_t at = rows + static_cast<std::uint32_t>(row * kWBytes + swizzle(row, block, 4) * 16 + 4 * g);
    std::uint32_t pairs[4];
    Codes::to_f16(exec.template load_shared<std::uint32_t>(lane, at), pairs);
    if constexpr (kNvfp4) {
      const std::uint32_t factor = block % 2 == 0 ? e4m3_to_f16<0>(scales[block / 2]) : e4m3_to_f16<1>(scales[block / 2]);
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) pairs[i] = multiply_f16(pairs[i], factor);
    }
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) out[i / kPartWords][i % kPartWords] = pairs[i];
  }
};

}  // namespace fp4pa::gfx942
