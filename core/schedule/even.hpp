// Even: every unit falls into as many parts, and every worker has one of them, or as many whole units as the others.
//
// A balanced cut gives nearly every worker the end of one unit and the beginning of another: two items to open and to end, two partial
// states to leave and to merge. Units of nearly the same length, as many as go well into the number of workers, take less time
// whole, or in equal parts, although some workers are left over. Whether they are of nearly the same length every worker finds from the
// lengths, so that a call is cut in either way, and the next replay of the same graph in the other.
//
// For rows that are one row block a sequence, like shared units (work.hpp).
#pragma once

#include "core/schedule/work.hpp"

namespace fp4pa::core {

/// What a plan's back end decides of an even cut.
struct EvenCut {
  std::int32_t parts;   // of a unit
  std::int32_t rounds;  // of all workers, one unit each, where there are more units than workers

  /// As many parts as there are workers for; whole units where they are more.
  [[nodiscard]] static constexpr EvenCut of(std::int64_t units, std::int32_t workers) {
    if (units <= 0) return {1, 1};
    if (units > workers) return {1, static_cast<std::int32_t>((units + workers - 1) / workers)};
    return {static_cast<std::int32_t>(workers / units), 1};
  }
};

/// Whether an even cut takes no longer than a balanced one. Tiles weigh as on the line, and so do items, of which a worker has one
/// in each round, or its piece of the line and two to open beyond what the line counts.
/// @param line     cost of all units
/// @param longest  tiles of the longest one
[[nodiscard]] FP4PA_FN constexpr bool prefers_even(const Partition& p, std::int64_t line, std::int32_t longest) {
  if (p.even.divisor == 0) return false;
  const auto parts = static_cast<std::int32_t>(p.even.divisor);
  const std::int32_t part = static_cast<std::int32_t>(p.even.quotient(static_cast<std::uint32_t>(longest + parts - 1)));
  const std::int64_t item = part + p.overhead_tiles;
  return p.even_rounds * item * p.num_workers <= line + 2 * static_cast<std::int64_t>(p.overhead_tiles) * p.num_workers;
}

struct EvenPart {
  WorkItem item;
  std::int32_t rank;   // of the unit's parts, in the order of the keys
  std::int32_t parts;  // of the unit; 0: the worker has none
};

/// The part of a worker. A unit of fewer tiles than parts has a part for each tile; one that sees nothing is a part, too.
/// @param worker  workers follow each other as units do (sequence, KV head), and the parts of one
[[nodiscard]] FP4PA_FN EvenPart even_part(const WorkList& list, std::int32_t worker) {
  const Divisor& even = list.partition.even;
  const auto parts = static_cast<std::int32_t>(even.divisor);
  const auto unit = static_cast<std::int32_t>(even.quotient(static_cast<std::uint32_t>(worker)));
  const std::int32_t rank = worker - unit * parts;
  const auto seq = static_cast<std::int32_t>(static_cast<std::uint32_t>(unit) / static_cast<std::uint32_t>(list.num_kv_heads));
  if (seq >= list.batch) return {};
  const SequenceShape shape = list.shape(seq);
  if (shape.q_len == 0) return {};
  const TileRange tiles = tiles_seen(shape, 0, shape.q_len - 1);
  const bool short_unit = tiles.size() < parts;
  const std::int32_t count = !short_unit ? parts : tiles.size() > 1 ? tiles.size() : 1;
  if (rank >= count) return {};
  const auto cut = [&](std::int32_t i) {
    if (short_unit) return i < tiles.size() ? i : tiles.size();
    return static_cast<std::int32_t>(even.quotient(static_cast<std::uint32_t>(tiles.size() * i)));
  };
  // Slots as under a balanced cut, for the same merge: the unit begins on its first part's worker.
  const std::int64_t slot = 2 * static_cast<std::int64_t>(worker) + (rank == 0 ? 1 : 0);
  return {{seq, 0, unit - seq * list.num_kv_heads, {tiles.begin + cut(rank), tiles.begin + cut(rank + 1)}, count > 1 ? slot : -1},
          rank, count};
}

/// The parts of a worker, one after the other: one, or where there are more units than workers one in each round. Plain data that lies
/// somewhere in between, as ItemWalk.
class EvenWalk {
 public:
  FP4PA_FN explicit EvenWalk(std::int32_t worker) : at_(worker) {}

  /// The next item; false where there are no more.
  [[nodiscard]] FP4PA_FN bool next(const WorkList& list, WorkItem& item) {
    const std::int32_t end = list.batch * list.num_kv_heads * static_cast<std::int32_t>(list.partition.even.divisor);
    while (at_ < end) {
      const EvenPart part = even_part(list, at_);
      at_ += list.partition.num_workers;
      if (part.parts == 0) continue;
      item = part.item;
      return true;
    }
    return false;
  }

 private:
  std::int32_t at_;
};

/// The note of a worker with a part, see merge_note().
[[nodiscard]] FP4PA_FN MergeNote even_note(const WorkList& list, std::int32_t worker) {
  const EvenPart part = even_part(list, worker);
  if (part.rank + 1 >= part.parts) return {};
  const std::int32_t first = worker - part.rank;
  return {part.item.seq, 0, part.item.kv_head, first, first, first + part.parts - 1, part.parts};
}

}  // namespace fp4pa::core
