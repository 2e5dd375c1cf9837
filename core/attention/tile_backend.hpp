// What the kernel body may ask of a back end, and nothing else: the words of the blackboard.
//
// A tile back end owns the fragments of one work item: a query tile, a tile of scores, an output, and one number per row.
// Who holds which element, how many lanes and warps share the work, where a staged page lies and how it gets there is its
// own affair. On the CPU a fragment is a whole tile in cache and an operation is a SIMD loop; on a GPU a fragment is spread
// over lanes and the SIMT back end in core/simt implements these words once over the atoms of a shim.
//
//   rows     one float per row of the tile (RowVector), wherever the back end keeps it
//   scores   [rows, keys of a tile] in log2 units
//   output   [rows, head_dim], unnormalised
//   stream   the keys of one segment of the item, tile by tile: staged ahead, waited for, released
//
// A stream owns the query in the operand form that its segment's format wants: an E4M3 query for keys that enter the
// matrix core as FP4, an f16 query for keys that are decoded. That is why the query is loaded when a stream is opened.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include "core/attention/params.hpp"
#include "core/attention/row_map.hpp"

namespace fp4pa::core {

/// The keys of one segment on their way to the matrix core.
template <class S>
concept KeyStream = requires(S s, const S c) {
  { c.done() } -> std::same_as<bool>;       // no tile left
  { c.keys() } -> std::same_as<KeyRange>;   // key positions of the current tile
  s.wait();                                 // the current tile has landed
  s.release();                              // the current tile is not needed any more; fetch a later one; step on
};

/// What the concept hands to the words that take a function. Named, because nvcc 13.0 takes no requirement with a lambda in it
/// for satisfied.
struct ScoreFunction {
  FP4PA_FN void operator()(float&, std::int32_t, std::int32_t) const {}
};
struct RowFunction {
  FP4PA_FN void operator()(float&, float) const {}
};
struct RowIndexFunction {
  FP4PA_FN void operator()(std::int32_t, float&, float&, float&) const {}
};

/// The stream of a back end's first segment. An alias, because nvcc 13.0 fails on a requirement whose parameter's type
/// names another parameter.
template <class B>
using FirstStream = decltype(std::declval<B&>().template open<0>(
    std::declval<const RowMap&>(), std::declval<const WorkItem&>(), std::declval<KeyRange>()));

template <class B>
concept TileBackend = requires(B b, typename B::Scores& scores, typename B::Output& output, typename B::RowVector& row,
                               const typename B::RowVector& crow, KeyRange range, const RowMap& rows, float x,
                               const WorkItem& item, FirstStream<B> stream) {
  requires std::same_as<decltype(B::kSegments), const std::int32_t>;  // 1, or 2 for a two-tier cache
  requires B::kSegments == 1 || B::kSegments == 2;
  requires std::same_as<decltype(B::kTileKeys), const std::int32_t>;  // keys of a tile of scores
  requires B::kTileKeys > 0;  // clang 22 does not ask in a decltype whether a member is private
  requires KeyStream<FirstStream<B>>;
  { b.template open<0>(rows, item, range) } -> std::same_as<FirstStream<B>>;

  { b.row_vector(x) } -> std::same_as<typename B::RowVector>;  // the same value in every row
  { b.zero_output() } -> std::same_as<typename B::Output>;

  // Products. `multiply_query_key` leaves scores in log2 units, every scale applied; `multiply_probability_value` adds
  // P V to the output, with the segment's own decode multipliers applied.
  { b.multiply_query_key(stream) } -> std::same_as<typename B::Scores>;
  b.multiply_probability_value(stream, scores, output);

  // Scores.
  b.each_score(scores, ScoreFunction());  // f(score, row, key)
  // Raises rows' maxima to the tile's where these are larger, by more than a headroom if the back end has one; whether any was.
  // Then the last argument is 2^(old - new) of every row.
  { b.raise_max(scores, row, row) } -> std::same_as<bool>;
  b.exp2_minus(scores, crow);                                          // score = 2^(score - row), 0 where row is -inf
  b.add_row_sums(scores, row);  // may leave a row's sum spread over the lanes that share it, until finish_rows

  // Rows, element by element, and the output's rows.
  b.each_row(RowFunction(), row, crow);
  b.each_row_index(RowIndexFunction(), row, row, row);
  b.scale_rows(output, crow);

  // The end: sums completed over lanes and, where warps divided the keys, states and outputs merged over warps.
  b.finish_rows(row, row, output);
  b.store_output(rows, output);
  b.store_lse(rows, crow);
  b.store_partial(item, output, crow, crow);
};

/// Whether a back end was compiled for calls without softcap, ALiBi and tree mask alone.
template <class B>
inline constexpr bool kIsPlain = [] {
  if constexpr (requires { B::kPlain; }) return B::kPlain;
  return false;
}();

/// Whether a back end was compiled for trees under a sliding window, too. The question of each score where its row's window begins
/// makes loops longer that are asked for something else.
template <class B>
inline constexpr bool kTakesTreeWindows = [] {
  if constexpr (requires { B::kTreeWindows; }) return B::kTreeWindows;
  return !kIsPlain<B>;
}();

}  // namespace fp4pa::core
