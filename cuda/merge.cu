// The second pass of a run: units whose keys were divided, put together from their partial states. Under a balanced cut the
// blocks of the workers that hold a unit's parts, but for the last part, share its rows, by the notes that these workers left; under fixed splits a
// block does what begins on the worker of its number.
#include "cuda/dependency.cuh"
#include "cuda/merge_rows.cuh"
#include "cuda/merge_share.cuh"
#include "cuda/notes.cuh"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 32 * kShareWarps;

__device__ core::RowMap rows_of(const AttendArgs& args, const core::Unit& unit) {
  return {args.params, {unit.seq, unit.block, unit.kv_head, unit.tiles, -1}};
}

union Shared {
  MergeShared rows;
  MergeSums sums;
};

__device__ void merge_balanced(const AttendArgs& args, Shared& shared) {
  const auto worker = static_cast<std::int32_t>(blockIdx.x);
  const core::MergeNote note = args.notes[worker];
  if (note.count < 2) return;
  if (note.count == note.last - note.first + 1) {
    merge_share(args.params, shared.sums, note, worker);
  } else if (worker == note.first) {
    // Fewer tiles than workers: some in between have no part.
    const core::UnitParts parts(note);
    const core::RowMap rows(args.params, {note.seq, note.block, note.kv_head, {0, 0}, -1});
    merge_rows(args.params, shared.rows, rows, parts.last - parts.first + 1,
               [&](int part) { return parts.slot(args.list, parts.first + part); });
  }
}

/// What a merge reads first, keys streamed through may have driven from every cache, that of address translation too. Asked for
/// before the wait, it is on its way when the wait ends.
__device__ void prefetch(const AttendArgs& args) {
  if (threadIdx.x != 0) return;
  const auto touch = [](const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); };
  const core::AttentionParams& p = args.params;
  touch(args.notes + blockIdx.x);
  touch(p.qo_indptr);
  touch(p.seq_lens);
  const std::int64_t slot = 2 * static_cast<std::int64_t>(blockIdx.x);
  touch(p.partial_state + 2 * slot * p.partition.tile_rows);
  touch(p.partial_output + slot * p.partition.tile_rows * p.head_dim);
  touch(p.o.data);
}

// Few registers, so that a block finds room as soon as one of the attention kernel's leaves.
__global__ void __launch_bounds__(kThreads, 3) merge(const __grid_constant__ AttendArgs args) {
  __shared__ Shared shared;
  prefetch(args);
  wait_for_previous();
  if (args.list.partition.split_tiles == 0) return merge_balanced(args, shared);
  core::for_each_merge(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::MergeJob& job) {
    merge_rows(args.params, shared.rows, rows_of(args, job.unit), job.count,
               [&](int part) { return core::merge_slot(args.list, job, part); });
  });
}

}  // namespace

cudaError_t launch_merge(const AttendArgs& args, bool dependent, cudaStream_t stream) noexcept {
  void* arguments[] = {const_cast<AttendArgs*>(&args)};
  return launch(reinterpret_cast<const void*>(&merge), args.list.partition.num_workers, kThreads, 0, dependent, arguments, stream);
}

}  // namespace fp4pa::cuda
