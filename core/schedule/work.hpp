// From a worker's number to its items, and from a cut to the partial states that meet there. See partition.hpp for the rule.
#pragma once

#include <cstdint>
#include <type_traits>

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
  std::int32_t split;  // tiles of a piece; 0: balanced
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

/// Walks the units from a cost coordinate on.
class UnitCursor {
 public:
  /// The unit that holds coordinate x, 0 <= x < total_cost().
  FP4PA_FN UnitCursor(const WorkList& list, std::int64_t x) : list_(list) {
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
    enter_sequence(low);
    while (x >= block_begin_ + unit_.cost * list_.num_kv_heads) enter_block(unit_.block + 1);
    set_head(static_cast<std::int32_t>(divide(x - block_begin_, unit_.cost)));
  }

  [[nodiscard]] FP4PA_FN const Unit& unit() const { return unit_; }

  /// Moves to the next unit; false at the end of the line.
  FP4PA_FN bool next() {
    if (unit_.kv_head + 1 < list_.num_kv_heads) {
      set_head(unit_.kv_head + 1);
      return true;
    }
    if (unit_.block + 1 < row_blocks(shape_, list_.partition.tile_rows)) {
      enter_block(unit_.block + 1);
      set_head(0);
      return true;
    }
    std::int32_t seq = unit_.seq + 1;
    while (seq < list_.batch && list_.partition.cost_prefix[seq + 1] == list_.partition.cost_prefix[seq]) ++seq;
    if (seq >= list_.batch) return false;
    enter_sequence(seq);
    set_head(0);
    return true;
  }

 private:
  FP4PA_FN void enter_sequence(std::int32_t seq) {
    shape_ = list_.shape(seq);
    unit_.seq = seq;
    unit_.split = piece_tiles(shape_, list_.partition.split_tiles);
    block_begin_ = list_.partition.cost_prefix[seq];
    block_slot_ = unit_.split != 0 ? list_.partition.slot_prefix[seq] : 0;
    measure_block(0);
  }
  FP4PA_FN void enter_block(std::int32_t block) {
    block_begin_ += unit_.cost * list_.num_kv_heads;
    block_slot_ += static_cast<std::int64_t>(slots_per_unit()) * list_.num_kv_heads;
    measure_block(block);
  }
  FP4PA_FN void measure_block(std::int32_t block) {
    unit_.block = block;
    unit_.tiles = visible_tiles(shape_, list_.partition.tile_rows, block);
    unit_.cost = unit_cost(unit_.tiles.size(), unit_.split, list_.partition.overhead_tiles);
    unit_.overhead = list_.partition.overhead_tiles;
  }
  FP4PA_FN void set_head(std::int32_t head) {
    unit_.kv_head = head;
    unit_.begin = block_begin_ + head * unit_.cost;
    unit_.slot = block_slot_ + static_cast<std::int64_t>(slots_per_unit()) * head;
  }
  [[nodiscard]] FP4PA_FN std::int32_t slots_per_unit() const {
    if (unit_.split == 0) return 0;
    const std::int32_t pieces = fixed_pieces(unit_.tiles.size(), unit_.split);
    return pieces > 1 ? pieces : 0;
  }

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
  const std::int32_t pieces = fixed_pieces(unit.tiles.size(), unit.split);
  const std::int32_t first = unit.tiles.begin + index * unit.split;
  const std::int32_t last = first + unit.split < unit.tiles.end ? first + unit.split : unit.tiles.end;
  return {unit.seq, unit.block, unit.kv_head, {first, last}, pieces > 1 ? unit.slot + index : -1};
}

/// Calls f(WorkItem, Unit), the unit that the item is or is a part of, for every item of `worker`, in the order of the line.
template <class F>
  requires std::is_invocable_v<F&, const WorkItem&, const Unit&>
FP4PA_FN void for_each_item(const WorkList& list, std::int32_t worker, F&& f) {
  const std::int64_t total = list.total_cost();
  const std::int64_t begin = worker_begin(total, list.partition.num_workers, worker);
  const std::int64_t end = worker_begin(total, list.partition.num_workers, worker + 1);
  if (begin == end) return;
  UnitCursor cursor(list, begin);
  do {
    const Unit& unit = cursor.unit();
    if (unit.begin >= end) break;
    const std::int32_t pieces = unit.split == 0 ? 1 : fixed_pieces(unit.tiles.size(), unit.split);
    for (std::int32_t i = 0; i < pieces; ++i) {
      WorkItem item;
      bool mine;
      if (unit.split == 0) {
        item = balanced_piece(unit, worker, begin, end);
        // An empty range is an item only when the whole unit is empty: somebody must write its zeros.
        mine = item.tiles.size() > 0 || (unit.tiles.size() == 0 && unit.begin >= begin);
      } else {
        item = fixed_piece(unit, i);
        const std::int64_t at = unit.begin + static_cast<std::int64_t>(i) * (unit.split + unit.overhead);
        mine = at >= begin && at < end;
      }
      if (mine) f(item, unit);  // the one call: on a GPU it is the whole kernel body, inlined
    }
  } while (cursor.next());
}

/// Calls f(WorkItem) for every item of `worker`.
template <class F>
  requires std::is_invocable_v<F&, const WorkItem&>
FP4PA_FN void for_each_item(const WorkList& list, std::int32_t worker, F&& f) {
  for_each_item(list, worker, [&](const WorkItem& item, const Unit&) { f(item); });
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

/// What a worker with a part of a divided unit, but for the last part, leaves for whoever merges.
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

  FP4PA_FN UnitParts(const WorkList& list, const Unit& unit) {
    const std::int64_t total = list.total_cost();
    const std::int32_t workers = list.partition.num_workers;
    begin = worker_of(total, workers, unit.begin);
    first = worker_of(total, workers, unit.begin + (unit.tiles.size() > 0 ? unit.overhead : 0));
    last = worker_of(total, workers, unit.end() - 1);
    // Where there are fewer tiles than workers, some workers between have none and the others one each.
    count = total >= workers && unit.tiles.size() > 0 ? last - first + 1 : unit.tiles.size();
  }
  FP4PA_FN explicit UnitParts(const MergeNote& note)
      : begin(note.begin), first(note.first), last(note.last), count(note.count) {}
  /// Slot of worker `worker`'s part, or -1 if it has none.
  [[nodiscard]] FP4PA_FN std::int64_t slot(const WorkList& list, std::int32_t worker) const {
    const std::int64_t total = list.total_cost();
    const std::int32_t workers = list.partition.num_workers;
    if (worker < first || worker > last) return -1;
    if (total < workers && worker_begin(total, workers, worker) == worker_begin(total, workers, worker + 1)) return -1;
    return 2 * static_cast<std::int64_t>(worker) + (worker == begin ? 1 : 0);
  }
};

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
    do {
      const Unit& unit = cursor.unit();
      if (unit.begin >= end) break;
      const std::int32_t pieces = fixed_pieces(unit.tiles.size(), unit.split);
      if (unit.begin >= begin && pieces > 1) f(MergeJob{unit, 0, pieces});
    } while (cursor.next());
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
