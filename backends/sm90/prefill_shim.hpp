// sm_90a, many query rows: sm_80's prefill with wgmma. Eight warps of 16 rows are two warpgroups; tiles of keys and values are
// decoded to 16-bit operands in shared memory and multiplied from there, with queries and P in registers.
//
// Products are asynchronous, and the decoding of what is needed next runs beside them:
//
//   scores = Q K(n)    beside it V(n) is decoded
//   barrier            V(n) is there, K(n) is not needed any more
//   softmax
//   output += P V(n)   beside it K(n + 1) is decoded
//   barrier            in the stream: K(n + 1) is there, V(n) is not needed any more
//
// so that one decoded tile of each is enough. A stream runs a tile ahead for it (kTilesAhead).
#pragma once

#include <cstdint>

#include "backends/sm80/prefill_shim.hpp"
#include "backends/sm90/operand_tile.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

/// Bytes of the decoded tiles of an instance, and of what it takes to align them.
[[nodiscard]] constexpr int decoded_bytes(const core::SimtConfig& c) {
  return 2 * 2 * c.tile_keys * c.head_dim + kSwizzleBytes;
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

  struct QueryRegisters {
    std::uint32_t step[kSteps][4];  // A of the first term
  };
  FP4PA_FN static void load_query_registers(Exec& exec, std::uint32_t query, int, PerLane<QueryRegisters>& registers) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        exec.load_shared_16(lane, Base::query_address(query, 0, s, lane.id), registers[lane].step[s]);
      }
    });
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query, const PerLane<QueryRegisters>& registers,
                                 int terms, Scores& scores) {
    const std::uint32_t keys = decoded(stream);
    if (stream.first()) {
      decode_keys(exec, stream, stream.tile_offset());
      exec.async_fence();
      exec.block_barrier();
    }
    if (terms > 1) {
      PerLane<QueryRegisters> rest;
      load_query_registers(exec, query + Base::kTermBytes, 0, rest);
      multiply_keys<kKind>(exec, keys, rest, false, scores);
      exec.group_wait([&](Lane lane) -> auto& { return scores[lane]; });
    }
    multiply_keys<kKind>(exec, keys, registers, terms > 1, scores);
    decode_values(exec, stream);
    exec.async_fence();
    exec.group_wait([&](Lane lane) -> auto& { return scores[lane]; });
    exec.block_barrier();
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
    const std::uint32_t values = decoded(stream) + Tile::kBytes;
    const auto sums = [&](Lane lane) -> auto& { return output.value[lane]; };
    exec.group_fence();
    FP4PA_UNROLL
    for (int s = 0; s < kTileKeys / kStep; ++s) {
      exec.template group_multiply<Element<kKind>, kHeadDim, true>(
          sums, [&](Lane lane) -> auto& { return weight[lane][s]; }, Tile::value_step(values, s), true);
    }
    exec.group_commit();
    if (stream.has_next()) decode_keys(exec, stream, stream.next_tile_offset());
    exec.async_fence();
    exec.group_wait(sums);
  }

 private:
  using Tile = OperandTile<kTileKeys, kHeadDim>;
  template <KvKind kKind>
  using Element = std::conditional_t<sm80::decodes_to_bf16(kKind), core::BF16, core::F16>;

  /// Keys, and values behind them.
  template <class Stream>
  FP4PA_FN static std::uint32_t decoded(const Stream& stream) {
    return (stream.behind_stages() + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  }
  template <class Stream>
  FP4PA_FN static void decode_keys(Exec& exec, const Stream& stream, std::uint32_t tile) {
    const core::TileLayout layout = stream.layout();
    sm80::TileDecoder<kConfig.k[0], Exec, kHeadDim, kTileKeys, kThreads, Tile>::run(
        exec, tile, {tile + layout.k_scales, layout.k_scale_pitch}, decoded(stream));
  }
  template <class Stream>
  FP4PA_FN static void decode_values(Exec& exec, const Stream& stream) {
    const core::TileLayout layout = stream.layout();
    const std::uint32_t tile = stream.tile_offset();
    sm80::TileDecoder<kConfig.v[0], Exec, kHeadDim, kTileKeys, kThreads, Tile>::run(
        exec, tile + layout.v_codes, {tile + layout.v_scales, layout.v_scale_pitch}, decoded(stream) + Tile::kBytes);
  }

  template <KvKind kKind, class Scores>
  FP4PA_FN static void multiply_keys(Exec& exec, std::uint32_t keys, const PerLane<QueryRegisters>& query, bool accumulate,
                                     Scores& scores) {
    exec.group_fence();
    FP4PA_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      exec.template group_multiply<Element<kKind>, kTileKeys, false>(
          [&](Lane lane) -> auto& { return scores[lane]; }, [&](Lane lane) -> auto& { return query[lane].step[s]; },
          Tile::key_step(keys, s), accumulate || s > 0);
    }
    exec.group_commit();
  }
};

}  // namespace fp4pa::sm90
