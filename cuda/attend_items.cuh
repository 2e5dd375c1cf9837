// What every attention kernel does: a resident block per worker, which walks its items of the schedule.
#pragma once

#include <type_traits>

#include "core/schedule/work.hpp"
#include "core/simt/tile_backend.hpp"
#include "cuda/dependency.cuh"
#include "cuda/instances.hpp"
#include "cuda/kernels.hpp"
#include "cuda/merge_cluster.cuh"
#include "cuda/words.cuh"
#include "kernels/find_start.hpp"

namespace fp4pa::cuda {

/// What a block knows of its items, in shared memory: whoever walks the schedule holds dozens of registers, of which a tile's loop
/// has none to spare.
struct Aside {
  core::ItemWalk walk;
  core::WorkItem item;
  core::RowMap rows;
  std::int32_t parts;  // of a shared unit
  bool found;
  bool ahead;  // the walk's first item is here already
};
static_assert(sizeof(Aside) <= simt::kAsideBytes);

/// Begins the walk of the block's worker, by its first warp. Where the cut may be even, its second warp finds the worker's only item
/// under it at the same time: which cut it is takes as long to find.
/// @tparam kFinds  whether the kernel may be launched without a schedule
template <bool kFinds>
__device__ __forceinline__ void start_walk(const AttendArgs& args, Aside& aside) {
  const core::WorkList& list = args.list;
  const auto worker = static_cast<std::int32_t>(blockIdx.x);
  if (threadIdx.x < 32) {
    FoundStart found{};
    if (kFinds && list.partition.finders.divisor != 0) {
      found = find_start(list, worker);
    } else {
      found.start = list.partition.starts[worker];
    }
    if (threadIdx.x != 0) return;
    aside.walk = core::ItemWalk(list, worker, found.start);  // without items, where none was found
    aside.ahead = kFinds && found.even;
  } else if (kFinds && threadIdx.x == 32 && list.partition.even.divisor != 0) {
    const core::EvenPart part = core::even_part(list, worker);
    aside.item = part.item;
    aside.found = part.parts > 0;
    if (aside.found) aside.rows = core::RowMap(args.params, part.item);
  }
}

/// Finds the block's next item, by one of its threads; false: there is none.
[[nodiscard]] __device__ __forceinline__ bool next_item(const AttendArgs& args, Aside& aside) {
  __syncthreads();  // everybody is done with the last one
  if (threadIdx.x == 0) {
    if (!aside.ahead) {
      aside.item = {};  // left undefined, a compiler keeps the last one's in registers
      aside.found = aside.walk.next(args.list, aside.item);
      if (aside.found) aside.rows = core::RowMap(args.params, aside.item);
    }
    aside.ahead = false;
  }
  __syncthreads();
  return aside.found;
}

/// The same for the only item of a block that shares a unit with the others of its cluster: grids are (rank, KV head, sequence).
[[nodiscard]] __device__ __forceinline__ bool shared_item(const AttendArgs& args, Aside& aside) {
  if (threadIdx.x == 0) {
    const auto rank = static_cast<std::int32_t>(blockIdx.x);
    const auto kv_head = static_cast<std::int32_t>(blockIdx.y);
    const auto seq = static_cast<std::int32_t>(blockIdx.z);
    const core::WorkList& list = args.list;
    const core::RowMap rows(args.params, {seq, 0, kv_head, {0, 0}, -1});
    const core::SharedPart mine =
        core::shared_part(list.partition, {rows.q_len, rows.kv_len, list.group_heads, list.sliding_window, list.ends_at_row}, seq,
                          kv_head, list.num_kv_heads, rank);
    aside.found = rank < mine.parts;
    aside.parts = mine.parts;
    aside.item = mine.item;
    aside.rows = rows;
  }
  __syncthreads();
  return aside.found;
}

/// By all threads of the block.
/// @tparam kShares  whether the kernel may be launched for shared units
/// @param  shared   the block's dynamic shared memory, aligned as the shim's operands want it
template <class Shim, bool kShares = false>
__device__ __forceinline__ void attend_items_of_block(const AttendArgs& args, std::uint8_t* shared) {
  typename Shim::Exec exec(shared);
  auto& aside = *reinterpret_cast<Aside*>(shared + args.layout.aside);
  wait_for_previous();
  allow_dependents();
  const bool shares = kShares && args.list.partition.sharers.divisor != 0;
  // Blocks of instances whose warps share the rows have units of many row blocks, and registers for nothing else.
  if (!shares) start_walk<!core::divides_rows(Shim::kConfig)>(args, aside);
  // A loop, not a function called for each item: where that was not inlined, a kernel of two segments found its parameters and
  // its state through pointers.
  while (shares ? shared_item(args, aside) : next_item(args, aside)) {
    // Addresses are not worth registers from item to item. Blocks that share tiles know fewer of them so, and do not spill.
    exec.template forget<!core::divides_rows(Shim::kConfig)>();
    // Plain instances have registers for what a tile asks of its item; the others read it where it lies.
    constexpr bool kPlain = Shim::kConfig.plain;
    const std::conditional_t<kPlain, core::RowMap, core::RowMap&> rows = aside.rows;
    const std::conditional_t<kPlain, core::WorkItem, core::WorkItem&> item = aside.item;
    core::SimtTileBackend<Shim> backend(exec, args.params, rows, args.layout);
    core::attend(backend, args.params, item, rows);
    if (!shares) continue;
    const auto rank = static_cast<int>(blockIdx.x);
    const std::int64_t first_slot = aside.item.partial_slot - rank;
    if (aside.parts > 1) {
      merge_in_cluster(args.params, aside.rows, first_slot, aside.parts, rank, exec.warp(), backend.head_dim());
    }
    return;
  }
}

/// By threads that each walk the items themselves: where only some of a block attend, in groups that wait for each other nowhere.
/// @param shared  the block's dynamic shared memory, aligned as the shim's operands want it
template <class Shim, class Backend = core::SimtTileBackend<Shim>>
__device__ __forceinline__ void attend_items(const AttendArgs& args, std::uint8_t* shared) {
  typename Shim::Exec exec(shared);
  wait_for_previous();
  allow_dependents();
  // Inlined by force: called as a function, a kernel of two segments found its parameters and its state through pointers.
  const auto attend_item = [&](const core::WorkItem& item) __attribute__((always_inline)) {
    const core::RowMap rows(args.params, item);
    Backend backend(exec, args.params, rows, args.layout);
    core::attend(backend, args.params, item);
  };
  const auto worker = static_cast<std::int32_t>(blockIdx.x);
  core::for_each_item(args.list, worker, args.list.partition.starts[worker], attend_item);
}

/// What shared_layout_of() assumes about the back end's sizes.
template <class Shim>
constexpr bool sizes_agree() {
  constexpr core::SimtConfig kConfig = Shim::kConfig;
  using B = core::SimtTileBackend<Shim>;
  return B::kQueries == simt::atom_queries(kConfig);
}

}  // namespace fp4pa::cuda
