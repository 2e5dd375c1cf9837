// THE kernel body: paged attention of one work item, on every device.
//
//   for each segment of the sequence's keys (4-bit pages, then the 16-bit window)
//     load the query in the operand form of the segment
//     for each tile of keys:  S = Q K^T;  softcap, bias, mask;  online softmax;  O += P V
//   normalise and write O and LSE, or leave a partial state for the merge
//
// It speaks only the words of tile_backend.hpp and names no architecture. Everything is in log2 units, so that the one
// transcendental of the inner loop is exp2. What differs between devices - who owns a row, how pages are staged, which
// operand is A and which is B - is behind the concept; what differs between calls - masks, softcap, sinks - is here once.
#pragma once

#include "core/attention/params.hpp"
#include "core/attention/row_map.hpp"
#include "core/attention/softmax_state.hpp"
#include "core/attention/tile_backend.hpp"
#include "core/math.hpp"
#include "core/schedule/work.hpp"

namespace fp4pa::core {

/// The running softmax of a tile's rows and the output it belongs to. `max` is what sum and output are relative to: a row's
/// largest score, or less by what the back end has headroom for.
template <TileBackend B>
struct RunningState {
  typename B::RowVector max;
  typename B::RowVector sum;
  typename B::Output output;
};

/// Rows that do not exist are computed on zeros and dropped at the store. They take row 0's place wherever something of a row is
/// asked for: without a branch a compiler finds it once for all keys of the tile.
[[nodiscard]] FP4PA_FN std::int32_t existing_row(const RowMap& rows, std::int32_t row) { return row < rows.num_rows ? row : 0; }

/// Logit softcap and ALiBi: what changes scores before the mask. Both are rare, so neither is in the common path.
template <TileBackend B>
FP4PA_FN void adjust_scores(B& b, const AttentionParams& p, const RowMap& rows, typename B::Scores& scores) {
  if (p.softcap_log2 > 0.0f) {
    const float cap = p.softcap_log2;
    const float inverse = 1.0f / cap;
    b.each_score(scores, [cap, inverse](float& score, std::int32_t, std::int32_t) { score = cap * math::tanh(score * inverse); });
  }
  if (p.alibi_slopes != nullptr) {
    b.each_score(scores, [&](float& score, std::int32_t row, std::int32_t key) {
      const std::int32_t r = existing_row(rows, row);
      score += p.alibi_slopes[rows.head(r)] * kLog2E * static_cast<float>(key - rows.position(r));
    });
  }
}

/// Keys that a row must not see, and keys past the end of the sequence, become -inf.
template <TileBackend B>
FP4PA_FN void mask_scores(B& b, const AttentionParams& p, const RowMap& rows, KeyRange keys, typename B::Scores& scores) {
  if (!kIsPlain<B> && p.tree_mask != nullptr) {
    b.each_score(scores, [&](float& score, std::int32_t row, std::int32_t key) {
      if (key >= keys.end || !RowMask<kTakesTreeWindows<B>>(p, rows, existing_row(rows, row)).sees(key)) score = kMinusInf;
    });
    return;
  }
  b.each_score(scores, [&](float& score, std::int32_t row, std::int32_t key) {
    const KeyRange seen = visible_range(p, rows, existing_row(rows, row));
    score = ((key >= seen.begin) & (key < seen.end) & (key < keys.end)) ? score : kMinusInf;
  });
}

/// Folds a tile of scores into the state: scores become probabilities, output and sum move to the new maximum.
template <TileBackend B>
FP4PA_FN void online_softmax(B& b, typename B::Scores& scores, RunningState<B>& state) {
  typename B::RowVector correction = b.row_vector(1.0f);
  if (b.raise_max(scores, state.max, correction)) {
    b.each_row([](float& sum, float c) { sum *= c; }, state.sum, correction);
    b.scale_rows(state.output, correction);
  }
  b.exp2_minus(scores, state.max);
  b.add_row_sums(scores, state.sum);
}

/// The keys of `range` that lie in segment S.
template <std::int32_t S, TileBackend B>
FP4PA_FN void attend_segment(B& b, const AttentionParams& p, const RowMap& rows, const WorkItem& item, KeyRange range,
                             RunningState<B>& state) {
  if (range.empty()) return;
  const bool adjusts = !kIsPlain<B> && (p.softcap_log2 > 0.0f || p.alibi_slopes != nullptr);
  const bool tree_windows = kTakesTreeWindows<B> && p.tree_mask != nullptr && p.sliding_window > 0;
  auto stream = b.template open<S>(rows, item, range);
  while (!stream.done()) {
    const KeyRange keys = stream.keys();
    stream.wait();
    auto scores = b.multiply_query_key(stream);
    if (adjusts) adjust_scores(b, p, rows, scores);
    const bool full = keys.end - keys.begin == B::kTileKeys;
    if (!full || tree_windows || !rows.all_see.contains(keys)) mask_scores(b, p, rows, keys, scores);
    online_softmax(b, scores, state);
    b.multiply_probability_value(stream, scores, state.output);
    stream.release();
  }
}

/// Sinks, normalisation, O and LSE.
template <TileBackend B>
FP4PA_FN void store_result(B& b, const AttentionParams& p, const RowMap& rows, RunningState<B>& state) {
  typename B::RowVector inverse = b.row_vector(1.0f);
  if (p.sinks != nullptr) {
    b.each_row_index(
        [&](std::int32_t row, float& max, float& sum, float& inv) {
          if (row >= rows.num_rows) return;
          const SoftmaxState with = SoftmaxState{max, sum}.with_sink(p.sinks[rows.head(row)] * kLog2E);
          inv = rescale(max, with.max);  // the output is still relative to the maximum before the sink
          max = with.max;
          sum = with.sum;
        },
        state.max, state.sum, inverse);
  }
  b.each_row([](float& inv, float sum) { inv = sum == 0.0f ? 0.0f : inv / sum; }, inverse, state.sum);
  b.scale_rows(state.output, inverse);
  b.store_output(rows, state.output);
  if (p.lse != nullptr) {
    b.each_row([](float& max, float sum) { max = SoftmaxState{max, sum}.lse(); }, state.max, state.sum);
    b.store_lse(rows, state.max);
  }
}

/// The keys of an item that any of its rows may see: keys before every row's window are not only masked but never read, since an
/// engine may have freed their pages.
/// @tparam kTreeWindows  as of RowMask
template <bool kTreeWindows>
[[nodiscard]] FP4PA_FN KeyRange keys_of(const AttentionParams& p, const RowMap& rows, const WorkItem& item) {
  const std::int32_t first_key = first_visible_key<kTreeWindows>(p, rows);
  const std::int32_t tile_begin = item.tiles.begin * kScheduleTokens;
  const std::int32_t tile_end = item.tiles.end * kScheduleTokens;
  return {tile_begin > first_key ? tile_begin : first_key, tile_end < rows.kv_len ? tile_end : rows.kv_len};
}

/// Those of an item's keys that lie in segment S of two.
/// @param border  first_segment_tokens
template <std::int32_t S>
[[nodiscard]] FP4PA_FN KeyRange keys_of_segment(KeyRange keys, std::int32_t border) {
  if constexpr (S == 0) {
    return {keys.begin, keys.end < border ? keys.end : border};
  } else {
    return {keys.begin > border ? keys.begin : border, keys.end};
  }
}

/// One work item from its queries to its result.
/// @param rows  RowMap(p, item), for whoever has it already
template <TileBackend B>
FP4PA_FN void attend(B& b, const AttentionParams& p, const WorkItem& item, const RowMap& rows) {
  RunningState<B> state{b.row_vector(kMinusInf), b.row_vector(0.0f), b.zero_output()};

  const KeyRange keys = keys_of<kTakesTreeWindows<B>>(p, rows, item);
  if constexpr (B::kSegments == 1) {
    attend_segment<0>(b, p, rows, item, keys, state);
  } else {
    const std::int32_t border = first_segment_tokens(p, rows.kv_len);
    attend_segment<0>(b, p, rows, item, keys_of_segment<0>(keys, border), state);
    attend_segment<1>(b, p, rows, item, keys_of_segment<1>(keys, border), state);
  }

  b.finish_rows(state.max, state.sum, state.output);
  if (item.partial_slot >= 0) {
    b.store_partial(item, state.output, state.max, state.sum);
  } else {
    store_result(b, p, rows, state);
  }
}

template <TileBackend B>
FP4PA_FN void attend(B& b, const AttentionParams& p, const WorkItem& item) {
  attend(b, p, item, RowMap(p, item));
}

}  // namespace fp4pa::core
