// The second pass of a run: units whose keys were divided, put together from their partial states. A block does what begins on
// the worker of its number; under a balanced cut that is one unit at most, and that worker's block has left a note of it.
#include "cuda/dependency.cuh"
#include "cuda/merge_rows.cuh"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 256;

__device__ core::RowMap rows_of(const AttendArgs& args, const core::Unit& unit) {
  return {args.params, {unit.seq, unit.block, unit.kv_head, unit.tiles, -1}};
}

__device__ void merge_balanced(const AttendArgs& args, MergeShared& shared) {
  const auto worker = static_cast<std::int32_t>(blockIdx.x);
  const core::MergeNote note = args.notes[worker];
  if (note.count < 2) return;
  const core::UnitParts parts(note, worker);
  const core::RowMap rows(args.params, {note.seq, note.block, note.kv_head, {0, 0}, -1});
  merge_rows(args.params, shared, rows, parts.last - parts.first + 1,
             [&](int part) { return parts.slot(args.list, parts.first + part); });
}

__global__ void __launch_bounds__(kThreads) merge(const __grid_constant__ AttendArgs args) {
  __shared__ MergeShared shared;
  wait_for_previous();
  if (args.list.partition.split_tiles == 0) return merge_balanced(args, shared);
  core::for_each_merge(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::MergeJob& job) {
    merge_rows(args.params, shared, rows_of(args, job.unit), job.count,
               [&](int part) { return core::merge_slot(args.list, job, part); });
  });
}

}  // namespace

cudaError_t launch_merge(const AttendArgs& args, bool dependent, cudaStream_t stream) noexcept {
  void* arguments[] = {const_cast<AttendArgs*>(&args)};
  return launch(reinterpret_cast<const void*>(&merge), args.list.partition.num_workers, kThreads, 0, dependent, arguments, stream);
}

}  // namespace fp4pa::cuda
