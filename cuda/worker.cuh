// A worker of an attention kernel: its number, its Exec, what it knows of its items.
#pragma once

#include "core/attention/row_map.hpp"
#include "core/schedule/even.hpp"
#include "core/schedule/work.hpp"
#include "cuda/instances.hpp"
#include "cuda/kernels.hpp"
#include "cuda/words.cuh"
#include "kernels/find_start.hpp"

namespace fp4pa::cuda {

/// What a worker knows of its items, in shared memory: whoever walks the schedule holds dozens of registers, of which a tile's loop
/// has none to spare.
struct Aside {
  core::ItemWalk line;
  core::EvenWalk even;
  core::WorkItem item;
  core::RowMap rows;
  std::int32_t parts;  // of a shared unit
  FoundStart start;    // where the cut is even, what follows the line has nothing
  bool merges;         // what it leaves of a line: cuda/merge_last.cuh
  bool found;          // an item
};
static_assert(sizeof(Aside) <= simt::kAsideBytes);

/// Whether a block may have several workers.
template <class E>
inline constexpr bool kHasWorkers = requires(const E& exec) { exec.worker(); };

/// The number of a worker. Numbers follow each other from block to block: where there are fewer items than workers, none of the blocks
/// is left without any.
template <class E>
[[nodiscard]] __device__ __forceinline__ std::int32_t worker_of(const E& exec) {
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  if constexpr (kHasWorkers<E>) {
    return block + exec.worker() * static_cast<std::int32_t>(gridDim.x);
  } else {
    return block;
  }
}

/// A shim's Exec: of a worker, where a block may have several.
/// @param thread  the caller's threadIdx.x
template <class E>
[[nodiscard]] __device__ __forceinline__ E make_exec(const AttendArgs& args, std::uint8_t* shared, std::uint32_t thread = threadIdx.x) {
  if constexpr (kHasWorkers<E>) {
    return E(shared, args.warps, args.layout.bytes, thread);
  } else {
    return E(shared);
  }
}

}  // namespace fp4pa::cuda
