// Workers, their items and the merges, against a list of all units: nothing twice, nothing missing, every partial state
// written once and read once.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "tests/schedule/random_work.hpp"

using namespace schedule;

namespace {

/// What all workers of a batch do.
struct Assignment {
  std::vector<std::vector<WorkItem>> of_worker;
  std::vector<std::vector<WorkItem>> of_unit;  // by index into Work::units, in key order
};

Assignment assign(Work& w) {
  const WorkList list = w.list();
  Assignment a;
  a.of_unit.resize(w.units.size());
  for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
    auto& items = a.of_worker.emplace_back();
    for_each_item(list, worker, [&](const WorkItem& item) { items.push_back(item); });
    for (const WorkItem& item : items) {
      const std::size_t unit = w.unit_index(item.seq, item.block, item.kv_head);
      REQUIRE(unit < w.units.size());
      a.of_unit[unit].push_back(item);
    }
  }
  for (auto& items : a.of_unit) {
    std::sort(items.begin(), items.end(),
              [](const WorkItem& x, const WorkItem& y) { return x.tiles.begin < y.tiles.begin; });
  }
  return a;
}

constexpr std::uint64_t kSeeds = 3000;

}  // namespace

TEST_CASE("sequence_cost adds up the costs and the partial slots of all units") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Work w = draw(seed);
    const WorkList list = w.list();
    for (std::int32_t seq = 0; seq < list.batch; ++seq) {
      const SequenceCost got = sequence_cost(list.shape(seq), list.partition, list.num_kv_heads);
      const auto s = static_cast<std::size_t>(seq);
      INFO("seed ", seed, " sequence ", seq);
      CHECK(got.cost == w.cost_prefix[s + 1] - w.cost_prefix[s]);
      CHECK(got.slots == w.slot_prefix[s + 1] - w.slot_prefix[s]);
    }
  }
}

TEST_CASE("every (sequence, row block, KV head, tile) is on exactly one worker") {
  int split_units = 0, empty_units = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Work w = draw(seed);
    const Assignment a = assign(w);
    for (std::size_t u = 0; u < w.units.size(); ++u) {
      const ListedUnit& unit = w.units[u];
      const std::vector<WorkItem>& items = a.of_unit[u];
      INFO("seed ", seed, " sequence ", unit.seq, " block ", unit.block, " KV head ", unit.kv_head);
      REQUIRE(!items.empty());  // a unit that sees no key is still one item: its zeros must be written
      if (unit.tiles.size() == 0) {
        CHECK(items.size() == 1);
        CHECK(items[0].tiles.size() == 0);
        ++empty_units;
        continue;
      }
      std::int32_t next = unit.tiles.begin;
      for (const WorkItem& item : items) {
        CHECK(item.tiles.begin == next);
        CHECK(item.tiles.size() > 0);
        next = item.tiles.end;
      }
      CHECK(next == unit.tiles.end);
      split_units += items.size() > 1 ? 1 : 0;
      if (w.split_tiles != 0) CHECK(static_cast<std::int32_t>(items.size()) == unit.pieces);
    }
  }
  CHECK(split_units > 1000);
  CHECK(empty_units > 1000);
}

TEST_CASE("a worker's items follow the line: sequence, row block, KV head, key") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Work w = draw(seed);
    const Assignment a = assign(w);
    std::size_t last_unit = 0;
    std::int32_t last_tile = 0;
    for (const std::vector<WorkItem>& items : a.of_worker) {
      for (const WorkItem& item : items) {
        const std::size_t unit = w.unit_index(item.seq, item.block, item.kv_head);
        INFO("seed ", seed, " unit ", unit);
        CHECK((unit > last_unit || (unit == last_unit && item.tiles.begin >= last_tile)));
        last_unit = unit;
        last_tile = item.tiles.end;
      }
    }
  }
}

TEST_CASE("a walk that is put aside after every item gives what for_each_item gives, and ends more than once") {
  const auto of = [](const WorkItem& i) {
    return std::tuple(i.seq, i.block, i.kv_head, i.tiles.begin, i.tiles.end, i.partial_slot);
  };
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Work w = draw(seed);
    const WorkList list = w.list();
    const Assignment a = assign(w);
    for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
      ItemWalk aside(list, worker, worker_start(list, worker));
      const auto next = [&](WorkItem& item) {
        ItemWalk walk = aside;
        const bool found = walk.next(list, item);
        aside = walk;
        return found;
      };
      WorkItem item{};
      for (const WorkItem& want : a.of_worker[static_cast<std::size_t>(worker)]) {
        wrong += next(item) && of(item) == of(want) ? 0 : 1;
      }
      wrong += next(item) || next(item) ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("partial slots: in range, each written once, and only by units of several items") {
  int finals = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Work w = draw(seed);
    const Assignment a = assign(w);
    const std::int64_t slots = w.split_tiles != 0 ? w.slot_prefix.back() : 2 * std::int64_t{w.num_workers};
    std::set<std::int64_t> used;
    for (std::size_t u = 0; u < w.units.size(); ++u) {
      INFO("seed ", seed, " unit ", u);
      if (a.of_unit[u].size() == 1) {
        CHECK(a.of_unit[u][0].partial_slot == -1);  // also when a cut took nothing but the overhead
        ++finals;
        continue;
      }
      for (const WorkItem& item : a.of_unit[u]) {
        CHECK(item.partial_slot >= 0);
        CHECK(item.partial_slot < slots);
        CHECK(used.insert(item.partial_slot).second);
      }
    }
    if (w.split_tiles != 0) CHECK(static_cast<std::int64_t>(used.size()) == slots);  // the prefix sum wastes none
  }
  CHECK(finals > 1000);
}

TEST_CASE("merges: every divided unit once, its parts in key order, exactly the slots that were written") {
  int jobs = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Work w = draw(seed);
    const Assignment a = assign(w);
    const WorkList list = w.list();
    std::vector<int> merged(w.units.size(), 0);
    for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
      for_each_merge(list, worker, [&](const MergeJob& job) {
        const std::size_t u = w.unit_index(job.unit.seq, job.unit.block, job.unit.kv_head);
        REQUIRE(u < w.units.size());
        ++merged[u];
        ++jobs;
        std::vector<std::int64_t> slots;
        for (std::int32_t i = 0; i < job.count; ++i) {
          const std::int64_t slot = merge_slot(list, job, i);
          if (slot >= 0) slots.push_back(slot);
        }
        std::vector<std::int64_t> written;
        for (const WorkItem& item : a.of_unit[u]) written.push_back(item.partial_slot);
        INFO("seed ", seed, " unit ", u);
        CHECK(slots == written);
      });
    }
    for (std::size_t u = 0; u < w.units.size(); ++u) {
      INFO("seed ", seed, " unit ", u);
      CHECK(merged[u] == (a.of_unit[u].size() > 1 ? 1 : 0));
    }
  }
  CHECK(jobs > 1000);
}

TEST_CASE("a worker's note names the unit that goes on after its last item, and the workers with a part of it") {
  int notes = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Work w = draw(seed);
    if (w.split_tiles != 0) continue;
    const Assignment a = assign(w);
    const WorkList list = w.list();
    for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
      const MergeNote note = merge_note(list, worker);
      INFO("seed ", seed, " worker ", worker);
      const auto& items = a.of_worker[static_cast<std::size_t>(worker)];
      const std::size_t u = items.empty() ? w.units.size() : w.unit_index(items.back().seq, items.back().block, items.back().kv_head);
      if (items.empty() || items.back().tiles.end == w.units[u].tiles.end) {
        CHECK(note.count == 0);
        continue;
      }
      ++notes;
      CHECK(w.unit_index(note.seq, note.block, note.kv_head) == u);
      const auto& parts = a.of_unit[u];
      CHECK(note.count == static_cast<std::int32_t>(parts.size()));
      // A slot is 2 * worker, and one more where the unit begins on that worker.
      CHECK(note.first == parts.front().partial_slot / 2);
      CHECK(note.last == parts.back().partial_slot / 2);
    }
  }
  CHECK(notes > 1000);
}

TEST_CASE("shared units: the first workers have a part each, equal but for the least, with slots in the order of the keys") {
  int divided = 0, even = 0, empty = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Work w = draw(seed);
    Partition p = w.list().partition;
    const std::uint32_t sharers = 1u << seed % 4;
    const std::uint32_t least = 1 + static_cast<std::uint32_t>(seed / 4 % 3);
    p.sharers = Divisor::of(sharers);
    p.least_tiles = Divisor::of(least);
    std::set<std::int64_t> used;
    for (std::int32_t seq = 0; seq < w.list().batch; ++seq) {
      const SequenceShape shape = w.list().shape(seq);
      if (row_blocks(shape, p.tile_rows) > 1) continue;
      for (std::int32_t head = 0; head < w.num_kv_heads; ++head) {
        const auto part = [&](std::uint32_t rank) {
          return shared_part(p, shape, seq, head, w.num_kv_heads, static_cast<std::int32_t>(rank));
        };
        INFO("seed ", seed, " sequence ", seq, " KV head ", head);
        const std::int32_t parts = part(0).parts;
        CHECK(parts <= static_cast<std::int32_t>(sharers));
        for (std::uint32_t rank = 0; rank < sharers; ++rank) CHECK(part(rank).parts == parts);
        if (shape.q_len == 0) {
          CHECK(parts == 0);
          continue;
        }
        const ListedUnit& unit = w.units[w.unit_index(seq, 0, head)];
        REQUIRE(parts > 0);
        std::int32_t covered = 0, shortest = unit.tiles.size(), longest = 0;
        for (std::int32_t rank = 0; rank < parts; ++rank) {
          const WorkItem item = part(static_cast<std::uint32_t>(rank)).item;
          CHECK(std::tuple(item.seq, item.block, item.kv_head) == std::tuple(seq, 0, head));
          if (unit.tiles.size() > 0) CHECK(item.tiles.begin == unit.tiles.begin + covered);
          covered += item.tiles.size();
          shortest = std::min(shortest, item.tiles.size());
          longest = std::max(longest, item.tiles.size());
          if (parts == 1) {
            CHECK(item.partial_slot == -1);
            continue;
          }
          CHECK(item.tiles.size() > 0);
          CHECK(item.partial_slot == part(0).item.partial_slot + rank);
          CHECK(item.partial_slot < std::int64_t{sharers} * w.num_kv_heads * w.list().batch);
          CHECK(used.insert(item.partial_slot).second);
        }
        CHECK(covered == unit.tiles.size());
        if (unit.tiles.size() > static_cast<std::int32_t>(sharers * least)) {
          CHECK(parts == static_cast<std::int32_t>(sharers));
          CHECK(longest - shortest <= 1);
          ++even;
        } else {
          CHECK(longest <= static_cast<std::int32_t>(least));
        }
        divided += parts > 1 ? 1 : 0;
        empty += unit.tiles.size() == 0 ? 1 : 0;
      }
    }
  }
  CHECK(divided > 1000);
  CHECK(even > 1000);
  CHECK(empty > 100);
}

TEST_CASE("UnitCursor finds the unit of every cost coordinate and walks to the end of the line") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Work w = draw(seed);
    const WorkList list = w.list();
    if (list.total_cost() == 0) continue;
    for (std::size_t u = 0; u < w.units.size(); ++u) {
      const ListedUnit& unit = w.units[u];
      for (const std::int64_t x : {unit.begin, unit.begin + unit.cost / 2, unit.begin + unit.cost - 1}) {
        const UnitCursor cursor(list, x);
        INFO("seed ", seed, " coordinate ", x);
        CHECK(cursor.unit().seq == unit.seq);
        CHECK(cursor.unit().block == unit.block);
        CHECK(cursor.unit().kv_head == unit.kv_head);
        CHECK(cursor.unit().begin == unit.begin);
        CHECK(cursor.unit().cost == unit.cost);
      }
    }
    UnitCursor cursor(list, 0);
    std::size_t visited = 0;
    do {
      cursor.measure();
      do {
        REQUIRE(visited < w.units.size());
        CHECK(cursor.unit().begin == w.units[visited].begin);
        ++visited;
      } while (cursor.next_head());
    } while (cursor.next_block());
    CHECK(visited == w.units.size());
  }
}

TEST_CASE("nothing to do: no sequences, or none with queries") {
  Work w;
  w.q_lens = {0, 0};
  w.kv_lens = {100, 0};
  w.num_workers = 4;
  w.finish();
  const WorkList list = w.list();
  CHECK(list.total_cost() == 0);
  int calls = 0;
  for (std::int32_t worker = 0; worker < 4; ++worker) {
    for_each_item(list, worker, [&](const WorkItem&) { ++calls; });
    for_each_merge(list, worker, [&](const MergeJob&) { ++calls; });
  }
  CHECK(calls == 0);
}

TEST_CASE("one long sequence over many workers: a unit may span a dozen of them") {
  Work w;
  w.q_lens = {1};
  w.kv_lens = {64 * 100};
  w.num_workers = 12;
  w.finish();
  const Assignment a = assign(w);
  REQUIRE(a.of_unit.size() == 1);
  CHECK(a.of_unit[0].size() == 12);
  int jobs = 0;
  const WorkList list = w.list();
  for (std::int32_t worker = 0; worker < 12; ++worker) {
    for_each_merge(list, worker, [&](const MergeJob& job) {
      ++jobs;
      CHECK(worker == 0);  // where the unit begins
      CHECK(job.count == 12);
    });
  }
  CHECK(jobs == 1);
}

TEST_CASE("fixed splits: a sequence's pieces do not depend on the rest of the batch or on the workers") {
  using Piece = std::vector<std::int32_t>;
  const auto pieces_of = [](Work& w, std::int32_t seq) {
    std::vector<Piece> pieces;
    const WorkList list = w.list();
    for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
      for_each_item(list, worker, [&](const WorkItem& item) {
        if (item.seq != seq) return;
        pieces.push_back({item.block, item.kv_head, item.tiles.begin, item.tiles.end, item.partial_slot >= 0 ? 1 : 0});
      });
    }
    return pieces;  // the line's order, whoever runs them
  };
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Work w = draw(seed);
    if (w.split_tiles == 0) continue;
    for (std::size_t seq = 0; seq < w.q_lens.size(); ++seq) {
      Work alone = w;
      alone.q_lens = {w.q_lens[seq]};
      alone.kv_lens = {w.kv_lens[seq]};
      alone.num_workers = 1 + static_cast<std::int32_t>(seed % 7);
      alone.finish();
      INFO("seed ", seed, " sequence ", seq);
      CHECK(pieces_of(alone, 0) == pieces_of(w, static_cast<std::int32_t>(seq)));
      ++compared;
    }
  }
  CHECK(compared > 300);
}

TEST_CASE("fixed splits leave sequences with many rows whole") {
  Work w;
  w.q_lens = {256, 257};
  w.kv_lens = {1000, 1000};
  w.split_tiles = 2;
  w.num_workers = 3;
  w.finish();
  const Assignment a = assign(w);
  int cut = 0;
  for (std::size_t u = 0; u < w.units.size(); ++u) {
    if (w.units[u].seq == 0) {
      cut += a.of_unit[u].size() > 1 ? 1 : 0;
    } else {
      CHECK(a.of_unit[u].size() == 1);
    }
  }
  CHECK(cut > 0);
}

TEST_CASE("the worked examples of docs/schedule.md") {
  Work w;
  w.q_lens = {1, 1};
  w.kv_lens = {600, 150};
  w.num_kv_heads = 2;
  w.group_heads = 4;
  w.num_workers = 3;
  struct Line {
    std::int32_t worker, seq, kv_head, begin, end;
    std::int64_t slot;
    bool operator==(const Line&) const = default;
  };
  const auto table = [&] {
    std::vector<Line> lines;
    const WorkList list = w.list();
    for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
      for_each_item(list, worker, [&](const WorkItem& i) {
        lines.push_back({worker, i.seq, i.kv_head, i.tiles.begin, i.tiles.end, i.partial_slot});
      });
    }
    return lines;
  };
  w.finish();
  CHECK(w.cost_prefix == std::vector<std::int64_t>{0, 22, 30});
  CHECK(table() == std::vector<Line>{{0, 0, 0, 0, 9, 1},
                                     {1, 0, 0, 9, 10, 2},
                                     {1, 0, 1, 0, 8, 3},
                                     {2, 0, 1, 8, 10, 4},
                                     {2, 1, 0, 0, 3, -1},
                                     {2, 1, 1, 0, 3, -1}});
  w.split_tiles = 4;
  w.finish();
  CHECK(w.cost_prefix == std::vector<std::int64_t>{0, 26, 34});
  CHECK(w.slot_prefix == std::vector<std::int64_t>{0, 6, 6});
  CHECK(table() == std::vector<Line>{{0, 0, 0, 0, 4, 0},
                                     {0, 0, 0, 4, 8, 1},
                                     {0, 0, 0, 8, 10, 2},
                                     {1, 0, 1, 0, 4, 3},
                                     {1, 0, 1, 4, 8, 4},
                                     {2, 0, 1, 8, 10, 5},
                                     {2, 1, 0, 0, 3, -1},
                                     {2, 1, 1, 0, 3, -1}});
}
