// The second pass of a run: units whose keys were divided, put together from their partial states. Under a balanced cut the
// blocks of the workers that hold a unit's parts, but for the last part, share its rows, by the notes that the schedule left, or that they find themselves;
// under fixed splits a block does what begins on the worker of its number. Of many units there is none: cuda/merge_last.cuh.
#include <algorithm>

#include "cuda/dependency.cuh"
#include "cuda/merge_rows.cuh"
#include "cuda/merge_share.cuh"
#include "cuda/words.cuh"
#include "kernels/find_start.hpp"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 32 * kShareWarps;
/// Notes of a block, where there are more workers than blocks that come in at once.
constexpr int kMostNotes = 4;
static_assert(kMostNotes <= kShareWarps);

/// Blocks that share what falls to a worker: a warp takes rows one behind the other, and waits for memory at each.
constexpr int blocks_of_worker(int tile_rows) { return tile_rows > 32 ? tile_rows / 32 : 1; }

__device__ core::RowMap rows_of(const AttendArgs& args, const core::Unit& unit) {
  return {args.params, {unit.seq, unit.block, unit.kv_head, unit.tiles, -1}};
}

/// What a merge reads first, keys streamed through may have driven from every cache, that of address translation too. Asked for
/// before the wait, it is on its way when the wait ends.
__device__ void prefetch(const core::AttentionParams& p) {
  if (threadIdx.x != 0) return;
  const auto touch = [](const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); };
  const std::int64_t slot = 2 * static_cast<std::int64_t>(blockIdx.x);
  touch(p.partial_state + 2 * slot * p.partition.tile_rows);
  touch(p.partial_output + slot * p.partition.tile_rows * p.head_dim);
  touch(p.o.data);
}

/// A worker's note, readable before the wait, as lengths are: the attention's blocks wait for the schedule, and for what came
/// before it, before they let this kernel in.
__device__ core::MergeNote load_note(const core::MergeNote* from) {
  return {__ldcg(&from->seq),   __ldcg(&from->block), __ldcg(&from->kv_head), __ldcg(&from->begin),
          __ldcg(&from->first), __ldcg(&from->last),  __ldcg(&from->count)};
}

/// What a worker's note says, and the rows of its unit.
struct Noted {
  core::MergeNote note;
  core::RowMap rows;
};

// Few registers, so that a block finds room as soon as the attention kernel's leaves. Two kernels, since code that does not run
// would part the code that does.
__global__ void __launch_bounds__(kThreads, 3) merge_balanced(const __grid_constant__ AttendArgs args) {
  __shared__ MergeSums shared;
  __shared__ __align__(16) unsigned char storage[kMostNotes * sizeof(Noted)];
  auto* const noted = reinterpret_cast<Noted*>(storage);
  prefetch(args.params);
  const auto worker_of = [](int i) { return static_cast<std::int32_t>(blockIdx.x + i * gridDim.x); };
  const int warp = static_cast<int>(threadIdx.x / 32);
  bool merges = false;
  if (warp < kMostNotes) {  // a note each
    const core::WorkList& list = args.list;
    core::MergeNote note{};
    if (worker_of(warp) < list.partition.num_workers) {
      note = list.partition.finders.divisor != 0 ? find_note(list, worker_of(warp)) : load_note(list.partition.notes + worker_of(warp));
    }
    merges = note.count > 1;
    if (threadIdx.x % 32 == 0) {
      noted[warp].note = note;
      if (merges) noted[warp].rows = core::RowMap(args.params, {note.seq, note.block, note.kv_head, {0, 0}, -1});
    }
  }
  merges = __syncthreads_or(merges) != 0;
  // One block waits though it has nothing to merge: the call is not done before its attention is.
  if (!merges && blockIdx.x + blockIdx.y != 0) return;
  wait_for_previous();
#pragma unroll 1
  for (int i = 0; i < kMostNotes; ++i) {
    if (noted[i].note.count <= 1) continue;
    merge_share(args.params, shared, noted[i].note, noted[i].rows, worker_of(i), static_cast<int>(blockIdx.y),
                static_cast<int>(gridDim.y));
  }
}

__global__ void __launch_bounds__(kThreads, 2) merge_pieces(const __grid_constant__ AttendArgs args) {
  __shared__ MergeShared shared;
  wait_for_previous();
  core::for_each_merge(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::MergeJob& job) {
    merge_rows(args.params, shared, rows_of(args, job.unit), job.count,
               [&](int part) { return core::merge_slot(args.list, job, part); });
  });
}

}  // namespace

cudaError_t launch_merge(const AttendArgs& args, int multiprocessors, bool dependent, cudaStream_t stream) noexcept {
  void* arguments[] = {const_cast<AttendArgs*>(&args)};
  const bool balanced = args.list.partition.split_tiles == 0;
  const void* const function =
      balanced ? reinterpret_cast<const void*>(&merge_balanced) : reinterpret_cast<const void*>(&merge_pieces);
  const int blocks = balanced ? blocks_of_worker(args.params.partition.tile_rows) : 1;
  const int workers = args.list.partition.num_workers;
  const int notes = balanced ? std::clamp(workers / (2 * multiprocessors), 1, kMostNotes) : 1;
  return launch(function, dim3((workers + notes - 1) / notes, blocks), kThreads, 0, dependent, arguments, stream);
}

}  // namespace fp4pa::cuda
