// Faults planted in the body's way of running on sm_80. Each must be found: by the emulator, or by an error over the bound.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tests/attention/grid_instance.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/emulator/mutant_exec.hpp"
#include "tests/emulator/sm80_instances.hpp"

namespace {

using namespace fp4pa;
using core::KvKind;
using core::SimtConfig;
using emulator_test::Fault;
using emulator_test::Sm80Instances;
using Mutant = emulator_test::MutantExec<emulator::Sm80Exec>;

constexpr int find(bool rows, int segments) {
  for (int i = 0; i < Sm80Instances::kCount; ++i) {
    const SimtConfig& c = Sm80Instances::config(i);
    if (c.k[0] == KvKind::kMxfp4 && c.v[0] == KvKind::kMxfp4 && c.head_dim == 128 && c.segments == segments &&
        core::divides_rows(c) == rows) {
      return i;
    }
  }
  return -1;
}
constexpr int kDecode = find(false, 1), kRecent = find(false, 2), kPrefill = find(true, 1);
static_assert(kDecode >= 0 && kRecent >= 0 && kPrefill >= 0);

/// The page table read one entry too far, where there is one.
template <int kIndex>
void run_block_one_page_off(const core::AttentionParams& p, const core::WorkList& list, const core::SharedLayout& layout,
                            int worker, const emulator::Watch& watch) {
  core::AttentionParams off = p;
  core::PageTable& table = off.segments[0].table;
  REQUIRE(table.indptr == nullptr);
  std::vector<std::int32_t> pages(table.pages, table.pages + p.batch * table.row_stride);
  for (std::size_t i = 0; i + 1 < pages.size(); ++i) pages[i] = pages[i + 1] >= 0 ? pages[i + 1] : pages[i];
  table.pages = pages.data();
  emulator_test::run_block_of<Sm80Instances, Mutant, kIndex>(off, list, layout, worker, watch);
}
constexpr std::array<emulator_test::RunBlock, Sm80Instances::kCount> kOnePageOff = [] {
  std::array<emulator_test::RunBlock, Sm80Instances::kCount> table{};
  table[kDecode] = run_block_one_page_off<kDecode>;
  table[kRecent] = run_block_one_page_off<kRecent>;
  table[kPrefill] = run_block_one_page_off<kPrefill>;
  return table;
}();

constexpr emulator_test::Emulation kMutants =
    emulator_test::emulation_of<Sm80Instances, Mutant, kDecode, kRecent, kPrefill>("sm_80 with a fault");
constexpr emulator_test::Emulation kMutantTables = [] {
  emulator_test::Emulation e = kMutants;
  e.run_block = kOnePageOff.data();
  return e;
}();

/// Rotated, and long enough that every stage of the pipeline is used again; two items, one after the other in one block.
grid::Case case_of(int instance) {
  grid::Case c;
  c.seed = 7;
  c.k = c.v = KvFormat::kMxfp4;
  c.rotation = Rotation::kHadamard32;
  c.group_heads = 4;
  c.q_lens = {1, 1};
  c.kv_lens = {900, 700};
  c = grid::at_instance(c, Sm80Instances::config(instance), Sm80Instances::tile_rows(instance));
  if (instance == kPrefill) c.kv_lens = {300, 200};
  c.backend = "cuda";
  return c;
}

struct Verdict {
  bool by_emulator, by_error;
  std::string text;  // the emulator's
  [[nodiscard]] bool found() const { return by_emulator || by_error; }
};

Verdict run(int instance, Fault fault, const emulator_test::Emulation& emulation = kMutants) {
  Mutant::fault = fault;
  Mutant::places.clear();
  emulator::Findings findings;
  const emulator_test::Setup before = emulator_test::current;
  emulator_test::current = {&emulation, {emulator::Order::forwards(), &findings, nullptr}, 1, instance, -1};
  const grid::Case c = case_of(instance);
  const grid::Outcome outcome = grid::run_case(c);
  CHECK(emulator_test::current.planned == instance);
  emulator_test::current = before;
  Mutant::fault = {};
  CHECK(outcome.failure == "");
  const double bound = grid::has_bf16_operands(c) ? 8e-3 : 2e-3;
  return {!findings.empty(), !(outcome.error <= bound) || !(outcome.lse_error <= 1e-3), findings.text()};
}

const char* name_of(int instance) { return instance == kDecode ? "decode" : instance == kRecent ? "decode, two tiers" : "prefill"; }

struct Tally {
  int planted = 0, found = 0;
};

/// Leaves out the first, the second, ... of a kind, or every step-th, each in a run of its own.
/// @return by place in the source
std::map<std::string, Tally> leave_out_each(int instance, Fault::Kind kind, const char* what, int step = 1) {
  std::map<std::string, Tally> tally;
  std::map<std::string, std::string> example;
  for (int n = 0;; n += step) {
    const Verdict v = run(instance, {kind, n});
    if (Mutant::places.empty()) break;  // no n-th one
    const std::string place = *Mutant::places.begin();
    ++tally[place].planted;
    tally[place].found += v.found() ? 1 : 0;
    if (v.found() && example[place].empty()) {
      example[place] = v.by_emulator ? v.text.substr(0, v.text.find('\n')) : "an error over the bound";
    }
  }
  for (const auto& [place, t] : tally) {
    std::printf("  %s, %s at %s: %d of %d found%s%s\n", name_of(instance), what, place.c_str(), t.found, t.planted,
                t.found != 0 ? ", e.g. " : "", example[place].c_str());
  }
  return tally;
}

int never_found(const std::map<std::string, Tally>& tally) {
  return static_cast<int>(std::count_if(tally.begin(), tally.end(), [](const auto& t) { return t.second.found == 0; }));
}

}  // namespace

TEST_CASE("mutants: the control passes") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    CAPTURE(std::string(name_of(instance)));
    const Verdict v = run(instance, {});
    CHECK(v.text == "");
    CHECK_FALSE(v.by_error);
  }
}

// A barrier that stands in one place for several instances is idle in some of them, and then leaving it out is no fault:
//   open(), before and after the loading of the query   where keys are divided, warps have met in the merge when they come to the
//                     first, unless a second segment is opened; where rows are divided, a warp loads its own rows, and either of
//                     the two is enough for the stages
//   merge_warps(), before the states are stored         where a warp's own area holds them
//   open(), the wait                                    a stream has waited for whatever it asked for
// The tests allow for these numbers of places and print which. Within a place, the last ones of a stream are idle: no copies
// follow them.

TEST_CASE("mutants: a missing block barrier is found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    const auto tally = leave_out_each(instance, Fault::Kind::kBlockBarrier, "no block barrier");
    CHECK(tally.size() >= 3);
    CHECK(never_found(tally) <= 2);
  }
}

TEST_CASE("mutants: a block barrier that one warp does not come to is always found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    for (const auto& [place, t] : leave_out_each(instance, Fault::Kind::kBlockBarrierOne, "one warp not at the block barrier")) {
      CHECK(t.found == t.planted);
    }
  }
}

TEST_CASE("mutants: a missing warp barrier is found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    // In prefill there are hundreds, all of them at the query: a few will do, at a step that shares no factor with their order.
    const auto tally = leave_out_each(instance, Fault::Kind::kWarpBarrier, "no warp barrier", instance == kPrefill ? 11 : 1);
    CHECK(tally.size() >= 3);
    CHECK(never_found(tally) == 0);
  }
}

TEST_CASE("mutants: a missing wait for copies is found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    const auto tally = leave_out_each(instance, Fault::Kind::kCopyWait, "no wait");
    CHECK(tally.size() >= 2);
    CHECK(never_found(tally) <= 1);
  }
}

TEST_CASE("mutants: accumulators in the wrong places are found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    CHECK(run(instance, {Fault::Kind::kTransposedC, 0}).by_error);
    CHECK(run(instance, {Fault::Kind::kSwappedC, 0}).by_error);
  }
}

TEST_CASE("mutants: a page table read one entry too far is found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) CHECK(run(instance, {}, kMutantTables).by_error);
}
