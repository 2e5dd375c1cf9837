// Where a worker's piece of the line begins, found by a warp from the lengths themselves: without a schedule before the attention.
//
// For decode: every sequence is one row block (or none), so that a sequence costs the same for each KV head, and the line is short
// enough for 32 bits (finds_starts() in cuda/launch_shape.hpp). A lane adds up a run of sequences, lanes add up their sums by shuffles,
// and the lane whose run holds the worker's first coordinate looks it up there. Lengths come from memory once, for all workers at the
// same time; a kernel of one block that does this before the others begin takes longer than they take to do it for themselves.
//
// Where the lengths are close, there is no line: every worker has a part of a unit by arithmetic (core/schedule/even.hpp).
#pragma once

#include "core/schedule/even.hpp"

namespace fp4pa::FP4PA_GPU {

/// Cost of a unit of a sequence.
[[nodiscard]] FP4PA_DEVICE FP4PA_INLINE std::uint32_t unit_cost(const core::WorkList& list, std::int32_t seq) {
  const core::SequenceShape s = list.shape(seq);
  if (s.q_len == 0) return 0;
  return static_cast<std::uint32_t>(core::tiles_seen(s, 0, s.q_len - 1).size() + list.partition.overhead_tiles);
}

/// core::worker_begin() on a line so short, at whose end all workers past the last begin.
[[nodiscard]] FP4PA_DEVICE FP4PA_INLINE std::uint32_t cut_of(const core::Partition& p, std::uint32_t total, std::uint32_t worker) {
  if (worker >= p.finders.divisor) return total;
  if (total < p.finders.divisor) return worker < total ? worker : total;
  return p.finders.quotient(total * worker);
}
/// core::worker_of(), likewise.
[[nodiscard]] FP4PA_DEVICE FP4PA_INLINE std::int32_t worker_at(const core::Partition& p, std::uint32_t total, std::uint32_t x) {
  const std::uint32_t workers = p.finders.divisor;
  return static_cast<std::int32_t>(total < workers ? x : ((x + 1) * workers - 1) / total);
}

struct FoundStart {
  core::WorkerStart start;
  std::uint32_t total;  // cost of the line
  bool even;            // there is no line: core::even_part()
};

/// core::worker_start(), by all lanes of a warp, which all get it.
/// @param worker  those past the last have none, and begin and end at the end of the line
[[nodiscard]] FP4PA_DEVICE FP4PA_INLINE FoundStart find_start(const core::WorkList& list, std::int32_t worker) {
  const std::int32_t lane = thread_id() % kLanes;
  const auto heads = static_cast<std::uint32_t>(list.num_kv_heads);
  const std::int32_t run = (list.batch + kLanes - 1) / kLanes;
  const std::int32_t first = lane * run < list.batch ? lane * run : list.batch;
  const std::int32_t last = first + run < list.batch ? first + run : list.batch;

  std::uint32_t own = 0;
  std::uint32_t dearest = 0;
  FP4PA_NO_UNROLL
  for (std::int32_t seq = first; seq < last; ++seq) {
    const std::uint32_t cost = unit_cost(list, seq);
    own += cost;
    dearest = cost > dearest ? cost : dearest;
  }
  FoundStart found{};
  found.total = sum_of_lanes(own) * heads;
  if (list.partition.even.divisor != 0) {
    const std::int32_t longest = static_cast<std::int32_t>(largest_of_lanes(dearest)) - list.partition.overhead_tiles;
    found.even = core::prefers_even(list.partition, found.total, longest < 0 ? 0 : longest);
    if (found.even) return found;
  }
  std::uint32_t up_to = own;
  FP4PA_UNROLL
  for (int step = 1; step < kLanes; step *= 2) {
    const std::uint32_t below = shuffle_up(up_to, step);
    if (lane >= step) up_to += below;
  }
  const std::uint32_t begin = cut_of(list.partition, found.total, static_cast<std::uint32_t>(worker));
  const std::uint32_t end = cut_of(list.partition, found.total, static_cast<std::uint32_t>(worker + 1));
  const bool none = begin >= found.total;

  std::uint32_t before = up_to - own;  // cost of one head's units
  const bool holds = begin >= before * heads && begin < up_to * heads;
  std::int32_t seq = first;
  std::uint32_t cost = 0;
  if (holds) {
    FP4PA_NO_UNROLL
    for (;; ++seq) {
      cost = unit_cost(list, seq);
      if (begin < (before + cost) * heads) break;
      before += cost;
    }
  }
  const int holder = none ? 0 : first_lane_where(holds);
  seq = static_cast<std::int32_t>(shuffle_from(static_cast<std::uint32_t>(seq), holder));
  before = shuffle_from(before, holder) * heads;
  cost = shuffle_from(cost, holder);
  found.start.begin = begin;
  found.start.end = end;
  if (none) return found;
  found.start.seq = seq;
  found.start.kv_head = static_cast<std::int32_t>((begin - before) / cost);
  found.start.block_begin = before;
  return found;
}

/// core::merge_note() or core::even_note(), likewise.
[[nodiscard]] FP4PA_DEVICE FP4PA_INLINE core::MergeNote find_note(const core::WorkList& list, std::int32_t worker) {
  const auto [next, total, even] = find_start(list, worker + 1);  // the unit that holds the end of the worker's piece
  if (even) return core::even_note(list, worker);
  const std::uint32_t line = total;  // a name that a lambda may take
  const std::uint32_t begin = cut_of(list.partition, line, static_cast<std::uint32_t>(worker));
  if (next.begin >= line || begin == next.begin) return {};
  core::UnitCursor cursor(list, next);
  cursor.measure();
  return core::merge_note(worker, begin, next.begin, cursor.unit(), [&](const core::Unit& unit) {
    return core::UnitParts(unit, [&](std::int64_t x) { return worker_at(list.partition, line, static_cast<std::uint32_t>(x)); });
  });
}

/// The unit of which a worker leaves the part in its slot 2 * worker + side, under a balanced cut; less than two parts: there is none.
/// @param found  what find_start() said to the worker
/// @param last   where its walk stood at its last item: core::ItemWalk::at()
[[nodiscard]] FP4PA_DEVICE FP4PA_INLINE core::MergeNote find_left(const core::WorkList& list, std::int32_t worker, std::int32_t side,
                                                                 const FoundStart& found, const core::WorkerStart& last) {
  if (found.start.begin >= found.start.end) return {};
  const core::WorkerStart& at = side == 0 ? found.start : last;
  core::Unit unit{};
  unit.overhead = list.partition.overhead_tiles;
  unit.cost = unit_cost(list, at.seq);
  unit.begin = at.block_begin + at.kv_head * unit.cost;
  unit.tiles.end = static_cast<std::int32_t>(unit.cost) - unit.overhead;
  const core::WorkItem item = core::balanced_piece(unit, worker, found.start.begin, found.start.end);
  if (item.tiles.size() == 0 || item.partial_slot != 2 * worker + side) return {};
  const std::uint32_t line = found.total;  // a name that a lambda may take
  const core::UnitParts parts(unit, [&](std::int64_t x) { return worker_at(list.partition, line, static_cast<std::uint32_t>(x)); });
  return {at.seq, 0, at.kv_head, parts.begin, parts.first, parts.last, parts.count};
}

}  // namespace fp4pa::FP4PA_GPU
