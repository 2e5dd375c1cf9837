// Which of append_two_tier's work is a block's. Blocks share the new tokens: each takes a few that follow each other, finds whose they are,
// and does what an append of these alone would do. Since `quantised` is a function of a length, an append may be cut anywhere.
#pragma once

#include "core/paging/page_table.hpp"
#include "core/paging/two_tier.hpp"
#include "kernels/cache_rows.hpp"
#include "kernels/piece_columns.hpp"

namespace fp4pa::FP4PA_GPU {

struct TwoTierArgs {
  CacheTensor old_tier[2];  // K, V
  CacheTensor recent[2];
  PlainRows inputs[2];
  core::PageTable old_pages;
  core::PageTable ring;
  std::int64_t num_old_pages, num_recent_pages;
  const std::int32_t* indptr;
  const std::int32_t* seq_lens;
  std::int32_t batch;
  std::int64_t num_tokens;
  std::int32_t window_tokens, group_tokens;
  std::int32_t old_page_size, recent_page_size;
  std::int32_t heads;
  core::PageCut cut;
  std::int32_t ring_tokens;
  PieceKind kinds[2];    // of the old tier
  std::int32_t share;    // new tokens of a block
  std::int32_t columns;  // blocks that share heads and tensors
};

struct Sequence {
  std::int32_t index;
  std::int32_t first_input;
  core::TwoTierStep step;
};

/// What indptr says is kept within the tokens that were handed in; a length is kept between 0 and what leaves room for them.
FP4PA_DEVICE inline Sequence sequence_of(const TwoTierArgs& a, std::int32_t b) {
  const auto inside = [&](std::int32_t x) { return x < 0 ? 0 : x < a.num_tokens ? x : static_cast<std::int32_t>(a.num_tokens); };
  const std::int32_t first = inside(a.indptr[b]);
  const std::int32_t end = inside(a.indptr[b + 1]);
  const std::int32_t tokens = end > first ? end - first : 0;
  const std::int32_t longest = 0x7fffffff - tokens;
  const std::int32_t length = a.seq_lens[b] < 0 ? 0 : a.seq_lens[b] < longest ? a.seq_lens[b] : longest;
  return {b, first, core::two_tier_step(length, tokens, a.window_tokens, a.group_tokens, a.ring_tokens)};
}

/// f(sequence, begin, end): its tokens begin to end - 1 are among this block's.
template <class F>
FP4PA_DEVICE inline void for_each_share(const TwoTierArgs& a, F&& f) {
  const std::int64_t first = std::int64_t{block_id()} * a.share;
  const std::int64_t last = first + a.share < a.num_tokens ? first + a.share : a.num_tokens;
  std::uint32_t before = 0;  // sequences that end before the first token
  for (std::int32_t b = lane_id(); b < a.batch; b += kLanes) before += a.indptr[b + 1] <= first ? 1u : 0u;
  for (int mask = kLanes / 2; mask > 0; mask /= 2) before += shuffle_xor(before, mask);
  for (auto b = static_cast<std::int32_t>(before); b < a.batch; ++b) {
    const Sequence seq = sequence_of(a, b);
    if (seq.first_input >= last) break;
    const std::int64_t end_input = std::int64_t{seq.first_input} + (seq.step.length_after - seq.step.length_before);
    const std::int64_t from = seq.first_input > first ? seq.first_input : first;
    const std::int64_t to = end_input < last ? end_input : last;
    if (from >= to) continue;
    f(seq, seq.step.length_before + static_cast<std::int32_t>(from - seq.first_input),
      seq.step.length_before + static_cast<std::int32_t>(to - seq.first_input));
  }
}

/// Calls f(tensor, head), 0 for K and 1 for V, for this block's.
template <class F>
FP4PA_DEVICE inline void for_each_column(const TwoTierArgs& a, F&& f) {
  for (std::int32_t column = block_id_y(); column < 2 * a.heads; column += a.columns) f(column % 2, column / 2);
}

struct RowPlace {
  std::int64_t page;  // -1: none
  std::int32_t row;
};

/// Whether the ring's pages of tokens first to first + tokens - 1 that it holds already are in the pool.
FP4PA_DEVICE inline bool ring_holds(const TwoTierArgs& a, const Sequence& seq, std::int32_t first, std::int32_t tokens) {
  const std::int32_t end = first + tokens < seq.step.length_before ? first + tokens : seq.step.length_before;
  for (std::int32_t t = first; t < end; t += a.recent_page_size - t % a.recent_page_size) {
    const std::int64_t page = a.ring.page(seq.index, t / a.recent_page_size);
    if (page < 0 || page >= a.num_recent_pages) return false;
  }
  return true;
}
/// Where a piece of tokens goes in the old tier; nowhere, if a page of it is outside of its pool.
FP4PA_DEVICE inline RowPlace old_place(const TwoTierArgs& a, const Sequence& seq, std::int64_t piece) {
  const std::int32_t first = a.cut.first_token(piece);
  const std::int32_t logical = first / a.old_page_size;
  if (logical >= a.old_pages.capacity(seq.index)) return {-1, 0};
  const std::int64_t page = a.old_pages.page(seq.index, logical);
  if (page < 0 || page >= a.num_old_pages || !ring_holds(a, seq, first, a.cut.tokens(piece))) return {-1, 0};
  return {page, first % a.old_page_size};
}
/// Where token t lies in the ring.
FP4PA_DEVICE inline RowPlace ring_place(const TwoTierArgs& a, const Sequence& seq, std::int32_t t) {
  const std::int64_t page = a.ring.page(seq.index, t / a.recent_page_size);
  return {page < 0 || page >= a.num_recent_pages ? -1 : page, t % a.recent_page_size};
}

}  // namespace fp4pa::FP4PA_GPU
