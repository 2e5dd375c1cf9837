// Everything a kernel of the paged attention is told, by value: the public configuration and arguments with the units
// changed once (log2 instead of natural), and the two segments a sequence's keys may lie in.
#pragma once

#include <cstdint>

#include "core/divisor.hpp"
#include "core/macros.hpp"
#include "core/paging/page_table.hpp"
#include "core/paging/tensor_view.hpp"
#include "core/schedule/partition.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

/// One tier of a cache: the pages of K and V, and where a sequence finds its own.
struct Segment {
  TensorView k;
  TensorView v;
  PageTable table;
  std::int32_t page_size;  // tokens
};

/// A strided [tokens, heads, head_dim] tensor of f32, f16 or bf16; strides in elements.
struct HeadTensor {
  void* data;
  std::int64_t token_stride;
  std::int64_t head_stride;
  DType dtype;
};

/// E8M0 scales of E4M3 codes, one per 32 along head_dim; strides in bytes.
struct QueryScales {
  const std::uint8_t* data;  // null: there are none
  std::int64_t token_stride;
  std::int64_t head_stride;
};

struct AttentionParams {
  Segment segments[2];        // [0]: the only tier or the old one; [1]: the recent one
  std::int32_t num_segments;  // 1 or 2
  std::int32_t window_tokens;  // of the two-tier cache
  std::int32_t group_tokens;

  HeadTensor q;
  QueryScales q_scales;  // where there are any, q's data are codes, and its dtype is what they become
  HeadTensor o;
  float* lse;  // [tokens, num_q_heads] natural log, or null

  std::int32_t num_q_heads;
  std::int32_t num_kv_heads;
  std::int32_t group_heads;  // num_q_heads / num_kv_heads
  Divisor group_divisor;     // the same
  std::int32_t head_dim;
  Rotation rotation;

  float scale_log2;    // sm_scale * log2(e): scores are kept in log2 units throughout
  float softcap_log2;  // softcap * log2(e); 0: off
  bool causal;
  std::int32_t sliding_window;        // 0: all
  const float* sinks;                 // [num_q_heads] natural-log logits, or null
  const float* alibi_slopes;          // [num_q_heads], natural units, or null
  const std::uint64_t* tree_mask;     // [tokens], or null

  const std::int32_t* qo_indptr;  // [batch + 1]
  const std::int32_t* seq_lens;   // [batch]
  std::int32_t batch;

  Partition partition;      // how the work is cut; see core/schedule
  float* partial_output;    // [slots, tile_rows, head_dim] unnormalised
  float* partial_state;     // [slots, tile_rows, 2]: row maximum (log2 units) and row sum
};

/// Keys of sequence `seq` that the first segment holds; the rest is the recent tier's.
[[nodiscard]] FP4PA_FN std::int32_t first_segment_tokens(const AttentionParams& p, std::int32_t kv_len) {
  return p.num_segments == 1 ? kv_len : quantised_tokens(kv_len, p.window_tokens, p.group_tokens);
}

}  // namespace fp4pa::core
