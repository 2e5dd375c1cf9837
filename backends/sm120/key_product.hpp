// S = Q K^T with block-scaled instructions: K enters as it lies in the cache, with its own scales, and nothing is decoded.
//
// Keys are the rows of A and queries the columns of B, as on sm_80 and for the same reasons: a group of eight query heads
// fills the instruction. The words of ldmatrix are sm_80's, too: lane (g, t), octet o: key 8o + g, dims 8t .. 8t+7 of a chunk
// of 32. A step is one instruction's depth:
//
//   MXFP4, per token   32 dims, one chunk. Nibbles spread into byte containers: of A's registers the lower half of k are the
//                      even dims, the upper half the odd ones; the query lies in the same order (query.hpp). That depth is
//                      one scale block.
//   MXFP8              32 dims, two chunks. A's registers are the words themselves, and that depth is one scale block.
//   NVFP4              64 dims, two chunks. A's registers are the words themselves, in their natural order.
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
      row[lane] = sm80::row_offset(stream.tile_offset(), strip * 32 + lane.id, layout.k_chunks);
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
      PerLane<std::uint32_t[kChunks][4]> words;
      FP4PA_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        exec.template load_matrix<false>([&](Lane lane) { return sm80::chunk_offset(row[lane], kChunks * step.value + chunk); },
                                         [&](Lane lane) -> auto& { return words[lane][chunk]; });
      }
      PerLane<std::uint32_t[2][4]> a;  // of the two m16 tiles
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int octet = 0; octet < 4; ++octet) {
          const std::uint32_t word = words[lane][0][octet];
          auto& tile = a[lane][octet / 2];
          tile[octet % 2] = Form::kAsTheyLie ? word : even_containers(word);
          tile[2 + octet % 2] = Form::kAsTheyLie ? words[lane][kChunks - 1][octet] : odd_containers(word);
        }
      });
      FP4PA_UNROLL
      for (int nt = 0; nt < kRowTiles; ++nt) {
        for_constants<Form::kTerms>([&](auto term) {
          if (term.value >= terms) return;
          PerLane<std::uint32_t[2]> b;
          exec.each_lane([&](Lane lane) { query[lane].code(exec, lane, nt, term.value, step.value, b[lane]); });
          for_constants<2>([&](auto m) {
            constexpr core::ScaleSelect kSelectA{Form::key_byte(step.value), m.value};
            constexpr core::ScaleSelect kSelectB{Form::query_byte(step.value), term.value};
            exec.template multiply_scaled<typename Form::Atom, kSelectA, kSelectB>(
                [&](Lane lane) -> auto& { return scores[lane][2 * strip + m.value][nt]; },
                [&](Lane lane) -> auto& { return a[lane][m.value]; }, [&](Lane lane) -> auto& { return b[lane]; },
                [&](Lane lane) { return scales[lane][Form::key_word(step.value)]; },
                [&](Lane lane) { return query[lane].scales[nt][Form::query_word(step.value)]; });
          });
        });
      }
    });
  }
};

}  // namespace fp4pa::sm120
