// What every attention kernel does: resident workers, a block or a few warps of one each, which walk their items of the schedule.
#pragma once

#include <type_traits>

#include "core/schedule/work.hpp"
#include "core/simt/tile_backend.hpp"
#include "cuda/dependency.cuh"
#include "cuda/instances.hpp"
#include "cuda/kernels.hpp"
#include "cuda/merge_cluster.cuh"
#include "cuda/merge_last.cuh"
#include "cuda/worker.cuh"
#include "cuda/words.cuh"
#include "kernels/find_start.hpp"

namespace fp4pa::cuda {

/// Puts an item that was found aside, and what rows it has.
__device__ __forceinline__ void put_aside(const AttendArgs& args, const core::WorkItem& item, bool found, Aside& aside) {
  aside.item = item;
  aside.found = found;
  if (found) aside.rows = core::RowMap(args.params, item);
}

/// Finds the worker's next item, by one of its lanes; false: there is none. Where the cut may be even, the second warp finds the first
/// item under it while the first warp finds out which cut it is: either takes as long.
/// @tparam kFinds  whether the kernel may be launched without a schedule
/// @param  first   it is the worker's first
template <bool kFinds, class E>
[[nodiscard]] __device__ __forceinline__ bool next_item(const AttendArgs& args, const E& exec, bool first, Aside& aside) {
  const core::WorkList& list = args.list;
  const bool one_lane = threadIdx.x % 32 == 0;
  if (!first) exec.block_barrier();  // everybody is done with the last one
  if (first && exec.warp() == 0) {
    const std::int32_t worker = worker_of(exec);
    FoundStart start{};
    if (kFinds && list.partition.finders.divisor != 0) {
      start = find_start(list, worker);
    } else {
      start.start = list.partition.starts[worker];
    }
    if (one_lane) {
      aside.line = core::ItemWalk(list, worker, start.start);  // without items, where none was found
      aside.start = start;
      aside.merges = list.partition.mark != 0 && !start.even;
    }
  } else if (kFinds && exec.warp() == 1 && one_lane && (first ? list.partition.even.divisor != 0 : aside.start.even)) {
    if (first) aside.even = core::EvenWalk(worker_of(exec));
    core::WorkItem item{};
    const bool found = aside.even.next(list, item);
    put_aside(args, item, found, aside);
  }
  exec.block_barrier();
  if (kFinds && aside.start.even) return aside.found;
  if (exec.warp() == 0 && one_lane) {
    core::WorkItem item{};  // left undefined, a compiler keeps the last one's in registers
    const bool found = aside.line.next(list, item);
    put_aside(args, item, found, aside);
  }
  exec.block_barrier();
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
/// @tparam kShares  whether the kernel may be launched for shared units, of one worker a block then
/// @param  shared   the block's dynamic shared memory, aligned as the shim's operands want it
template <class Shim, bool kShares = false>
__device__ __forceinline__ void attend_items_of_block(const AttendArgs& args, std::uint8_t* shared) {
  // Blocks of instances whose warps share the rows have units of many row blocks, and registers for nothing else.
  constexpr bool kFinds = !core::divides_rows(Shim::kConfig);
  auto exec = make_exec<typename Shim::Exec>(args, shared);
  auto& aside = *exec.template at_shared<Aside>(static_cast<std::uint32_t>(args.layout.aside));
  wait_for_previous();
  allow_dependents();
  const bool shares = kShares && args.list.partition.sharers.divisor != 0;
  // A loop, not a function called for each item: where that was not inlined, a kernel of two segments found its parameters and
  // its state through pointers.
  for (bool first = true; shares ? shared_item(args, aside) : next_item<kFinds>(args, exec, first, aside); first = false) {
    // Addresses are not worth registers from item to item. Blocks that share tiles know fewer of them so, and do not spill.
    exec.template forget<kFinds>();
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
  if constexpr (kFinds && kHasWorkers<typename Shim::Exec>) {
    constexpr core::SimtConfig kConfig = Shim::kConfig;
    // Blocks of a cluster have put nothing of this aside.
    if (shares || !aside.merges) return;
    merge_last<typename Shim::Exec>(args, shared, kConfig.exact_head_dim ? kConfig.head_dim : args.params.head_dim);
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
