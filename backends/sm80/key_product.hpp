// S = Q K^T on a staged tile: keys are the rows of A, queries the columns of B.
//
// With keys in A a warp's sixteen-row instruction is full even when a KV head serves eight query heads or fewer, each code is
// decoded once, and half as many accumulators are needed as with queries in A. The order of dims within a step is free:
// a lane takes what one ldmatrix word gives it, and the query is laid out to match.
//
//   ldmatrix word of lane (g, t), octet o: key 8o + g, bytes 4t .. 4t+3 of a 16-byte chunk
//   32 dims are four pairs of elements a lane, two a step; pair p's dims (query_place is the inverse):
//     E2M1    8t + p,  8t + p + 4       one chunk is 32 dims
//     E4M3    16(p/2) + 4t + 2(p%2) + {0, 1}
//     16-bit  8p + 2t + {0, 1}
//
// Scales: an E8M0 of 32 dims multiplies the f32 sum of its two steps, so that no scale however large or small can leave
// f16's range. NVFP4's E4M3 is multiplied into the decoded f16, exactly: six bits within f16's range. A scale per token
// multiplies the whole sum.
//
// A query of two terms is multiplied twice. Where it has at most four rows, columns 4 to 7 would be idle: the second terms stand there
// (SideBySide::kTerms), and one multiplication sums both. A score is the sum of its two columns, which then both hold it. Or, of NVFP4
// (SideBySide::kGroups), the first groups of 16 dims stand in columns 0 to 3 with zeros elsewhere, the second ones in 4 to 7: a column's
// sum of 32 dims is one group's, and its scale multiplies the sum, half of the multiplications that codes take.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/scale_form.hpp"
#include "core/atom/element.hpp"
#include "core/simt/key_stream.hpp"
#include "core/simt/peers.hpp"
#include "core/simt/query.hpp"

namespace fp4pa::sm80 {

[[nodiscard]] FP4PA_FN constexpr bool key_is_bf16(KvKind kind) { return kind == KvKind::kBf16; }
/// One E8M0 scale per block of 32 dims.
[[nodiscard]] FP4PA_FN constexpr bool scales_blocks(KvKind kind) { return kind == KvKind::kMxfp4 || kind == KvKind::kMxfp8; }

/// Whether sums of NVFP4's groups are apart, so that scales need not be multiplied into codes.
[[nodiscard]] FP4PA_FN constexpr bool sums_groups(const core::SimtConfig& c, KvKind kind) {
  return c.side_by_side == core::SideBySide::kGroups && kind == KvKind::kNvfp4;
}

[[nodiscard]] FP4PA_FN constexpr core::QueryForm key_query_form(KvKind kind) {
  switch (kind) {
    // 2^10 leaves an f16 24 binades below a row's largest element, and sums of 256 products far from f32's end.
    case KvKind::kMxfp4:
    case KvKind::kPerToken: return {10, 16384.0f, false};
    case KvKind::kNvfp4: return {10, 128.0f, false};
    case KvKind::kBf16: return {core::QueryForm::kAsIs, 1.0f, true};
    default: return {10, 1.0f, false};
  }
}

/// Where the pair of dims that begins at `dim`, within 32, stands in B: in the lanes with lane % 4 == thread.
struct QueryPlace {
  int thread;
  int pair;
};
[[nodiscard]] FP4PA_FN constexpr QueryPlace query_place(KvKind kind, int dim) {
  if (core::is_fp4(kind)) return {dim / 8, dim % 8};
  if (core::is_e4m3(kind)) return {dim % 16 / 4, dim / 16 * 2 + dim % 4 / 2};
  return {dim % 8 / 2, dim / 8};
}

/// Byte offset of row `row` of a tile of codes whose rows have `chunks` chunks, with the row's swizzle; chunk c is at
/// chunk_offset of it.
[[nodiscard]] FP4PA_FN constexpr int swizzle_bits(int row, int chunks) {
  // Eight rows that one ldmatrix phase reads fall into the eight 16-byte columns of shared memory, and so do two or four
  // rows read side by side: the row's bits, reversed.
  const int low = row & 7;
  const int reversed = ((low & 1) << 2) | (low & 2) | (low >> 2);
  return reversed & ((chunks < 8 ? chunks : 8) - 1);
}
[[nodiscard]] FP4PA_FN std::uint32_t row_offset(std::uint32_t tile, int row, int chunks) {
  return tile + static_cast<std::uint32_t>((row * chunks + swizzle_bits(row, chunks)) * core::kChunkBytes);
}
[[nodiscard]] FP4PA_FN std::uint32_t chunk_offset(std::uint32_t row, int chunk) {
  return (row ^ static_cast<std::uint32_t>((chunk & 7) * core::kChunkBytes)) +
         static_cast<std::uint32_t>((chunk & ~7) * core::kChunkBytes);
}

/// Row `lane` of a strip of a stream's tile, as row_offset.
template <class Stream, class Lane>
[[nodiscard]] FP4PA_FN std::uint32_t row_of_key(const Stream& stream, Lane lane, std::uint32_t tile, int strip, int chunks) {
  if constexpr (Stream::kKeepsRows) {
    return tile + static_cast<std::uint32_t>(strip * 32 * chunks * core::kChunkBytes) + stream.row_of_lane(lane);
  } else {
    return row_offset(tile, strip * 32 + lane.id, chunks);
  }
}

/// Words of one chunk to operand pairs; `pairs` is what 32 dims of a row (or a column) become.
template <KvKind kKind>
FP4PA_FN void decode_word(std::uint32_t word, int chunk, bool transposed, std::uint32_t (&pairs)[4]) {
  if constexpr (core::is_fp4(kKind)) {
    e2m1_to_f16(word, pairs);
  } else if constexpr (core::is_e4m3(kKind)) {
    // Transposed, the halves are two tokens and their bytes two dims.
    std::uint32_t two[2];
    e4m3_to_f16(transposed ? exchange_middle_bytes(word) : word, two);
    pairs[2 * chunk] = two[0];
    pairs[2 * chunk + 1] = two[1];
  } else {
    pairs[chunk] = word;
  }
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
  /// Whether sums run through all blocks in one chain, whose end has nothing to add up. For NVFP4 of many warps a multiprocessor: others
  /// were no faster, or slower.
  static constexpr bool kOneChain =
      kConfig.k[0] == KvKind::kNvfp4 && kConfig.v[0] == KvKind::kNvfp4 && kConfig.head_dim <= 128 && !sums_groups(kConfig, KvKind::kNvfp4);
  /// Blocks of dims multiplied side by side, so that instructions that depend on each other do not follow each other.
  static constexpr int kSides = kConfig.exact_head_dim && kBlocks % 2 == 0 && kRowTiles == 1 && !kOneChain ? 2 : 1;

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Stream& stream, std::uint32_t query, const auto& registers,
                                int terms, Scores& scores) {
    // One loop for each, so that the common one does not ask block by block.
    if (kConfig.side_by_side == core::SideBySide::kTerms || (kConfig.plain ? kConfig.terms == 1 : terms == 1)) {
      multiply_strips<kKind, 1>(exec, stream, query, registers, scores);
    } else {
      multiply_strips<kKind, 2>(exec, stream, query, registers, scores);
    }
  }

 private:
  template <KvKind kKind, int kTerms, class Stream, class Scores>
  FP4PA_FN static void multiply_strips(E& exec, const Stream& stream, std::uint32_t query, const auto& registers,
                                       Scores& scores) {
    FP4PA_UNROLL
    for (int strip = 0; strip < kConfig.tile_keys / 32; ++strip) {
      multiply_strip<kKind, kTerms>(exec, stream, strip, query, registers, scores);
    }
  }

  /// Whether scales multiply the sums of each block of dims.
  template <KvKind kKind>
  static constexpr bool kScalesSums = scales_blocks(kKind) || sums_groups(kConfig, kKind);
  /// Blocks of dims whose scales are loaded at once.
  static constexpr int kLoaded = kConfig.exact_head_dim && kBlocks % 4 == 0 && kScalesSums<kConfig.k[0]> ? 4 : 2;
  /// Scales of the keys a lane holds in A and C, row g of octets 0 to 3, for so many blocks; see scale_form.hpp. NVFP4's are of the group
  /// that lane t's dims are of, which is that of its columns, too, where groups stand side by side.
  struct Scales {
    std::uint32_t of[4][kLoaded];
  };

  template <KvKind kKind, class Stream>
  FP4PA_FN static void load_scales(E& exec, const Stream& stream, int strip, int block, PerLane<Scales>& scales) {
    const core::TileLayout layout = stream.layout();
    exec.each_lane([&](Lane lane) {
      const int half = kKind == KvKind::kNvfp4 ? lane.id % 4 / 2 * OperandScales::half_pitch(stream.head_dim()) : 0;
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        const int key = strip * 32 + 8 * o + lane.id / 4;
        const std::uint32_t at = stream.tile_offset() + layout.k_scales + key * layout.k_scale_pitch + 4 * (half + block);
        if constexpr (kLoaded == 4) {
          exec.load_shared_16(lane, at, scales[lane].of[o]);
        } else {
          const auto two = exec.template load_shared<std::uint64_t>(lane, at);
          scales[lane].of[o][0] = static_cast<std::uint32_t>(two);
          scales[lane].of[o][1] = static_cast<std::uint32_t>(two >> 32);
        }
      }
    });
  }

  /// 32 keys against all queries: two instructions' rows.
  template <KvKind kKind, int kTerms, class Stream, class Scores>
  FP4PA_FN static void multiply_strip(E& exec, const Stream& stream, int strip, std::uint32_t query, const auto& registers,
                                      Scores& scores) {
    using Element = std::conditional_t<key_is_bf16(kKind), core::BF16, core::F16>;
    constexpr int kChunks = 4 / core::per_halfword(kKind);
    const core::TileLayout layout = stream.layout();
    const std::uint32_t tile = stream.tile_offset();

    PerLane<std::uint32_t> row;
    PerLane<Scales> scales;
    if constexpr (kKind == KvKind::kPerToken) load_scales<kKind>(exec, stream, strip, 0, scales);
    exec.each_lane([&](Lane lane) {
      row[lane] = row_of_key(stream, lane, tile, strip, layout.k_chunks);
      FP4PA_UNROLL
      for (int m = 0; m < 2; ++m) {
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          FP4PA_UNROLL
          for (int v = 0; v < 4; ++v) scores[lane][2 * strip + m][nt][v] = 0.0f;
        }
      }
    });

    // Sums of a side. Where no block has a scale of its own they go on from step to step.
    PerLane<float[kSides][2][kRowTiles][4]> part;
    if constexpr (!kScalesSums<kKind>) clear(exec, part);
    FP4PA_UNROLL
    for (int first = 0; first < kBlocks; first += kSides) {
      if (!kConfig.exact_head_dim && first * core::kDimBlock >= stream.head_dim()) break;
      if constexpr (scales_blocks(kKind) || kKind == KvKind::kNvfp4) {
        if (first % kLoaded == 0) load_scales<kKind>(exec, stream, strip, first, scales);
      }
      PerLane<std::uint32_t[4][4]> pairs[kSides];  // [octet][pair]
      FP4PA_UNROLL
      for (int side = 0; side < kSides; ++side) {
        FP4PA_UNROLL
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          PerLane<std::uint32_t[4]> words;
          exec.template load_matrix<false>([&](Lane lane) { return chunk_offset(row[lane], (first + side) * kChunks + chunk); },
                                           [&](Lane lane) -> auto& { return words[lane]; });
          exec.each_lane([&](Lane lane) {
            FP4PA_UNROLL
            for (int o = 0; o < 4; ++o) decode_word<kKind>(words[lane][o], chunk, false, pairs[side][lane][o]);
          });
        }
        if constexpr (kKind == KvKind::kNvfp4 && !kScalesSums<kKind>) scale_pairs(exec, scales, first + side, pairs[side]);
      }
      if constexpr (kScalesSums<kKind>) clear(exec, part);
      multiply_blocks<Element, kTerms>(exec, stream, query, registers, first, pairs, part);
      if constexpr (kScalesSums<kKind>) {
        exec.each_lane([&](Lane lane) {
          for_each_sum([&](int side, int m, int nt, int v) {
            const float s = std::bit_cast<float>(scales[lane].of[2 * m + v / 2][(first + side) % kLoaded]);
            float& sum = scores[lane][2 * strip + m][nt][v];
            sum = ::fmaf(s, part[lane][side][m][nt][v], sum);
          });
        });
      }
    }
    if constexpr (!kScalesSums<kKind>) {
      exec.each_lane([&](Lane lane) {
        for_each_sum([&](int side, int m, int nt, int v) {
          float& sum = scores[lane][2 * strip + m][nt][v];
          sum = side == 0 ? part[lane][0][m][nt][v] : sum + part[lane][side][m][nt][v];
          if (kKind == KvKind::kPerToken && side + 1 == kSides) {
            sum *= std::bit_cast<float>(scales[lane].of[2 * m + v / 2][0]);
          }
        });
      });
    }
    if constexpr (core::parts_sums(kConfig)) add_columns(exec, strip, scores);
  }

  /// Bit of the lane number between a row's columns c and c + 4 of C.
  static constexpr int kColumnBit = 2;
  static_assert(Shim::ScoreAtom::Atom::c_coord(kColumnBit, 0).col == 4);

  /// Adds to each score of a strip what its row's other column has summed. In either column: the sum is the same bit for bit.
  template <class Scores>
  FP4PA_FN static void add_columns(E& exec, int strip, Scores& scores) {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) {
      PerLane<float> score;
      exec.each_lane([&](Lane lane) { score[lane] = scores[lane][2 * strip + i / 4][0][i % 4]; });
      core::combine_peers<kColumnBit>(exec, score, [](float own, float other) { return own + other; });
      exec.each_lane([&](Lane lane) { scores[lane][2 * strip + i / 4][0][i % 4] = score[lane]; });
    }
  }

  /// f(side, half of the strip, row tile, value).
  template <class F>
  FP4PA_FN static void for_each_sum(F&& f) {
    FP4PA_UNROLL
    for (int i = 0; i < kSides * 2 * kRowTiles * 4; ++i) {
      f(i / (8 * kRowTiles), i / (4 * kRowTiles) % 2, i / 4 % kRowTiles, i % 4);
    }
  }
  FP4PA_FN static void clear(E& exec, PerLane<float[kSides][2][kRowTiles][4]>& sums) {
    exec.each_lane([&](Lane lane) {
      for_each_sum([&](int side, int m, int nt, int v) { sums[lane][side][m][nt][v] = 0.0f; });
    });
  }

  /// 32 decoded dims a side, of 32 keys, times the query, one term after the other.
  template <class Element, int kTerms, class Stream>
  FP4PA_FN static void multiply_blocks(E& exec, const Stream& stream, std::uint32_t query, const auto& registers, int first,
                                       PerLane<std::uint32_t[4][4]> (&pairs)[kSides],
                                       PerLane<float[kSides][2][kRowTiles][4]>& sums) {
    PerLane<std::uint32_t[kRowTiles][4]> q[kSides];
    FP4PA_UNROLL
    for (int term = 0; term < kTerms; ++term) {
      FP4PA_UNROLL
      for (int side = 0; side < kSides; ++side) {
        exec.each_lane([&](Lane lane) {
          if (term == 0) {
            Shim::query_block(exec, lane, query, registers[lane], first + side, stream.head_dim(), q[side][lane]);
          } else {
            Shim::second_term(exec, lane, query, first + side, stream.head_dim(), q[side][lane]);
          }
        });
      }
      multiply_term<Element>(exec, pairs, q, sums);
    }
  }

  template <class Element>
  FP4PA_FN static void multiply_term(E& exec, PerLane<std::uint32_t[4][4]> (&pairs)[kSides],
                                     PerLane<std::uint32_t[kRowTiles][4]> (&q)[kSides],
                                     PerLane<float[kSides][2][kRowTiles][4]>& sums) {
    // A second step waits for the first's sums: the other side and the other half stand in between.
    FP4PA_UNROLL
    for (int step = 0; step < 2; ++step) {
      FP4PA_UNROLL
      for (int i = 0; i < 2 * kSides; ++i) {
        const int side = i / 2;
        const int m = i % 2;
        PerLane<std::uint32_t[4]> a;
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int r = 0; r < 4; ++r) a[lane][r] = pairs[side][lane][2 * m + r % 2][2 * step + r / 2];
        });
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          PerLane<std::uint32_t[2]> b;
          exec.each_lane([&](Lane lane) {
            b[lane][0] = q[side][lane][nt][2 * step];
            b[lane][1] = q[side][lane][nt][2 * step + 1];
          });
          exec.template multiply<Element>([&](Lane lane) -> auto& { return sums[lane][side][m][nt]; },
                                          [&](Lane lane) -> auto& { return a[lane]; },
                                          [&](Lane lane) -> auto& { return b[lane]; });
        }
      }
    }
  }

  /// A lane's eight dims of a block are half of a group of 16.
  FP4PA_FN static void scale_pairs(E& exec, const PerLane<Scales>& scales, int block, PerLane<std::uint32_t[4][4]>& pairs) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        FP4PA_UNROLL
        for (int p = 0; p < 4; ++p) pairs[lane][o][p] = multiply_f16(pairs[lane][o][p], scales[lane].of[o][block % 2]);
      }
    });
  }
};

}  // namespace fp4pa::sm80
