// sm_80 to sm_100, a few query tokens: 16 or 32 query rows, in A; keys and values decoded in registers, as B.
//
// Each warp has tiles of keys of its own, as in shim.hpp, and decodes them once for all rows. With queries in A P stays in its lane, and a
// lane has numbers of half as many rows as with queries in B.
#pragma once

#include <type_traits>

#include "backends/sm80/rows_key_product.hpp"
#include "backends/sm80/rows_value_product.hpp"
#include "backends/sm80/shim.hpp"

namespace fp4pa::sm80 {

template <core::SimtConfig kShape, class Executor>
struct RowsShim : Shim<kShape, Executor> {
  using Base = Shim<kShape, Executor>;
  using Base::kConfig;
  using typename Base::Exec, typename Base::Lane, typename Base::QueryRegisters;
  template <class T>
  using PerLane = typename Base::template PerLane<T>;

  using ScoreAtom = core::ScoreAtom<MmaM16N8K16<core::F16>, core::Operand::kA>;
  using OutputAtom = core::OutputAtom<MmaM16N8K16<core::F16>, core::Operand::kA>;

  static constexpr bool kWindows = rows_have_windows(kConfig.k[0], kConfig.head_dim);
  using ScaleForm = std::conditional_t<kWindows, WindowScales, typename Base::ScaleForm>;
  FP4PA_FN static core::QueryForm query_form(KvKind kind) { return rows_query_form(kind, kWindows); }
  FP4PA_FN static int output_dim(int order, int m, int lane, int v) { return rows_output_dim(order, m, lane, v); }
  using FourDims = RowsFourDims;

  // The query in shared memory: [row tile][step of 16 dims][lane][register of A].
  static constexpr int kSteps = kConfig.head_dim / 16;
  FP4PA_FN static std::uint32_t query_address(std::uint32_t query, int tile, int step, int lane) {
    return query + static_cast<std::uint32_t>(((tile * kSteps + step) * Exec::kLanes + lane) * 16);
  }
  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row,
                                       int head_dim, float multiplier, int terms) {
    each_pair_of_row(exec, kind, scratch, head_dim, multiplier, [&](Lane lane, int dim, float low, float high) {
      store_query_pair(exec, lane, kind, query, row, dim, low, high, terms);
    });
  }
  FP4PA_FN static void store_query_quads(Exec& exec, KvKind kind, std::uint32_t query, int row, int base, int,
                                         const PerLane<float[4]>& quad, int terms) {
    each_pair_of_quads<kConfig.head_dim>(exec, kind, base, quad, [&](Lane lane, int dim, float low, float high) {
      store_query_pair(exec, lane, kind, query, row, dim, low, high, terms);
    });
  }
  FP4PA_FN static void store_query_pair(Exec& exec, Lane lane, KvKind kind, std::uint32_t query, int row, int dim, float low,
                                        float high, int terms) {
    const QueryPlace place = query_place(kind, dim % core::kDimBlock);
    const int step = dim / core::kDimBlock * 2 + place.pair / 2;
    const int in_register = row % 16 / 8 + place.pair % 2 * 2;
    const std::uint32_t at = query_address(query, row / 16, step, row % 8 * 4 + place.thread) + 4 * in_register;
    store_pair(exec, lane, key_is_bf16(kind), low, high, terms, [&](int) { return at; });
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query, const PerLane<QueryRegisters>&, int,
                                 Scores& scores) {
    const std::uint32_t scratch = exec.warp() * core::kScratchBytes;
    RowsKeyProduct<RowsShim>::template multiply<kKind>(exec, stream, query, scratch, scores);
  }
  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    RowsValueProduct<RowsShim>::template multiply<kKind>(exec, backend, stream, p, output);
  }
};

}  // namespace fp4pa::sm80
