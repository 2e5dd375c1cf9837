// The reference for a whole library call: what plan() and run() were given, in host memory, answered in double
// precision.
//
// K and V of one sequence and KV head are dequantised once (Keys) and serve every row that reads them; the caller loops
// over sequences, heads and queries, with whatever it likes to loop with.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "fp4pa/attention.hpp"
#include "reference/attention.hpp"
#include "reference/dequantize.hpp"
#include "reference/rotation.hpp"

namespace fp4pa::reference {

/// How many of a sequence's tokens have left the recent tier: whole groups, as many as leave at least the window.
[[nodiscard]] inline std::int32_t old_tokens(std::int32_t length, std::int32_t window, std::int32_t group) {
  std::int32_t old = 0;
  while (length - (old + group) >= window) old += group;
  return old;
}

/// Where token `token` of sequence `sequence` lies. `call.seq_lens` must be readable here.
[[nodiscard]] inline Place place_of(const AttentionConfig& config, const AttentionArgs& call, std::int32_t sequence,
                                    std::int32_t token) {
  const std::int32_t length = call.seq_lens[sequence];
  if (config.two_tier && token >= old_tokens(length, config.window_tokens, config.group_tokens)) {
    const std::int32_t page_size = config.recent.page_size;
    const std::int64_t ring = std::int64_t{sequence} * config.ring_pages + token / page_size % config.ring_pages;
    return {&config.recent, call.recent_table[ring], token % page_size};
  }
  const std::int32_t page_size = config.cache.page_size;
  const std::int64_t index = token / page_size;
  const std::int32_t page = config.table_kind == TableKind::kCsr
                                ? call.kv_indices[call.kv_indptr[sequence] + index]
                                : call.block_table[std::int64_t{sequence} * call.table_stride + index];
  return {&config.cache, page, token % page_size};
}

/// K and V of one sequence and KV head, dequantised; K as stored (rotated if the cache is).
struct Keys {
  std::size_t head_dim = 0;
  std::vector<double> k;  ///< [length, head_dim]
  std::vector<double> v;
  [[nodiscard]] const double* key(std::int64_t t) const { return k.data() + static_cast<std::size_t>(t) * head_dim; }
  [[nodiscard]] const double* value(std::int64_t t) const { return v.data() + static_cast<std::size_t>(t) * head_dim; }
};

[[nodiscard]] inline Keys dequantize(const AttentionConfig& config, const AttentionArgs& call, std::int32_t sequence,
                                     std::int32_t kv_head) {
  const auto length = static_cast<std::size_t>(call.seq_lens[sequence]);
  const auto head_dim = static_cast<std::size_t>(config.cache.head_dim);
  Keys keys{head_dim, std::vector<double>(length * head_dim), std::vector<double>(length * head_dim)};
  for (std::size_t t = 0; t < length; ++t) {
    const Place place = place_of(config, call, sequence, static_cast<std::int32_t>(t));
    dequantize_row(place.cache->k, place, kv_head, {keys.k.data() + t * head_dim, head_dim});
    dequantize_row(place.cache->v, place, kv_head, {keys.v.data() + t * head_dim, head_dim});
  }
  return keys;
}

/// The masks and scales of a call for one of its rows. The query is the caller's to fill in.
[[nodiscard]] inline QueryRow row_of(const AttentionConfig& config, const AttentionArgs& call, std::int32_t sequence,
                                     std::int32_t query, std::int32_t head) {
  const std::int32_t token = call.qo_indptr[sequence] + query;
  QueryRow row;
  row.sm_scale = config.sm_scale != 0.0f ? double{config.sm_scale} : 1.0 / std::sqrt(double(config.cache.head_dim));
  row.num_keys = call.seq_lens[sequence];
  row.num_queries = call.qo_indptr[sequence + 1] - call.qo_indptr[sequence];
  row.query_index = query;
  row.causal = config.causal;
  row.sliding_window = config.sliding_window;
  row.softcap = config.softcap;
  if (config.alibi) row.alibi_slope = call.alibi_slopes[head];
  if (config.sinks) row.sink = call.sinks[head];
  if (config.tree_mask) row.tree_mask = call.tree_mask[token];
  return row;
}

/// The query of one row [head_dim], rotated if the keys are.
[[nodiscard]] inline std::vector<double> query_of(const AttentionConfig& config, const AttentionArgs& call,
                                                  std::int32_t sequence, std::int32_t query, std::int32_t head) {
  const std::int64_t head_stride = call.q_head_stride != 0 ? call.q_head_stride : config.cache.head_dim;
  const std::int64_t token_stride = call.q_token_stride != 0 ? call.q_token_stride : config.num_q_heads * head_stride;
  const std::int64_t start = (call.qo_indptr[sequence] + query) * token_stride + head * head_stride;
  std::vector<double> q(static_cast<std::size_t>(config.cache.head_dim));
  for (std::size_t d = 0; d < q.size(); ++d) {
    q[d] = decode_plain(call.q, config.q_dtype, start + static_cast<std::int64_t>(d));
  }
  rotate(q, config.cache.rotation);
  return q;
}

/// Answers one row: query `query` of `sequence`, for query head `head`.
/// @param out  [head_dim]
/// @return its LSE
inline double attend_one(const AttentionConfig& config, const AttentionArgs& call, std::int32_t sequence,
                         std::int32_t query, std::int32_t head, const Keys& keys, std::span<double> out) {
  const std::vector<double> q = query_of(config, call, sequence, query, head);
  QueryRow row = row_of(config, call, sequence, query, head);
  row.q = q;
  return attend_row(
      row, [&](std::int64_t t) { return keys.key(t); }, [&](std::int64_t t) { return keys.value(t); }, out);
}

}  // namespace fp4pa::reference
