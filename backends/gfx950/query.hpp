// Queries of the native path: E4M3 with an E8M0 scale for every 32 dims, as the block-scaled instruction takes B.
//
// A query is the sum of up to kTerms such operands: what one term's rounding left is the next, in a unit of 2^-4 of the one
// before. E4M3 has four significant bits, and the sign of the rest is a fifth: two terms are a bf16 exactly, three an f16 (of
// elements within 2^-14 and 2^-18 of their block's largest). Each costs as many matrix instructions as the first, so that a
// product takes the third only where queries need it (query_terms).
//
//   codes   [term][row tile][64 dims][lane][16 bytes]   lane 16 g + n has dims 16 g .. 16 g + 15 of query n: the lower or the
//                                                       upper half of its operand, whose k = 16 g + j%16 + 64 (j/16)
//   scales  [term][row tile][128 dims][lane]            lane 16 b + n has the scale of block b of query n
#pragma once

#include <bit>
#include <cstdint>

#include "backends/gfx942/staging.hpp"
#include "backends/gfx950/convert.hpp"
#include "core/simt/key_stream.hpp"
#include "core/simt/query.hpp"

namespace fp4pa::gfx950 {

/// The lane, for addresses: computed anew for every tile where an instance has no registers to keep them in, with the outputs of
/// 256 dims or a second segment beside; and with 64 dims, where keeping them had the compiler reserve scratch memory that it did
/// not use.
template <core::SimtConfig kConfig, class E>
[[nodiscard]] FP4PA_FN typename E::Lane address_lane(const E&, typename E::Lane lane) {
  if constexpr (kConfig.head_dim != 128 || kConfig.segments > 1) return core::lane_anew<E>(lane);
  return lane;
}

/// Operands that a query is the sum of.
[[nodiscard]] FP4PA_FN int native_query_terms(DType query, Rotation rotation) {
  return query == DType::kBF16 && rotation == Rotation::kNone ? 2 : 3;
}

/// @tparam Shim  kConfig, whose terms are the most that there is room for, and Exec
template <class Shim>
struct NativeQuery {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kHalves = kConfig.head_dim / 64;         // of 64 dims
  static constexpr int kGroups = (kConfig.head_dim + 127) / 128;  // of an instruction's depth
  static constexpr int kTerms = kConfig.terms;
  static constexpr int kTermLog2 = -4;
  static constexpr int kBytes = kTerms * kRowTiles * (kHalves * 16 + kGroups) * 64;

  struct Registers {
    std::uint32_t code[kTerms][kRowTiles][kHalves][4];
    std::uint32_t scale[kTerms][kRowTiles][kGroups];
  };

  FP4PA_FN static std::uint32_t code_address(std::uint32_t query, int term, int tile, int half, int lane) {
    return query + static_cast<std::uint32_t>((((term * kRowTiles + tile) * kHalves + half) * E::kLanes + lane) * 16);
  }
  FP4PA_FN static std::uint32_t scale_address(std::uint32_t query, int term, int tile, int group, int lane) {
    return code_address(query, kTerms, 0, 0, 0) +
           static_cast<std::uint32_t>(((term * kRowTiles + tile) * kGroups + group) * E::kLanes + lane);
  }

  /// Rounds one row from f32 in `scratch`: a lane takes four neighbouring dims, eight lanes a block of 32.
  FP4PA_FN static void store_row(E& exec, std::uint32_t scratch, std::uint32_t query, int row, float multiplier) {
    PerLane<float[4]> value;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int dim = 4 * lane.id + i;
        value[lane][i] =
            dim < kConfig.head_dim ? exec.template load_shared<float>(lane, scratch + 4 * dim) * multiplier : 0.0f;
      }
    });
    const PerLane<std::uint32_t> largest = core::largest_of_quads<8>(exec, value);
    exec.each_lane([&](Lane lane) {
      const int first = 4 * lane.id;
      if (first >= kConfig.head_dim) return;
      const int column = row % 16;
      // NaN and infinity make the scale NaN, and it the scores.
      const bool finite = largest[lane] < core::kFloatInfBits;
      int log2 = scale_log2(largest[lane]);
      FP4PA_UNROLL
      for (int term = 0; term < kTerms; ++term) {
        const std::uint32_t codes = pack_e4m3(scaled(value[lane][0], -log2), scaled(value[lane][1], -log2),
                                              scaled(value[lane][2], -log2), scaled(value[lane][3], -log2));
        exec.template store_shared<std::uint32_t>(
            lane, code_address(query, term, row / 16, first / 64, column + 16 * (first / 16 % 4)) + first % 16, codes);
        if (lane.id % 8 == 0) {
          const auto byte = static_cast<std::uint8_t>(finite ? log2 + 127 : 0xff);
          exec.template store_shared<std::uint8_t>(
              lane, scale_address(query, term, row / 16, first / 128, column + 16 * (first / 32 % 4)), byte);
          // Blocks that this row does not have are zeros, and must have a scale that is not NaN.
          if (kConfig.head_dim == 64) {
            exec.template store_shared<std::uint8_t>(
                lane, scale_address(query, term, row / 16, 0, column + 16 * (first / 32 + 2)), kUnitScale);
          }
        }
        float rounded[4];
        unpack_e4m3(codes, rounded);
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) value[lane][i] -= scaled(rounded[i], log2);
        log2 = log2 + kTermLog2 > -127 ? log2 + kTermLog2 : -127;
      }
    });
  }

  /// @tparam kUsed  the terms to load, from the first on
  template <int kUsed = kTerms>
  FP4PA_FN static void load(E& exec, std::uint32_t query, PerLane<Registers>& registers) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kUsed * kRowTiles; ++i) {
        const int term = i / kRowTiles;
        const int tile = i % kRowTiles;
        FP4PA_UNROLL
        for (int half = 0; half < kHalves; ++half) {
          exec.load_shared_16(lane, code_address(query, term, tile, half, lane.id), registers[lane].code[term][tile][half]);
        }
        FP4PA_UNROLL
        for (int group = 0; group < kGroups; ++group) {
          registers[lane].scale[term][tile][group] =
              exec.template load_shared<std::uint8_t>(lane, scale_address(query, term, tile, group, lane.id));
        }
      }
    });
  }

 private:
  /// log2 of the least power of two that brings a block's largest element, given by its bits, to at most 448.
  FP4PA_FN static int scale_log2(std::uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 23) - 127;
    const int log2 = exponent - 8 + ((bits & 0x007fffffu) > 0x00600000u ? 1 : 0);
    return log2 < -127 ? -127 : log2;
  }
  /// x 2^n; n may be as large as 127 and what is left of the scale's range.
  FP4PA_FN static float scaled(float x, int n) { return x * core::exp2_exact(n / 2) * core::exp2_exact(n - n / 2); }
};

}  // namespace fp4pa::gfx950
