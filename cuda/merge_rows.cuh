// Partial states of a unit put together by one block.
//
// A long sequence leaves hundreds of parts, so that all threads look for them: one part a thread for its place, one warp a row
// for the weights, one thread four dims of a row for the output. Sums run over the parts in a fixed order, so that the result
// is the same from run to run.
#pragma once

#include "backends/sm80/store_result.hpp"
#include "core/attention/merge_partials.hpp"
#include "core/attention/row_map.hpp"
#include "cuda/kernels.hpp"

namespace fp4pa::cuda {

inline constexpr int kMergeParts = 64;  // looked at together
inline constexpr int kMergeRows = 16;
inline constexpr int kMergeVectors = 4;  // of four dims, of a thread

struct MergeShared {
  std::int64_t slot[kMergeParts];  // ~slot of another part, whose weight is 0, where there is none
  float weight[kMergeRows][kMergeParts];
  float max[kMergeRows];  // state of the parts so far
  float sum[kMergeRows];
  float correction[kMergeRows];  // from the maximum before this round of parts to the one after
};

/// A warp's softmax state of one row over `count` parts, and the parts' weights relative to it. Partial states are read past the
/// first-level cache: this block may have come to its multiprocessor before they were written.
__device__ inline void weigh_row(const core::AttentionParams& p, MergeShared& s, int r, std::int32_t row, int count) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float max[kMergeParts / 32];
  float sum[kMergeParts / 32];
  float top = s.max[r];
  const auto part_of = [lane](int i) { return lane + 32 * i; };
#pragma unroll
  for (int i = 0; i < kMergeParts / 32; ++i) {
    const int part = part_of(i);
    const bool there = part < count && s.slot[part] >= 0;
    float2 state{core::kMinusInf, 0.0f};
    if (there) state = __ldcg(reinterpret_cast<const float2*>(p.partial_state) + s.slot[part] * p.partition.tile_rows + row);
    max[i] = state.x;
    sum[i] = state.y;
    top = max[i] > top || max[i] != max[i] ? max[i] : top;
  }
  for (int bit = 16; bit > 0; bit /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, top, bit);
    top = other > top || other != other ? other : top;
  }
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kMergeParts / 32; ++i) {
    const float weight = core::rescale(max[i], top);
    total += sum[i] * weight;
    if (part_of(i) < count) s.weight[r][part_of(i)] = s.slot[part_of(i)] >= 0 ? weight : 0.0f;
  }
  for (int bit = 16; bit > 0; bit /= 2) total += __shfl_xor_sync(0xffffffffu, total, bit);
  if (lane == 0) {
    const float correction = core::rescale(s.max[r], top);
    s.correction[r] = correction;
    s.max[r] = top;
    s.sum[r] = s.sum[r] * correction + total;
  }
}

/// Rows first .. first + count of a unit of `num_parts` parts; slot_of(i) is the slot of part i, or -1.
template <class Slot>
__device__ void merge_some_rows(const core::AttentionParams& p, MergeShared& s, const core::RowMap& rows, int first, int count,
                                int num_parts, Slot&& slot_of) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int vectors = p.head_dim / 4;
  float4 out[kMergeVectors];
#pragma unroll
  for (int i = 0; i < kMergeVectors; ++i) out[i] = {0.0f, 0.0f, 0.0f, 0.0f};
  __syncthreads();
  if (thread < count) {
    s.max[thread] = core::kMinusInf;
    s.sum[thread] = 0.0f;
  }

  for (int begin = 0; begin < num_parts; begin += kMergeParts) {
    const int parts = num_parts - begin < kMergeParts ? num_parts - begin : kMergeParts;
    __syncthreads();
    for (int i = thread; i < parts; i += threads) {
      const std::int64_t slot = slot_of(begin + i);
      s.slot[i] = slot >= 0 ? slot : ~slot_of(0);
    }
    __syncthreads();
    for (int r = thread / 32; r < count; r += threads / 32) weigh_row(p, s, r, first + r, parts);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMergeVectors; ++i) {
      const int at = thread + i * threads;
      const int r = at / vectors;
      if (r >= count) continue;
      const float* const from = p.partial_output + static_cast<std::int64_t>(first + r) * p.head_dim + at % vectors * 4;
      const float correction = s.correction[r];
      float4 sum = {out[i].x * correction, out[i].y * correction, out[i].z * correction, out[i].w * correction};
#pragma unroll 4
      for (int part = 0; part < parts; ++part) {
        const std::int64_t at_slot = s.slot[part];
        const std::int64_t slot = at_slot >= 0 ? at_slot : ~at_slot;
        const float weight = s.weight[r][part];
        const float4 x = __ldcg(reinterpret_cast<const float4*>(from + slot * p.partition.tile_rows * p.head_dim));
        sum.x += weight * x.x;
        sum.y += weight * x.y;
        sum.z += weight * x.z;
        sum.w += weight * x.w;
      }
      out[i] = sum;
    }
  }

#pragma unroll
  for (int i = 0; i < kMergeVectors; ++i) {
    const int at = thread + i * threads;
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
#pragma unroll
    for (int e = 0; e < 4; ++e) sm80::store_result(values[e], p.o.dtype, p.o.data, to + e);
    if (p.lse != nullptr && dim == 0) p.lse[rows.token(row) * p.num_q_heads + rows.head(row)] = state.lse();
  }
}

/// All rows of a unit; every thread of the block calls it.
template <class Slot>
__device__ void merge_rows(const core::AttentionParams& p, MergeShared& s, const core::RowMap& rows, int num_parts,
                           Slot&& slot_of) {
  const int fit = static_cast<int>(blockDim.x) * kMergeVectors * 4 / p.head_dim;
  const int step = fit < 1 ? 1 : fit < kMergeRows ? fit : kMergeRows;
  for (int first = 0; first < rows.num_rows; first += step) {
    const int left = rows.num_rows - first;
    merge_some_rows(p, s, rows, first, left < step ? left : step, num_parts, slot_of);
  }
}

}  // namespace fp4pa::cuda
