// The attention kernel on sm_90a's prefill shim; otherwise as attend_kernel.cuh. Compiled for sm_90a alone.
#pragma once

#include "backends/sm90/exec.hpp"
#include "backends/sm90/prefill_shim.hpp"
#include "core/schedule/work.hpp"
#include "cuda/dependency.cuh"
#include "cuda/kernels.hpp"
#include "cuda/notes.cuh"
#include "cuda/variants.hpp"

namespace fp4pa::cuda {

/// @tparam index  row of sm90::kInstances
template <int index>
__global__ void __launch_bounds__(sm90::kInstances[index].warps * 32, sm90::kInstances[index].blocks)
    attend_sm90(const __grid_constant__ AttendArgs args) {
  constexpr core::SimtConfig kConfig = sm90::kInstances[index];
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::WarpExec exec(shared);
  wait_for_previous();
  allow_dependents();
  if (threadIdx.x == 0) clear_note(args);
  core::for_each_item(args.list, static_cast<std::int32_t>(blockIdx.x), [&](const core::WorkItem& item, const core::Unit& unit) {
    const core::RowMap rows(args.params, item);
    core::SimtTileBackend<sm90::PrefillShim<kConfig, sm90::WarpExec>> backend(exec, args.params, rows, args.layout);
    core::attend(backend, args.params, item);
    if (threadIdx.x == 0) leave_note(args, item, unit);
  });
}

/// What shared_layout_of() assumes about the back end's sizes.
template <int index>
constexpr bool sm90_sizes_agree() {
  constexpr core::SimtConfig kConfig = sm90::kInstances[index];
  using B = core::SimtTileBackend<sm90::PrefillShim<kConfig, sm90::WarpExec>>;
  return B::kQueries == simt::atom_queries(kConfig) &&
         B::kResultBytes == (kConfig.head_dim + 2) * kConfig.row_tiles * simt::atom_queries(kConfig) * 4;
}

}  // namespace fp4pa::cuda

/// Compiles row `index` of sm90::kInstances; see attend_sm90_instance.cu.in.
#define FP4PA_INSTANTIATE_ATTEND_SM90(index)                                  \
  namespace fp4pa::cuda {                                                     \
  static_assert(sm90_sizes_agree<index>());                                   \
  template <>                                                                 \
  const void* attend_function<kFirstSm90 + index>() noexcept {                \
    return reinterpret_cast<const void*>(&attend_sm90<index>);                \
  }                                                                           \
  }
