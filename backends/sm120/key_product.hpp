// S = Q K^T with block-scaled instructions: K enters as it lies in the cache, with its own scales, and nothing is decoded.
//
// Keys are the rows of A and queries the columns of B, as on sm_80 and for the same reasons: a group of eight query heads
// fills the instruction. A matrix of ldmatrix is eight keys by a chunk of 16 bytes, of which lane (g, t) gets key g's word t. A step is
// one instruction's depth:
//
//   MXFP4, per token   32 dims, one chunk; a load is 32 keys. Nibbles spread into byte containers: of A's registers the lower
//                      half of k are the even dims, the upper half the odd ones; the query lies in the same order (query.hpp).
//                      That depth is one scale block.
//   MXFP8              32 dims, two chunks; a load is 16 keys by both, A's registers as they are wanted. That depth is one
//                      scale block.
//   NVFP4              64 dims, two chunks, likewise.
//
// Scales go from shared memory to the instruction in the words that they are stored in: of each 32 keys a lane loads the
// scales of one, key 8(t%2) + g + 16(t/2). That makes the thread-id the m16 tile and, for MXFP4, the byte-id the block.
#pragma once

#include <cstdint>

#include "backends/sm120/convert.hpp"
#include "backends/sm120/copies.hpp"
#include "backends/sm120/query.hpp"
#include "backends/sm80/key_product.hpp"

namespace fp4pa::sm120 {

/// @tparam Form  KeyForm of the keys
template <class Shim, class Form>
struct NativeKeyProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kChunks = Form::kChunks;

  template <class Stream, class Query, class Scores>
  FP4PA_FN static void multiply(E& exec, const Stream& stream, const PerLane<Query>& query, int terms, Scores& scores) {
    FP4PA_UNROLL
    for (int strip = 0; strip < kConfig.tile_keys / 32; ++strip) multiply_strip(exec, stream, strip, query, terms, scores);
  }

 private:
  template <class Stream, class Query, class Scores>
  FP4PA_FN static void multiply_strip(E& exec, const Stream& stream, int strip, const PerLane<Query>& query, int terms,
                                      Scores& scores) {
    const core::TileLayout layout = stream.layout();
    PerLane<std::uint32_t> row;
    PerLane<std::uint32_t[Form::kKeyScaleWords]> scales;
    exec.each_lane([&](Lane lane) {
      row[lane] = row_of(lane, stream.tile_offset(), strip, layout.k_chunks);
      const int t = lane.id % 4;
      const int key = strip * 32 + lane.id / 4 + 8 * (t % 2) + 16 * (t / 2);
      FP4PA_UNROLL
      for (int w = 0; w < Form::kKeyScaleWords; ++w) {
        const std::uint32_t at = stream.tile_offset() + layout.k_scales + key * layout.k_scale_pitch + 4 * w;
        scales[lane][w] = exec.template load_shared<std::uint32_t>(lane, at);
      }
      FP4PA_UNROLL
      for (int i = 0; i < 2 * kRowTiles * 4; ++i) scores[lane][2 * strip + i / (kRowTiles * 4)][i / 4 % kRowTiles][i % 4] = 0.0f;
    });

    for_constants<Form::kSteps>([&](auto step) {
      PerLane<std::uint32_t[2][4]> a;  // of the two m16 tiles
      load_keys(exec, row, layout.k_chunks, step.value, a);
      FP4PA_UNROLL
      for (int nt = 0; nt < kRowTiles; ++nt) {
        for_constants<Form::kTerms>([&](auto term) {
          if (term.value >= terms) return;
          PerLane<std::uint32_t[2]> b;
          exec.each_lane([&](Lane lane) { query[lane].code(exec, lane, nt, term.value, step.value, b[lane]); });
          for_constants<2>([&](auto m) {
            constexpr core::ScaleSelect kSelectA{Form::key_byte(step.value), m.value};
            constexpr core::ScaleSelect kSelectB{Form::query_byte(step.value), term.value % 4};
            constexpr int kWord = term.value / 4 * Form::kScaleWords + Form::query_word(step.value);
            exec.template multiply_scaled<typename Form::Atom, kSelectA, kSelectB>(
                [&](Lane lane) -> auto& { return scores[lane][2 * strip + m.value][nt]; },
                [&](Lane lane) -> auto& { return a[lane][m.value]; }, [&](Lane lane) -> auto& { return b[lane]; },
                [&](Lane lane) { return scales[lane][Form::key_word(step.value)]; },
                [&](Lane lane) { return query[lane].scales[nt][kWord]; });
          });
        });
      }
    });
  }

  /// What the address that a lane names to the matrix loads begins with: a row of 32 keys or, where words of keys are registers of A, of
  /// the first 16, at the first chunk of a step or the second.
  FP4PA_FN static std::uint32_t row_of(Lane lane, std::uint32_t tile, int strip, int chunks) {
    if (!Form::kAsTheyLie) return sm80::row_offset(tile, strip * 32 + lane.id, chunks);
    return sm80::chunk_offset(sm80::row_offset(tile, strip * 32 + lane.id % 16, chunks), lane.id / 16);
  }

  /// A of 32 keys for a step. Where words are registers of A, a load brings one instruction's side by side: put together from two loads,
  /// they would be moved before every instruction that reads them.
  FP4PA_FN static void load_keys(E& exec, const PerLane<std::uint32_t>& row, int chunks, int step, PerLane<std::uint32_t[2][4]>& a) {
    if constexpr (Form::kAsTheyLie) {
      static_assert(kChunks == 2);
      FP4PA_UNROLL
      for (int m = 0; m < 2; ++m) {
        const std::uint32_t keys = static_cast<std::uint32_t>(m * 16 * chunks * core::kChunkBytes);
        exec.template load_matrix<false>([&](Lane lane) { return sm80::chunk_offset(row[lane], 2 * step) + keys; },
                                         [&](Lane lane) -> auto& { return a[lane][m]; });
      }
    } else {
      static_assert(kChunks == 1);
      PerLane<std::uint32_t[4]> words;
      exec.template load_matrix<false>([&](Lane lane) { return sm80::chunk_offset(row[lane], step); },
                                       [&](Lane lane) -> auto& { return words[lane]; });
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int octet = 0; octet < 4; ++octet) {
          a[lane][octet / 2][octet % 2] = even_containers(words[lane][octet]);
          a[lane][octet / 2][2 + octet % 2] = odd_containers(words[lane][octet]);
        }
      });
    }
  }
};

}  // namespace fp4pa::sm120
