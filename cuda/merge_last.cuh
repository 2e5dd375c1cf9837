// Partial states of a unit put together by the worker whose part is done last, in the attention kernel: no other kernel follows.
//
// A worker leaves at most two parts. When it has no more items it marks them in the workspace, and looks whether the other parts of their
// units are marked, too: who finds all of them marked merges. Between its marks and its look a worker passes a fence, so that the last
// one of a unit to pass it finds all. Another may find them as well: it writes the same bits.
//
// A workspace holds anything when a call begins. So a mark is a number that no other launch has (new_mark() in cuda/attention.cpp). The
// replays of a graph have the same one: who merges takes the marks away, and the next replay begins when this one has ended.
#pragma once

#include "cuda/merge_share.cuh"
#include "cuda/worker.cuh"

namespace fp4pa::cuda {

/// A unit of which a worker has left a part.
struct LeftUnit {
  core::MergeNote note;
  core::RowMap rows;
  bool merges;  // here
};
static_assert(2 * sizeof(LeftUnit) <= core::kScratchBytes);

/// The slot of a worker's part of a unit, see core/schedule/partition.hpp.
[[nodiscard]] __device__ __forceinline__ std::int32_t slot_of(const core::MergeNote& note, std::int32_t worker) {
  return 2 * worker + (worker == note.begin ? 1 : 0);
}

/// All rows of a unit, by the warps of a worker. Half a warp has a row, a lane of it twice four dims. Parts are asked for two at a time, and
/// summed in the order of their keys; they are read past the first-level cache, which knows nothing of other multiprocessors' writes.
__device__ __forceinline__ void merge_unit(const core::AttentionParams& p, const LeftUnit& unit, int lane, int warp, int num_warps,
                                           int head_dim) {
  constexpr int kTogether = 2;
  constexpr int kApart = 64;  // dims
#pragma unroll 1
  for (int row = 2 * warp + lane / 16; row < unit.rows.num_rows; row += 2 * num_warps) {
#pragma unroll 1
    for (int dim = lane % 16 * 4; dim < head_dim; dim += 2 * kApart) {
      const bool both = dim + kApart < head_dim;
      core::SoftmaxState keys;
      float4 out[2] = {};
#pragma unroll 1
      for (int worker = unit.note.first; worker <= unit.note.last; worker += kTogether) {
        float2 state[kTogether];
        float4 x[kTogether][2];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          state[i] = {core::kMinusInf, 0.0f};
          x[i][0] = x[i][1] = {};
          if (worker + i > unit.note.last) continue;
          const std::int64_t at = static_cast<std::int64_t>(slot_of(unit.note, worker + i)) * p.partition.tile_rows + row;
          state[i] = __ldcg(reinterpret_cast<const float2*>(p.partial_state) + at);
          const float* const from = p.partial_output + at * head_dim + dim;
          x[i][0] = __ldcg(reinterpret_cast<const float4*>(from));
          if (both) x[i][1] = __ldcg(reinterpret_cast<const float4*>(from + kApart));
        }
        float top = keys.max;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) top = larger(top, state[i].x);
        const float correction = core::rescale(keys.max, top);
        keys.max = top;
        keys.sum *= correction;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          out[h] = {out[h].x * correction, out[h].y * correction, out[h].z * correction, out[h].w * correction};
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const float weight = core::rescale(state[i].x, top);
          keys.sum += weight * state[i].y;
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float4& y = x[i][h];
            out[h] = {out[h].x + weight * y.x, out[h].y + weight * y.y, out[h].z + weight * y.z, out[h].w + weight * y.w};
          }
        }
      }
      const RowEnd done(p, unit.rows, row, keys);
      const std::int64_t to = unit.rows.token(row) * p.o.token_stride + unit.rows.head(row) * p.o.head_stride + dim;
#pragma unroll 1
      for (int h = 0; h < (both ? 2 : 1); ++h) {
        store_four({out[0].x * done.scale, out[0].y * done.scale, out[0].z * done.scale, out[0].w * done.scale}, p.o, to + h * kApart);
        out[0] = out[1];
      }
      if (p.lse != nullptr && dim == 0) p.lse[unit.rows.token(row) * p.num_q_heads + unit.rows.head(row)] = done.with.lse();
    }
  }
}

/// By all threads of a worker that has had its last item, behind a barrier of theirs. Nothing of what the items' loop has in registers
/// is used: it would be kept there through the loop.
/// @tparam E       the shim's Exec
/// @param  shared  the block's dynamic shared memory
template <class E>
__device__ __forceinline__ void merge_last(const AttendArgs& args, std::uint8_t* shared, int head_dim) {
  constexpr unsigned kAll = 0xffffffffu;
  const std::uint32_t thread = E::thread_anew();
  const E exec = make_exec<E>(args, shared, thread);
  const int lane = static_cast<int>(thread % 32);
  const std::int32_t worker = worker_of(exec);
  const core::WorkList& list = args.list;
  const std::uint64_t mark = list.partition.mark;
  auto* const marks = reinterpret_cast<volatile std::uint64_t*>(list.partition.notes);  // of slots; nobody leaves notes
  static_assert(2 * sizeof(std::uint64_t) <= sizeof(core::MergeNote));
  auto* const units = exec.template at_shared<LeftUnit>(0);  // the first warp's scratch
  if (exec.warp() == 0) {
    if (lane < 2) {  // a slot each
      const auto& aside = *exec.template at_shared<Aside>(static_cast<std::uint32_t>(args.layout.aside));
      const core::MergeNote note = find_left(list, worker, lane, aside.start, aside.line.at());
      units[lane].note = note;
      units[lane].rows = core::RowMap(args.params, {note.seq, 0, note.kv_head, {0, 0}, -1});
      __threadfence();  // what the worker has left, before its marks
      if (note.count > 1) marks[2 * worker + lane] = mark;
      __threadfence();  // its marks, before its look
    }
    __syncwarp(kAll);
#pragma unroll 1
    for (int side = 0; side < 2; ++side) {
      const core::MergeNote& note = units[side].note;
      bool all = note.count > 1;
#pragma unroll 1
      for (int w = note.first + lane; w <= note.last; w += 32) all = all && marks[slot_of(note, w)] == mark;
      all = __all_sync(kAll, all) != 0;
      if (lane == 0) units[side].merges = all;
    }
    __threadfence();  // the look, before what others have left is read
  }
  exec.block_barrier();
#pragma unroll 1
  for (int side = 0; side < 2; ++side) {
    const LeftUnit& unit = units[side];
    if (!unit.merges) continue;
    merge_unit(args.params, unit, lane, exec.warp(), exec.num_warps(), head_dim);
    if (exec.warp() != 0) continue;
    for (int w = unit.note.first + lane; w <= unit.note.last; w += 32) marks[slot_of(unit.note, w)] = 0;
  }
}

}  // namespace fp4pa::cuda
