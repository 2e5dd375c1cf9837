// MXFP8 attention on SM120's native kernel, whose keys enter the matrix core as they lie: all three scales, and the
// double-precision reference. The grid is test_sm120.cpp's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>

#include "tests/dense/fixture.hpp"
#include "tests/emulator/sm120_instances.hpp"

using namespace dense_test;
using namespace fp4pa;

namespace {

constexpr int kInstance = 7;
static_assert(sm120::kInstances[kInstance].k[0] == core::KvKind::kMxfp8);

// Twice what was measured: the worst of this file is 2.0e-4 and 2.2e-5.
constexpr double kO = 4e-4, kLse = 4.5e-5;
double worst_o = 0.0, worst_lse = 0.0;

void check(const Error& error) {
  CHECK(error.o <= kO);
  CHECK(error.lse <= kLse);
  worst_o = std::max(worst_o, error.o);
  worst_lse = std::max(worst_lse, error.lse);
}

/// Runs a call on the native kernel.
Status run(Mxfp8Call& call) {
  const emulator_test::Setup before = emulator_test::current;
  emulator_test::current.emulation = &emulator_test::kSm120;
  emulator_test::current.planned = -1;
  call.config.decode = Mxfp8Decode::kPerTile;
  const Status status = call.run("cuda");
  CHECK(emulator_test::current.planned == kInstance);
  emulator_test::current = before;
  return status;
}

Shape ragged(bool causal) { return {{5, 1, 70, 33}, {37, 1, 70, 130}, 4, 2, 128, causal, 0.11f}; }

}  // namespace

TEST_CASE("SM120 mxfp8: against the double-precision reference") {
  for (const bool causal : {false, true}) {
    for (const int spread : {1, 3}) {
      Mxfp8Call call(ragged(causal), 5, -spread, spread);
      REQUIRE(run(call) == Status::kOk);
      check(call.out.error(call.want()));
    }
  }
  std::printf("  SM120 mxfp8 against the reference: O %.2e, LSE %.2e\n", worst_o, worst_lse);
}

TEST_CASE("SM120 mxfp8: a uniform scale of Q or K is the same change of sm_scale, bit for bit") {
  for (const int log2 : {-5, 1, 4}) {
    for (const bool on_keys : {false, true}) {
      Mxfp8Call call(ragged(true));
      (on_keys ? call.k : call.q).set_scales(log2);
      REQUIRE(run(call) == Status::kOk);
      const std::vector<std::uint8_t> bits = call.out.bits();
      (on_keys ? call.k : call.q).set_scales(0);
      call.config.sm_scale = std::ldexp(0.11f, log2);
      REQUIRE(run(call) == Status::kOk);
      CAPTURE(on_keys);
      CAPTURE(log2);
      CHECK(bits == call.out.bits());
    }
  }
}

TEST_CASE("SM120 mxfp8: every group's scale of Q, K and V is applied") {
  Mxfp8Call call({{3}, {40}, 1, 1, 128, false, 0.0f}, 1, -3, -2);  // logits so small that every key counts
  REQUIRE(run(call) == Status::kOk);
  const std::vector<float> lse = call.out.lse;
  for (std::size_t group = 0; group < 4; ++group) {
    call.v.scales.data()[17 * 4 + group] += 2;
    REQUIRE(run(call) == Status::kOk);
    CHECK(call.out.lse == lse);
    check(call.out.error(call.want()));
  }
  for (const bool key : {false, true}) {
    for (std::size_t group = 0; group < 4; ++group) {
      Mxfp8Data& x = key ? call.k : call.q;
      const float before = call.out.lse[1];
      x.scales.data()[1 * 4 + group] += 3;
      REQUIRE(run(call) == Status::kOk);
      CHECK(call.out.lse[1] != before);
      check(call.out.error(call.want()));
    }
  }
}

TEST_CASE("SM120 mxfp8: scales of 2^10 stay finite") {
  for (const bool causal : {false, true}) {
    Mxfp8Call call(ragged(causal), 3, 10, 10);
    REQUIRE(run(call) == Status::kOk);
    CHECK(call.out.error(call.want()).o <= kO);
    for (const float x : call.out.lse) CHECK(std::isfinite(x));
  }
}
