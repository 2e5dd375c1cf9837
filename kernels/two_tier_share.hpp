// Which of append_two_tier's work is a block's. Blocks share the new tokens: each takes a few that follow each other, finds whose they are,
// and does what an append of these alone would do. Since `quantised` is a function of a length, an append may be cut anywhere.
#pragma once

#include "core/divisor.hpp"
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
  core::Divisor old_page, recent_page;  // tokens of a page
  core::Divisor per_row[2];             // pieces of 16 and of 32 elements of a row
  std::int32_t heads;
  std::int32_t ring_tokens;
  PieceKind kinds[2];    // of the old tier
  std::int32_t share;    // new tokens of a block of this launch
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

/// Token t's page and its row there.
FP4PA_DEVICE inline RowPlace split(const core::Divisor& page, std::int32_t t) {
  const std::uint32_t logical = page.quotient(static_cast<std::uint32_t>(t));
  return {logical, t - static_cast<std::int32_t>(logical * page.divisor)};
}
/// Where token t lies in the ring.
FP4PA_DEVICE inline RowPlace ring_place(const TwoTierArgs& a, const Sequence& seq, std::int32_t t) {
  const RowPlace at = split(a.recent_page, t);
  const std::int64_t page = a.ring.page(seq.index, static_cast<std::int32_t>(at.page));
  return {page < 0 || page >= a.num_recent_pages ? -1 : page, at.row};
}
/// Whether the ring's pages of tokens first to first + tokens - 1 that it holds already are in the pool.
FP4PA_DEVICE inline bool ring_holds(const TwoTierArgs& a, const Sequence& seq, std::int32_t first, std::int32_t tokens) {
  const std::int32_t end = first + tokens < seq.step.length_before ? first + tokens : seq.step.length_before;
  for (std::int32_t t = first; t < end;) {
    const RowPlace at = ring_place(a, seq, t);
    if (at.page < 0) return false;
    t += static_cast<std::int32_t>(a.recent_page.divisor) - at.row;
  }
  return true;
}
/// Tokens that share V's scales along tokens with the token in a page's `row`, which has `before` of them before it; itself alone, if V's
/// scales run along head_dim. The last group of a page is shorter where groups do not divide it.
struct TokenGroup {
  std::int32_t before, tokens;
};
FP4PA_DEVICE inline TokenGroup group_of(const TwoTierArgs& a, std::int32_t row) {
  const std::int32_t whole = a.old_tier[1].view.token_group();
  const std::int32_t before = row & (whole - 1);
  const std::int32_t left = static_cast<std::int32_t>(a.old_page.divisor) - (row - before);
  return {before, left < whole ? left : whole};
}
/// Where token t goes in the old tier, K and V; nowhere, if its page, or one of the ring that has a token of its group, is outside of its pool.
FP4PA_DEVICE inline RowPlace old_place(const TwoTierArgs& a, const Sequence& seq, std::int32_t t) {
  const RowPlace at = split(a.old_page, t);
  if (at.page >= a.old_pages.capacity(seq.index)) return {-1, 0};
  const std::int64_t page = a.old_pages.page(seq.index, static_cast<std::int32_t>(at.page));
  const TokenGroup group = group_of(a, at.row);
  if (page < 0 || page >= a.num_old_pages || !ring_holds(a, seq, t - group.before, group.tokens)) return {-1, 0};
  return {page, at.row};
}

}  // namespace fp4pa::FP4PA_GPU
