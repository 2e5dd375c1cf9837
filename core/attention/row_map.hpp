// Which query a row of a tile is, and which keys it may see.
//
// The rows of a tile are (query token, head of the group) pairs of one sequence and one KV head, heads innermost: row r of
// a block is packed row n = block * tile_rows + r, query token n / group_heads, head n % group_heads. Queries are the last
// tokens of the sequence, so query token i sits at key position kv_len - q_len + i (negative if keys are missing).
#pragma once

#include <cstdint>

#include "core/attention/params.hpp"
#include "core/macros.hpp"
#include "core/math.hpp"
#include "core/schedule/work.hpp"

namespace fp4pa::core {

/// Queries of a sequence in a call with a tree mask, which has a bit for each.
inline constexpr std::int32_t kMaxTreeQueries = 64;

/// A half-open range of key positions of one sequence.
struct KeyRange {
  std::int32_t begin;
  std::int32_t end;
  [[nodiscard]] FP4PA_FN constexpr bool empty() const { return end <= begin; }
  [[nodiscard]] FP4PA_FN constexpr bool contains(KeyRange r) const { return r.begin >= begin && r.end <= end; }
};

struct RowMap {
  std::int32_t first_token;  // of the sequence, in the call's token dimension
  std::int32_t q_len;
  std::int32_t kv_len;
  std::int32_t group_heads;
  Divisor group_divisor;    // the same
  std::int32_t first_head;  // query head of the group's first
  std::int32_t first_row;   // packed row of row 0
  std::int32_t num_rows;    // rows of the tile that exist
  KeyRange all_see;         // keys that every row sees (but for windows of a tree): tiles within need no mask, and most lie within

  FP4PA_FN RowMap(const AttentionParams& p, const WorkItem& item)
      : first_token(p.qo_indptr[item.seq]),
        q_len(p.qo_indptr[item.seq + 1] - first_token),
        kv_len(p.seq_lens[item.seq]),
        group_heads(p.group_heads),
        group_divisor(p.group_divisor),
        first_head(item.kv_head * p.group_heads),
        first_row(item.block * p.partition.tile_rows) {
    const std::int64_t left = static_cast<std::int64_t>(q_len) * p.group_heads - first_row;
    num_rows = left < p.partition.tile_rows ? static_cast<std::int32_t>(left) : p.partition.tile_rows;
    all_see = keys_that_all_see(p);
  }

  /// Query token of row r within its sequence.
  [[nodiscard]] FP4PA_FN std::int32_t query(std::int32_t r) const {
    return static_cast<std::int32_t>(group_divisor.quotient(static_cast<std::uint32_t>(first_row + r)));
  }
  /// Query token of row r within the call.
  [[nodiscard]] FP4PA_FN std::int64_t token(std::int32_t r) const { return std::int64_t{first_token} + query(r); }
  [[nodiscard]] FP4PA_FN std::int32_t head(std::int32_t r) const {
    return first_head + first_row + r - query(r) * group_heads;
  }
  /// Key position of row r's query.
  [[nodiscard]] FP4PA_FN std::int32_t position(std::int32_t r) const { return kv_len - q_len + query(r); }

 private:
  [[nodiscard]] FP4PA_FN KeyRange keys_that_all_see(const AttentionParams& p) const {
    if (p.tree_mask != nullptr) return {0, kv_len - q_len};
    KeyRange keys{0, kv_len};
    if (p.causal && position(0) + 1 < keys.end) keys.end = position(0) + 1;
    // The window moves with the query: the last row's begins last.
    if (p.sliding_window > 0) keys.begin = position(num_rows - 1) + 1 - p.sliding_window;
    return keys;
  }
};

/// The keys that the causal rule and the sliding window leave to a row.
[[nodiscard]] FP4PA_FN KeyRange visible_range(const AttentionParams& p, const RowMap& rows, std::int32_t r) {
  const std::int32_t next = rows.position(r) + 1;
  return {p.sliding_window > 0 ? next - p.sliding_window : 0, p.causal ? next : rows.kv_len};
}

/// The keys a row may see: a range, and among its sequence's queries only those of `tree` (all when there is no tree).
///
/// A query in a tree stands where it would stand at the end of its own branch: the bits of its mask are itself and those it descends
/// from (where it sees none of them, it stands at the root). Its window counts from there, and cuts off none of the tree, because
/// planning asks for a window no shorter than that.
/// @tparam kTreeWindows  whether there may be trees under a sliding window
template <bool kTreeWindows = true>
struct RowMask {
  KeyRange range;
  std::int32_t tree_begin;  // key position of query 0
  std::uint64_t tree;
  bool has_tree;

  FP4PA_FN RowMask(const AttentionParams& p, const RowMap& rows, std::int32_t r)
      : range{0, rows.kv_len}, tree_begin(rows.kv_len - rows.q_len), tree(0), has_tree(p.tree_mask != nullptr) {
    if (has_tree) {
      tree = p.tree_mask[rows.token(r)];
      if constexpr (kTreeWindows) {
        const std::int32_t seen = math::count_bits(tree << (kMaxTreeQueries - rows.q_len));
        if (p.sliding_window > 0) range.begin = tree_begin + (seen > 0 ? seen : 1) - p.sliding_window;
      }
    } else {
      range = visible_range(p, rows, r);
    }
  }

  [[nodiscard]] FP4PA_FN bool sees(std::int32_t key) const {
    if (key < range.begin || key >= range.end) return false;
    return !has_tree || (key < tree_begin || ((tree >> (key - tree_begin)) & 1) != 0);
  }
};

/// The window by which work is cut into tiles. Any query of a tree may be its root, whose window begins first.
[[nodiscard]] FP4PA_FN constexpr std::int32_t scheduled_window(const AttentionParams& p) {
  return p.sliding_window > 0 && p.tree_mask != nullptr ? p.sliding_window + kMaxTreeQueries - 1 : p.sliding_window;
}

/// First key that any row of the tile sees; in a tree, that the sequence's first query sees.
/// @tparam kTreeWindows  as of RowMask
template <bool kTreeWindows = true>
[[nodiscard]] FP4PA_FN std::int32_t first_visible_key(const AttentionParams& p, const RowMap& rows) {
  if (p.sliding_window == 0) return 0;
  const bool tree = kTreeWindows && p.tree_mask != nullptr;
  const std::int32_t first = (tree ? rows.kv_len - rows.q_len : rows.position(0)) + 1 - p.sliding_window;
  return first > 0 ? first : 0;
}

}  // namespace fp4pa::core
