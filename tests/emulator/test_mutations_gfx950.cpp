// Faults planted in gfx950's scaled products: scales of the wrong lane or byte, accumulators in the wrong places.
#include <cstdio>
#include <string>
#include <utility>

#include "tests/emulator/gfx950_instances.hpp"
#include "tests/emulator/mutants.hpp"

namespace {

using namespace fp4pa;
using core::KvKind;
using emulator_test::Fault;
using Instances = emulator_test::Gfx950Instances<gfx950::ValueReads::kColumns16>;
using Mutant = emulator_test::MutantExec<emulator::Gfx950Exec>;

/// The first decoding instance with both products native at head_dim 128.
constexpr int kNative = [] {
  for (int i = 0; i < Instances::kCount; ++i) {
    const core::SimtConfig& c = Instances::config(i);
    if (hip::is_native(c) && c.k[0] == KvKind::kMxfp4 && c.v[0] == KvKind::kMxfp4Tokens && c.head_dim == 128 &&
        !core::divides_rows(c)) {
      return i;
    }
  }
  return -1;
}();
static_assert(kNative >= 0);

constexpr emulator_test::Emulation kMutants = emulator_test::emulation_of<Instances, Mutant, kNative>("gfx950 with a fault");

emulator_test::Verdict run(Fault fault) {
  return emulator_test::run_mutant<Mutant>(kMutants, kNative, fault, {4e-2, 4e-2});
}

}  // namespace

TEST_CASE("mutants, gfx950: wrong scales and misplaced accumulators are found") {
  struct Planted {
    Fault::Kind kind;
    const char* what;
  };
  const emulator_test::Verdict control = run({});
  CHECK(control.text == "");
  CHECK_FALSE(control.by_error);
  for (const Planted& p : {Planted{Fault::Kind::kSwappedScaleA, "neighbours' scales of A"},
                           Planted{Fault::Kind::kSwappedScaleB, "neighbours' scales of B"},
                           Planted{Fault::Kind::kWrongByteA, "the next byte of A's scales"},
                           Planted{Fault::Kind::kWrongByteB, "the next byte of B's scales"},
                           Planted{Fault::Kind::kTransposedC, "transposed accumulators"},
                           Planted{Fault::Kind::kSwappedC, "exchanged accumulators"}}) {
    const emulator_test::Verdict v = run({p.kind, 0});
    std::printf("  gfx950, native MXFP4: %s: error %.2e\n", p.what, v.error);
    CAPTURE(std::string(p.what));
    CHECK(v.by_error);
  }
}

TEST_CASE("mutants, gfx950: a missing warp barrier or wait is found") {
  for (const auto& [kind, what] : {std::pair{Fault::Kind::kWarpBarrier, "gfx950, no warp barrier"},
                                   std::pair{Fault::Kind::kCopyWait, "gfx950, no wait"}}) {
    const auto tally = emulator_test::leave_out_each<Mutant>(what, kind, 1, [](Fault fault) { return run(fault); });
    CHECK(tally.size() >= 2);
    // The wait in open() is idle, see test_mutations.cpp. So is the barrier before a tile's addresses are written, in an instance of one
    // segment: its last readers copied, and a tile has been waited for since. It is for dims that are reordered in the same scratch, which
    // this instance never does; and the one before a warp's states are stored there, behind those readers.
    CHECK(emulator_test::never_found(tally) <= (kind == Fault::Kind::kWarpBarrier ? 2 : 1));
  }
}
