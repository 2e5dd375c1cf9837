// core/schedule/even.hpp against units listed one by one: which cut a batch gets, and what each worker has of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/schedule/even.hpp"
#include "tests/schedule/random_work.hpp"

using namespace fp4pa::core;
using namespace schedule;

namespace {

/// A batch whose sequences are one row block each, or have no queries.
Work one_block_a_sequence(std::uint64_t seed) {
  Work w = draw(seed);
  w.split_tiles = 0;
  for (std::int32_t& q : w.q_lens) q = std::min(q, w.tile_rows / w.group_heads);
  w.finish();
  return w;
}

Partition even_partition(Work& w) {
  Partition p = w.list().partition;
  const EvenCut cut = EvenCut::of(static_cast<std::int64_t>(w.q_lens.size()) * w.num_kv_heads, w.num_workers);
  p.even = Divisor::of(static_cast<std::uint32_t>(cut.parts));
  p.even_rounds = cut.rounds;
  return p;
}

Work of_lengths(std::vector<std::int32_t> kv_lens, std::int32_t heads, std::int32_t workers) {
  Work w;
  w.kv_lens = std::move(kv_lens);
  w.q_lens.assign(w.kv_lens.size(), 1);
  w.num_kv_heads = heads;
  w.num_workers = workers;
  w.finish();
  return w;
}

bool prefers(Work& w, std::int32_t overhead) {
  Partition p = even_partition(w);
  p.overhead_tiles = overhead;
  std::int64_t line = 0;
  std::int32_t longest = 0;
  for (const ListedUnit& unit : w.units) {
    line += unit.tiles.size() + overhead;
    longest = std::max(longest, unit.tiles.size());
  }
  return prefers_even(p, line, longest);
}

}  // namespace

TEST_CASE("an even cut: every unit once, in parts of one size on neighbouring workers, with slots of their own") {
  int divided = 0, rounds = 0, short_units = 0, empty = 0, idle = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Work w = one_block_a_sequence(seed);
    WorkList list = w.list();
    list.partition = even_partition(w);
    const auto parts = static_cast<std::int32_t>(list.partition.even.divisor);
    const auto units = static_cast<std::int32_t>(w.q_lens.size()) * w.num_kv_heads;
    CHECK((parts == 1 || list.partition.even_rounds == 1));
    const std::int32_t blocks = std::max(units, w.num_workers);
    REQUIRE(units * parts <= blocks);
    REQUIRE(units <= list.partition.even_rounds * w.num_workers);
    INFO("seed ", seed);

    std::map<std::size_t, std::vector<std::pair<std::int32_t, EvenPart>>> of_unit;
    std::set<std::int64_t> slots;
    for (std::int32_t worker = 0; worker < blocks + 3; ++worker) {
      const EvenPart part = even_part(list, worker);
      const MergeNote note = even_note(list, worker);
      if (part.parts == 0) {
        CHECK(note.count == 0);
        ++idle;
        continue;
      }
      const std::size_t unit = w.unit_index(part.item.seq, part.item.block, part.item.kv_head);
      REQUIRE(unit < w.units.size());
      of_unit[unit].push_back({worker, part});
      CHECK((part.item.partial_slot < 0) == (part.parts == 1));
      if (part.parts > 1) {
        CHECK(part.item.partial_slot < 2 * w.num_workers);
        CHECK(part.item.partial_slot == 2 * worker + (part.rank == 0 ? 1 : 0));  // where the merge looks for it
        CHECK(slots.insert(part.item.partial_slot).second);
      }
      // All but the last of a unit's workers merge it.
      CHECK(note.count == (part.rank + 1 < part.parts ? part.parts : 0));
      if (note.count == 0) continue;
      CHECK(std::tuple(note.seq, note.block, note.kv_head) == std::tuple(part.item.seq, 0, part.item.kv_head));
      CHECK(note.first == worker - part.rank);
      CHECK(note.last == note.first + part.parts - 1);
      CHECK(note.begin == note.first);  // the unit begins on its first part's worker
    }

    CHECK(of_unit.size() == w.units.size());
    for (const auto& [index, held] : of_unit) {
      const ListedUnit& unit = w.units[index];
      const std::int32_t tiles = unit.tiles.size();
      CHECK(static_cast<std::int32_t>(held.size()) == std::max(1, std::min(parts, tiles)));
      std::int32_t covered = 0, shortest = tiles, longest = 0;
      for (std::size_t i = 0; i < held.size(); ++i) {
        const auto& [worker, part] = held[i];
        CHECK(part.parts == static_cast<std::int32_t>(held.size()));
        CHECK(part.rank == static_cast<std::int32_t>(i));
        CHECK(worker == held[0].first + static_cast<std::int32_t>(i));
        if (tiles > 0) CHECK(part.item.tiles.begin == unit.tiles.begin + covered);
        covered += part.item.tiles.size();
        shortest = std::min(shortest, part.item.tiles.size());
        longest = std::max(longest, part.item.tiles.size());
      }
      CHECK(covered == tiles);
      CHECK(longest - shortest <= 1);
      divided += held.size() > 1 ? 1 : 0;
      short_units += tiles < parts ? 1 : 0;
      empty += tiles == 0 ? 1 : 0;
    }
    rounds += list.partition.even_rounds > 1 ? 1 : 0;
  }
  CHECK(divided > 1000);
  CHECK(rounds > 100);
  CHECK(short_units > 1000);
  CHECK(empty > 100);
  CHECK(idle > 1000);
}

TEST_CASE("workers walk the parts of an even cut, each once, in rounds") {
  int later = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Work w = one_block_a_sequence(seed);
    WorkList list = w.list();
    list.partition = even_partition(w);
    const auto units = static_cast<std::int32_t>(w.q_lens.size()) * w.num_kv_heads;
    const std::int32_t end = units * static_cast<std::int32_t>(list.partition.even.divisor);
    INFO("seed ", seed);
    for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
      EvenWalk walk(worker);
      WorkItem item{};
      for (std::int32_t at = worker; at < end; at += w.num_workers) {
        const EvenPart part = even_part(list, at);
        if (part.parts == 0) continue;
        REQUIRE(walk.next(list, item));
        CHECK(std::tuple(item.seq, item.kv_head, item.tiles.begin, item.tiles.end, item.partial_slot) ==
              std::tuple(part.item.seq, part.item.kv_head, part.item.tiles.begin, part.item.tiles.end, part.item.partial_slot));
        later += at != worker ? 1 : 0;
      }
      CHECK(!walk.next(list, item));
    }
  }
  CHECK(later > 100);
}

TEST_CASE("which cut a batch gets") {
  const auto equal = [](std::size_t batch, std::int32_t keys) { return std::vector<std::int32_t>(batch, keys); };
  SUBCASE("units that fill the workers are left whole") {
    Work w = of_lengths(equal(64, 8192), 8, 528);
    CHECK(even_partition(w).even.divisor == 1);
    CHECK(prefers(w, 7));
  }
  SUBCASE("a few units fall into parts") {
    Work w = of_lengths(equal(8, 32768), 8, 132);
    CHECK(even_partition(w).even.divisor == 2);
    CHECK(prefers(w, 30));
  }
  SUBCASE("two rounds of units that nearly fill both") {
    Work w = of_lengths(equal(128, 2048), 8, 528);
    CHECK(even_partition(w).even_rounds == 2);
    CHECK(prefers(w, 7));
  }
  SUBCASE("a line where a second round would be nearly empty") {
    Work w = of_lengths(equal(64, 8192), 8, 396);
    CHECK(!prefers(w, 10));
  }
  SUBCASE("a line where one sequence is much longer than the others, and none where it is a little longer") {
    std::vector<std::int32_t> lengths = equal(64, 8192);
    lengths[5] = 8192 + 512;
    Work near = of_lengths(lengths, 8, 528);
    CHECK(prefers(near, 7));
    lengths[5] = 3 * 8192;
    Work far = of_lengths(lengths, 8, 528);
    CHECK(!prefers(far, 7));
  }
  SUBCASE("a line where the longer part of a unit that does not halve decides") {
    Work near = of_lengths({65 * 64, 58 * 64}, 1, 4);
    CHECK(!prefers(near, 1));
    Work nearer = of_lengths({65 * 64, 61 * 64}, 1, 4);
    CHECK(prefers(nearer, 1));
  }
  SUBCASE("nothing to do") {
    Work w = of_lengths({0, 0}, 2, 8);
    CHECK(prefers(w, 10));
  }
  SUBCASE("no even cut was planned") {
    Work w = of_lengths(equal(4, 64), 1, 4);
    CHECK(!prefers_even(w.list().partition, 44, 1));
  }
}
