// Keys and values of a staged tile as A of wgmma, decoded in registers: each code once for all query rows of a block.
//
// A warp has 16 rows of A. They are 16 of the tile's 64 keys in S^T = K Q^T, and in O^T += V^T P twice 16 of the 32
// dims that make one chunk of codes and one block of scales. What a lane holds of A is what mma.m16n8k16's lane does,
// so that words of ldmatrix decode to operands as in sm80/key_product.hpp and sm80/value_product.hpp, with the same
// orders of dims:
//
//   K  register r of step 2b + s: key lane / 4 + 8 (r % 2), pair 2s + r / 2 of block b: dims 8t + pair and 4 more
//   V  register r of m: dim 4 (lane / 4) + 2m + r % 2, tokens 2t and 2t + 1 of octet r / 2 of the step
//
// Scales are multiplied into what was decoded, exactly (group_scales.hpp, sm80/scale_form.hpp).
#pragma once

#include <cstdint>

#include "backends/sm90/group_scales.hpp"

namespace fp4pa::sm90 {

template <core::SimtConfig kConfig, class E>
struct GroupOperands {
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Layout = GroupLayout<kConfig>;
  static constexpr core::TileLayout kTile = Layout::kTile;
  static constexpr int kKeySteps = kConfig.head_dim / kStep;
  static constexpr int kValueSteps = kConfig.tile_keys / kStep;
  static_assert(kConfig.head_dim == 128 && kConfig.tile_keys == 64 && kConfig.warps == kGroupWarps);
  static_assert(core::is_fp4(kConfig.k[0]) && core::is_fp4(kConfig.v[0]));

  using Keys = std::uint32_t[kKeySteps][4];
  using Values = std::uint32_t[kValueSteps][2][4];

  /// @param bias  of the factors, see factor_bias
  FP4PA_FN static void decode_keys(E& exec, std::uint32_t tile, std::uint32_t bias, PerLane<Keys>& a) {
    constexpr KvKind kKind = kConfig.k[0];
    PerLane<std::uint32_t[4]> words[2];  // of two blocks: octets 0 and 1 of the first, then of the second
    FP4PA_UNROLL
    for (int i = 0; i < 2; ++i) {
      exec.template load_matrix<false>(
          [&](Lane lane) {
            const int key = 16 * exec.warp() + lane.id % 16;
            return sm80::chunk_offset(sm80::row_offset(tile, key, kTile.k_chunks), 2 * i + lane.id / 16);
          },
          [&](Lane lane) -> auto& { return words[i][lane]; });
    }
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int o = 0; o < 2; ++o) {
        std::uint32_t factors[4];
        load_key_factors(exec, lane, tile, 16 * exec.warp() + 8 * o + lane.id / 4, bias, factors);
        FP4PA_UNROLL
        for (int block = 0; block < 4; ++block) {
          std::uint32_t pairs[4];
          sm80::decode_word<kKind>(words[block / 2][lane][block % 2 * 2 + o], 0, false, pairs);
          FP4PA_UNROLL
          for (int p = 0; p < 4; ++p)
            a[lane][2 * block + p / 2][o + p % 2 * 2] = sm80::multiply_f16(pairs[p], factors[block]);
        }
      }
    });
  }

  FP4PA_FN static void decode_values(E& exec, std::uint32_t tile, std::uint32_t bias, PerLane<Values>& a) {
    constexpr KvKind kKind = kConfig.v[0];
    FP4PA_UNROLL
    for (int strip = 0; strip < 2; ++strip) {
      PerLane<std::uint32_t[4]> words;
      exec.template load_matrix<true>(
          [&](Lane lane) {
            const std::uint32_t row = sm80::row_offset(tile + static_cast<std::uint32_t>(kTile.v_codes),
                                                       32 * strip + lane.id, kTile.v_chunks);
            return sm80::chunk_offset(row, exec.warp());
          },
          [&](Lane lane) -> auto& { return words[lane]; });
      exec.each_lane([&](Lane lane) {
        const int index = kKind == KvKind::kNvfp4 ? 2 * exec.warp() + lane.id / 16 : exec.warp();
        std::uint32_t factors[4];
        exec.load_shared_16(
            lane,
            tile + static_cast<std::uint32_t>(
                       kTile.v_scales + GroupScales::value_offset(kKind, kConfig.head_dim, strip, index, lane.id % 4)),
            factors);
        FP4PA_UNROLL
        for (int o = 0; o < 4; ++o) {
          std::uint32_t pairs[4];
          sm80::decode_word<kKind>(words[lane][o], 0, true, pairs);
          const std::uint32_t factor = has_windows(kKind) ? factor_pair(factors[o], bias) : factors[o];
          FP4PA_UNROLL
          for (int p = 0; p < 4; ++p) {
            a[lane][2 * strip + o / 2][p / 2][p % 2 + o % 2 * 2] = sm80::multiply_f16(pairs[p], factor);
          }
        }
      });
    }
  }

 private:
  /// Of the four blocks of dims of a key, in both halves.
  FP4PA_FN static void load_key_factors(E& exec, Lane lane, std::uint32_t tile, int key, std::uint32_t bias,
                                        std::uint32_t (&factors)[4]) {
    constexpr KvKind kKind = kConfig.k[0];
    const std::uint32_t at = tile + static_cast<std::uint32_t>(kTile.k_scales + key * kTile.k_scale_pitch);
    if constexpr (kKind == KvKind::kNvfp4) {
      const int half = lane.id % 4 / 2 * GroupScales::half_pitch(kConfig.head_dim);
      exec.load_shared_16(lane, at + 4 * static_cast<std::uint32_t>(half), factors);
    } else {
      const auto word = exec.template load_shared<std::uint32_t>(lane, at);
      FP4PA_UNROLL
      for (int block = 0; block < 4; ++block) factors[block] = factor_pair(spread_byte(word, block), bias);
    }
  }
};

}  // namespace fp4pa::sm90
