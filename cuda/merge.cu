// The second pass of a run: units whose keys were divided, put together from their partial states.
//
// A block does what begins on the worker of its number. Warps take rows, lanes take dims.
#include "core/attention/merge_partials.hpp"
#include "core/paging/plain_row.hpp"
#include "core/attention/row_map.hpp"
#include "core/paging/plain_row.hpp"
#include "cuda/kernels.hpp"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxDims = 8;  // of a lane: head_dim up to 256

__device__ void merge_row(const AttendArgs& args, const core::MergeJob& job, const core::RowMap& rows, int r) {
  const core::AttentionParams& p = args.params;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const core::SoftmaxState keys = core::merged_state(p, args.list, job, r);
  core::SoftmaxState state = keys;
  if (p.sinks != nullptr) state = state.with_sink(p.sinks[rows.head(r)] * core::kLog2E);
  const float scale = core::rescale(keys.max, state.max) * state.normaliser();

  float out[kMaxDims];
  core::merged_output(p, args.list, job, r, keys.max, lane, p.head_dim / 32, 32, out);
  const std::int64_t at = rows.token(r) * p.o.token_stride + rows.head(r) * p.o.head_stride;
  for (int i = 0; i < p.head_dim / 32; ++i) {
    const float value = out[i] * scale;
    core::store_plain_row(&value, 1, p.o.dtype, core::element_address(p.o.data, p.o.dtype, at + lane + 32 * i));
  }
  if (p.lse != nullptr && lane == 0) p.lse[rows.token(r) * p.num_q_heads + rows.head(r)] = state.lse();
}

__global__ void __launch_bounds__(kThreads) merge(const __grid_constant__ AttendArgs args) {
  core::for_each_merge(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::MergeJob& job) {
    const core::RowMap rows(args.params, {job.unit.seq, job.unit.block, job.unit.kv_head, job.unit.tiles, -1});
    for (int r = static_cast<int>(threadIdx.x / 32); r < rows.num_rows; r += kThreads / 32) {
      merge_row(args, job, rows, r);
    }
  });
}

}  // namespace

cudaError_t launch_merge(const AttendArgs& args, cudaStream_t stream) noexcept {
  merge<<<static_cast<unsigned>(args.list.partition.num_workers), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace fp4pa::cuda
