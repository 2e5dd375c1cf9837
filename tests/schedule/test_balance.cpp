// How even the loads are: the bounds of docs/schedule.md, against a lower bound that no schedule can pass and against
// the greedy assignment of whole units, longest first.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "tests/schedule/random_work.hpp"

using namespace schedule;

namespace {

/// What an item costs the worker that runs it: its tiles, and starting and finishing.
std::int64_t item_cost(const WorkItem& item) { return item.tiles.size() + kItemOverheadTiles; }

struct Loads {
  std::int64_t largest = 0;
  std::int64_t largest_item = 0;
  std::int64_t sum = 0;
};

Loads measure(Work& w) {
  const WorkList list = w.list();
  Loads loads;
  for (std::int32_t worker = 0; worker < w.num_workers; ++worker) {
    std::int64_t load = 0;
    for_each_item(list, worker, [&](const WorkItem& item) {
      load += item_cost(item);
      loads.largest_item = std::max(loads.largest_item, item_cost(item));
    });
    loads.largest = std::max(loads.largest, load);
    loads.sum += load;
  }
  return loads;
}

/// Longest unit first to the least loaded worker: the largest load.
std::int64_t greedy_whole_units(const Work& w) {
  std::vector<std::int64_t> costs;
  for (const ListedUnit& unit : w.units) costs.push_back(unit.tiles.size() + kItemOverheadTiles);
  std::sort(costs.rbegin(), costs.rend());
  std::vector<std::int64_t> loads(static_cast<std::size_t>(w.num_workers), 0);
  for (const std::int64_t cost : costs) *std::min_element(loads.begin(), loads.end()) += cost;
  return *std::max_element(loads.begin(), loads.end());
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

TEST_CASE("long_division is the quotient, from 1 to the ends of 63 bits") {
  const auto values = [] {
    std::vector<std::uint64_t> v{0, 1, 2, 3, 7, 10, 131, 132, 4095};
    for (int bit = 12; bit < 63; ++bit) {
      const std::uint64_t power = std::uint64_t{1} << bit;
      v.insert(v.end(), {power - 1, power, power + 12345});
    }
    v.push_back((std::uint64_t{1} << 63) - 1);
    return v;
  }();
  for (const std::uint64_t a : values) {
    for (const std::uint64_t b : values) {
      INFO(a, " / ", b);
      if (b != 0) CHECK(long_division(a, b) == a / b);
    }
  }
}

TEST_CASE("worker_begin cuts the line into pieces that differ by at most one, and worker_of inverts it") {
  test::Random random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::int32_t workers = 1 + random.below(300);
    const std::int64_t total = i % 10 == 0 ? (std::int64_t{1} << 45) + random.below(1000) : 1 + random.below(2000);
    CHECK(worker_begin(total, workers, 0) == 0);
    CHECK(worker_begin(total, workers, workers) == total);
    for (std::int32_t worker = 0; worker < workers; ++worker) {
      const std::int64_t begin = worker_begin(total, workers, worker);
      const std::int64_t end = worker_begin(total, workers, worker + 1);
      CHECK((end - begin == total / workers || end - begin == ceil_div(total, workers)));
      if (begin == end) continue;  // more workers than work
      CHECK(worker_of(total, workers, begin) == worker);
      CHECK(worker_of(total, workers, (begin + end) / 2) == worker);
      CHECK(worker_of(total, workers, end - 1) == worker);
    }
  }
}

TEST_CASE("balanced: nobody has more than an even share and one item's overhead") {
  int better_than_whole_units = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Work w = draw(seed);
    w.split_tiles = 0;
    w.finish();
    const std::int64_t total = w.cost_prefix.back();
    const Loads loads = measure(w);
    // A unit cut by n workers costs n overheads where the line counted one: that is all that dividing adds.
    INFO("seed ", seed, " total ", total, " workers ", w.num_workers, " largest ", loads.largest);
    CHECK(loads.largest <= ceil_div(total, w.num_workers) + kItemOverheadTiles);
    CHECK(loads.sum <= total + (w.num_workers - 1) * kItemOverheadTiles);
    // No assignment does better than total / workers, so this one is within two overheads of the best; whole units
    // dealt out greedily are never ahead by more than that one overhead, and often far behind.
    const std::int64_t greedy = greedy_whole_units(w);
    CHECK(loads.largest <= greedy + kItemOverheadTiles);
    better_than_whole_units += 2 * loads.largest <= greedy ? 1 : 0;
  }
  CHECK(better_than_whole_units > 100);
}

TEST_CASE("fixed: nobody has more than an even share and one item") {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Work w = draw(seed);
    if (w.split_tiles == 0) w.split_tiles = 3;
    w.finish();
    const std::int64_t total = w.cost_prefix.back();
    const Loads loads = measure(w);
    INFO("seed ", seed, " total ", total, " workers ", w.num_workers, " largest ", loads.largest);
    CHECK(loads.sum == total);  // the line counts every piece's overhead
    if (total == 0) continue;
    CHECK(loads.largest <= ceil_div(total, w.num_workers) - 1 + loads.largest_item);
  }
}

TEST_CASE("balanced: a batch-1 decode of 32 K keys keeps 300 workers busy") {
  Work w;
  w.q_lens = {1};
  w.kv_lens = {32768};
  w.num_kv_heads = 8;
  w.group_heads = 4;
  w.num_workers = 300;
  w.finish();
  const Loads loads = measure(w);
  CHECK(w.cost_prefix.back() == 8 * (512 + 1));
  CHECK(loads.largest <= 15);           // 4104 / 300 = 13.7
  CHECK(greedy_whole_units(w) == 513);  // what eight busy workers would take
}
