#include "api/attention_params.hpp"

#include <algorithm>
#include <cmath>

#include "api/row_strides.hpp"
#include "api/workspace.hpp"
#include "core/attention/row_map.hpp"

namespace fp4pa::api {
namespace {

/// Split of batch_invariant: long enough that merging is cheap, short enough that one 32 K sequence fills a GPU.
constexpr std::int32_t kInvariantSplitTokens = 2048;

core::Segment make_segment(const KvCacheDesc& cache, core::PageTable table) {
  return {core::make_view(cache.k), core::make_view(cache.v), table, cache.page_size};
}

core::HeadTensor make_tensor(void* data, DType dtype, std::int64_t token_stride, std::int64_t head_stride,
                             const AttentionConfig& config) {
  const RowStrides strides = with_dense_defaults({token_stride, head_stride}, config.num_q_heads, config.cache.head_dim);
  return {data, strides.token, strides.head, dtype};
}

}  // namespace

std::int32_t split_tiles(const AttentionConfig& config) noexcept {
  const std::int32_t tokens =
      config.kv_split_tokens != 0 ? config.kv_split_tokens : config.batch_invariant ? kInvariantSplitTokens : 0;
  return tokens / core::kScheduleTokens;
}

WorkspaceLayout workspace_layout(const AttentionConfig& config, std::int32_t num_workers,
                                 std::int32_t tile_rows) noexcept {
  const std::int32_t split = split_tiles(config);
  const std::size_t prefix_bytes = sizeof(std::int64_t) * (static_cast<std::size_t>(config.max_batch) + 1);
  std::size_t slots = 2 * static_cast<std::size_t>(num_workers);
  if (split != 0) {
    // Only sequences of up to kMaxSplitRows packed rows are cut, each unit into at most this many pieces.
    const std::int64_t group = config.num_q_heads / config.cache.num_kv_heads;
    const std::int64_t rows = std::min<std::int64_t>(std::int64_t{config.max_q_tokens} * group,
                                                     std::int64_t{config.max_batch} * core::kMaxSplitRows);
    const std::int64_t units = (rows / tile_rows + config.max_batch) * config.cache.num_kv_heads;
    const std::int64_t pieces =
        (std::int64_t{config.max_kv_len} + split * core::kScheduleTokens - 1) / (split * core::kScheduleTokens);
    slots = pieces > 1 ? static_cast<std::size_t>(units * pieces) : 0;
  }
  const std::size_t rows = slots * static_cast<std::size_t>(tile_rows);
  WorkspaceLayout layout{};
  layout.cost_prefix = 0;
  layout.slot_prefix = layout.cost_prefix + workspace_part(prefix_bytes);
  layout.starts = layout.slot_prefix + workspace_part(prefix_bytes);
  layout.notes = layout.starts + workspace_part(static_cast<std::size_t>(num_workers) * sizeof(core::WorkerStart));
  layout.partial_state = layout.notes + workspace_part(static_cast<std::size_t>(num_workers) * sizeof(core::MergeNote));
  layout.partial_output = layout.partial_state + workspace_part(rows * 2 * sizeof(float));
  layout.total = layout.partial_output + workspace_part(rows * static_cast<std::size_t>(config.cache.head_dim) * sizeof(float));
  return layout;
}

core::AttentionParams make_params(const RunRequest& request) noexcept {
  const AttentionConfig& c = request.config;
  const AttentionArgs& a = request.args;
  const WorkspaceLayout layout = workspace_layout(c, request.choice.num_workers, request.choice.tile_rows);
  auto* const workspace = static_cast<std::uint8_t*>(a.workspace);

  core::AttentionParams p{};
  const bool csr = c.table_kind == TableKind::kCsr;
  p.segments[0] = make_segment(
      c.cache, csr ? core::PageTable{a.kv_indices, 0, a.kv_indptr, 0} : core::PageTable{a.block_table, a.table_stride, nullptr, 0});
  p.num_segments = 1;
  if (c.two_tier) {
    p.segments[1] = make_segment(c.recent, {a.recent_table, c.ring_pages, nullptr, c.ring_pages});
    p.num_segments = 2;
    p.window_tokens = c.window_tokens;
    p.group_tokens = c.group_tokens;
  }

  p.q = make_tensor(const_cast<void*>(a.q), c.q_dtype, a.q_token_stride, a.q_head_stride, c);
  p.q_scales = request.q_scales;
  p.o = make_tensor(a.o, c.o_dtype, a.o_token_stride, a.o_head_stride, c);
  p.lse = a.lse;
  p.num_q_heads = c.num_q_heads;
  p.num_kv_heads = c.cache.num_kv_heads;
  p.group_heads = c.num_q_heads / c.cache.num_kv_heads;
  p.group_divisor = core::Divisor::of(static_cast<std::uint32_t>(p.group_heads));
  p.head_dim = c.cache.head_dim;
  p.rotation = c.cache.rotation;

  const float scale = c.sm_scale != 0.0f ? c.sm_scale : 1.0f / std::sqrt(static_cast<float>(p.head_dim));
  p.scale_log2 = scale * core::kLog2E;
  p.softcap_log2 = c.softcap * core::kLog2E;
  p.causal = c.causal;
  // A window of at least the longest sequence is no window; positions then never leave 32 bits.
  p.sliding_window = c.sliding_window >= c.max_kv_len ? 0 : c.sliding_window;
  p.sinks = c.sinks ? a.sinks : nullptr;
  p.alibi_slopes = c.alibi ? a.alibi_slopes : nullptr;
  p.tree_mask = c.tree_mask ? a.tree_mask : nullptr;

  p.qo_indptr = a.qo_indptr;
  p.seq_lens = a.seq_lens;
  p.batch = a.batch;
  p.partition = {request.choice.num_workers, request.choice.tile_rows, split_tiles(c),
                 reinterpret_cast<std::int64_t*>(workspace + layout.cost_prefix),
                 reinterpret_cast<std::int64_t*>(workspace + layout.slot_prefix)};
  p.partition.starts = reinterpret_cast<core::WorkerStart*>(workspace + layout.starts);
  p.partition.notes = reinterpret_cast<core::MergeNote*>(workspace + layout.notes);
  p.partial_output = reinterpret_cast<float*>(workspace + layout.partial_output);
  p.partial_state = reinterpret_cast<float*>(workspace + layout.partial_state);
  return p;
}

core::WorkList work_list(const core::AttentionParams& p) noexcept {
  const bool ends_at_row = p.causal && p.tree_mask == nullptr;
  return {p.partition, p.qo_indptr, p.seq_lens, p.batch, p.num_kv_heads, p.group_heads, core::scheduled_window(p), ends_at_row};
}

}  // namespace fp4pa::api
