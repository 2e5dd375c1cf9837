// What a warp finds of the cut from the lengths (kernels/find_start.hpp), against core's own functions on prefix sums.
#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>

#include "core/schedule/even.hpp"
#include "tests/kernels/on_host.hpp"
#include "tests/schedule/random_work.hpp"

namespace {

using namespace fp4pa;
using kernels_test::Found;
using kernels_test::kLanes32;
using kernels_test::kLanes64;
using kernels_test::OnHost;

auto as_tuple(const core::WorkerStart& s) {
  return std::tuple(s.seq, s.block, s.kv_head, s.begin, s.end, s.block_begin, s.block_slot);
}
auto as_tuple(const core::MergeNote& n) { return std::tuple(n.seq, n.block, n.kv_head, n.begin, n.first, n.last, n.count); }

/// What find_left() ought to say of a slot: the unit of the item that leaves its part there.
core::MergeNote left_in(const core::WorkList& list, std::int32_t worker, std::int32_t side) {
  core::MergeNote left{};
  core::for_each_item(list, worker, [&](const core::WorkItem& item) {
    if (item.partial_slot != 2 * worker + side) return;
    const std::int64_t begin = core::worker_begin(list.total_cost(), list.partition.num_workers, worker);
    const std::int64_t end = core::worker_begin(list.total_cost(), list.partition.num_workers, worker + 1);
    const core::UnitCursor cursor(list, side == 0 ? begin : end - 1);
    const core::UnitParts parts(list, cursor.unit());
    left = {item.seq, item.block, item.kv_head, parts.begin, parts.first, parts.last, parts.count};
  });
  return left;
}

/// A batch of decodes, of more sequences than a warp has lanes as a rule.
schedule::Work draw(std::uint64_t seed) {
  ::test::Random random(seed);
  schedule::Work w;
  const std::int32_t batch = 1 + random.below(seed % 3 == 0 ? 20 : 150);
  const std::int32_t usual = 1 + random.below(1500);
  const bool close = seed % 2 == 0;
  for (std::int32_t b = 0; b < batch; ++b) {
    w.q_lens.push_back(random.below(20) == 0 ? 0 : 1);
    w.kv_lens.push_back(close ? usual + random.below(65) : random.below(10) == 0 ? 0 : random.below(3 * usual));
  }
  w.num_kv_heads = 1 + random.below(4);
  w.group_heads = 4;
  w.mask = schedule::Mask::kCausal;
  w.num_workers = 1 + random.below(random.below(2) == 0 ? 8 : 700);
  w.finish();
  return w;
}

}  // namespace

TEST_CASE("a warp finds its worker's start and note and what it leaves, or that the cut is even") {
  int lines = 0, even = 0, notes = 0, even_notes = 0, lefts = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    schedule::Work w = draw(seed);
    core::WorkList list = w.list();
    core::Partition& p = list.partition;
    p.overhead_tiles = 1 + static_cast<std::int32_t>(seed % 13);
    core::fill_prefixes(list);
    p.finders = core::Divisor::of(static_cast<std::uint32_t>(p.num_workers));
    const std::int32_t units = list.batch * list.num_kv_heads;
    const core::EvenCut cut = core::EvenCut::of(units, p.num_workers);
    if (seed % 5 != 0) {
      p.even = core::Divisor::of(static_cast<std::uint32_t>(cut.parts));
      p.even_rounds = cut.rounds;
    }
    std::int32_t longest = 0;
    for (const schedule::ListedUnit& unit : w.units) longest = std::max(longest, unit.tiles.size());
    const bool expected_even = core::prefers_even(p, list.total_cost(), longest);
    INFO("seed ", seed);
    for (const OnHost* host : {&kLanes32, &kLanes64}) {
      for (std::int32_t worker = 0; worker < std::max(units, p.num_workers); worker += 1 + worker / 40) {
        const Found found = host->find(list, worker);
        CHECK(found.even == expected_even);
        if (found.even) {
          CHECK(as_tuple(found.note) == as_tuple(core::even_note(list, worker)));
          even_notes += found.note.count > 1 ? 1 : 0;
          continue;
        }
        if (worker >= p.num_workers) {
          CHECK(found.start.begin >= found.start.end);
          CHECK(found.note.count == 0);
          continue;
        }
        const core::WorkerStart expected = core::worker_start(list, worker);
        CHECK(found.start.begin == expected.begin);
        CHECK(found.start.end == expected.end);
        if (expected.begin < expected.end) CHECK(as_tuple(found.start) == as_tuple(expected));
        const core::MergeNote note = core::merge_note(list, worker);
        CHECK(found.note.count == note.count);
        if (note.count > 1) CHECK(as_tuple(found.note) == as_tuple(note));
        notes += note.count > 1 ? 1 : 0;
        for (const int side : {0, 1}) {
          const core::MergeNote left = left_in(list, worker, side);
          CHECK(found.left[side].count == left.count);
          if (left.count > 1) CHECK(as_tuple(found.left[side]) == as_tuple(left));
          lefts += left.count > 1 ? 1 : 0;
        }
      }
    }
    (expected_even ? even : lines) += 1;
  }
  CHECK(lines > 30);
  CHECK(even > 30);
  CHECK(notes > 500);
  CHECK(lefts > 1000);
  CHECK(even_notes > 100);
}
