// Where a worker's piece of the line begins, found by a warp from the lengths themselves: without a schedule before the attention.
//
// For decode: every sequence is one row block (or none), so that a sequence costs the same for each KV head, and the line is short
// enough for 32 bits (finds_starts() in cuda/attention.cpp). A lane adds up a run of sequences, lanes add up their sums by shuffles,
// and the lane whose run holds the worker's first coordinate looks it up there. Lengths come from memory once, for all blocks at the
// same time; a kernel of one block that does this before the others begin takes longer than they take to do it for themselves.
#pragma once

#include "core/schedule/work.hpp"

namespace fp4pa::cuda {

/// Cost of a unit of a sequence.
__device__ __forceinline__ std::uint32_t unit_cost(const core::WorkList& list, std::int32_t seq) {
  const core::SequenceShape s = list.shape(seq);
  if (s.q_len == 0) return 0;
  return static_cast<std::uint32_t>(core::tiles_seen(s, 0, s.q_len - 1).size() + list.partition.overhead_tiles);
}

/// core::worker_begin() on a line so short.
__device__ __forceinline__ std::uint32_t cut_of(const core::Partition& p, std::uint32_t total, std::uint32_t worker) {
  if (total < p.finders.divisor) return worker < total ? worker : total;
  return p.finders.quotient(total * worker);
}
/// core::worker_of(), likewise.
__device__ __forceinline__ std::int32_t worker_at(const core::Partition& p, std::uint32_t total, std::uint32_t x) {
  const std::uint32_t workers = p.finders.divisor;
  return static_cast<std::int32_t>(total < workers ? x : ((x + 1) * workers - 1) / total);
}

struct FoundStart {
  core::WorkerStart start;
  std::uint32_t total;  // cost of the line
};

/// core::worker_start(), by all lanes of a warp, which all get it.
/// @param worker  one past the last is none, which begins and ends at the end of the line
__device__ __forceinline__ FoundStart find_start(const core::WorkList& list, std::int32_t worker) {
  constexpr unsigned kAll = 0xffffffffu;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const auto heads = static_cast<std::uint32_t>(list.num_kv_heads);
  const std::int32_t run = (list.batch + 31) / 32;
  const std::int32_t first = lane * run < list.batch ? lane * run : list.batch;
  const std::int32_t last = first + run < list.batch ? first + run : list.batch;

  std::uint32_t own = 0;
#pragma unroll 1
  for (std::int32_t seq = first; seq < last; ++seq) own += unit_cost(list, seq);
  std::uint32_t up_to = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::uint32_t below = __shfl_up_sync(kAll, up_to, step);
    if (lane >= step) up_to += below;
  }
  const std::uint32_t total = __shfl_sync(kAll, up_to, 31) * heads;
  const std::uint32_t begin = cut_of(list.partition, total, static_cast<std::uint32_t>(worker));
  const std::uint32_t end = cut_of(list.partition, total, static_cast<std::uint32_t>(worker + 1));
  const bool none = begin >= total;

  std::uint32_t before = up_to - own;  // cost of one head's units
  const bool holds = begin >= before * heads && begin < up_to * heads;
  std::int32_t seq = first;
  std::uint32_t cost = 0;
  if (holds) {
#pragma unroll 1
    for (;; ++seq) {
      cost = unit_cost(list, seq);
      if (begin < (before + cost) * heads) break;
      before += cost;
    }
  }
  const int holder = none ? 0 : __ffs(static_cast<int>(__ballot_sync(kAll, holds))) - 1;
  seq = __shfl_sync(kAll, seq, holder);
  before = __shfl_sync(kAll, before, holder) * heads;
  cost = __shfl_sync(kAll, cost, holder);
  FoundStart found{};
  found.total = total;
  found.start.begin = begin;
  found.start.end = end;
  if (none) return found;
  found.start.seq = seq;
  found.start.kv_head = static_cast<std::int32_t>((begin - before) / cost);
  found.start.block_begin = before;
  return found;
}

/// core::merge_note(), likewise.
__device__ __forceinline__ core::MergeNote find_note(const core::WorkList& list, std::int32_t worker) {
  const auto [next, total] = find_start(list, worker + 1);  // the unit that holds the end of the worker's piece
  const std::uint32_t begin = cut_of(list.partition, total, static_cast<std::uint32_t>(worker));
  if (next.begin >= total || begin == next.begin) return {};
  core::UnitCursor cursor(list, next);
  cursor.measure();
  return core::merge_note(worker, begin, next.begin, cursor.unit(), [&](const core::Unit& unit) {
    return core::UnitParts(unit, [&](std::int64_t x) { return worker_at(list.partition, total, static_cast<std::uint32_t>(x)); });
  });
}

}  // namespace fp4pa::cuda
