// MXFP8 attention on the native kernels of SM120 and gfx950, whose keys enter the matrix core as they lie: all three scales, and the
// double-precision reference. The grids are test_sm120.cpp's and test_gfx950.cpp's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/dense/fixture.hpp"
#include "tests/emulator/gfx950_instances.hpp"
#include "tests/emulator/sm120_instances.hpp"

using namespace dense_test;
using namespace fp4pa;

namespace {

/// A kernel, and twice what was measured of it in this file: SM120 2.0e-4 and 2.2e-5, gfx950 1.6e-3 and 2.2e-5.
struct Kernel {
  const char* name;
  const emulator_test::Emulation* emulation;
  int instance;
  double o, lse;
  double worst_o = 0.0, worst_lse = 0.0;
};

/// The first native instance for MXFP8 whose warps divide what is asked for.
template <class Rows>
constexpr int find(const Rows& rows, core::WarpsDivide divide) {
  int i = 0;
  for (const core::SimtConfig& c : rows) {
    if (c.k[0] == core::KvKind::kMxfp8 && c.divide == divide) return i;
    ++i;
  }
  return -1;
}
constexpr int kGfxDecode = find(hip::kInstances, core::WarpsDivide::kKeys);
constexpr int kGfxPrefill = find(hip::kInstances, core::WarpsDivide::kRows);
static_assert(hip::is_native(hip::kInstances[kGfxDecode]) && hip::is_native(hip::kInstances[kGfxPrefill]));

Kernel kernels[] = {
    {"SM120, decode", &emulator_test::kSm120, find(sm120::kInstances, core::WarpsDivide::kKeys), 4e-4, 4.5e-5},
    {"gfx950, decode", &emulator_test::kGfx950, kGfxDecode, 3.3e-3, 4.5e-5},  // P in bf16
    {"gfx950, prefill", &emulator_test::kGfx950, kGfxPrefill, 3.3e-3, 4.5e-5},
};

void check(Kernel& kernel, const Error& error) {
  INFO(std::string(kernel.name));
  CHECK(error.o <= kernel.o);
  CHECK(error.lse <= kernel.lse);
  kernel.worst_o = std::max(kernel.worst_o, error.o);
  kernel.worst_lse = std::max(kernel.worst_lse, error.lse);
}

/// Runs a call on a kernel.
Status run(const Kernel& kernel, Mxfp8Call& call) {
  INFO(std::string(kernel.name));
  const emulator_test::Setup before = emulator_test::current;
  emulator_test::current.emulation = kernel.emulation;
  emulator_test::current.instance = kernel.instance;
  emulator_test::current.planned = -1;
  call.config.decode = Mxfp8Decode::kPerTile;
  const Status status = call.run("cuda");
  CHECK(emulator_test::current.planned == kernel.instance);
  emulator_test::current = before;
  return status;
}

Shape ragged(bool causal) { return {{5, 1, 70, 33}, {37, 1, 70, 130}, 4, 2, 128, causal, 0.11f}; }

}  // namespace

TEST_CASE("native mxfp8: against the double-precision reference") {
  for (Kernel& kernel : kernels) {
    for (const bool causal : {false, true}) {
      for (const int spread : {1, 3}) {
        Mxfp8Call call(ragged(causal), 5, -spread, spread);
        REQUIRE(run(kernel, call) == Status::kOk);
        check(kernel, call.out.error(call.want()));
      }
    }
    std::printf("  %s, mxfp8 against the reference: O %.2e, LSE %.2e\n", kernel.name, kernel.worst_o, kernel.worst_lse);
  }
}

TEST_CASE("native mxfp8: a uniform scale of Q or K is the same change of sm_scale, bit for bit") {
  for (Kernel& kernel : kernels) {
    for (const int log2 : {-5, 1, 4}) {
      for (const bool on_keys : {false, true}) {
        Mxfp8Call call(ragged(true));
        (on_keys ? call.k : call.q).set_scales(log2);
        REQUIRE(run(kernel, call) == Status::kOk);
        const std::vector<std::uint8_t> bits = call.out.bits();
        (on_keys ? call.k : call.q).set_scales(0);
        call.config.sm_scale = std::ldexp(0.11f, log2);
        REQUIRE(run(kernel, call) == Status::kOk);
        CAPTURE(on_keys);
        CAPTURE(log2);
        CHECK(bits == call.out.bits());
      }
    }
  }
}

TEST_CASE("native mxfp8: every group's scale of Q, K and V is applied") {
  for (Kernel& kernel : kernels) {
    Mxfp8Call call({{3}, {40}, 1, 1, 128, false, 0.0f}, 1, -3, -2);  // logits so small that every key counts
    REQUIRE(run(kernel, call) == Status::kOk);
    const std::vector<float> lse = call.out.lse;
    for (std::size_t group = 0; group < 4; ++group) {
      call.v.scales.data()[17 * 4 + group] += 2;
      REQUIRE(run(kernel, call) == Status::kOk);
      CHECK(call.out.lse == lse);
      check(kernel, call.out.error(call.want()));
    }
    for (const bool key : {false, true}) {
      for (std::size_t group = 0; group < 4; ++group) {
        Mxfp8Data& x = key ? call.k : call.q;
        const float before = call.out.lse[1];
        x.scales.data()[1 * 4 + group] += 3;
        REQUIRE(run(kernel, call) == Status::kOk);
        CHECK(call.out.lse[1] != before);
        check(kernel, call.out.error(call.want()));
      }
    }
  }
}

TEST_CASE("native mxfp8: scales of 2^10 stay finite") {
  for (Kernel& kernel : kernels) {
    for (const bool causal : {false, true}) {
      Mxfp8Call call(ragged(causal), 3, 10, 10);
      REQUIRE(run(kernel, call) == Status::kOk);
      CHECK(call.out.error(call.want()).o <= kernel.o);
      for (const float x : call.out.lse) CHECK(std::isfinite(x));
    }
  }
}

TEST_CASE("native mxfp8: left to choose, many query rows go to the native kernel and decode nothing beforehand") {
  const emulator_test::Setup before = emulator_test::current;
  emulator_test::current.emulation = &emulator_test::kGfx950;
  Mxfp8Call call({{64}, {64}, 4, 2, 128, true, 0.0f});
  REQUIRE(call.run("cuda") == Status::kOk);
  CHECK(call.plan.decode() == Mxfp8Decode::kPerTile);
  CHECK(emulator_test::current.planned == kGfxPrefill);
  // It has no such kernel at another head_dim, and a kernel for everything.
  Mxfp8Call other({{64}, {64}, 4, 2, 64, true, 0.0f});
  REQUIRE(other.run("cuda") == Status::kOk);
  CHECK(other.plan.decode() == Mxfp8Decode::kOnce);
  emulator_test::current = before;
}
