// Partial states of a unit put together by the blocks of the workers that hold its parts, each its share of the rows.
//
// Short code rather than general code: a merge runs once in a call, a few microseconds after the attention kernel, and most of
// them would be spent on fetching instructions. A row is a warp's, or several warps' that divide its parts; a lane has four
// dims, or twice four. Sums run over the parts in a fixed order, so that the result is the same from run to run.
#pragma once

#include "backends/sm80/store_result.hpp"
#include "core/attention/merge_partials.hpp"
#include "core/attention/row_map.hpp"
#include "cuda/kernels.hpp"

namespace fp4pa::cuda {

inline constexpr int kShareWarps = 8;

struct MergeSums {
  float4 of[kShareWarps][2][32];  // of a warp's parts: the lanes' dims
};

/// The larger of two maxima; NaN if one is.
__device__ __forceinline__ float larger(float a, float b) { return b > a || b != b ? b : a; }

__device__ __forceinline__ void store_one(float x, const core::HeadTensor& o, std::int64_t at) {
  sm80::store_result(x, o.dtype, o.data, at);
}
__device__ __forceinline__ void store_four(const float4& x, const core::HeadTensor& o, std::int64_t at) {
  const float four[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) store_one(four[i], o, at + i);
}

/// What is left to do to a row of all parts: what its outputs are multiplied by, and its state with the sink.
struct RowEnd {
  float scale;
  core::SoftmaxState with;
  __device__ __forceinline__ RowEnd(const core::AttentionParams& p, const core::RowMap& rows, int row, core::SoftmaxState keys)
      : with(keys) {
    if (p.sinks != nullptr) with = with.with_sink(p.sinks[rows.head(row)] * core::kLog2E);
    scale = core::rescale(keys.max, with.max) * with.normaliser();
  }
};

/// The rows of a divided unit that fall to block `block` of the `blocks` of `worker`; every thread of a block of kShareWarps warps
/// calls it.
__device__ inline void merge_share(const core::AttentionParams& p, MergeSums& sums, const core::MergeNote& note,
                                   const core::RowMap& rows, int worker, int block, int blocks) {
  const int parts = note.last - note.first + 1;
  const int noted = (parts - 1) * blocks;  // all but the last have a note
  const int sharers = noted < rows.num_rows ? noted : rows.num_rows;
  const int rank = (worker - note.first) * blocks + block;
  if (rank >= sharers) return;
  const int mine = (rows.num_rows - rank + sharers - 1) / sharers;
  int team = kShareWarps;  // warps of a row
  while (team > 1 && team * mine > kShareWarps) team /= 2;
  const int side_by_side = kShareWarps / team;

  constexpr unsigned kAll = 0xffffffffu;
  const int warp = __shfl_sync(kAll, static_cast<int>(threadIdx.x / 32), 0);  // the same in all lanes, seen by the compiler
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int tile_rows = p.partition.tile_rows;
  const auto slot = [&](int part) { return 2 * (note.first + part) + (note.first + part == note.begin ? 1 : 0); };
  for (int first = 0; first < mine; first += side_by_side) {
    const int index = first + warp / team;
    const bool active = index < mine;
    const int row = active ? rank + index * sharers : 0;
    float top = core::kMinusInf;
    float total = 0.0f;
    float4 out[2] = {};
#pragma unroll 1
    for (int begin = 0; begin < parts; begin += 32) {  // a lane has the state of one part, which is read once
      float2 state{core::kMinusInf, 0.0f};
      if (begin + lane < parts) {
        state = __ldcg(reinterpret_cast<const float2*>(p.partial_state) +
                       static_cast<std::int64_t>(slot(begin + lane)) * tile_rows + row);
      }
      float highest = larger(top, state.x);
#pragma unroll
      for (int bit = 16; bit > 0; bit /= 2) highest = larger(highest, __shfl_xor_sync(kAll, highest, bit));
      const float weight = core::rescale(state.x, highest);
      const float correction = core::rescale(top, highest);
      top = highest;
      float sum = state.y * weight;
#pragma unroll
      for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(kAll, sum, bit);
      total = total * correction + sum;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        out[half] = {out[half].x * correction, out[half].y * correction, out[half].z * correction, out[half].w * correction};
      }
      const int left = parts - begin < 32 ? parts - begin : 32;
#pragma unroll 4
      for (int part = warp % team; part < left; part += team) {
        const float w = __shfl_sync(kAll, weight, part);
        const auto* const from = reinterpret_cast<const float4*>(
            p.partial_output + (static_cast<std::int64_t>(slot(begin + part)) * tile_rows + row) * p.head_dim);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (4 * (lane + 32 * half) >= p.head_dim) continue;
          const float4 x = __ldcg(from + lane + 32 * half);
          out[half] = {out[half].x + w * x.x, out[half].y + w * x.y, out[half].z + w * x.z, out[half].w + w * x.w};
        }
      }
    }
    if (team > 1) {
      __syncthreads();  // the sums of the rows before have been read
      sums.of[warp][0][lane] = out[0];
      sums.of[warp][1][lane] = out[1];
      __syncthreads();
    }
    if (!active || warp % team != 0) continue;
    const RowEnd done(p, rows, row, {top, total});
    const core::HeadTensor o = p.o;
    const std::int64_t at = rows.token(row) * o.token_stride + rows.head(row) * o.head_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int dim = 4 * (lane + 32 * half);
      if (dim >= p.head_dim) continue;
      float4 x = out[half];
      for (int w = 1; w < team; ++w) {
        const float4 y = sums.of[warp + w][half][lane];
        x = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
      }
      store_four({x.x * done.scale, x.y * done.scale, x.z * done.scale, x.w * done.scale}, o, at + dim);
    }
    if (p.lse != nullptr && lane == 0) p.lse[rows.token(row) * p.num_q_heads + rows.head(row)] = done.with.lse();
  }
}

}  // namespace fp4pa::cuda
