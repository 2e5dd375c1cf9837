// What every attention kernel does: a resident block per worker, which walks its items of the schedule.
#pragma once

#include "core/schedule/work.hpp"
#include "core/simt/tile_backend.hpp"
#include "cuda/dependency.cuh"
#include "cuda/instances.hpp"
#include "cuda/kernels.hpp"
#include "cuda/notes.cuh"

namespace fp4pa::cuda {

/// @param shared  the block's dynamic shared memory, aligned as the shim's operands want it
template <class Shim>
__device__ __forceinline__ void attend_items(const AttendArgs& args, std::uint8_t* shared) {
  typename Shim::Exec exec(shared);
  wait_for_previous();
  allow_dependents();
  if (threadIdx.x == 0) clear_note(args);
  // Inlined by force: called as a function, a kernel of two segments found its parameters and its state through pointers.
  const auto attend_item = [&](const core::WorkItem& item, const core::Unit& unit) __attribute__((always_inline)) {
    const core::RowMap rows(args.params, item);
    core::SimtTileBackend<Shim> backend(exec, args.params, rows, args.layout);
    core::attend(backend, args.params, item);
    if (threadIdx.x == 0) leave_note(args, item, unit);
  };
  core::for_each_item(args.list, static_cast<std::int32_t>(blockIdx.x), attend_item);
}

/// What shared_layout_of() assumes about the back end's sizes.
template <class Shim>
constexpr bool sizes_agree() {
  constexpr core::SimtConfig kConfig = Shim::kConfig;
  using B = core::SimtTileBackend<Shim>;
  return B::kQueries == simt::atom_queries(kConfig) &&
         B::kResultBytes == (kConfig.head_dim + 2) * kConfig.row_tiles * simt::atom_queries(kConfig) * 4;
}

}  // namespace fp4pa::cuda
