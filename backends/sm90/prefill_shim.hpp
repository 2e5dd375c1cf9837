// sm_90a, many query rows: sm_80's prefill with wgmma. Eight warps of 16 rows are two warpgroups; tiles of keys and values are
// decoded to 16-bit operands in shared memory and multiplied from there, with P in registers and queries in shared memory too.
//
// Products are asynchronous, and the next tile is decoded beside them:
//
//   barrier            in the stream: tile n is decoded, and nobody reads tile n - 1 any more
//   scores = Q K(n)    beside it K(n + 1) is decoded
//   softmax
//   output += P V(n)   beside it V(n + 1) is decoded
//
// so that there are two decoded tiles, one barrier a tile, and between barriers the warpgroups go their own ways: one computes
// exponentials while the other's products run. A stream runs a tile ahead for it (kTilesAhead).
#pragma once

#include <cstdint>

#include "backends/sm80/prefill_shim.hpp"
#include "backends/sm90/operand_tile.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

/// Bytes of the decoded tiles of an instance, and of what it takes to align them.
[[nodiscard]] constexpr int decoded_bytes(const core::SimtConfig& c) {
  return 2 * (2 * 2 * c.tile_keys * c.head_dim) + kSwizzleBytes;
}

template <core::SimtConfig kShape, class Executor>
struct PrefillShim : sm80::PrefillShim<kShape, Executor> {
  using Base = sm80::PrefillShim<kShape, Executor>;
  using Exec = Executor;
  using Lane = typename Exec::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;
  using Base::kConfig, Base::kHeadDim, Base::kSteps, Base::kThreads, Base::kTileKeys;

  static_assert(kConfig.row_tiles == 1 && kConfig.warps % 4 == 0);
  static constexpr int kTilesAhead = 1;

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
      store_query_pair(exec, lane, kind, query, row, dim, low, high, terms);
    });
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query,
                                 const PerLane<typename Base::QueryRegisters>&, int terms, Scores& scores) {
    if (stream.first()) {
      decode_keys(exec, stream, stream.tile_offset(), decoded(stream, 0));
      decode_values(exec, stream, stream.tile_offset(), decoded(stream, 0));
      exec.async_fence();  // of the queries too
      exec.block_barrier();
    }
    const auto sums = [&](Lane lane) -> auto& { return scores[lane]; };
    // Found again for every tile: descriptors of all steps would stay in registers otherwise.
    const std::uint32_t keys = again(decoded(stream, 0));
    const std::uint32_t rows = again(Query::group(query, terms, exec.warp()));
    if (terms > 1) {
      multiply_keys<kKind>(exec, keys, rows, terms, 1, false, sums);
      exec.group_wait(sums);
    }
    multiply_keys<kKind>(exec, keys, rows, terms, 0, terms > 1, sums);
    if (stream.has_next()) decode_keys(exec, stream, stream.next_tile_offset(), decoded(stream, 1));
    exec.group_wait(sums);
  }

  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    constexpr int kRaise = sm80::decodes_to_bf16(kKind) ? 0 : sm80::kProbabilityLog2;
    constexpr int kDecodedLog2 = kKind == KvKind::kNvfp4 ? sm80::kNvfp4Log2 : 0;
    backend.set_unit(output, stream.v_global(), -kDecodedLog2 - kRaise);
    output.order = Base::dim_order(kKind);

    PerLane<std::uint32_t[kTileKeys / kStep][4]> weight;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kTileKeys / 4; ++i) {
        const auto& pair = p[lane][i / 4 * 2 + i % 4 / 2][0];
        const float first = pair[i % 2 * 2];
        const float second = pair[i % 2 * 2 + 1];
        constexpr float kUnit = static_cast<float>(1 << kRaise);
        weight[lane][i / 4][i % 4] =
            sm80::decodes_to_bf16(kKind) ? sm80::pack_bf16(first, second) : sm80::pack_f16(first * kUnit, second * kUnit);
      }
    });
    const std::uint32_t values = again(decoded(stream, 0) + Tile::kBytes);
    const auto sums = [&](Lane lane) -> auto& { return output.value[lane]; };
    exec.group_fence();
    FP4PA_UNROLL
    for (int s = 0; s < kTileKeys / kStep; ++s) {
      exec.template group_multiply<Element<kKind>, kHeadDim, true>(
          sums, [&](Lane lane) -> auto& { return weight[lane][s]; }, Tile::value_step(values, s), true);
    }
    exec.group_commit();
    if (stream.has_next()) decode_values(exec, stream, stream.next_tile_offset(), decoded(stream, 1));
    exec.async_fence();
    exec.group_wait(sums);
  }

 private:
  using Tile = OperandTile<kTileKeys, kHeadDim>;
  using Query = QueryTile<kHeadDim>;
  template <KvKind kKind>
  using Element = std::conditional_t<sm80::decodes_to_bf16(kKind), core::BF16, core::F16>;

  FP4PA_FN static std::uint32_t again(std::uint32_t offset) {
    return static_cast<std::uint32_t>(sm80::recomputed(static_cast<int>(offset)));
  }
  /// The decoded keys of the tile `ahead` of the current one, and its values behind them.
  template <class Stream>
  FP4PA_FN static std::uint32_t decoded(const Stream& stream, int ahead) {
    const std::uint32_t first = (stream.behind_stages() + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
    return first + static_cast<std::uint32_t>((stream.index() + ahead) % 2 * (2 * Tile::kBytes));
  }
  template <class Stream>
  FP4PA_FN static void decode_keys(Exec& exec, const Stream& stream, std::uint32_t from, std::uint32_t to) {
    const core::TileLayout layout = stream.layout();
    sm80::TileDecoder<kConfig.k[0], Exec, kHeadDim, kTileKeys, kThreads, Tile>::run(
        exec, from, {from + layout.k_scales, layout.k_scale_pitch}, to);
  }
  template <class Stream>
  FP4PA_FN static void decode_values(Exec& exec, const Stream& stream, std::uint32_t from, std::uint32_t to) {
    const core::TileLayout layout = stream.layout();
    // Threads that had none of the keys come first.
    constexpr int kChunks = kTileKeys * core::code_bytes(kConfig.v[0], kHeadDim) / core::kChunkBytes;
    constexpr int kWorking = kChunks < kThreads ? kChunks : kThreads;
    sm80::TileDecoder<kConfig.v[0], Exec, kHeadDim, kTileKeys, kThreads, Tile>::template run<kThreads - kWorking>(
        exec, from + layout.v_codes, {from + layout.v_scales, layout.v_scale_pitch}, to + Tile::kBytes);
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
