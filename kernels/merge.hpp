// The second pass of a run: units whose keys were divided, put together from their partial states.
//
// A block does what begins on the worker of its number. Warps take rows, lanes take dims.
#pragma once

#include "core/attention/merge_partials.hpp"
#include "core/attention/row_map.hpp"
#include "core/paging/plain_row.hpp"
#include "kernels/run.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kMergeThreads = 256;
constexpr int kMaxDims = 256 / kLanes;  // of a lane: head_dim up to 256

FP4PA_DEVICE inline void merge_row(const AttendArgs& args, const core::MergeJob& job, const core::RowMap& rows, int r) {
  const core::AttentionParams& p = args.params;
  const int lane = thread_id() % kLanes;
  // head_dim is a multiple of 32: lanes of a warp that is no wider have the same number of dims.
  const int dims = kLanes <= 32 ? p.head_dim / kLanes : (p.head_dim - lane + kLanes - 1) / kLanes;
  const core::SoftmaxState keys = core::merged_state(p, args.list, job, r);
  core::SoftmaxState state = keys;
  if (p.sinks != nullptr) state = state.with_sink(p.sinks[rows.head(r)] * core::kLog2E);
  const float scale = core::rescale(keys.max, state.max) * state.normaliser();

  float out[kMaxDims];
  core::merged_output(p, args.list, job, r, keys.max, lane, dims, kLanes, out);
  const std::int64_t at = rows.token(r) * p.o.token_stride + rows.head(r) * p.o.head_stride;
  for (int i = 0; i < dims; ++i) {
    const float value = out[i] * scale;
    core::store_plain_row(&value, 1, p.o.dtype, core::element_address(p.o.data, p.o.dtype, at + lane + kLanes * i));
  }
  if (p.lse != nullptr && lane == 0) p.lse[rows.token(r) * p.num_q_heads + rows.head(r)] = state.lse();
}

FP4PA_KERNEL(merge, kMergeThreads, AttendArgs args) {
  core::for_each_merge(args.list, block_id(), [&](const core::MergeJob& job) {
    const core::RowMap rows(args.params, {job.unit.seq, job.unit.block, job.unit.kv_head, job.unit.tiles, -1});
    for (int r = thread_id() / kLanes; r < rows.num_rows; r += kMergeThreads / kLanes) {
      merge_row(args, job, rows, r);
    }
  });
}

Error launch_merge(const AttendArgs& args, Stream stream) noexcept {
  return launch(merge, grid(args.list.partition.num_workers), kMergeThreads, 0, stream, args);
}

}  // namespace fp4pa::FP4PA_GPU
