// How the work of one call is cut: a pure function of the lengths, the same on the host and on every device.
//
// The unit of work is a row block: up to `tile_rows` packed query rows (query token x head of the group) of one sequence
// and one KV head, against the keys those rows can see. Its cost is the number of KV tiles plus a constant for starting
// and finishing. Units are laid out on one line in the order (sequence, row block, KV head).
//
//   balanced: the line is cut into `num_workers` pieces of equal cost. A unit that a cut falls into becomes several items,
//             each on one worker, whose partial states are merged in order of their keys. A worker has at most two
//             unfinished items - the one its piece begins in and the one it ends in - so two partial slots each suffice.
//   fixed:    (batch invariant, or a split size asked for) every unit is cut every `split_tiles` KV tiles, no matter what
//             else is in the batch, and whole items are dealt out by the same rule of equal cost. A sequence with more than
//             kMaxSplitRows packed query rows has units enough and is not cut: the partial states of a long prefill would
//             outweigh its result.
//   shared:   (of a back end's choosing, where units are few and short) every unit has as many workers of its own, which divide
//             its tiles evenly and put the result together among themselves. There is no line.
//   even:     (in place of balanced, where lengths are close) every unit falls into as many parts, one a worker: even.hpp.
//
// Nothing is written down but one prefix sum per sequence: every worker finds its items by arithmetic, and every merge
// finds its partial states the same way. Source of the idea: stream-K decomposition of matrix products.
#pragma once

#include <cstdint>

#include "core/divisor.hpp"
#include "core/macros.hpp"

namespace fp4pa::core {

/// Keys are scheduled in tiles of this many tokens; every cut falls on a multiple of it.
inline constexpr std::int32_t kScheduleTokens = 64;
/// Cost of starting and finishing an item, in tiles, where a back end names no other.
inline constexpr std::int32_t kItemOverheadTiles = 1;

/// Fixed splits: sequences with more packed query rows than this are left whole.
inline constexpr std::int32_t kMaxSplitRows = 256;
/// A split that cuts nothing.
inline constexpr std::int32_t kNoSplit = 1 << 30;
/// Most workers that share a unit.
inline constexpr std::int32_t kMostSharers = 8;

struct WorkerStart;
struct MergeNote;

/// The plan's constants. The prefix sums live in the workspace, and so do starts and notes, which a device's schedule leaves for
/// its other kernels.
struct Partition {
  std::int32_t num_workers;
  std::int32_t tile_rows;
  std::int32_t split_tiles;         // 0: balanced; else tiles of one item
  std::int64_t* cost_prefix;        // [batch + 1]: cost of all units of the sequences before
  std::int64_t* slot_prefix;        // [batch + 1], fixed only: partial slots of the sequences before
  std::int32_t overhead_tiles = kItemOverheadTiles;  // cost of an item beyond its tiles
  WorkerStart* starts = nullptr;    // [num_workers]
  MergeNote* notes = nullptr;       // [num_workers]
  // Where every sequence is one row block and the line short, a GPU's kernels find all of these by themselves (kernels/find_start.hpp).
  Divisor finders = {};             // num_workers; by 0: they do not
  // Even, for lengths that make it worth it: see even.hpp.
  Divisor even = {};                // parts of a unit; by 0: balanced whatever the lengths
  std::int32_t even_rounds = 1;     // of units, where there are more than workers; 0: even whatever the lengths
  std::uint64_t mark = 0;           // where CUDA's workers merge what a line divides: the launch's number (cuda/merge_last.cuh)
  // Shared: no prefix sums, starts or notes. See shared_part().
  Divisor sharers = {};             // workers of a unit; by 0: balanced or fixed
  Divisor least_tiles = {};         // of a part, while there are workers without any
};

/// What decides which keys a row block sees.
struct SequenceShape {
  std::int32_t q_len;
  std::int32_t kv_len;
  std::int32_t group_heads;
  std::int32_t sliding_window;  // 0: all
  bool ends_at_row;             // causal and no tree mask: keys after the block's last row are never seen
};

struct TileRange {
  std::int32_t begin;  // in units of kScheduleTokens
  std::int32_t end;
  [[nodiscard]] FP4PA_FN constexpr std::int32_t size() const { return end - begin; }
};

/// a / b, bit by bit. A compiler for a GPU makes a call of a 64-bit division, and a call takes registers from all that is kept
/// around it, whether it is ever made or not.
[[nodiscard]] FP4PA_FN constexpr std::uint64_t long_division(std::uint64_t a, std::uint64_t b) {
  std::uint64_t rest = 0;  // less than b, which leaves a bit free below 2^63
  FP4PA_NO_UNROLL
  for (int bit = 0; bit < 64; ++bit) {
    rest = rest << 1 | a >> 63;
    a <<= 1;
    if (rest >= b) {
      rest -= b;
      a |= 1;  // the quotient moves in where a moves out
    }
  }
  return a;
}

/// a / b of what is not negative, in 32 bits where it fits, as nearly always.
[[nodiscard]] FP4PA_FN constexpr std::int64_t divide(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) != 0) {
    return static_cast<std::int64_t>(long_division(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  }
  return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
}

/// Packed query rows of a call fit 31 bits, which planning checks; so do tiles.
[[nodiscard]] FP4PA_FN constexpr std::int32_t row_blocks(const SequenceShape& s, std::int32_t tile_rows) {
  const std::int32_t rows = s.q_len * s.group_heads;
  if (rows <= tile_rows) return rows > 0 ? 1 : 0;  // decode
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(rows) + tile_rows - 1) / static_cast<std::uint32_t>(tile_rows));
}

/// Tiles of a piece of this sequence's units; 0: balanced, the cuts fall where the workers' pieces end.
[[nodiscard]] FP4PA_FN constexpr std::int32_t piece_tiles(const SequenceShape& s, std::int32_t split_tiles) {
  if (split_tiles == 0) return 0;
  return static_cast<std::int64_t>(s.q_len) * s.group_heads > kMaxSplitRows ? kNoSplit : split_tiles;
}

/// KV tiles that queries `first_query` to `last_query` can see.
[[nodiscard]] FP4PA_FN constexpr TileRange tiles_seen(const SequenceShape& s, std::int32_t first_query, std::int32_t last_query) {
  const std::int32_t offset = s.kv_len - s.q_len;  // key position of the first query; negative if keys are missing
  std::int32_t end = s.kv_len;
  if (s.ends_at_row) {
    const std::int32_t visible = offset + last_query + 1;
    end = visible < 0 ? 0 : visible < s.kv_len ? visible : s.kv_len;
  }
  std::int32_t begin = 0;
  if (s.sliding_window > 0) {
    const std::int32_t first = offset + first_query + 1 - s.sliding_window;
    begin = first < 0 ? 0 : first < end ? first : end;
  }
  TileRange range{begin / kScheduleTokens, (end + kScheduleTokens - 1) / kScheduleTokens};
  if (range.end < range.begin) range.end = range.begin;
  return range;
}

/// KV tiles that the rows of block `block` can see.
[[nodiscard]] FP4PA_FN constexpr TileRange visible_tiles(const SequenceShape& s, std::int32_t tile_rows,
                                                         std::int32_t block) {
  const std::int32_t rows = s.q_len * s.group_heads;
  std::int32_t first_query = 0;
  std::int32_t last_query = s.q_len - 1;
  if (rows > tile_rows) {
    const std::int32_t first_row = block * tile_rows;
    const std::int32_t last_row = (rows - first_row > tile_rows ? first_row + tile_rows : rows) - 1;
    const auto query_of = [&](std::int32_t row) {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(s.group_heads));
    };
    first_query = query_of(first_row);
    last_query = query_of(last_row);
  }
  return tiles_seen(s, first_query, last_query);
}

/// Items a unit of `tiles` tiles falls into under fixed splits; one even when there is nothing to see (O = 0 is work too).
[[nodiscard]] FP4PA_FN constexpr std::int32_t fixed_pieces(std::int32_t tiles, std::int32_t split_tiles) {
  if (tiles <= split_tiles) return 1;
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(tiles) + split_tiles - 1) /
                                   static_cast<std::uint32_t>(split_tiles));
}

/// Cost of one unit in tiles, with the overhead of its items.
[[nodiscard]] FP4PA_FN constexpr std::int64_t unit_cost(std::int32_t tiles, std::int32_t split_tiles,
                                                    std::int32_t overhead_tiles) {
  const std::int32_t pieces = split_tiles == 0 ? 1 : fixed_pieces(tiles, split_tiles);
  return static_cast<std::int64_t>(tiles) + static_cast<std::int64_t>(pieces) * overhead_tiles;
}

struct SequenceCost {
  std::int64_t cost;
  std::int64_t slots;  // partial slots under fixed splits
};

/// Cost of all units of a sequence, or of those of the row blocks from `first` to before `last`.
[[nodiscard]] FP4PA_FN constexpr SequenceCost sequence_cost(const SequenceShape& s, const Partition& p, std::int32_t num_kv_heads,
                                                            std::int32_t first = 0, std::int32_t last = INT32_MAX) {
  SequenceCost sum{0, 0};
  const std::int32_t blocks = row_blocks(s, p.tile_rows);
  if (last > blocks) last = blocks;
  const std::int32_t split = piece_tiles(s, p.split_tiles);
  FP4PA_NO_UNROLL
  for (std::int32_t block = first; block < last; ++block) {
    const std::int32_t tiles = visible_tiles(s, p.tile_rows, block).size();
    sum.cost += unit_cost(tiles, split, p.overhead_tiles);
    if (split != 0) {
      const std::int32_t pieces = fixed_pieces(tiles, split);
      if (pieces > 1) sum.slots += pieces;
    }
  }
  sum.cost *= num_kv_heads;
  sum.slots *= num_kv_heads;
  return sum;
}

/// First cost coordinate of worker `worker`; worker num_workers is the end of the line. Where there is less to do than there are
/// workers the first ones have one step of the line each, so that no worker between two with a part of a unit is without one.
[[nodiscard]] FP4PA_FN constexpr std::int64_t worker_begin(std::int64_t total, std::int32_t num_workers,
                                                           std::int32_t worker) {
  if (total < num_workers) return worker < total ? worker : total;
  // total * worker would overflow only past 2^63 / num_workers tiles.
  return divide(total * worker, num_workers);
}

/// The worker whose piece holds cost coordinate x, inverse of worker_begin: the last w with total * w < (x + 1) * num_workers.
[[nodiscard]] FP4PA_FN constexpr std::int32_t worker_of(std::int64_t total, std::int32_t num_workers, std::int64_t x) {
  if (total < num_workers) return static_cast<std::int32_t>(x);
  return static_cast<std::int32_t>(divide((x + 1) * num_workers - 1, total));
}

}  // namespace fp4pa::core
