// SM120 and SM121, many query rows, values with scales along head_dim: K enters the matrix core as it lies in the cache, V
// is decoded to bf16 in shared memory, once for the block.
//
// It is sm_80's prefill with another first product. Queries are A: a warp holds 16 rows, and P goes from the first product's
// accumulators to the second one's A without leaving its lane. Keys are B (E4M3 of MXFP8; E2M1 of MXFP4 and of a scale per token,
// spread into bytes), queries two terms of E4M3, which are a bf16 within 2^13 of its group's largest exactly (query.hpp). Scales find their lanes:
//
//   SFA  of query row m is read from lane 4(m%8) + 2 tid + m/8: tid is the term, the byte the block of 32 dims. One register
//        a row tile.
//   SFB  of key n is read from lane 4n + tid: a lane that loads the scales of key 8t + g of 32 makes tid the tile of eight
//        keys. One register for four tiles.
//
// A query in shared memory: [term][row tile][step of 32 dims][lane][register of A], and behind it [row tile][lane] scales.
//
// Queries that need more than two terms (f16, f32, rotated on load) decode: for a third there is no room beside MXFP8's keys.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/sm120/convert.hpp"
#include "backends/sm120/query.hpp"
#include "backends/sm120/shim.hpp"
#include "backends/sm80/prefill_shim.hpp"

namespace fp4pa::sm120 {

template <core::SimtConfig kShape, class Executor>
struct PrefillShim : sm80::PrefillShim<kShape, Executor> {
  using Base = sm80::PrefillShim<kShape, Executor>;
  using Exec = Executor;
  using Lane = typename Exec::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;
  using Base::kConfig, Base::kHeadDim, Base::kRowTiles, Base::kTileKeys;
  using Form = KeyForm<kConfig.k[0], kHeadDim>;
  using Atom = MmaMxf8f6f4M16N8K32<core::E4M3, std::conditional_t<Form::kBytes, core::E4M3, core::E2M1>>;
  // Scores lie as in sm_80's atom.
  using ScoreAtom = core::ScoreAtom<Atom, core::Operand::kA>;

  static constexpr int kTerms = 2;
  static constexpr int kSteps = Form::kSteps;
  static_assert(kConfig.plain && kConfig.terms == 1, "queries of one 16-bit term, which two of E4M3 hold");
  static_assert(native_key(kConfig.k[0]) && !Form::kPacked && !native_value(kConfig.v[0]));
  static_assert((kSteps == 2 || kSteps == 4) && kTileKeys % 32 == 0, "the scales of a row are half a word or a word");

  FP4PA_FN static core::QueryForm query_form(KvKind) { return {0, 1.0f, false}; }  // as sm120::Shim's

  FP4PA_FN static std::uint32_t code_address(std::uint32_t query, int term, int tile, int step, int lane) {
    return query + static_cast<std::uint32_t>((((term * kRowTiles + tile) * kSteps + step) * Exec::kLanes + lane) * 16);
  }
  FP4PA_FN static std::uint32_t scale_address(std::uint32_t query, int tile, int lane) {
    return code_address(query, kTerms, 0, 0, 0) + static_cast<std::uint32_t>((tile * Exec::kLanes + lane) * kSteps);
  }

  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row, int head_dim,
                                       float multiplier, int terms) {
    PerLane<float[4]> quad;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int dim = 4 * lane.id + i;
        quad[lane][i] = dim < kHeadDim ? exec.template load_shared<float>(lane, scratch + 4 * dim) * multiplier : 0.0f;
      }
    });
    store_query_quads(exec, kind, query, row, 0, head_dim, quad, terms);
  }
  /// A lane's four neighbouring dims to both terms; eight lanes have a block of 32.
  FP4PA_FN static void store_query_quads(Exec& exec, KvKind, std::uint32_t query, int row, int, int, PerLane<float[4]> x, int) {
    const int tile = row / 16;
    const int g = row % 8;
    const int lower = row % 16 / 8;  // rows 8 to 15 of the tile
    FP4PA_UNROLL
    for (int term = 0; term < kTerms; ++term) {
      const PerLane<std::uint32_t> amax = core::largest_of_quads<8>(exec, x);
      exec.each_lane([&](Lane lane) {
        if (4 * lane.id >= kHeadDim) return;
        const int step = lane.id / 8;
        const int quad = lane.id % 8;
        const QueryTerm q = round_to_e4m3(x[lane], amax[lane]);
        if constexpr (Form::kBytes) {
          exec.template store_shared<std::uint32_t>(
              lane, code_address(query, term, tile, step, 4 * g + quad % 4) + 4 * (lower + 2 * (quad / 4)),
              q.code[0] | q.code[1] << 8 | q.code[2] << 16 | q.code[3] << 24);
        } else {
          // The lower nibbles of the keys' bytes are the first half of k, the upper ones the second.
          const std::uint32_t at = code_address(query, term, tile, step, 4 * g + quad / 2) + 4 * lower + 2 * (quad % 2);
          exec.template store_shared<std::uint16_t>(lane, at, static_cast<std::uint16_t>(q.code[0] | q.code[2] << 8));
          exec.template store_shared<std::uint16_t>(lane, at + 8, static_cast<std::uint16_t>(q.code[1] | q.code[3] << 8));
        }
        if (quad == 0) {
          exec.template store_shared<std::uint8_t>(lane, scale_address(query, tile, 4 * g + 2 * term + lower) + step,
                                                   static_cast<std::uint8_t>(q.scale));
        }
      });
    }
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query,
                                 const PerLane<typename Base::QueryRegisters>&, int, Scores& scores) {
    // The last tile's decoded values are read by nobody after the stream's wait.
    const core::TileLayout layout = stream.layout();
    Base::template decode<Base::kValueKind>(exec, stream.tile_offset() + layout.v_codes,
                                            {stream.tile_offset() + layout.v_scales, layout.v_scale_pitch},
                                            stream.behind_stages());
    exec.block_barrier();
    PerLane<std::uint32_t[kTileKeys / 32]> key_scales;
    PerLane<std::uint32_t[kRowTiles]> query_scales;
    PerLane<int> id;
    exec.each_lane([&](Lane lane) {
      id[lane] = sm80::recomputed(lane.id);
      FP4PA_UNROLL
      for (int i = 0; i < kTileKeys / 8 * kRowTiles * 4; ++i) scores[lane][i / (kRowTiles * 4)][i / 4 % kRowTiles][i % 4] = 0.0f;
      FP4PA_UNROLL
      for (int strip = 0; strip < kTileKeys / 32; ++strip) {
        const int key = 32 * strip + id[lane] % 4 * 8 + id[lane] / 4;
        const std::uint32_t at = stream.tile_offset() + layout.k_scales + key * layout.k_scale_pitch;
        using Word = std::conditional_t<kKind == KvKind::kPerToken, std::uint8_t, std::uint32_t>;
        key_scales[lane][strip] = exec.template load_shared<Word>(lane, at);
      }
      FP4PA_UNROLL
      for (int tile = 0; tile < kRowTiles; ++tile) {
        using Scales = std::conditional_t<kSteps == 4, std::uint32_t, std::uint16_t>;
        query_scales[lane][tile] = exec.template load_shared<Scales>(lane, scale_address(query, tile, id[lane]));
      }
    });
    for_constants<kSteps>([&](auto step) {
      PerLane<std::uint32_t[kTerms][kRowTiles][4]> q;
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kTerms * kRowTiles; ++i) {
          exec.load_shared_16(lane, code_address(query, i / kRowTiles, i % kRowTiles, step.value, id[lane]),
                              q[lane][i / kRowTiles][i % kRowTiles]);
        }
      });
      for_constants<kTileKeys / 32>([&](auto strip) {
        PerLane<std::uint32_t[4][2]> keys;
        load_keys(exec, stream.tile_offset(), layout.k_chunks, id, strip.value, step.value, keys);
        for_constants<4 * kTerms * kRowTiles>([&](auto i) {
          constexpr int kOctet = i.value / (kTerms * kRowTiles);
          constexpr int kTerm = i.value / kRowTiles % kTerms;
          constexpr int kTile = i.value % kRowTiles;
          constexpr core::ScaleSelect kSelectA{step.value, kTerm};
          constexpr core::ScaleSelect kSelectB{Form::key_byte(step.value), kOctet};
          exec.template multiply_scaled<Atom, kSelectA, kSelectB>(
              [&](Lane lane) -> auto& { return scores[lane][4 * strip.value + kOctet][kTile]; },
              [&](Lane lane) -> auto& { return q[lane][kTerm][kTile]; }, [&](Lane lane) -> auto& { return keys[lane][kOctet]; },
              [&](Lane lane) { return query_scales[lane][kTile]; }, [&](Lane lane) { return key_scales[lane][strip.value]; });
        });
      });
    });
  }

  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend&, const Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    static_assert(sm80::decodes_to_bf16(kKind));
    output.order = Base::dim_order(kKind);
    Base::template multiply_values<core::BF16>(exec, stream.behind_stages(), p, output.value);
  }

 private:
  /// B of 32 keys, eight each, for a step of 32 dims.
  FP4PA_FN static void load_keys(Exec& exec, std::uint32_t keys, int chunks, PerLane<int>& id, int strip, int step,
                                 PerLane<std::uint32_t[4][2]>& out) {
    if constexpr (Form::kBytes) {
      // Matrices: keys 0-7 and 8-15 of sixteen, each with the lower and the upper half of the step's dims.
      FP4PA_UNROLL
      for (int half = 0; half < 2; ++half) {
        PerLane<std::uint32_t[4]> words;
        exec.template load_matrix<false>(
            [&](Lane lane) {
              const int key = 32 * strip + 16 * half + id[lane] / 16 * 8 + id[lane] % 8;
              return sm80::chunk_offset(sm80::row_offset(keys, key, chunks), 2 * step + id[lane] / 8 % 2);
            },
            [&](Lane lane) -> auto& { return words[lane]; });
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int i = 0; i < 4; ++i) out[lane][2 * half + i / 2][i % 2] = words[lane][i];
        });
      }
    } else {
      PerLane<std::uint32_t[4]> words;
      exec.template load_matrix<false>(
          [&](Lane lane) { return sm80::chunk_offset(sm80::row_offset(keys, 32 * strip + id[lane], chunks), step); },
          [&](Lane lane) -> auto& { return words[lane]; });
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int octet = 0; octet < 4; ++octet) {
          out[lane][octet][0] = even_containers(words[lane][octet]);
          out[lane][octet][1] = odd_containers(words[lane][octet]);
        }
      });
    }
  }
};

/// Which shim an instance is built on.
template <core::SimtConfig kShape, class Executor>
using ShimFor = std::conditional_t<kShape.decode_tiles, PrefillShim<kShape, Executor>, Shim<kShape, Executor>>;

}  // namespace fp4pa::sm120
