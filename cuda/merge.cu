// The second pass of a run: units whose keys were divided, put together from their partial states.
//
// A block does what begins on the worker of its number. A long sequence leaves hundreds of parts, so that all threads look for
// them: one part a thread for its place, one warp a row for the weights, one thread four dims of a row for the output. Sums run
// over the parts in a fixed order, so that the result is the same from run to run.
#include "core/attention/merge_partials.hpp"
#include "core/attention/row_map.hpp"
#include "core/paging/plain_row.hpp"
#include "cuda/dependency.cuh"
#include "cuda/kernels.hpp"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kParts = 128;  // looked at together
constexpr int kRows = 16;
constexpr int kMaxVectors = kRows * 64 / kThreads;  // of four dims, of a thread: 16 rows of head_dim 256

struct Shared {
  std::int64_t slot[kParts];
  float weight[kRows][kParts];
  float max[kRows];  // state of the parts so far
  float sum[kRows];
  float correction[kRows];          // from the maximum before this round of parts to the one after
};

/// A warp's softmax state of one row over `count` parts, and the parts' weights relative to it.
__device__ void weigh_row(const core::AttentionParams& p, Shared& s, int r, std::int32_t row, int count) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float max[kParts / 32];
  float sum[kParts / 32];
  float top = s.max[r];
#pragma unroll
  for (int i = 0; i < kParts / 32; ++i) {
    const int part = lane + 32 * i;
    const bool there = part < count && s.slot[part] >= 0;
    const float* const from = p.partial_state + 2 * ((there ? s.slot[part] : 0) * p.partition.tile_rows + row);
    max[i] = there ? from[0] : core::kMinusInf;
    sum[i] = there ? from[1] : 0.0f;
    top = max[i] > top || max[i] != max[i] ? max[i] : top;
  }
  for (int bit = 16; bit > 0; bit /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, top, bit);
    top = other > top || other != other ? other : top;
  }
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kParts / 32; ++i) {
    const float weight = core::rescale(max[i], top);
    total += sum[i] * weight;
    if (lane + 32 * i < count) s.weight[r][lane + 32 * i] = weight;
  }
  for (int bit = 16; bit > 0; bit /= 2) total += __shfl_xor_sync(0xffffffffu, total, bit);
  if (lane == 0) {
    const float correction = core::rescale(s.max[r], top);
    s.correction[r] = correction;
    s.max[r] = top;
    s.sum[r] = s.sum[r] * correction + total;
  }
}

/// Rows first .. first + count of a job.
__device__ void merge_rows(const AttendArgs& args, Shared& s, const core::MergeJob& job, const core::RowMap& rows, int first,
                           int count) {
  const core::AttentionParams& p = args.params;
  const int thread = static_cast<int>(threadIdx.x);
  const int vectors = p.head_dim / 4;
  float4 out[kMaxVectors];
#pragma unroll
  for (int i = 0; i < kMaxVectors; ++i) out[i] = {0.0f, 0.0f, 0.0f, 0.0f};
  __syncthreads();
  if (thread < count) {
    s.max[thread] = core::kMinusInf;
    s.sum[thread] = 0.0f;
  }

  for (std::int32_t begin = 0; begin < job.count; begin += kParts) {
    const int parts = job.count - begin < kParts ? job.count - begin : kParts;
    __syncthreads();
    if (thread < parts) s.slot[thread] = core::merge_slot(args.list, job, begin + thread);
    __syncthreads();
    for (int r = thread / 32; r < count; r += kWarps) weigh_row(p, s, r, first + r, parts);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMaxVectors; ++i) {
      const int at = thread + i * kThreads;
      const int r = at / vectors;
      if (r >= count) continue;
      const float* const from = p.partial_output + static_cast<std::int64_t>(first + r) * p.head_dim + at % vectors * 4;
      const float correction = s.correction[r];
      float4 sum = {out[i].x * correction, out[i].y * correction, out[i].z * correction, out[i].w * correction};
#pragma unroll 8
      for (int part = 0; part < parts; ++part) {
        const std::int64_t slot = s.slot[part];
        if (slot < 0) continue;
        const float weight = s.weight[r][part];
        const float4 x = *reinterpret_cast<const float4*>(from + slot * p.partition.tile_rows * p.head_dim);
        sum.x += weight * x.x;
        sum.y += weight * x.y;
        sum.z += weight * x.z;
        sum.w += weight * x.w;
      }
      out[i] = sum;
    }
  }

#pragma unroll
  for (int i = 0; i < kMaxVectors; ++i) {
    const int at = thread + i * kThreads;
    const int r = at / vectors;
    if (r >= count) continue;
    const std::int32_t row = first + r;
    const core::SoftmaxState keys{s.max[r], s.sum[r]};
    core::SoftmaxState state = keys;
    if (p.sinks != nullptr) state = state.with_sink(p.sinks[rows.head(row)] * core::kLog2E);
    const float scale = core::rescale(keys.max, state.max) * state.normaliser();
    const float values[4] = {out[i].x * scale, out[i].y * scale, out[i].z * scale, out[i].w * scale};
    const int dim = at % vectors * 4;
    const std::int64_t to = rows.token(row) * p.o.token_stride + rows.head(row) * p.o.head_stride + dim;
    core::store_plain_row(values, 4, p.o.dtype, core::element_address(p.o.data, p.o.dtype, to));
    if (p.lse != nullptr && dim == 0) p.lse[rows.token(row) * p.num_q_heads + rows.head(row)] = state.lse();
  }
}

__global__ void __launch_bounds__(kThreads) merge(const __grid_constant__ AttendArgs args) {
  __shared__ Shared shared;
  wait_for_previous();
  core::for_each_merge(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::MergeJob& job) {
    const core::RowMap rows(args.params, {job.unit.seq, job.unit.block, job.unit.kv_head, job.unit.tiles, -1});
    for (int first = 0; first < rows.num_rows; first += kRows) {
      merge_rows(args, shared, job, rows, first, rows.num_rows - first < kRows ? rows.num_rows - first : kRows);
    }
  });
}

}  // namespace

cudaError_t launch_merge(const AttendArgs& args, bool dependent, cudaStream_t stream) noexcept {
  void* arguments[] = {const_cast<AttendArgs*>(&args)};
  return launch(reinterpret_cast<const void*>(&merge), args.list.partition.num_workers, kThreads, 0, dependent, arguments, stream);
}

}  // namespace fp4pa::cuda
