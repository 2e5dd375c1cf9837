// Attention of one query row in double precision, written as its definition: all logits, then their maximum, then the
// sum.
//
// This is the contract of the library (docs/numerics): O = softmax(logits) V with
//   logit = sm_scale q.k                       then, where asked,
//   logit = softcap tanh(logit / softcap)
//   logit = logit + slope (key position - query position)
// over the keys that the row may see; a sink is one more logit that only adds to the denominator. No streaming, no
// rescaling, no tiles, so that nothing of the library's online form is assumed.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace fp4pa::reference {

/// One query token of one head. Query `query_index` of `num_queries` stands at position num_keys - num_queries + index.
struct QueryRow {
  std::span<const double> q;  ///< [head_dim], already rotated if the keys are
  double sm_scale = 1.0;
  std::int64_t num_keys = 0;
  std::int64_t num_queries = 1;
  std::int64_t query_index = 0;
  bool causal = true;
  std::int64_t sliding_window = 0;  ///< 0 = all
  double softcap = 0.0;             ///< 0 = off
  double alibi_slope = 0.0;
  std::optional<double> sink;              ///< a logit
  std::optional<std::uint64_t> tree_mask;  ///< bit j: sees the sequence's query j; replaces the causal rule among them
};

/// Whether the row sees key `key`. In a tree its position, for the window, is its depth: the queries that it sees but one, itself.
[[nodiscard]] inline bool sees(const QueryRow& row, std::int64_t key) {
  const std::int64_t first_query = row.num_keys - row.num_queries;
  std::int64_t position = first_query + row.query_index;
  if (row.tree_mask.has_value()) {
    const std::uint64_t existing = ~std::uint64_t{0} >> (64 - row.num_queries);
    position = first_query + std::max(0, std::popcount(*row.tree_mask & existing) - 1);
    const std::int64_t j = key - first_query;
    if (j >= 0) return (*row.tree_mask >> j & 1u) != 0;
  } else if (row.causal && key > position) {
    return false;
  }
  return row.sliding_window == 0 || key > position - row.sliding_window;
}

/// A dot product whose eight partial sums let a compiler vectorise it without being told that addition is associative.
template <class A, class B>
[[nodiscard]] double dot(const A* a, const B* b, std::size_t n) {
  double partial[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) partial[j] += static_cast<double>(a[i + j]) * static_cast<double>(b[i + j]);
  }
  double sum = 0.0;
  for (double p : partial) sum += p;
  for (; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// Writes O to `out` [head_dim] and returns the LSE in natural log (the sink included).
/// A row that sees no key gives O = 0 and LSE = -inf, or the sink.
/// @param key, value  callables: key(t) is a pointer to the head_dim elements (float or double) of key t
template <class Keys, class Values>
double attend_row(const QueryRow& row, Keys&& key, Values&& value, std::span<double> out) {
  const double none = -std::numeric_limits<double>::infinity();
  const std::int64_t position = row.num_keys - row.num_queries + row.query_index;
  std::vector<double> logits(static_cast<std::size_t>(row.num_keys), none);
  double largest = row.sink.value_or(none);
  for (std::int64_t t = 0; t < row.num_keys; ++t) {
    if (!sees(row, t)) continue;
    double logit = row.sm_scale * dot(row.q.data(), key(t), row.q.size());
    if (row.softcap != 0.0) logit = row.softcap * std::tanh(logit / row.softcap);
    logit += row.alibi_slope * static_cast<double>(t - position);
    logits[static_cast<std::size_t>(t)] = logit;
    // Written so that a NaN logit survives instead of losing every comparison, before it and after.
    if (!std::isnan(largest) && !(logit <= largest)) largest = logit;
  }
  for (double& o : out) o = 0.0;
  if (largest == none) return none;
  if (row.sink.has_value() && std::isinf(*row.sink) && *row.sink == largest) return largest;  // beside it nothing counts

  double denominator = row.sink.has_value() ? std::exp(*row.sink - largest) : 0.0;
  for (std::int64_t t = 0; t < row.num_keys; ++t) {
    if (!sees(row, t)) continue;
    const double p = std::exp(logits[static_cast<std::size_t>(t)] - largest);
    denominator += p;
    const auto* v = value(t);
    for (std::size_t d = 0; d < out.size(); ++d) out[d] += p * static_cast<double>(v[d]);
  }
  for (double& o : out) o /= denominator;
  return largest + std::log(denominator);
}

}  // namespace fp4pa::reference
