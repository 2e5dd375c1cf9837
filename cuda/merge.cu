// The second pass of a run: units whose keys were divided, put together from their partial states. A block does what begins on
// the worker of its number.
//
// Under a balanced cut that is one unit at most. Which one is found out while the attention kernel still works: its schedule is
// older than both. Only then are the partial states waited for.
#include "cuda/dependency.cuh"
#include "cuda/merge_rows.cuh"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 256;

__device__ core::RowMap rows_of(const AttendArgs& args, const core::Unit& unit) {
  return {args.params, {unit.seq, unit.block, unit.kv_head, unit.tiles, -1}};
}

__device__ void merge_balanced(const AttendArgs& args, MergeShared& shared) {
  const core::WorkList& list = args.list;
  const auto worker = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t total = list.total_cost();
  const std::int64_t begin = core::worker_begin(total, list.partition.num_workers, worker);
  const std::int64_t end = core::worker_begin(total, list.partition.num_workers, worker + 1);
  // Only the unit across this worker's right end can be divided and begin here.
  if (begin == end || end == total) return wait_for_previous();
  const core::UnitCursor cursor(list, end);
  const core::Unit unit = cursor.unit();
  if (unit.begin < begin || unit.begin >= end) return wait_for_previous();
  const core::UnitParts parts(list, unit);
  const core::RowMap rows = rows_of(args, unit);
  wait_for_previous();
  if (parts.count < 2) return;
  merge_rows(args.params, shared, rows, parts.last - parts.first + 1,
             [&](int part) { return parts.slot(list, parts.first + part); });
}

__global__ void __launch_bounds__(kThreads) merge(const __grid_constant__ AttendArgs args) {
  __shared__ MergeShared shared;
  if (args.list.partition.split_tiles == 0) return merge_balanced(args, shared);
  wait_for_previous();
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
