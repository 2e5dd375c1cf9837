// The attention kernel: a resident block per worker, each walking its items of the schedule.
#pragma once

#include "backends/sm80/exec.hpp"
#include "backends/sm80/shim.hpp"
#include "core/schedule/work.hpp"
#include "cuda/dependency.cuh"
#include "cuda/instances.hpp"
#include "cuda/kernels.hpp"
#include "cuda/merge_rows.cuh"

namespace fp4pa::cuda {

/// The end of an item whose unit was divided: the last block to be done with a part of it puts the parts together. Which one
/// that is makes no difference to the result.
__device__ __noinline__ inline void merge_if_last(const AttendArgs& args, std::uint8_t* shared, const core::WorkItem& item,
                                     const core::Unit& unit) {
  const core::UnitParts parts(args.list, unit);
  __threadfence();  // what this thread wrote of its part comes before the count
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    last = atomicAdd(args.arrivals + parts.first, 1u) + 1 == static_cast<std::uint32_t>(parts.count);
    __threadfence();
  }
  if (__syncthreads_or(last) == 0) return;
  const core::RowMap rows(args.params, item);
  merge_rows(args.params, *reinterpret_cast<MergeShared*>(shared), rows, parts.last - parts.first + 1,
             [&](int part) { return parts.slot(args.list, parts.first + part); });
}

/// @tparam index  row of kInstances; a number, because nvcc cannot name a kernel after a structure
template <int index>
__global__ void __launch_bounds__(simt::kInstances[index].warps * 32, simt::kInstances[index].blocks)
    attend(const __grid_constant__ AttendArgs args) {
  constexpr core::SimtConfig kConfig = simt::kInstances[index];
  extern __shared__ __align__(128) std::uint8_t shared[];
  sm80::WarpExec exec(shared);
  allow_dependents();
  wait_for_previous();
  core::for_each_item(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::WorkItem& item, const core::Unit& unit) {
    const core::RowMap rows(args.params, item);
    core::SimtTileBackend<sm80::Shim<kConfig, sm80::WarpExec>> backend(exec, args.params, rows, args.layout);
    core::attend(backend, args.params, item);
    if (item.partial_slot >= 0 && unit.split == 0) merge_if_last(args, shared, item, unit);
  });
}

/// What shared_layout_of() assumes about the back end's sizes.
template <int index>
constexpr bool sizes_agree() {
  constexpr core::SimtConfig kConfig = simt::kInstances[index];
  using B = core::SimtTileBackend<sm80::Shim<kConfig, sm80::WarpExec>>;
  return B::kQueries == simt::kAtomQueries &&
         B::kResultBytes == (kConfig.head_dim * kConfig.row_tiles * simt::kAtomQueries +
                             2 * kConfig.row_tiles * simt::kAtomQueries) * 4;
}

}  // namespace fp4pa::cuda

/// Compiles row `index` of kInstances; see attend_instance.cu.in.
#define FP4PA_INSTANTIATE_ATTEND(index)                                       \
  namespace fp4pa::cuda {                                                     \
  static_assert(sizes_agree<index>());                                        \
  template <>                                                                 \
  const void* attend_function<index>() noexcept {                             \
    return reinterpret_cast<const void*>(&attend<index>);                     \
  }                                                                           \
  }
