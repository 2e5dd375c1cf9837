// Faults planted in SM120's block-scaled products: scales of the wrong lane or byte, accumulators in the wrong places.
#include <cstdio>
#include <string>
#include <utility>

#include "tests/emulator/mutants.hpp"
#include "tests/emulator/sm120_instances.hpp"

namespace {

using namespace fp4pa;
using core::KvKind;
using emulator_test::Fault;
using emulator_test::Sm120Instances;
using Mutant = emulator_test::MutantExec<emulator::Sm120Exec>;

/// The first decoding instance of these formats at head_dim 128.
constexpr int find(KvKind k, KvKind v) {
  for (int i = 0; i < Sm120Instances::kCount; ++i) {
    const core::SimtConfig& c = Sm120Instances::config(i);
    if (c.k[0] == k && c.v[0] == v && c.head_dim == 128 && c.segments == 1 && !core::divides_rows(c)) return i;
  }
  return -1;
}
constexpr int kMxfp4 = find(KvKind::kMxfp4, KvKind::kMxfp4Tokens), kNvfp4 = find(KvKind::kNvfp4, KvKind::kNvfp4);
constexpr int kNvfp4Tokens = find(KvKind::kNvfp4, KvKind::kNvfp4Tokens);
/// NVFP4 along tokens with many rows: the block shares the stages.
constexpr int kManyRows = [] {
  for (int i = 0; i < Sm120Instances::kCount; ++i) {
    const core::SimtConfig& c = Sm120Instances::config(i);
    if (c.v[0] == KvKind::kNvfp4Tokens && c.head_dim == 128 && core::divides_rows(c)) return i;
  }
  return -1;
}();
/// Prefill of MXFP8: the block decodes V.
constexpr int kPrefill = [] {
  for (int i = 0; i < Sm120Instances::kCount; ++i) {
    const core::SimtConfig& c = Sm120Instances::config(i);
    if (c.decode_tiles && c.k[0] == KvKind::kMxfp8 && c.head_dim == 128) return i;
  }
  return -1;
}();
static_assert(kMxfp4 >= 0 && kNvfp4 >= 0 && kNvfp4Tokens >= 0 && kManyRows >= 0 && kPrefill >= 0);

constexpr emulator_test::Emulation kMutants =
    emulator_test::emulation_of<Sm120Instances, Mutant, kMxfp4, kNvfp4, kNvfp4Tokens, kManyRows, kPrefill>("SM120 with a fault");

emulator_test::Verdict run(int instance, Fault fault) {
  const bool bf16 = grid::has_bf16_operands(emulator_test::mutant_case(kMutants, instance));
  return emulator_test::run_mutant<Mutant>(kMutants, instance, fault, {bf16 ? 8e-3 : 2e-3, 1e-3});
}

const char* name_of(int instance) {
  if (instance == kPrefill) return "MXFP8, prefill";
  if (instance == kManyRows) return "NVFP4, V along tokens, prefill";
  return instance == kMxfp4 ? "MXFP4" : instance == kNvfp4 ? "NVFP4" : "NVFP4, V along tokens";
}

}  // namespace

TEST_CASE("mutants, SM120: wrong scales and misplaced accumulators are found") {
  struct Planted {
    Fault::Kind kind;
    const char* what;
  };
  for (const int instance : {kMxfp4, kNvfp4, kNvfp4Tokens, kManyRows, kPrefill}) {
    const emulator_test::Verdict control = run(instance, {});
    CHECK(control.text == "");
    CHECK_FALSE(control.by_error);
    for (const Planted& p : {Planted{Fault::Kind::kSwappedScaleA, "neighbours' scales of A"},
                             Planted{Fault::Kind::kSwappedScaleB, "neighbours' scales of B"},
                             Planted{Fault::Kind::kWrongByteA, "the next byte of A's scales"},
                             Planted{Fault::Kind::kWrongByteB, "the next byte of B's scales"},
                             Planted{Fault::Kind::kTransposedC, "transposed accumulators"},
                             Planted{Fault::Kind::kSwappedC, "exchanged accumulators"}}) {
      const emulator_test::Verdict v = run(instance, {p.kind, 0});
      std::printf("  SM120, %s: %s: error %.2e\n", name_of(instance), p.what, v.error);
      CAPTURE(std::string(p.what));
      CAPTURE(instance);
      CHECK(v.by_error);
    }
  }
}

TEST_CASE("mutants, SM120: a missing warp barrier or wait is found") {
  for (const auto& [kind, what] : {std::pair{Fault::Kind::kWarpBarrier, "SM120, no warp barrier"},
                                   std::pair{Fault::Kind::kCopyWait, "SM120, no wait"}}) {
    const auto tally = emulator_test::leave_out_each<Mutant>(what, kind, 1, [](Fault fault) { return run(kMxfp4, fault); });
    CHECK(tally.size() >= (kind == Fault::Kind::kCopyWait ? 2 : 1));
    // The wait in open() is idle, see test_mutations.cpp.
    CHECK(emulator_test::never_found(tally) <= (kind == Fault::Kind::kCopyWait ? 1 : 0));
  }
}

TEST_CASE("mutants, SM120: a missing block barrier is found where the block shares the stages") {
  for (const auto& [kind, what] :
       {std::pair{Fault::Kind::kBlockBarrier, "SM120, many rows, no block barrier"},
        std::pair{Fault::Kind::kBlockBarrierOne, "SM120, many rows, one warp not at the block barrier"}}) {
    const auto tally = emulator_test::leave_out_each<Mutant>(what, kind, 1, [](Fault fault) { return run(kManyRows, fault); });
    CHECK(tally.size() >= 2);
    // The one before the loading of a query is idle: a warp's queries and their factors are its own, and the last tile has been released.
    CHECK(emulator_test::never_found(tally) <= (kind == Fault::Kind::kBlockBarrier ? 1 : 0));
  }
}

TEST_CASE("mutants, SM120: a missing block barrier is found where the block decodes V") {
  for (const auto& [kind, what] :
       {std::pair{Fault::Kind::kBlockBarrier, "SM120, prefill, no block barrier"},
        std::pair{Fault::Kind::kBlockBarrierOne, "SM120, prefill, one warp not at the block barrier"}}) {
    const auto tally = emulator_test::leave_out_each<Mutant>(what, kind, 1, [](Fault fault) { return run(kPrefill, fault); });
    CHECK(tally.size() >= 3);
    // The two around the loading of a query are idle here: a warp's queries and their factors are its own, and a tile's stage is free
    // since the block decoded its values.
    CHECK(emulator_test::never_found(tally) <= (kind == Fault::Kind::kBlockBarrier ? 2 : 0));
  }
}
