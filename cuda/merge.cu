// The second pass of a run under fixed splits: units whose keys were divided, put together from their partial states. A block
// does what begins on the worker of its number. (Under a balanced cut the attention kernel's last block of a unit does it.)
#include "cuda/dependency.cuh"
#include "cuda/merge_rows.cuh"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) merge(const __grid_constant__ AttendArgs args) {
  __shared__ MergeShared shared;
  wait_for_previous();
  core::for_each_merge(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::MergeJob& job) {
    const core::RowMap rows(args.params, {job.unit.seq, job.unit.block, job.unit.kv_head, job.unit.tiles, -1});
    merge_rows(args.params, shared, rows, job.count, [&](int part) { return core::merge_slot(args.list, job, part); });
  });
}

}  // namespace

cudaError_t launch_merge(const AttendArgs& args, bool dependent, cudaStream_t stream) noexcept {
  void* arguments[] = {const_cast<AttendArgs*>(&args)};
  return launch(reinterpret_cast<const void*>(&merge), args.list.partition.num_workers, kThreads, 0, dependent, arguments, stream);
}

}  // namespace fp4pa::cuda
