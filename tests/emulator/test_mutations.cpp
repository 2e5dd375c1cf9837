// Faults planted in the body's way of running on sm_80. Each must be found: by the emulator, or by an error over the bound.
#include <doctest/doctest.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/mutants.hpp"
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

emulator_test::Verdict run(int instance, Fault fault, const emulator_test::Emulation& emulation = kMutants) {
  const bool bf16 = grid::has_bf16_operands(emulator_test::mutant_case(emulation, instance));
  return emulator_test::run_mutant<Mutant>(emulation, instance, fault, {bf16 ? 8e-3 : 2e-3, 1e-3});
}

const char* name_of(int instance) { return instance == kDecode ? "decode" : instance == kRecent ? "decode, two tiers" : "prefill"; }

std::map<std::string, emulator_test::Tally> leave_out_each(int instance, Fault::Kind kind, const char* what, int step = 1) {
  return emulator_test::leave_out_each<Mutant>(std::string(name_of(instance)) + ", " + what, kind, step,
                                               [=](Fault fault) { return run(instance, fault); });
}

}  // namespace

TEST_CASE("mutants: the control passes") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    CAPTURE(std::string(name_of(instance)));
    const emulator_test::Verdict v = run(instance, {});
    CHECK(v.text == "");
    CHECK_FALSE(v.by_error);
  }
}

// A barrier that stands in one place for several instances is idle in some of them, and then leaving it out is no fault:
//   open(), before and after the loading of the query   where keys are divided, warps have met in the merge when they come to the
//                     first, unless a second segment is opened; where rows are divided, a warp loads its own rows, and either of
//                     the two is enough for the stages
//   open(), the wait                                    a stream has waited for whatever it asked for
// The tests allow for these numbers of places and print which. Within a place, the last ones of a stream are idle: no copies
// follow them.

TEST_CASE("mutants: a missing block barrier is found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    const auto tally = leave_out_each(instance, Fault::Kind::kBlockBarrier, "no block barrier");
    CHECK(tally.size() >= 3);
    CHECK(emulator_test::never_found(tally) <= 2);
  }
}

TEST_CASE("mutants: a block barrier that one warp does not come to is always found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    const auto tally = leave_out_each(instance, Fault::Kind::kBlockBarrierOne, "one warp not at the block barrier");
    CHECK(tally.size() >= 3);
    for (const auto& [place, t] : tally) CHECK(t.found == t.planted);
  }
}

// In decode of one tier the places are where a tile is waited for, and before a warp's states go into its scratch, which the last tile
// may still be read from: queries come through registers, and full tiles find their addresses without shared memory. A second tier
// brings rows that are found one by one, their addresses in the warp's scratch, and the reordering of dims. Prefill has barriers of
// the block alone.
TEST_CASE("mutants: a missing warp barrier is found") {
  for (const auto& [instance, places] : {std::pair{kDecode, 2u}, std::pair{kRecent, 5u}, std::pair{kPrefill, 0u}}) {
    const auto tally = leave_out_each(instance, Fault::Kind::kWarpBarrier, "no warp barrier");
    CHECK(tally.size() == places);
    CHECK(emulator_test::never_found(tally) == 0);
  }
}

TEST_CASE("mutants: a missing wait for copies is found") {
  for (const int instance : {kDecode, kRecent, kPrefill}) {
    const auto tally = leave_out_each(instance, Fault::Kind::kCopyWait, "no wait");
    CHECK(tally.size() >= 2);
    CHECK(emulator_test::never_found(tally) <= 1);
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
