// The arithmetic of a cache in two tiers: pure functions of lengths, shared by append, attention and the accounting.
//
// A sequence's tokens 0 .. quantised-1 lie in the old tier, the rest in the recent one, and `quantised` follows from
// the length alone (fp4pa::quantised_tokens). An append of n tokens therefore has exactly three parts, whatever n is:
//
//      quantised_before        length_before            quantised_after          length_after
//   ---------|----- from the ring -----|---- from the input ----|----- into the ring -----|
//            |------------- quantised now ----------------------|
//
// (quantised_after may also lie left of length_before; then nothing is quantised straight from the input.) Tokens of
// the middle part are rounded through the ring's format, so that the old tier cannot tell how they came.
//
// The ring may hold more than the window: then the last tokens of the middle part go into it as well, over rows that
// nothing reads any more. However the tokens were cut into calls, the ring ends with the last ones it has room for, and a
// sequence may be shortened by as many as it has beyond window + group - 1.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "fp4pa/cache.hpp"

namespace fp4pa::core {

struct TwoTierStep {
  std::int32_t length_before;
  std::int32_t length_after;
  std::int32_t quantised_before;  // first token that this append quantises
  std::int32_t quantised_after;   // one past the last
  std::int32_t first_kept;        // tokens first_kept .. length_after-1 of the input go into the ring
};

/// Tokens that a ring has room for, or as many as any sequence has.
[[nodiscard]] constexpr std::int32_t ring_tokens(std::int32_t ring_pages, std::int32_t page_size) {
  const std::int64_t tokens = std::int64_t{ring_pages} * page_size;
  return tokens < INT32_MAX ? static_cast<std::int32_t>(tokens) : INT32_MAX;
}

/// @pre length_before + new_tokens fits an int32; a ring of at least window_tokens + group_tokens
[[nodiscard]] FP4PA_FN constexpr TwoTierStep two_tier_step(std::int32_t length_before, std::int32_t new_tokens,
                                                           std::int32_t window_tokens, std::int32_t group_tokens,
                                                           std::int32_t ring_tokens) {
  const std::int32_t length_after = length_before + new_tokens;
  const std::int32_t before = quantised_tokens(length_before, window_tokens, group_tokens);
  const std::int32_t after = quantised_tokens(length_after, window_tokens, group_tokens);
  const std::int32_t held = length_after - ring_tokens;  // first token that the ring has room for
  return {length_before, length_after, before, after, held > length_before ? held : length_before};
}

/// Old-tier pages of a sequence of `length` tokens.
[[nodiscard]] FP4PA_FN constexpr std::int32_t old_pages(std::int32_t length, std::int32_t window_tokens,
                                                        std::int32_t group_tokens, std::int32_t page_size) {
  const std::int32_t tokens = quantised_tokens(length, window_tokens, group_tokens);
  return tokens / page_size + (tokens % page_size != 0 ? 1 : 0);
}

/// How the tokens of a page are cut into what is encoded together: V's groups along tokens, or single tokens. The last
/// piece of a page is shorter when the group does not divide the page.
struct PageCut {
  std::int32_t page_size;
  std::int32_t group;  // tokens of a piece, 1 to 32

  [[nodiscard]] FP4PA_FN constexpr std::int32_t pieces_per_page() const { return (page_size + group - 1) / group; }
  /// Pieces that end at or before token t, t being the first of a piece.
  [[nodiscard]] FP4PA_FN constexpr std::int64_t piece_of(std::int32_t t) const {
    return static_cast<std::int64_t>(t / page_size) * pieces_per_page() + t % page_size / group;
  }
  [[nodiscard]] FP4PA_FN constexpr std::int32_t first_token(std::int64_t piece) const {
    const std::int64_t page = piece / pieces_per_page();
    return static_cast<std::int32_t>(page * page_size + (piece - page * pieces_per_page()) * group);
  }
  [[nodiscard]] FP4PA_FN constexpr std::int32_t tokens(std::int64_t piece) const {
    const std::int32_t left = page_size - static_cast<std::int32_t>(piece % pieces_per_page()) * group;
    return left < group ? left : group;
  }
};

}  // namespace fp4pa::core
