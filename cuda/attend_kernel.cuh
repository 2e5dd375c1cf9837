// The attention kernel: a resident block per worker, each walking its items of the schedule.
#pragma once

#include "backends/sm80/exec.hpp"
#include "backends/sm80/shims.hpp"
#include "core/schedule/work.hpp"
#include "cuda/dependency.cuh"
#include "cuda/instances.hpp"
#include "cuda/kernels.hpp"
#include "cuda/notes.cuh"

namespace fp4pa::cuda {

/// @tparam index  row of kInstances; a number, because nvcc cannot name a kernel after a structure
template <int index>
__global__ void __launch_bounds__(simt::kInstances[index].warps * 32, simt::kInstances[index].blocks)
    attend(const __grid_constant__ AttendArgs args) {
  constexpr core::SimtConfig kConfig = simt::kInstances[index];
  extern __shared__ __align__(128) std::uint8_t shared[];
  sm80::WarpExec exec(shared);
  wait_for_previous();
  allow_dependents();
  if (threadIdx.x == 0) clear_note(args);
  core::for_each_item(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::WorkItem& item, const core::Unit& unit) {
    const core::RowMap rows(args.params, item);
    core::SimtTileBackend<sm80::ShimFor<kConfig, sm80::WarpExec>> backend(exec, args.params, rows, args.layout);
    core::attend(backend, args.params, item);
    if (threadIdx.x == 0) leave_note(args, item, unit);
  });
}

/// What shared_layout_of() assumes about the back end's sizes.
template <int index>
constexpr bool sizes_agree() {
  constexpr core::SimtConfig kConfig = simt::kInstances[index];
  using B = core::SimtTileBackend<sm80::ShimFor<kConfig, sm80::WarpExec>>;
  return B::kQueries == simt::atom_queries(kConfig) &&
         B::kResultBytes == (kConfig.head_dim + 2) * kConfig.row_tiles * simt::atom_queries(kConfig) * 4;
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
