// K smoothing: the mean of a sequence's keys, taken from every key before it is quantised.
//
// Keys of a head tend to share a large component, which uses up a 4-bit format's range and says nothing: q.(k - m)
// differs from q.k by q.m, the same for all keys of a row, and softmax does not see it. Only LSE does, and gets scale *
// q.m back.
//
// Any m is right as long as it is the same one everywhere; it is summed in chunks of tokens and a fixed order, so that
// it is the same from run to run and on every device (additions and one division, nothing to fuse).
#pragma once

#include <cstdint>

#include "core/attention/params.hpp"
#include "core/dense/lengths.hpp"
#include "core/macros.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::core {

/// Tokens that are summed together first.
inline constexpr std::int32_t kMeanChunk = 256;

[[nodiscard]] FP4PA_FN float load_element(const HeadTensor& x, std::int64_t token, std::int32_t head, std::int32_t d) {
  float value = 0.0f;
  load_plain_row(element_address(x.data, x.dtype, token * x.token_stride + head * x.head_stride + d), x.dtype, 1,
                 &value);
  return value;
}

/// Tokens that are summed together.
struct MeanChunk {
  std::int32_t begin;
  std::int32_t end;  // at or before `begin`: none
};

struct KeyMean {
  DenseLengths lengths;
  HeadTensor k;
  std::int32_t heads;  // of K
  std::int32_t head_dim;
  float* sums;     // [chunks, heads, head_dim]
  float* mean;     // [batch, heads, head_dim]
  float* centred;  // [kv_tokens, heads, head_dim]: keys less their mean, rounded once

  [[nodiscard]] FP4PA_FN std::int64_t row(std::int64_t index, std::int32_t head) const {
    return (index * heads + head) * head_dim;
  }

  /// Chunks are numbered like pages of kMeanChunk tokens.
  [[nodiscard]] FP4PA_FN MeanChunk chunk(std::int32_t index) const {
    std::int32_t low = 0;
    std::int32_t high = lengths.batch;
    while (high - low > 1) {
      const std::int32_t middle = low + (high - low) / 2;
      if (lengths.first_page(middle, kMeanChunk) <= index) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const std::int32_t begin = lengths.kv_begin(low) + (index - lengths.first_page(low, kMeanChunk)) * kMeanChunk;
    const std::int32_t end = lengths.kv_begin(low) + lengths.kv_len(low);
    return {begin, end < begin + kMeanChunk ? end : begin + kMeanChunk};
  }
};

[[nodiscard]] constexpr std::int64_t mean_chunks(std::int64_t kv_tokens, std::int64_t batch) {
  return dense_pages(kv_tokens, batch, kMeanChunk);
}

/// One chunk's sum of one dim.
FP4PA_FN void sum_chunk(const KeyMean& m, std::int32_t chunk, std::int32_t head, std::int32_t d) {
  const MeanChunk tokens = m.chunk(chunk);
  float sum = 0.0f;
  for (std::int32_t t = tokens.begin; t < tokens.end; ++t) sum += load_element(m.k, t, head, d);
  m.sums[m.row(chunk, head) + d] = sum;
}

/// A sequence's mean of one dim from its chunks' sums; 0 without keys.
FP4PA_FN void finish_mean(const KeyMean& m, std::int32_t b, std::int32_t head, std::int32_t d) {
  const std::int32_t len = m.lengths.kv_len(b);
  const std::int32_t first = m.lengths.first_page(b, kMeanChunk);
  float sum = 0.0f;
  for (std::int32_t c = 0; c * kMeanChunk < len; ++c) sum += m.sums[m.row(first + c, head) + d];
  m.mean[m.row(b, head) + d] = len > 0 ? sum / static_cast<float>(len) : 0.0f;
}

FP4PA_FN void centre_key(const KeyMean& m, std::int32_t token, std::int32_t head, std::int32_t d) {
  const std::int32_t b = m.lengths.kv_sequence(token);
  m.centred[m.row(token, head) + d] = load_element(m.k, token, head, d) - m.mean[m.row(b, head) + d];
}

/// Gives one row's LSE [tokens, num_q_heads] the term back that the mean has taken from its logits.
FP4PA_FN void restore_lse(const KeyMean& m, const HeadTensor& q, std::int32_t num_q_heads, float sm_scale, float* lse,
                          std::int32_t token, std::int32_t head) {
  const float* const mean = m.mean + m.row(m.lengths.q_sequence(token), head / (num_q_heads / m.heads));
  float dot = 0.0f;
  for (std::int32_t d = 0; d < m.head_dim; ++d) dot += load_element(q, token, head, d) * mean[d];
  lse[std::int64_t{token} * num_q_heads + head] += sm_scale * dot;
}

}  // namespace fp4pa::core
