// What an attention kernel leaves for the merge: which units were divided, and who holds their parts.
#pragma once

#include "core/schedule/work.hpp"
#include "cuda/kernels.hpp"

namespace fp4pa::cuda {

/// A worker's note before its first item; by one thread.
__device__ __forceinline__ void clear_note(const AttendArgs& args) { args.notes[blockIdx.x].count = 0; }

/// After an item; by one thread. Every part of a divided unit but the last is a worker's last item, so that a worker leaves one
/// note at most. Fixed splits are found by arithmetic.
__device__ __forceinline__ void leave_note(const AttendArgs& args, const core::WorkItem& item, const core::Unit& unit) {
  if (item.partial_slot < 0 || unit.split != 0 || item.tiles.end == unit.tiles.end) return;
  const core::UnitParts parts(args.list, unit);
  args.notes[blockIdx.x] = {unit.seq, unit.block, unit.kv_head, parts.begin, parts.first, parts.last, parts.count};
}

}  // namespace fp4pa::cuda
