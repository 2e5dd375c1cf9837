// Random batches for the schedule's tests, and everything about them worked out key by key.
//
// Nothing here uses the schedule: which keys a row sees is reference::sees, a unit is found by listing all of them, and
// the prefix sums are sums. The schedule's closed forms have to agree with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/schedule/work.hpp"
#include "reference/attention.hpp"
#include "tests/cache/random.hpp"

namespace schedule {

using namespace fp4pa::core;

enum class Mask { kNone, kCausal, kWindow };

/// A unit as a list says it: no arithmetic between units.
struct ListedUnit {
  std::int32_t seq, block, kv_head;
  TileRange tiles;     // {0, 0} when no row sees a key
  std::int64_t begin;  // cost coordinate
  std::int64_t cost;
  std::int32_t pieces;  // under fixed splits; 1 when balanced
};

struct Work {
  std::vector<std::int32_t> q_lens, kv_lens;
  std::int32_t num_kv_heads = 1, group_heads = 1, tile_rows = 16, num_workers = 1, split_tiles = 0;
  Mask mask = Mask::kCausal;
  std::int32_t sliding_window = 0;

  // Filled by finish().
  std::vector<std::int32_t> qo_indptr;
  std::vector<std::int64_t> cost_prefix, slot_prefix;
  std::vector<ListedUnit> units;

  /// Whether query `query` of sequence `seq` sees key `key`.
  [[nodiscard]] bool sees(std::int32_t seq, std::int32_t query, std::int32_t key) const {
    fp4pa::reference::QueryRow row;
    row.num_keys = kv_lens[static_cast<std::size_t>(seq)];
    row.num_queries = q_lens[static_cast<std::size_t>(seq)];
    row.query_index = query;
    row.causal = mask != Mask::kNone;
    row.sliding_window = mask == Mask::kWindow ? sliding_window : 0;
    return fp4pa::reference::sees(row, key);
  }

  /// The tiles that hold a key which some row of the block sees; {0, 0} when there is none.
  [[nodiscard]] TileRange tiles_of(std::int32_t seq, std::int32_t block) const {
    const std::int64_t rows = std::int64_t{q_lens[static_cast<std::size_t>(seq)]} * group_heads;
    std::int32_t first = -1, last = -1;
    // A row's keys are an interval that moves with the query: the block's first and last query bound the union.
    const std::int64_t end = std::min<std::int64_t>(rows, (std::int64_t{block} + 1) * tile_rows);
    const auto query_begin = static_cast<std::int32_t>(std::int64_t{block} * tile_rows / group_heads);
    const auto query_end = static_cast<std::int32_t>((end - 1) / group_heads);
    for (const std::int32_t query : {query_begin, query_end}) {
      for (std::int32_t key = 0; key < kv_lens[static_cast<std::size_t>(seq)]; ++key) {
        if (!sees(seq, query, key)) continue;
        if (first < 0 || key < first) first = key;
        if (key > last) last = key;
      }
    }
    return first < 0 ? TileRange{0, 0} : TileRange{first / 64, last / 64 + 1};
  }

  void finish() {
    qo_indptr.assign(1, 0);
    cost_prefix.assign(1, 0);
    slot_prefix.assign(1, 0);
    units.clear();
    std::int64_t cost = 0, slots = 0;
    for (std::size_t seq = 0; seq < q_lens.size(); ++seq) {
      qo_indptr.push_back(qo_indptr.back() + q_lens[seq]);
      const std::int64_t rows = std::int64_t{q_lens[seq]} * group_heads;
      for (std::int32_t block = 0; block * std::int64_t{tile_rows} < rows; ++block) {
        const TileRange tiles = tiles_of(static_cast<std::int32_t>(seq), block);
        std::int32_t pieces = 1;
        if (split_tiles != 0 && rows <= 256) {
          while (pieces * split_tiles < tiles.size()) ++pieces;
        }
        for (std::int32_t head = 0; head < num_kv_heads; ++head) {
          units.push_back({static_cast<std::int32_t>(seq), block, head, tiles, cost, tiles.size() + pieces, pieces});
          cost += units.back().cost;
          slots += pieces > 1 ? pieces : 0;
        }
      }
      cost_prefix.push_back(cost);
      slot_prefix.push_back(slots);
    }
  }

  [[nodiscard]] WorkList list() {
    return {{num_workers, tile_rows, split_tiles, cost_prefix.data(), slot_prefix.data()},
            qo_indptr.data(),
            kv_lens.data(),
            static_cast<std::int32_t>(q_lens.size()),
            num_kv_heads,
            group_heads,
            mask == Mask::kWindow ? sliding_window : 0,
            mask != Mask::kNone};
  }

  [[nodiscard]] std::size_t unit_index(std::int32_t seq, std::int32_t block, std::int32_t kv_head) const {
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (units[i].seq == seq && units[i].block == block && units[i].kv_head == kv_head) return i;
    }
    return units.size();
  }
};

/// A batch of `seed`: short and long sequences, empty ones, more queries than keys, and more or fewer workers than
/// work.
inline Work draw(std::uint64_t seed) {
  test::Random random(seed);
  Work w;
  const std::int32_t batch = 1 + random.below(random.below(4) == 0 ? 12 : 4);
  w.num_kv_heads = 1 + random.below(4);
  constexpr std::int32_t kGroups[] = {1, 2, 3, 4, 5, 8, 16};
  w.group_heads = kGroups[random.below(7)];
  w.tile_rows = random.below(2) == 0 ? 16 : 64;
  w.mask = static_cast<Mask>(random.below(3));
  constexpr std::int32_t kWindows[] = {1, 2, 63, 64, 65, 500, 1 << 20};
  w.sliding_window = kWindows[random.below(7)];
  constexpr std::int32_t kSplits[] = {0, 0, 0, 1, 2, 7, 32};
  w.split_tiles = kSplits[random.below(7)];
  w.num_workers = 1 + random.below(random.below(2) == 0 ? 8 : 300);
  for (std::int32_t b = 0; b < batch; ++b) {
    switch (random.below(6)) {
      case 0:
        w.q_lens.push_back(0);
        break;
      case 1:
        w.q_lens.push_back(1 + random.below(90));
        break;
      case 2:
        w.q_lens.push_back(2 + random.below(7));
        break;
      default:
        w.q_lens.push_back(1);
        break;
    }
    switch (random.below(6)) {
      case 0:
        w.kv_lens.push_back(random.below(3));
        break;
      case 1:
        w.kv_lens.push_back(64 * random.below(5) + random.below(3));
        break;
      case 2:
        w.kv_lens.push_back(random.below(4000));
        break;
      default:
        w.kv_lens.push_back(random.below(400));
        break;
    }
  }
  w.finish();
  return w;
}

}  // namespace schedule
