// S = Q K^T on a staged tile for 16 and 32 query rows: queries are the rows of A, keys the columns of B.
//
// What a lane holds of keys is what it holds of them as A (key_product.hpp), which is B's for twice as many keys: octet o is an
// instruction of its own, of eight keys. The query lies in shared memory as a lane takes it, a step of 16 dims a load. NVFP4's scales
// are multiplied into the decoded keys, once for all rows, as in key_product.hpp. So are E8M0's with 128 dims, within windows
// (key_windows.hpp); with 64, where registers are not short, they multiply the f32 sums of their blocks.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "backends/sm80/key_product.hpp"
#include "backends/sm80/key_windows.hpp"

namespace fp4pa::sm80 {

/// Whether keys' scales are factors within windows.
[[nodiscard]] constexpr bool rows_have_windows(KvKind kind, int head_dim) { return kind == KvKind::kMxfp4 && head_dim == 128; }

[[nodiscard]] FP4PA_FN constexpr core::QueryForm rows_query_form(KvKind kind, bool windows) {
  if (windows) return {10, static_cast<float>(1 << kKeyUnitLog2), false};
  return key_query_form(kind);
}

template <class Shim>
struct RowsKeyProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kBlocks = kConfig.head_dim / core::kDimBlock;
  static constexpr int kStrips = kConfig.tile_keys / 32;
  static constexpr bool kWindows = rows_have_windows(kConfig.k[0], kConfig.head_dim);
  /// Blocks that have sums of their own.
  static constexpr bool kScalesSums = scales_blocks(kConfig.k[0]) && !kWindows;
  static_assert(kConfig.exact_head_dim && kConfig.plain && kConfig.terms == 1 && (kStrips == 1 || !kWindows) &&
                (kBlocks == 2 || (kBlocks == 4 && !kScalesSums)));

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Stream& stream, std::uint32_t query, std::uint32_t scratch, Scores& scores) {
    static_assert(kKind == KvKind::kMxfp4 || kKind == KvKind::kNvfp4 || kKind == KvKind::kFp8 || kKind == KvKind::kBf16);
    each_sum(exec, scores, [](float& sum) { sum = 0.0f; });
    if constexpr (!kWindows) {
      FP4PA_UNROLL
      for (int strip = 0; strip < kStrips; ++strip) add_products<kKind>(exec, stream, query, strip, scores);
    } else {
      KeyWindows<E> windows(exec, stream.tile_offset() + static_cast<std::uint32_t>(stream.layout().k_scales), scratch);
      FP4PA_NO_UNROLL
      while (true) {
        add_products<kKind>(exec, stream, query, 0, scores);
        if (windows.done()) return;
        const int change = windows.next();
        const float low = core::exp2_exact(change / 2);
        const float high = core::exp2_exact(change - change / 2);
        each_sum(exec, scores, [=](float& sum) { sum = sum * low * high; });
        if (windows.done()) return;
      }
    }
  }

 private:
  template <class Scores, class F>
  FP4PA_FN static void each_sum(E& exec, Scores& scores, F&& f) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kStrips * 16 * kRowTiles; ++i) f(scores[lane][i / (4 * kRowTiles)][i / 4 % kRowTiles][i % 4]);
    });
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void add_products(E& exec, const Stream& stream, std::uint32_t query, int strip, Scores& scores) {
    constexpr int kChunks = 4 / core::per_halfword(kKind);
    PerLane<std::uint32_t> row;
    exec.each_lane([&](Lane lane) { row[lane] = row_of_key(stream, lane, stream.tile_offset(), strip, stream.layout().k_chunks); });
    PerLane<std::uint32_t[4][2]> factors;  // of key lane / 4 of the octets, for two blocks
    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      if constexpr (kWindows || kKind == KvKind::kNvfp4) {
        if (block % 2 == 0) load_factors<kKind>(exec, stream, strip, block, factors);
      }
      PerLane<std::uint32_t[4][4]> pairs;  // [octet][pair]
      FP4PA_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        PerLane<std::uint32_t[4]> words;
        exec.template load_matrix<false>([&](Lane lane) { return chunk_offset(row[lane], block * kChunks + chunk); },
                                         [&](Lane lane) -> auto& { return words[lane]; });
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int o = 0; o < 4; ++o) {
            decode_word<kKind>(words[lane][o], chunk, false, pairs[lane][o]);
            if constexpr (kWindows || kKind == KvKind::kNvfp4) {
              FP4PA_UNROLL
              for (int p = 0; p < 4; ++p) pairs[lane][o][p] = multiply_f16(pairs[lane][o][p], factors[lane][o][block % 2]);
            }
          }
        });
      }
      if constexpr (kScalesSums) {
        PerLane<float[4][kRowTiles][4]> part;
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int i = 0; i < 16 * kRowTiles; ++i) part[lane][i / (4 * kRowTiles)][i / 4 % kRowTiles][i % 4] = 0.0f;
        });
        multiply_block<kKind>(exec, query, block, pairs, [&](Lane lane, int o, int nt) -> auto& { return part[lane][o][nt]; });
        add_scaled(exec, stream, strip, block, part, scores);
      } else {
        multiply_block<kKind>(exec, query, block, pairs, [&](Lane lane, int o, int nt) -> auto& { return scores[lane][4 * strip + o][nt]; });
      }
    }
  }

  /// 32 decoded dims of 32 keys times the query's.
  template <KvKind kKind, class Sums>
  FP4PA_FN static void multiply_block(E& exec, std::uint32_t query, int block, PerLane<std::uint32_t[4][4]>& pairs, Sums&& sums) {
    using Element = std::conditional_t<key_is_bf16(kKind), core::BF16, core::F16>;
    PerLane<std::uint32_t[2][kRowTiles][4]> q;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        exec.load_shared_16(lane, Shim::query_address(query, i % kRowTiles, 2 * block + i / kRowTiles, lane.id),
                            q[lane][i / kRowTiles][i % kRowTiles]);
      }
    });
    FP4PA_UNROLL
    for (int step = 0; step < 2; ++step) {
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        PerLane<std::uint32_t[2]> b;
        exec.each_lane([&](Lane lane) {
          b[lane][0] = pairs[lane][o][2 * step];
          b[lane][1] = pairs[lane][o][2 * step + 1];
        });
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          exec.template multiply<Element>([&](Lane lane) -> auto& { return sums(lane, o, nt); },
                                          [&](Lane lane) -> auto& { return q[lane][step][nt]; },
                                          [&](Lane lane) -> auto& { return b[lane]; });
        }
      }
    }
  }

  /// A block's sums times its keys' scales, which lie as f32, two blocks of a key side by side: a lane has sums of two keys.
  template <class Stream, class Part, class Scores>
  FP4PA_FN static void add_scaled(E& exec, const Stream& stream, int strip, int block, const Part& part, Scores& scores) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        const int key = 32 * strip + 8 * o + 2 * (lane.id % 4);
        std::uint32_t scales[4];  // [key][block]
        exec.load_shared_16(lane, stream.tile_offset() + stream.layout().k_scales + key * stream.layout().k_scale_pitch, scales);
        FP4PA_UNROLL
        for (int i = 0; i < 4 * kRowTiles; ++i) {
          float& sum = scores[lane][4 * strip + o][i / 4][i % 4];
          sum = ::fmaf(std::bit_cast<float>(scales[i % 2 * 2 + block]), part[lane][o][i / 4][i % 4], sum);
        }
      }
    });
  }

  /// Of two blocks from `block` on. A lane's eight dims of a block are half of one of NVFP4's groups of 16.
  template <KvKind kKind, class Stream>
  FP4PA_FN static void load_factors(E& exec, const Stream& stream, int strip, int block, PerLane<std::uint32_t[4][2]>& factors) {
    exec.each_lane([&](Lane lane) {
      const int half = kKind == KvKind::kNvfp4 ? lane.id % 4 / 2 * OperandScales::half_pitch(kConfig.head_dim) : 0;
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        const int key = 32 * strip + 8 * o + lane.id / 4;
        const auto two = exec.template load_shared<std::uint64_t>(
            lane, stream.tile_offset() + stream.layout().k_scales + key * stream.layout().k_scale_pitch + 4 * (half + block));
        factors[lane][o][0] = static_cast<std::uint32_t>(two);
        factors[lane][o][1] = static_cast<std::uint32_t>(two >> 32);
      }
    });
  }
};

}  // namespace fp4pa::sm80
