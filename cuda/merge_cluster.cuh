// Partial states of a unit put together by the blocks that share it, a cluster: without another kernel, as soon as the last has
// left its part.
#pragma once

#include "cuda/merge_share.cuh"

namespace fp4pa::cuda {

/// Returns when all blocks of the cluster that have not ended have called it, and what they wrote is visible.
__device__ __forceinline__ void meet_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// A lane has four dims of one part; lanes of other parts have the same dims, and add up what they have by shuffles, always in the
/// same order. Code as short as can be: twice as much, parts one after the other, took 1 us longer.
/// @param slot   of the first part
/// @param parts  of the unit, at most core::kMostSharers; the first blocks of the cluster call it, which have them
__device__ __forceinline__ void merge_in_cluster(const core::AttentionParams& p, const core::RowMap& rows, std::int64_t slot, int parts,
                                                 int rank, int warp, int head_dim) {
  constexpr int kQuads = 32 / core::kMostSharers;
  constexpr unsigned kAll = 0xffffffffu;
  meet_cluster();
  const int warps = static_cast<int>(blockDim.x / 32);
  const int part = static_cast<int>(threadIdx.x % 32) / kQuads;
  const int quad = static_cast<int>(threadIdx.x) % kQuads;
  const int pieces = head_dim / (4 * kQuads);  // of a row, of a warp each
#pragma unroll 1
  for (int i = rank * warps + warp; i < rows.num_rows * pieces; i += parts * warps) {
    const int row = i / pieces;
    const int dim = (i % pieces * kQuads + quad) * 4;
    float2 state{core::kMinusInf, 0.0f};
    float4 x{};
    if (part < parts) {
      const std::int64_t at = (slot + part) * p.partition.tile_rows + row;
      state = __ldcg(reinterpret_cast<const float2*>(p.partial_state) + at);
      x = __ldcg(reinterpret_cast<const float4*>(p.partial_output + at * head_dim + dim));
    }
    float top = state.x;
#pragma unroll
    for (int bit = kQuads; bit < 32; bit *= 2) top = larger(top, __shfl_xor_sync(kAll, top, bit));
    const float weight = core::rescale(state.x, top);
    float total = state.y * weight;
    x = {x.x * weight, x.y * weight, x.z * weight, x.w * weight};
#pragma unroll
    for (int bit = kQuads; bit < 32; bit *= 2) {
      total += __shfl_xor_sync(kAll, total, bit);
      x.x += __shfl_xor_sync(kAll, x.x, bit);
      x.y += __shfl_xor_sync(kAll, x.y, bit);
      x.z += __shfl_xor_sync(kAll, x.z, bit);
      x.w += __shfl_xor_sync(kAll, x.w, bit);
    }
    if (part >= 4) continue;
    // Each of four lanes with the same sums stores one of them.
    const RowEnd done(p, rows, row, {top, total});
    const float mine = part == 0 ? x.x : part == 1 ? x.y : part == 2 ? x.z : x.w;
    store_one(mine * done.scale, p.o, rows.token(row) * p.o.token_stride + rows.head(row) * p.o.head_stride + dim + part);
    if (p.lse != nullptr && dim + part == 0) p.lse[rows.token(row) * p.num_q_heads + rows.head(row)] = done.with.lse();
  }
}

}  // namespace fp4pa::cuda
