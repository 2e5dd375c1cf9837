// S = Q K^T on a staged tile by 16-bit matrix products: the decode path of gfx942 and gfx950.
//
// Keys are the rows of A, queries the columns of B. A step is a block of 32 dims, of which lane (m = lane % 16, g = lane / 16)
// holds dims 8g .. 8g+7 of key slot m: 4 bytes of E2M1, 8 of E4M3, 16 of f16 or bf16. In which order is free, as long as the
// query is laid out alike; pair p of a lane's four registers is (pair_dim)
//
//     E2M1, decoded by table                         8g + p,  8g + p + 4
//     others, and E2M1 converted by an instruction   8g + 2p + {0, 1}
//
// Scales as on sm_80: an E8M0 of 32 dims multiplies the f32 sum of its step, so that no scale however large or small can leave
// f16's range; NVFP4's E4M3 is multiplied into the decoded f16, exactly (six bits, 2^-10 to 2688); a scale per token
// multiplies the whole sum.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/gfx942/convert.hpp"
#include "backends/gfx942/scale_form.hpp"
#include "backends/gfx942/staging.hpp"
#include "core/atom/element.hpp"
#include "core/simt/query.hpp"

namespace fp4pa::gfx942 {

[[nodiscard]] FP4PA_FN constexpr core::QueryForm decode_query_form(KvKind kind) {
  if (kind == KvKind::kBf16) return {core::QueryForm::kAsIs, 1.0f, true};
  // 2^10 leaves an f16 24 binades below a row's largest element, and sums of 256 products far from f32's end.
  return {10, 1.0f, false};
}

/// Scales of 32 dims: they multiply the f32 sum of a step, or a step's probabilities.
[[nodiscard]] FP4PA_FN constexpr bool scales_blocks(KvKind kind) { return kind == KvKind::kMxfp4 || kind == KvKind::kMxfp8; }

/// Dim, within 32, of half `half` of pair `p` of lanes 16 g to 16 g + 15.
/// @param bytes  E2M1 is converted by bytes (Shim::kConvertsBytes)
[[nodiscard]] FP4PA_FN constexpr int pair_dim(KvKind kind, bool bytes, int g, int p, int half) {
  if (core::is_fp4(kind) && !bytes) return 8 * g + p + 4 * half;
  return 8 * g + 2 * p + half;
}

template <class Shim>
struct KeyProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kBlocks = kConfig.head_dim / core::kDimBlock;

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Stream& stream, std::uint32_t query, const auto& registers, int terms,
                                Scores& scores) {
    PerLane<Own> own;
    exec.each_lane([&](Lane same) {
      const Lane lane = core::lane_anew<E>(same);
      own[lane].codes = byte_offset(Shim::kWide, 0, Shim::token_of_slot(lane.id % 16), stream.layout().k_chunks,
                                    kLaneBytes<kKind> * (lane.id / 16));
      own[lane].scale_bytes = lane.id < 32 ? 0x01000100u : 0x03020302u;
    });
    FP4PA_UNROLL
    for (int tile = 0; tile < kConfig.tile_keys / 16; ++tile) {
      multiply_keys<kKind>(exec, stream, tile, own, query, registers, terms, scores);
    }
  }

 private:
  template <KvKind kKind>
  static constexpr int kScaleWords = kStagedScaleWords<kKind, kConfig.head_dim>;
  /// Keys whose scales a lane needs: its own row of A, or its four rows of C.
  template <KvKind kKind>
  static constexpr int kScaleKeys = kScaleWords<kKind> == 0 ? 0 : kKind == KvKind::kNvfp4 ? 1 : 4;
  /// Bytes of a lane's eight dims of a block.
  template <KvKind kKind>
  static constexpr int kLaneBytes = 16 / core::per_halfword(kKind);

  /// What a lane reads, of any key of its own and any block, but for what is the same in all lanes.
  struct Own {
    std::uint32_t codes;        // where the first block of its first key begins, from the tile's codes
    std::uint32_t scale_bytes;  // NVFP4: of a block's two scales that of its half, twice, for permute_bytes
  };
  static_assert(rows_of_key_tiles_agree(Shim::kWide, kConfig.tile_keys));

  template <KvKind kKind>
  struct Scales {
    std::uint32_t word[kScaleKeys<kKind> > 0 ? kScaleKeys<kKind> : 1][kScaleWords<kKind> > 0 ? kScaleWords<kKind> : 1];
  };

  /// 16 keys against all queries.
  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void multiply_keys(E& exec, const Stream& stream, int tile, const PerLane<Own>& own, std::uint32_t query,
                                     const auto& registers, int terms, Scores& scores) {
    using Element = std::conditional_t<kKind == KvKind::kBf16, core::BF16, core::F16>;
    const core::TileLayout layout = stream.layout();

    PerLane<Scales<kKind>> scales;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kScaleKeys<kKind>; ++i) {
        const int slot = 16 * tile + (kScaleKeys<kKind> == 1 ? lane.id % 16 : lane.id / 16 * 4 + i);
        const std::uint32_t at = stream.tile_offset() + layout.k_scales + Shim::token_of_slot(slot) * layout.k_scale_pitch;
        load_scales<kConfig.exact_head_dim>(exec, lane, at, layout.k_scale_pitch, scales[lane].word[i]);
      }
      FP4PA_UNROLL
      for (int i = 0; i < kRowTiles * 4; ++i) scores[lane][tile][i / 4][i % 4] = 0.0f;
    });

    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      if (!kConfig.exact_head_dim && block * core::kDimBlock >= stream.head_dim()) break;
      PerLane<std::uint32_t[4]> keys;
      exec.each_lane([&](Lane lane) {
        load_dims<kKind>(exec, lane, stream, own[lane].codes, tile, block, keys[lane]);
        if constexpr (kKind == KvKind::kNvfp4) {
          // A lane's eight dims are half of a group of 16.
          const std::uint32_t factor = permute_bytes(0, scales[lane].word[0][block], own[lane].scale_bytes);
          FP4PA_UNROLL
          for (int p = 0; p < 4; ++p) keys[lane][p] = multiply_f16(keys[lane][p], factor);
        }
      });
      if constexpr (scales_blocks(kKind)) {
        PerLane<float[kRowTiles][4]> part;
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int i = 0; i < kRowTiles * 4; ++i) part[lane][i / 4][i % 4] = 0.0f;
        });
        multiply_block<Element>(exec, stream, query, registers, terms, block, keys,
                                [&](Lane lane, int nt) -> auto& { return part[lane][nt]; });
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int v = 0; v < 4; ++v) {
            const float s = e8m0_to_f32(scales[lane].word[v][block / 4], block % 4);
            FP4PA_UNROLL
            for (int nt = 0; nt < kRowTiles; ++nt) {
              float& sum = scores[lane][tile][nt][v];
              sum = __builtin_fmaf(s, part[lane][nt][v], sum);
            }
          }
        });
      } else {
        multiply_block<Element>(exec, stream, query, registers, terms, block, keys,
                                [&](Lane lane, int nt) -> auto& { return scores[lane][tile][nt]; });
      }
    }
    if constexpr (kKind == KvKind::kPerToken) {
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kRowTiles * 4; ++i) {
          scores[lane][tile][i / 4][i % 4] *= e8m0_to_f32(scales[lane].word[i % 4][0], 0);
        }
      });
    }
  }

  /// A lane's eight dims of a block, decoded but for their scales.
  /// @param own  Own::codes: rows that tiles of keys have in the same place are permuted alike, and a block is bits of its own
  template <KvKind kKind, class Stream>
  FP4PA_FN static void load_dims(E& exec, Lane lane, const Stream& stream, std::uint32_t own, int tile, int block,
                                 std::uint32_t (&pairs)[4]) {
    const std::uint32_t at = (own ^ static_cast<std::uint32_t>(4 * kLaneBytes<kKind> * block)) + stream.tile_offset() +
                             static_cast<std::uint32_t>(Shim::token_of_slot(16 * tile) * stream.layout().k_chunks * core::kChunkBytes);
    if constexpr (core::is_fp4(kKind)) {
      const auto codes = exec.template load_shared<std::uint32_t>(lane, at);
      if constexpr (Shim::kConvertsBytes) {
        Shim::convert_word(codes, pairs);
      } else {
        e2m1_to_f16(codes, pairs);
      }
    } else if constexpr (core::is_e4m3(kKind)) {
      const auto codes = exec.template load_shared<std::uint64_t>(lane, at);
      FP4PA_UNROLL
      for (int i = 0; i < 2; ++i) {
        const auto word = static_cast<std::uint32_t>(codes >> (32 * i));
        pairs[2 * i] = e4m3_to_f16<0>(word);
        pairs[2 * i + 1] = e4m3_to_f16<1>(word);
      }
    } else {
      exec.load_shared_16(lane, at, pairs);
    }
  }

  /// 32 decoded dims of 16 keys times the query, one term after the other.
  /// @param sum  from (lane, row tile) to four sums
  template <class Element, class Stream, class Sum>
  FP4PA_FN static void multiply_block(E& exec, const Stream& stream, std::uint32_t query, const auto& registers, int terms,
                                      int block, PerLane<std::uint32_t[4]>& keys, Sum&& sum) {
    PerLane<std::uint32_t[kRowTiles][4]> q;
    exec.each_lane(
        [&](Lane lane) { Shim::query_block(exec, lane, query, registers[lane], block, stream.head_dim(), q[lane]); });
    multiply_term<Element>(exec, keys, q, sum);
    if (terms > 1) {
      exec.each_lane([&](Lane lane) { Shim::second_term(exec, lane, query, block, stream.head_dim(), q[lane]); });
      multiply_term<Element>(exec, keys, q, sum);
    }
  }

  template <class Element, class Sum>
  FP4PA_FN static void multiply_term(E& exec, PerLane<std::uint32_t[4]>& keys, PerLane<std::uint32_t[kRowTiles][4]>& q,
                                     Sum&& sum) {
    FP4PA_UNROLL
    for (int nt = 0; nt < kRowTiles; ++nt) {
      Shim::template multiply_16<Element>(exec, [&](Lane lane) -> auto& { return sum(lane, nt); },
                                          [&](Lane lane) -> auto& { return keys[lane]; },
                                          [&](Lane lane) -> auto& { return q[lane][nt]; });
    }
  }
};

}  // namespace fp4pa::gfx942
