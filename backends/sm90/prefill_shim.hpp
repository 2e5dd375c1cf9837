// sm_90a, many query rows: products by wgmma, with queries, decoded keys and decoded values in shared memory and P in registers.
//
// The warps of a block have roles. Two warpgroups of 64 query rows each multiply: they run the kernel's body. A third decodes
// keys and a fourth values, from the cache through registers into a ring of tiles (tile_loader.hpp, producer.hpp, ring.hpp),
// ahead of the others and into the next item while those still store the last. One of their lanes finds the block's items for
// all (items.hpp). So decoding shares no warp's order of instructions with the softmax, the registers that it needs are not
// the products', and the warpgroups wait for nothing but the ring: one computes exponentials while the other's products run.
//
// Operands are f16, but for bf16 caches. A tile of E8M0 scales too far apart for f16 comes in bf16 (f16_window.hpp) and takes
// a way of its own through both products.
#pragma once

#include <cstdint>

#include "backends/sm80/prefill_shim.hpp"
#include "backends/sm90/f16_window.hpp"
#include "backends/sm90/ring.hpp"
#include "backends/sm90/row_chunks.hpp"

namespace fp4pa::sm90 {

template <core::SimtConfig kShape, class Executor>
struct PrefillShim : sm80::PrefillShim<kShape, Executor> {
  using Base = sm80::PrefillShim<kShape, Executor>;
  using Exec = Executor;
  using Lane = typename Exec::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;
  using Base::kConfig, Base::kHeadDim, Base::kSteps, Base::kTileKeys;
  template <std::int32_t S>
  using TileStream = DecodedStream<kConfig, S, Exec, Base::kTokenAlignment>;
  /// Loaders bring a recent tier's dims into the order of the tier before it, and the query's are in that of its keys.
  static constexpr bool kOneOrder = true;

  static constexpr KvKind kValueKind = kConfig.v[0];
  /// P is raised where its operand is f16.
  static constexpr int kProbabilityLog2 = operands_are_bf16(kValueKind) ? 0 : sm80::kPrefillProbabilityLog2;
  /// Operands are values times 2^-operand_log2.
  template <KvKind kKind>
  FP4PA_FN static constexpr int operand_log2() {
    if constexpr (has_window(kKind)) return F16Window<kKind>::kUnitLog2;
    return kKind == KvKind::kNvfp4 || kKind == KvKind::kNvfp4Tokens ? -sm80::kDecodedNvfp4Log2 : 0;
  }
  static constexpr int kOnlyUnitLog2 = operand_log2<kValueKind>() - kProbabilityLog2;

  FP4PA_FN static core::QueryForm query_form(KvKind kind) {
    core::QueryForm form = sm80::key_query_form(kind);
    if (!operands_are_bf16(kind)) form.unit = core::exp2_exact(operand_log2<kConfig.k[0]>());
    return form;
  }
  /// As many as planning allots room for: beside E8M0's kinds f16 queries have a second term, which is 0.
  FP4PA_FN static int query_terms(const core::AttentionParams& p, KvKind) {
    return core::query_terms(p.q.dtype, p.rotation, sm80::any_decodes_to_bf16(kConfig));
  }

  static_assert(kConfig.row_tiles == 1 && kConfig.warps % kGroupWarps == 0 && kConfig.producers % kGroupWarps == 0);

  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row,
                                       int head_dim, float multiplier, int terms) {
    sm80::each_pair_of_row(exec, kConfig.k[0], scratch, head_dim, multiplier, [&](Lane lane, int dim, float low, float high) {
      store_query_pair(exec, lane, kind, query, row, dim, low, high, terms);
    });
  }
  FP4PA_FN static void store_query_quads(Exec& exec, KvKind kind, std::uint32_t query, int row, int base, int,
                                         const PerLane<float[4]>& quad, int terms) {
    sm80::each_pair_of_quads<kConfig.head_dim>(exec, kConfig.k[0], base, quad, [&](Lane lane, int dim, float low, float high) {
      store_query_pair(exec, lane, kind, query, row, dim, low, high, terms);
    });
  }
  using RowChunks = sm90::RowChunks<kConfig.k[0], kConfig.v[0], Exec, kHeadDim>;

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
    if constexpr (has_window(kKind)) {
      if (stream.wide()) {
        multiply_wide_keys<kKind>(exec, keys, query, terms, sums);
        stream.pass();
        return;
      }
    }
    // Two ways, of which the first product of each only writes: sums that it may read would be kept from tile to tile.
    if (terms > 1) {
      multiply_keys<kKind, false>(exec, keys, rows, terms, 1, sums);
      multiply_keys<kKind, true>(exec, keys, rows, terms, 0, sums);
    } else {
      multiply_keys<kKind, false>(exec, keys, rows, terms, 0, sums);
    }
    stream.pass();
  }

  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend& backend, Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    output.order = Base::dim_order(kValueKind);
    Weights weight;
    if constexpr (Stream::kSegment == 1) {
      leave_unit(backend, output);
      weigh_unraised(exec, p, weight);
      stream.wait();
      multiply_values<Element<kKind>>(exec, again(stream.tile()), weight, output);
    } else if constexpr (!has_window(kKind)) {
      weigh(exec, p, weight, operands_are_bf16(kKind) ? sm80::pack_bf16 : sm80::pack_f16);
      stream.wait();
      multiply_values<Element<kKind>>(exec, again(stream.tile()), weight, output);
    } else {
      stream.wait();
      if (stream.wide()) {
        leave_unit(backend, output);
        weigh_unraised(exec, p, weight);
        multiply_values<core::BF16>(exec, again(stream.tile()), weight, output);
      } else {
        weigh(exec, p, weight, sm80::pack_f16);
        multiply_values<core::F16>(exec, again(stream.tile()), weight, output);
      }
    }
    stream.pass();
  }

 private:
  using Tile = typename Ring<kConfig>::Tile;
  using Query = QueryTile<kHeadDim>;
  template <KvKind kKind>
  using Element = std::conditional_t<operands_are_bf16(kKind), core::BF16, core::F16>;

  /// Of 16 bytes, as descriptors count.
  FP4PA_FN static std::uint32_t again(std::uint32_t offset) {
    return static_cast<std::uint32_t>(sm80::recomputed(static_cast<int>(offset / core::kChunkBytes))) * core::kChunkBytes;
  }

  template <KvKind kKind, bool kAccumulate, class Sums>
  FP4PA_FN static void multiply_keys(Exec& exec, std::uint32_t keys, std::uint32_t rows, int terms, int term, const Sums& sums) {
    exec.group_fence();
    FP4PA_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      exec.template group_multiply_shared<Element<kKind>, kTileKeys, false>(
          sums, Query::step(rows, terms, term, s), Tile::key_step(keys, s), kAccumulate || s > 0);
    }
    exec.group_commit();
    exec.group_wait(sums);
  }
  using Weights = PerLane<std::uint32_t[kTileKeys / kStep][4]>;
  template <class Scores, class Pack>
  FP4PA_FN static void weigh(Exec& exec, const Scores& p, Weights& weight, Pack&& pack) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kTileKeys / 4; ++i) {
        const auto& pair = p[lane][i / 4 * 2 + i % 4 / 2][0];
        weight[lane][i / 4][i % 4] = pack(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
      }
    });
  }
  /// The same in bf16, from probabilities that are raised for f16.
  template <class Scores>
  FP4PA_FN static void weigh_unraised(Exec& exec, const Scores& p, Weights& weight) {
    // Unknown until here, so that no product of it is computed, and kept in registers, for tiles in f16.
    const float unit = core::exp2_exact(sm80::recomputed(-kProbabilityLog2));
    weigh(exec, p, weight, [unit](float a, float b) { return sm80::pack_bf16(a * unit, b * unit); });
  }
  template <class Operand, class Output>
  FP4PA_FN static void multiply_values(Exec& exec, std::uint32_t values, Weights& weight, Output& output) {
    const auto sums = [&](Lane lane) -> auto& { return output.value[lane]; };
    exec.group_fence();
    FP4PA_UNROLL
    for (int s = 0; s < kTileKeys / kStep; ++s) {
      exec.template group_multiply<Operand, kHeadDim, true>(
          sums, [&](Lane lane) -> auto& { return weight[lane][s]; }, Tile::value_step(values, s), true);
    }
    exec.group_commit();
    exec.group_wait(sums);
  }
  /// Keys in bf16. A query's term in f16 is the sum of two in bf16, which are found from it a step at a time.
  /// @param query  of this warp
  template <KvKind kKind, class Sums>
  FP4PA_FN static void multiply_wide_keys(Exec& exec, std::uint32_t keys, std::uint32_t query, int terms, const Sums& sums) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kTileKeys / 2; ++i) sums(lane)[i / 4][0][i % 4] = 0.0f;
    });
    FP4PA_NO_UNROLL
    for (int i = 0; i < terms * kSteps; ++i) {
      const int step = i % kSteps;
      PerLane<std::uint32_t[4]> in;
      exec.template load_matrix<false>(
          [&](Lane lane) { return Query::chunk_address(query, terms, i / kSteps, lane.id % 16, 2 * step + lane.id / 16); },
          [&](Lane lane) -> auto& { return in[lane]; });
      PerLane<std::uint32_t[2][4]> term;
      exec.each_lane([&](Lane lane) {
        const float unit = core::exp2_exact(-operand_log2<kKind>());
        FP4PA_UNROLL
        for (int w = 0; w < 4; ++w) {
          const float low = core::query_half<Exec>(DType::kF16, in[lane][w] & 0xffffu) * unit;
          const float high = core::query_half<Exec>(DType::kF16, in[lane][w] >> 16) * unit;
          term[lane][0][w] = sm80::pack_bf16(low, high);
          term[lane][1][w] = sm80::pack_bf16_rest(low, high, term[lane][0][w]);
        }
      });
      exec.group_fence();
      FP4PA_UNROLL
      for (int t = 0; t < 2; ++t) {
        exec.template group_multiply<core::BF16, kTileKeys, false>(
            sums, [&](Lane lane) -> auto& { return term[lane][t]; }, Tile::key_step(keys, step), true);
      }
      exec.group_commit();
      exec.group_wait(sums);
    }
  }
  /// The output's unit becomes 1, since what bf16 adds may leave the range of any other, and stays so: an item's values come
  /// in bf16 from then on. Of E8M0's kinds the multiplier is 1.
  template <class Backend>
  FP4PA_FN static void leave_unit(const Backend& backend, typename Backend::Output& output) {
    if (output.unit_log2 != 0) return;
    static_assert(kOnlyUnitLog2 != 0);
    const float unit = core::exp2_exact(kOnlyUnitLog2);
    if constexpr (kConfig.segments == 1) {
      backend.each_output(output, [unit](float& value, Lane, int, int, int) { value *= unit; });
    } else {  // one after the other: their product may leave the range of a float
      const float global = backend.value_global();
      backend.each_output(output, [=](float& value, Lane, int, int, int) { value = value * unit * global; });
    }
    output.unit_log2 = -kOnlyUnitLog2;
  }

  FP4PA_FN static void store_query_pair(Exec& exec, Lane lane, KvKind kind, std::uint32_t query, int row, int dim, float low,
                                        float high, int terms) {
    const int p = sm80::pair_distance(kConfig.k[0]) == 4 ? dim % 4 : dim % 8 / 2;  // pair of a chunk of 8 dims
    const auto at = [&](int term) {
      return Query::chunk_address(query, terms, term, row, dim / 8) + 4 * static_cast<std::uint32_t>(p);
    };
    const bool bf16 = operands_are_bf16(kind);
    const std::uint32_t word = bf16 ? sm80::pack_bf16(low, high) : sm80::pack_f16(low, high);
    exec.template store_shared<std::uint32_t>(lane, at(0), word);
    if (terms == 1) return;
    exec.template store_shared<std::uint32_t>(lane, at(1), bf16 ? sm80::pack_bf16_rest(low, high, word)
                                                                : sm80::pack_f16_rest(low, high, word));
  }
};

}  // namespace fp4pa::sm90
