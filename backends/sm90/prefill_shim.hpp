// sm_90a, many query rows: products by wgmma, with queries, decoded keys and decoded values in shared memory and P in registers.
//
// The warps of a block have roles. Two warpgroups of 64 query rows each multiply: they run the kernel's body. A third decodes keys
// and a fourth values, from the cache through registers into a ring of tiles (tile_loader.hpp, producer.hpp, ring.hpp), ahead of
// the others and into the next item while those still store the last. One of their lanes finds the block's items for all
// (items.hpp). So decoding shares no warp's order of instructions with the softmax, the registers that it needs are not the
// products', and the warpgroups wait for nothing but the ring: one computes exponentials while the other's products run.
#pragma once

#include <cstdint>

#include "backends/sm80/prefill_shim.hpp"
#include "backends/sm90/ring.hpp"

namespace fp4pa::sm90 {

template <core::SimtConfig kShape, class Executor>
struct PrefillShim : sm80::PrefillShim<kShape, Executor> {
  using Base = sm80::PrefillShim<kShape, Executor>;
  using Exec = Executor;
  using Lane = typename Exec::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;
  using Base::kConfig, Base::kHeadDim, Base::kSteps, Base::kTileKeys;
  using TileStream = DecodedStream<kConfig, Exec, Base::kTokenAlignment>;

  static_assert(kConfig.row_tiles == 1 && kConfig.warps % kGroupWarps == 0 && kConfig.producers % kGroupWarps == 0);

  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row,
                                       int head_dim, float multiplier, int terms) {
    exec.each_lane([&](Lane lane) {
      for (int i = lane.id; i < head_dim / 2; i += Exec::kLanes) {
        const int dim = sm80::pair_first_dim(kind, i);
        const auto element = [&](int d) { return exec.template load_shared<float>(lane, scratch + 4 * d) * multiplier; };
        store_query_pair(exec, lane, kind, query, row, dim, element(dim), element(dim + sm80::pair_distance(kind)), terms);
      }
    });
  }
  FP4PA_FN static void store_query_quads(Exec& exec, KvKind kind, std::uint32_t query, int row, int base, int,
                                         const PerLane<float[4]>& quad, int terms) {
    sm80::each_query_pair(exec, kind, base, quad, [&](Lane lane, int dim, float low, float high) {
      if (kConfig.head_dim % (4 * Exec::kLanes) != 0 && dim >= kConfig.head_dim) return;  // lanes without a quad
      store_query_pair(exec, lane, kind, query, row, dim, low, high, terms);
    });
  }
  // Queries and outputs of 16 bits, 8 dims at a time. Next to FP4 keys dims lie as they fall out of the decoding: p and p + 4 of
  // eight side by side.
  static constexpr bool kStoresQueryChunks = true;
  FP4PA_FN static void store_query_chunk(Exec& exec, Lane lane, KvKind kind, std::uint32_t query, int row, int chunk,
                                         core::QueryChunk x) {
    if (sm80::pair_distance(kind) == 4) {
      const auto& w = x.word;
      x = {{low_halves(w[0], w[2]), high_halves(w[0], w[2]), low_halves(w[1], w[3]), high_halves(w[1], w[3])}};
    }
    exec.template store_shared<core::QueryChunk>(lane, Query::chunk_address(query, 1, 0, row, chunk), x);
  }
  static constexpr bool kQuadsHoldChunks = true;
  FP4PA_FN static std::uint32_t pack_f16(float low, float high) { return sm80::pack_f16(low, high); }
  FP4PA_FN static std::uint32_t pack_bf16(float low, float high) { return sm80::pack_bf16(low, high); }
  FP4PA_FN static void order_output_chunk(std::uint32_t (&w)[4]) {
    if (!core::is_fp4(kConfig.v[0])) return;
    const std::uint32_t natural[4] = {low_halves(w[0], w[1]), low_halves(w[2], w[3]), high_halves(w[0], w[1]), high_halves(w[2], w[3])};
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) w[i] = natural[i];
  }

  /// They stay in shared memory, where the group's products read them.
  FP4PA_FN static void load_query_registers(Exec& exec, std::uint32_t, int, PerLane<typename Base::QueryRegisters>&) {
    exec.async_fence();
    exec.block_barrier();
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, Stream& stream, std::uint32_t query,
                                 const PerLane<typename Base::QueryRegisters>&, int terms, Scores& scores) {
    const auto sums = [&](Lane lane) -> auto& { return scores[lane]; };
    // Found again for every tile: descriptors of all steps would stay in registers otherwise.
    const std::uint32_t keys = again(stream.tile());
    const std::uint32_t rows = again(Query::group(query, terms, exec.warp()));
    if (terms > 1) {
      multiply_keys<kKind>(exec, keys, rows, terms, 1, false, sums);
      exec.group_wait(sums);
    }
    multiply_keys<kKind>(exec, keys, rows, terms, 0, terms > 1, sums);
    exec.group_wait(sums);
    stream.pass();
  }

  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend&, Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    PerLane<std::uint32_t[kTileKeys / kStep][4]> weight;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kTileKeys / 4; ++i) {
        const auto& pair = p[lane][i / 4 * 2 + i % 4 / 2][0];
        const float first = pair[i % 2 * 2];
        const float second = pair[i % 2 * 2 + 1];
        constexpr float kUnit = static_cast<float>(1 << Base::kRaise);
        weight[lane][i / 4][i % 4] =
            sm80::decodes_to_bf16(kKind) ? sm80::pack_bf16(first, second) : sm80::pack_f16(first * kUnit, second * kUnit);
      }
    });
    output.order = Base::dim_order(kKind);
    stream.wait();
    const std::uint32_t values = again(stream.tile());
    const auto sums = [&](Lane lane) -> auto& { return output.value[lane]; };
    exec.group_fence();
    FP4PA_UNROLL
    for (int s = 0; s < kTileKeys / kStep; ++s) {
      exec.template group_multiply<Element<kKind>, kHeadDim, true>(
          sums, [&](Lane lane) -> auto& { return weight[lane][s]; }, Tile::value_step(values, s), true);
    }
    exec.group_commit();
    exec.group_wait(sums);
    stream.pass();
  }

 private:
  using Tile = typename Ring<kConfig>::Tile;
  using Query = QueryTile<kHeadDim>;
  template <KvKind kKind>
  using Element = std::conditional_t<sm80::decodes_to_bf16(kKind), core::BF16, core::F16>;

  FP4PA_FN static std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) { return (a & 0xffffu) | b << 16; }
  FP4PA_FN static std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) { return a >> 16 | (b & 0xffff0000u); }
  FP4PA_FN static std::uint32_t again(std::uint32_t offset) {
    return static_cast<std::uint32_t>(sm80::recomputed(static_cast<int>(offset)));
  }

  template <KvKind kKind, class Sums>
  FP4PA_FN static void multiply_keys(Exec& exec, std::uint32_t keys, std::uint32_t rows, int terms, int term, bool accumulate,
                                     const Sums& sums) {
    exec.group_fence();
    FP4PA_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      exec.template group_multiply_shared<Element<kKind>, kTileKeys, false>(
          sums, Query::step(rows, terms, term, s), Tile::key_step(keys, s), accumulate || s > 0);
    }
    exec.group_commit();
  }
  FP4PA_FN static void store_query_pair(Exec& exec, Lane lane, KvKind kind, std::uint32_t query, int row, int dim, float low,
                                        float high, int terms) {
    const int p = sm80::pair_distance(kind) == 4 ? dim % 4 : dim % 8 / 2;  // pair of a chunk of 8 dims
    const auto at = [&](int term) { return Query::chunk_address(query, terms, term, row, dim / 8) + 4 * static_cast<std::uint32_t>(p); };
    const bool bf16 = sm80::decodes_to_bf16(kind);
    const std::uint32_t word = bf16 ? sm80::pack_bf16(low, high) : sm80::pack_f16(low, high);
    exec.template store_shared<std::uint32_t>(lane, at(0), word);
    if (terms == 1) return;
    exec.template store_shared<std::uint32_t>(lane, at(1), bf16 ? sm80::pack_bf16_rest(low, high, word)
                                                                : sm80::pack_f16_rest(low, high, word));
  }
};

}  // namespace fp4pa::sm90
