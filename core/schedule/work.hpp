// From a worker's number to its items, and from a cut to the partial states that meet there. See partition.hpp for the rule.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "core/schedule/partition.hpp"

namespace fp4pa::core {

/// The lengths of a call, as the schedule reads them.
struct WorkList {
  Partition partition;
  const std::int32_t* qo_indptr;  // [batch + 1]
  const std::int32_t* seq_lens;   // [batch]
  std::int32_t batch;
  std::int32_t num_kv_heads;
  std::int32_t group_heads;
  std::int32_t sliding_window;
  bool ends_at_row;

  [[nodiscard]] FP4PA_FN SequenceShape shape(std::int32_t seq) const {
    return {qo_indptr[seq + 1] - qo_indptr[seq], seq_lens[seq], group_heads, sliding_window, ends_at_row};
  }
  [[nodiscard]] FP4PA_FN std::int64_t total_cost() const { return partition.cost_prefix[batch]; }
};

/// A row block of one sequence and one KV head, with its place on the line.
struct Unit {
  std::int32_t seq;
  std::int32_t block;
  std::int32_t kv_head;
  TileRange tiles;
  std::int64_t begin;  // cost coordinate
  std::int64_t cost;
  std::int32_t split;   // tiles of a piece; 0: balanced
  std::int32_t pieces;  // of fixed splits; 1 where balanced
  std::int64_t slot;   // fixed splits: slot of its first piece
  std::int32_t overhead;  // of an item, in tiles
  [[nodiscard]] FP4PA_FN std::int64_t end() const { return begin + cost; }
};

/// What one worker does at a time: a unit, or a range of its keys.
struct WorkItem {
  std::int32_t seq;
  std::int32_t block;
  std::int32_t kv_head;
  TileRange tiles;
  std::int64_t partial_slot;  // -1: the item is the whole unit and writes the result
};

/// Where a worker's piece of the line begins: all that has to be searched and divided for. A GPU's schedule kernel finds it
/// for every worker, so that the attention kernel only walks on; others find it when they need it.
struct WorkerStart {
  std::int32_t seq;
  std::int32_t block;
  std::int32_t kv_head;
  std::int64_t begin;        // of the piece, as is
  std::int64_t end;          // none where it is not after begin
  std::int64_t block_begin;  // cost coordinate of the row block's first KV head
  std::int64_t block_slot;   // fixed splits: slot of the first piece there
};

/// The sequence that holds coordinate x, 0 <= x < total_cost().
[[nodiscard]] FP4PA_FN std::int32_t sequence_of(const WorkList& list, std::int64_t x) {
  std::int32_t low = 0;
  std::int32_t high = list.batch;  // the last sequence whose prefix is <= x; empty ones share a prefix, so the last
  while (high - low > 1) {
    const std::int32_t middle = (low + high) / 2;
    if (list.partition.cost_prefix[middle] <= x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Walks the units: the KV heads of a row block, which are alike, and then on to the next row block.
class UnitCursor {
 public:
  /// The unit that holds coordinate x, 0 <= x < total_cost().
  FP4PA_FN UnitCursor(const WorkList& list, std::int64_t x) : list_(list) {
    enter_sequence(sequence_of(list, x));
    walk_to(x);
  }
  /// The unit in which a worker's piece begins. measure() comes next.
  FP4PA_FN UnitCursor(const WorkList& list, const WorkerStart& start) : list_(list), shape_(list.shape(start.seq)) {
    unit_.seq = start.seq;
    unit_.block = start.block;
    unit_.kv_head = start.kv_head;
    block_begin_ = start.block_begin;
    block_slot_ = start.block_slot;
  }
  /// The unit that holds coordinate x, in a sequence from the row block of `start` on.
  FP4PA_FN UnitCursor(const WorkList& list, const WorkerStart& start, std::int64_t x) : UnitCursor(list, start) { walk_to(x); }
  FP4PA_FN void place(WorkerStart& start) const {
    start.seq = unit_.seq;
    start.block = unit_.block;
    start.kv_head = unit_.kv_head;
    start.block_begin = block_begin_;
    start.block_slot = block_slot_;
  }

  [[nodiscard]] FP4PA_FN const Unit& unit() const { return unit_; }

  /// What the units of a row block have in common; to be called on each row block.
  FP4PA_FN void measure() {
    unit_.split = piece_tiles(shape_, list_.partition.split_tiles);
    unit_.tiles = visible_tiles(shape_, list_.partition.tile_rows, unit_.block);
    unit_.pieces = unit_.split == 0 ? 1 : fixed_pieces(unit_.tiles.size(), unit_.split);
    unit_.overhead = list_.partition.overhead_tiles;
    unit_.cost = static_cast<std::int64_t>(unit_.tiles.size()) + static_cast<std::int64_t>(unit_.pieces) * unit_.overhead;
    set_head(unit_.kv_head);
  }
  /// Moves to the next unit of the row block; false if there is none.
  FP4PA_FN bool next_head() {
    if (unit_.kv_head + 1 >= list_.num_kv_heads) return false;
    set_head(unit_.kv_head + 1);
    return true;
  }
  /// Moves to the next row block; false at the end of the line. By addition: prefix sums are for those who search.
  FP4PA_FN bool next_block() {
    block_begin_ += unit_.cost * list_.num_kv_heads;
    block_slot_ += static_cast<std::int64_t>(slots_per_unit()) * list_.num_kv_heads;
    unit_.kv_head = 0;
    if (++unit_.block < row_blocks(shape_, list_.partition.tile_rows)) return true;
    unit_.block = 0;
    do {
      if (++unit_.seq >= list_.batch) return false;
      shape_ = list_.shape(unit_.seq);
    } while (shape_.q_len == 0);
    return true;
  }

 private:
  FP4PA_FN void walk_to(std::int64_t x) {
    measure();
    while (x >= block_begin_ + unit_.cost * list_.num_kv_heads) {
      next_block();
      measure();
    }
    set_head(static_cast<std::int32_t>(divide(x - block_begin_, unit_.cost)));
  }
  FP4PA_FN void enter_sequence(std::int32_t seq) {
    shape_ = list_.shape(seq);
    unit_.seq = seq;
    unit_.block = 0;
    unit_.kv_head = 0;
    block_begin_ = list_.partition.cost_prefix[seq];
    block_slot_ = list_.partition.split_tiles != 0 ? list_.partition.slot_prefix[seq] : 0;
  }
  FP4PA_FN void set_head(std::int32_t head) {
    unit_.kv_head = head;
    unit_.begin = block_begin_ + head * unit_.cost;
    unit_.slot = block_slot_ + static_cast<std::int64_t>(slots_per_unit()) * head;
  }
  [[nodiscard]] FP4PA_FN std::int32_t slots_per_unit() const { return unit_.pieces > 1 ? unit_.pieces : 0; }

  const WorkList& list_;
  SequenceShape shape_{};
  Unit unit_{};
  std::int64_t block_begin_ = 0;
  std::int64_t block_slot_ = 0;
};

/// Tiles of a unit that lie left of cost offset x inside it; the overhead comes first.
[[nodiscard]] FP4PA_FN std::int32_t tiles_before(const Unit& unit, std::int64_t x) {
  const std::int64_t tiles = x - unit.overhead;
  if (tiles < 0) return 0;
  return tiles < unit.tiles.size() ? static_cast<std::int32_t>(tiles) : unit.tiles.size();
}

/// The part of a balanced unit that lies in [begin, end) of the line, as an item of `worker`. Its range is empty when the
/// cut leaves the worker nothing but overhead.
[[nodiscard]] FP4PA_FN WorkItem balanced_piece(const Unit& unit, std::int32_t worker, std::int64_t begin,
                                               std::int64_t end) {
  const bool starts_here = unit.begin >= begin;
  const std::int32_t first = starts_here ? 0 : tiles_before(unit, begin - unit.begin);
  const std::int32_t last = unit.end() <= end ? unit.tiles.size() : tiles_before(unit, end - unit.begin);
  const bool whole = first == 0 && last == unit.tiles.size();
  const std::int64_t slot = 2 * static_cast<std::int64_t>(worker) + (starts_here ? 1 : 0);
  return {unit.seq, unit.block, unit.kv_head, {unit.tiles.begin + first, unit.tiles.begin + last}, whole ? -1 : slot};
}

/// Piece `index` of a unit under fixed splits.
[[nodiscard]] FP4PA_FN WorkItem fixed_piece(const Unit& unit, std::int32_t index) {
  const std::int32_t first = unit.tiles.begin + index * unit.split;
  const std::int32_t last = first + unit.split < unit.tiles.end ? first + unit.split : unit.tiles.end;
  return {unit.seq, unit.block, unit.kv_head, {first, last}, unit.pieces > 1 ? unit.slot + index : -1};
}

[[nodiscard]] FP4PA_FN WorkerStart worker_start(const WorkList& list, std::int32_t worker) {
  const std::int64_t total = list.total_cost();
  WorkerStart start{};
  start.begin = worker_begin(total, list.partition.num_workers, worker);
  start.end = worker_begin(total, list.partition.num_workers, worker + 1);
  if (start.begin < start.end) UnitCursor(list, start.begin).place(start);
  return start;
}

/// Piece `i` of a unit as an item of `worker`; false: it is not this worker's.
[[nodiscard]] FP4PA_FN bool piece_of(const Unit& unit, std::int32_t i, std::int32_t worker, const WorkerStart& start,
                                     WorkItem& item) {
  if (unit.split == 0) {
    item = balanced_piece(unit, worker, start.begin, start.end);
    // An empty range is an item only when the whole unit is empty: somebody must write its zeros.
    return item.tiles.size() > 0 || (unit.tiles.size() == 0 && unit.begin >= start.begin);
  }
  item = fixed_piece(unit, i);
  const std::int64_t at = unit.begin + static_cast<std::int64_t>(i) * (unit.split + unit.overhead);
  return at >= start.begin && at < start.end;
}

/// Calls f(WorkItem) for every item of `worker`, in the order of the line. Every part is written once, and the call of f too:
/// on a GPU it is the whole kernel body, inlined, and code beside it has to be short.
/// @param start  worker_start() of this worker
template <class F>
FP4PA_FN void for_each_item(const WorkList& list, std::int32_t worker, const WorkerStart& start, F&& f) {
  if (start.begin >= start.end) return;
  UnitCursor cursor(list, start);
  const Unit& unit = cursor.unit();
  do {
    cursor.measure();
    do {
      if (unit.begin >= start.end) return;
      for (std::int32_t i = 0; i < unit.pieces; ++i) {
        WorkItem item;
        if (piece_of(unit, i, worker, start, item)) f(item);
      }
    } while (cursor.next_head());
  } while (cursor.next_block());
}
template <class F>
FP4PA_FN void for_each_item(const WorkList& list, std::int32_t worker, F&& f) {
  for_each_item(list, worker, worker_start(list, worker), f);
}

/// The same, item by item, as plain data that lies somewhere in between: the list is told anew for every item, so that a kernel
/// reads it where its arguments lie. No more is kept than where the walk stands: what is to be measured there, is measured
/// again for every item, which is less code than to keep it.
class ItemWalk {
 public:
  /// @param start  worker_start() of this worker in the list
  FP4PA_FN ItemWalk(const WorkList&, std::int32_t worker, const WorkerStart& start) : at_(start), worker_(worker) {}

  /// The next item; false where there are no more.
  /// @param list  that the walk was made for
  [[nodiscard]] FP4PA_FN bool next(const WorkList& list, WorkItem& item) {
    if (at_.begin >= at_.end) return false;
    UnitCursor cursor(list, at_);
    const Unit& unit = cursor.unit();
    do {
      cursor.measure();
      do {
        if (unit.begin >= at_.end) return end();
        while (piece_ < unit.pieces) {
          if (!piece_of(unit, piece_++, worker_, at_, item)) continue;
          cursor.place(at_);
          return true;
        }
        piece_ = 0;
      } while (cursor.next_head());
    } while (cursor.next_block());
    return end();
  }

  /// Where the walk stands: on the unit of its last item, or where it began if it has had none.
  [[nodiscard]] FP4PA_FN const WorkerStart& at() const { return at_; }

 private:
  FP4PA_FN bool end() {
    at_.begin = at_.end;
    return false;
  }

  WorkerStart at_;  // the worker's part of the line, whose begin is its end once there are no more items; and the unit at hand
  std::int32_t worker_;
  std::int32_t piece_ = 0;  // of the unit at hand, to be looked at next
};

/// What one of the workers of a shared unit has of it.
struct SharedPart {
  WorkItem item;
  std::int32_t parts;  // of the unit; the first workers have one each, the others none
};

/// The part of worker `rank` of the unit of a sequence whose rows are one row block, in the order of the keys and with slots in
/// that order: `least_tiles` each, or equal parts for all workers where there are more tiles than that.
[[nodiscard]] FP4PA_FN SharedPart shared_part(const Partition& p, const SequenceShape& shape, std::int32_t seq,
                                              std::int32_t kv_head, std::int32_t num_kv_heads, std::int32_t rank) {
  if (shape.q_len == 0) return {};
  const auto sharers = static_cast<std::int32_t>(p.sharers.divisor);
  const auto least = static_cast<std::int32_t>(p.least_tiles.divisor);
  const TileRange tiles = tiles_seen(shape, 0, shape.q_len - 1);
  const auto quotient = [](const Divisor& d, std::int32_t n) {
    return static_cast<std::int32_t>(d.quotient(static_cast<std::uint32_t>(n)));
  };
  std::int32_t parts = quotient(p.least_tiles, tiles.size() + least - 1);
  std::int32_t first = rank * least;
  std::int32_t last = first + least < tiles.size() ? first + least : tiles.size();
  if (parts > sharers) {
    parts = sharers;
    first = quotient(p.sharers, tiles.size() * rank);
    last = quotient(p.sharers, tiles.size() * (rank + 1));
  }
  if (parts == 0) parts = 1;  // a unit that sees nothing is a part, too: somebody must write its zeros
  const std::int64_t slot = (static_cast<std::int64_t>(seq) * num_kv_heads + kv_head) * sharers + rank;
  return {{seq, 0, kv_head, {tiles.begin + first, tiles.begin + last}, parts > 1 ? slot : -1}, parts};
}

/// Fills the prefix sums, sequence by sequence.
inline void fill_prefixes(const WorkList& list) {
  std::int64_t cost = 0;
  std::int64_t slots = 0;
  for (std::int32_t b = 0; b < list.batch; ++b) {
    list.partition.cost_prefix[b] = cost;
    list.partition.slot_prefix[b] = slots;
    const SequenceCost sum = sequence_cost(list.shape(b), list.partition, list.num_kv_heads);
    cost += sum.cost;
    slots += sum.slots;
  }
  list.partition.cost_prefix[list.batch] = cost;
  list.partition.slot_prefix[list.batch] = slots;
}

/// A unit whose result must be merged, and the workers (balanced) or pieces (fixed) that hold its partial states.
struct MergeJob {
  Unit unit;
  std::int32_t first;
  std::int32_t count;
};

/// The divided unit that a worker has a part of, but not the last: what merges it need not search for.
struct MergeNote {
  std::int32_t seq;
  std::int32_t block;
  std::int32_t kv_head;
  std::int32_t begin;  // workers, see UnitParts
  std::int32_t first;
  std::int32_t last;
  std::int32_t count;  // parts; less than 2: nothing to merge
};

/// The workers that hold tiles of a unit under a balanced cut.
struct UnitParts {
  std::int32_t begin;  // the worker on which the unit begins, with or without tiles
  std::int32_t first;  // with tiles
  std::int32_t last;
  std::int32_t count;  // with tiles

  /// @param worker_at  from a coordinate of the line to the worker whose piece holds it
  template <class F>
  FP4PA_FN UnitParts(const Unit& unit, F&& worker_at)
      : begin(worker_at(unit.begin)),
        first(worker_at(unit.begin + (unit.tiles.size() > 0 ? unit.overhead : 0))),
        last(worker_at(unit.end() - 1)),
        count(unit.tiles.size() > 0 ? last - first + 1 : 0) {}
  FP4PA_FN UnitParts(const WorkList& list, const Unit& unit)
      : UnitParts(unit, [&](std::int64_t x) { return worker_of(list.total_cost(), list.partition.num_workers, x); }) {}
};

/// The note of a worker under a balanced cut; there is one unit at most that goes on after its piece.
/// @param begin, end  the worker's piece of the line
/// @param unit        that holds `end`
/// @param parts_of    from that unit to its UnitParts
template <class F>
[[nodiscard]] FP4PA_FN MergeNote merge_note(std::int32_t worker, std::int64_t begin, std::int64_t end, const Unit& unit,
                                            F&& parts_of) {
  if (unit.begin >= end) return {};
  const WorkItem item = balanced_piece(unit, worker, begin, end);
  if (item.tiles.size() == 0 || item.tiles.end == unit.tiles.end) return {};
  const UnitParts parts = parts_of(unit);
  return {unit.seq, unit.block, unit.kv_head, parts.begin, parts.first, parts.last, parts.count};
}
[[nodiscard]] FP4PA_FN MergeNote merge_note(const WorkList& list, std::int32_t worker, std::int64_t begin, std::int64_t end,
                                            const Unit& unit) {
  return merge_note(worker, begin, end, unit, [&](const Unit& u) { return UnitParts(list, u); });
}
[[nodiscard]] FP4PA_FN MergeNote merge_note(const WorkList& list, std::int32_t worker) {
  const std::int64_t total = list.total_cost();
  const std::int64_t begin = worker_begin(total, list.partition.num_workers, worker);
  const std::int64_t end = worker_begin(total, list.partition.num_workers, worker + 1);
  if (begin == end || end == total) return {};
  return merge_note(list, worker, begin, end, UnitCursor(list, end).unit());
}

/// Slot of part `i` of a job, or -1 when that worker's part is empty.
[[nodiscard]] FP4PA_FN std::int64_t merge_slot(const WorkList& list, const MergeJob& job, std::int32_t i) {
  if (list.partition.split_tiles != 0) return job.unit.slot + i;
  const std::int64_t total = list.total_cost();
  const std::int32_t worker = job.first + i;
  const WorkItem item = balanced_piece(job.unit, worker, worker_begin(total, list.partition.num_workers, worker),
                                       worker_begin(total, list.partition.num_workers, worker + 1));
  return item.tiles.size() > 0 ? item.partial_slot : -1;
}

/// Calls f(MergeJob) for every unit that begins on `worker` and whose keys were divided.
template <class F>
FP4PA_FN void for_each_merge(const WorkList& list, std::int32_t worker, F&& f) {
  const std::int64_t total = list.total_cost();
  const std::int32_t workers = list.partition.num_workers;
  const std::int64_t begin = worker_begin(total, workers, worker);
  const std::int64_t end = worker_begin(total, workers, worker + 1);
  if (begin == end) return;
  if (list.partition.split_tiles != 0) {
    UnitCursor cursor(list, begin);
    const Unit& unit = cursor.unit();
    do {
      cursor.measure();
      do {
        if (unit.begin >= end) return;
        if (unit.begin >= begin && unit.pieces > 1) f(MergeJob{unit, 0, unit.pieces});
      } while (cursor.next_head());
    } while (cursor.next_block());
    return;
  }
  // Balanced: only the unit across this worker's right end can be divided and begin here.
  if (end == total) return;
  const UnitCursor cursor(list, end);
  const Unit& unit = cursor.unit();
  if (unit.begin < begin || unit.begin >= end) return;
  const UnitParts parts(list, unit);
  if (parts.count > 1) f(MergeJob{unit, worker, parts.last - worker + 1});
}

}  // namespace fp4pa::core
