// MXFP8 attention on the native kernels of SM120 and gfx950, whose keys enter the matrix core as they lie: all three scales, and the
// double-precision reference. The grids are test_sm120.cpp's and test_gfx950.cpp's.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/dense/fixture.hpp"
#include "tests/emulator/gfx950_instances.hpp"
#include "tests/emulator/sm120_instances.hpp"

using namespace dense_test;
using namespace fp4pa;

namespace {

/// A kernel, and twice what was measured of it in this file.
struct Kernel {
  const char* name;
  const emulator_test::Emulation* emulation;
  int instance;
  std::int32_t head_dim;
  double o, lse;
  bool exact_weight;  // V's scales are multiplied into P exactly
  double worst_o = 0.0, worst_lse = 0.0;
};

/// The native instance for MXFP8 with this head_dim whose warps divide what is asked for.
template <class Rows>
constexpr int find(const Rows& rows, std::int32_t head_dim, core::WarpsDivide divide) {
  int i = 0;
  for (const core::SimtConfig& c : rows) {
    if (c.k[0] == core::KvKind::kMxfp8 && c.head_dim == head_dim && c.divide == divide) return i;
    ++i;
  }
  return -1;
}
constexpr int on_sm120(std::int32_t head_dim, core::WarpsDivide divide) { return find(sm120::kInstances, head_dim, divide); }
constexpr int on_gfx950(std::int32_t head_dim, core::WarpsDivide divide) { return find(hip::kInstances, head_dim, divide); }
constexpr auto kKeys = core::WarpsDivide::kKeys;
constexpr auto kRows = core::WarpsDivide::kRows;
static_assert(hip::is_native(hip::kInstances[on_gfx950(128, kKeys)]) && hip::is_native(hip::kInstances[on_gfx950(256, kRows)]));

// SM120's few-row kernels have P in f16, relative to the largest scale of V that was met; all others in bf16.
Kernel kernels[] = {
    {"SM120, 64, decode", &emulator_test::kSm120, on_sm120(64, kKeys), 64, 4e-4, 4.5e-5, false},
    {"SM120, 64, prefill", &emulator_test::kSm120, on_sm120(64, kRows), 64, 3.3e-3, 4.5e-5, true},
    {"SM120, 128, decode", &emulator_test::kSm120, on_sm120(128, kKeys), 128, 4e-4, 4.5e-5, false},
    {"SM120, 128, prefill", &emulator_test::kSm120, on_sm120(128, kRows), 128, 3.3e-3, 4.5e-5, true},
    {"gfx950, 64, decode", &emulator_test::kGfx950, on_gfx950(64, kKeys), 64, 3.3e-3, 4.5e-5, true},
    {"gfx950, 64, prefill", &emulator_test::kGfx950, on_gfx950(64, kRows), 64, 3.3e-3, 4.5e-5, true},
    {"gfx950, 128, decode", &emulator_test::kGfx950, on_gfx950(128, kKeys), 128, 3.3e-3, 4.5e-5, true},
    {"gfx950, 128, prefill", &emulator_test::kGfx950, on_gfx950(128, kRows), 128, 3.3e-3, 4.5e-5, true},
    {"gfx950, 256", &emulator_test::kGfx950, on_gfx950(256, kRows), 256, 3.5e-3, 4.5e-5, true},
};

void check(Kernel& kernel, const Error& error) {
  INFO(std::string(kernel.name));
  CHECK(error.o <= kernel.o);
  CHECK(error.lse <= kernel.lse);
  kernel.worst_o = std::max(kernel.worst_o, error.o);
  kernel.worst_lse = std::max(kernel.worst_lse, error.lse);
}

/// The values of codes without their scales.
Values codes_of(const Mxfp8Data& x) {
  Values values(x.elements);
  for (std::size_t i = 0; i < x.elements; ++i) values[i] = reference::decode_e4m3(x.codes.data()[i]);
  return values;
}

/// Runs a call on a kernel.
Status run(const Kernel& kernel, Mxfp8Call& call) {
  INFO(std::string(kernel.name));
  const emulator_test::ScopedSetup restored;
  emulator_test::current.emulation = kernel.emulation;
  emulator_test::current.instance = kernel.instance;
  emulator_test::current.planned = -1;
  call.config.decode = Mxfp8Decode::kPerTile;
  const Status status = call.run("cuda");
  CHECK(emulator_test::current.planned == kernel.instance);
  return status;
}

Shape ragged(const Kernel& kernel, bool causal) {
  return {{5, 1, 70, 33}, {37, 1, 70, 130}, 4, 2, kernel.head_dim, causal, 0.11f};
}

}  // namespace

TEST_CASE("native mxfp8: against the double-precision reference") {
  for (Kernel& kernel : kernels) {
    for (const bool causal : {false, true}) {
      for (const int spread : {1, 3}) {
        Mxfp8Call call(ragged(kernel, causal), 5, -spread, spread);
        REQUIRE(run(kernel, call) == Status::kOk);
        check(kernel, call.out.error(call.want()));
      }
    }
  }
}

TEST_CASE("native mxfp8: a uniform scale of Q or K is the same change of sm_scale, bit for bit") {
  for (Kernel& kernel : kernels) {
    for (const int log2 : {-5, 1, 4}) {
      for (const bool on_keys : {false, true}) {
        Mxfp8Call call(ragged(kernel, true));
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

TEST_CASE("native mxfp8: scales of one are no scales, and scales of Q and K that cancel are none either, bit for bit") {
  for (Kernel& kernel : kernels) {
    for (const bool causal : {false, true}) {
      Mxfp8Call call(ragged(kernel, causal));
      for (Mxfp8Data* x : {&call.q, &call.k, &call.v}) x->set_scales(0);
      REQUIRE(run(kernel, call) == Status::kOk);
      const std::vector<std::uint8_t> bits = call.out.bits();
      check(kernel, call.out.error(answer(call.shape, codes_of(call.q), codes_of(call.k), codes_of(call.v))));
      call.q.set_scales(6);
      call.k.set_scales(-6);
      REQUIRE(run(kernel, call) == Status::kOk);
      INFO(std::string(kernel.name));
      CHECK(bits == call.out.bits());
    }
  }
}

TEST_CASE("native mxfp8: a uniform scale of V scales O") {
  for (Kernel& kernel : kernels) {
    Mxfp8Call call(ragged(kernel, false));
    call.v.set_scales(0);
    REQUIRE(run(kernel, call) == Status::kOk);
    Values before;
    for (std::size_t i = 0; i < call.q.elements; ++i) before.push_back(call.out.value(i));
    call.v.set_scales(3);
    REQUIRE(run(kernel, call) == Status::kOk);
    std::int64_t wrong = 0;
    reference::Difference scaled;
    for (std::size_t i = 0; i < before.size(); ++i) {
      wrong += call.out.value(i) != 8.0 * before[i];
      scaled.add(call.out.value(i), 8.0 * before[i]);
    }
    INFO(std::string(kernel.name));
    // An f16 probability next to one of 1 is rounded by 2^-25 of it where it is subnormal, by 2^-12 of itself elsewhere.
    if (kernel.exact_weight) CHECK(wrong == 0);
    CHECK(scaled.relative() <= 2e-7);
  }
}

TEST_CASE("native mxfp8: varying scales equal prescaled data") {
  // Codes whose values times any of the scales are E4M3 again: the same numbers with every scale 1.
  for (Kernel& kernel : kernels) {
    Mxfp8Call call(ragged(kernel, true));
    test::Random random(5);
    for (Mxfp8Data* x : {&call.q, &call.k, &call.v}) x->fill_exact(random);
    REQUIRE(run(kernel, call) == Status::kOk);
    Values o;
    for (std::size_t i = 0; i < call.q.elements; ++i) o.push_back(call.out.value(i));
    const std::vector<float> lse = call.out.lse;
    for (Mxfp8Data* x : {&call.q, &call.k, &call.v}) REQUIRE(x->fold_scales() == 0);
    REQUIRE(run(kernel, call) == Status::kOk);
    const Error error = call.out.error({o, Values(lse.begin(), lse.end())});
    INFO(std::string(kernel.name), " O ", error.o, " LSE ", error.lse);
    CHECK(error.lse <= 1e-5);  // the contract's is 1e-3
    CHECK(error.o <= kernel.o);
  }
}

TEST_CASE("native mxfp8: equal sequences and equal heads give equal bits") {
  for (Kernel& kernel : kernels) {
    const auto dim = static_cast<std::size_t>(kernel.head_dim);
    Mxfp8Call call({{33, 33}, {70, 70}, 4, 2, kernel.head_dim, true, 0.0f});
    call.config.batch_invariant = true;
    // Sequence 0, head 0 everywhere.
    for (Mxfp8Data* x : {&call.q, &call.k, &call.v}) {
      const std::size_t heads = x == &call.q ? 4 : 2;
      const std::size_t tokens = x == &call.q ? 33 : 70;
      for (std::size_t row = 0; row < 2 * tokens * heads; ++row) {
        const std::size_t from = row / heads % tokens * heads;
        if (row == from) continue;
        std::memcpy(x->codes.data() + row * dim, x->codes.data() + from * dim, dim);
        std::memcpy(x->scales.data() + row * dim / 32, x->scales.data() + from * dim / 32, dim / 32);
      }
    }
    REQUIRE(run(kernel, call) == Status::kOk);
    std::int64_t wrong = 0;
    for (std::size_t row = 0; row < 66 * 4; ++row) {
      const std::size_t first = row / 4 % 33 * 4;
      wrong += std::memcmp(call.out.o.data() + row * dim * 4, call.out.o.data() + first * dim * 4, dim * 4) != 0;
      wrong += call.out.lse[row] != call.out.lse[first];
    }
    INFO(std::string(kernel.name));
    CHECK(wrong == 0);
  }
}

TEST_CASE("native mxfp8: every group's scale of Q, K and V is applied") {
  for (Kernel& kernel : kernels) {
    const auto groups = static_cast<std::size_t>(kernel.head_dim / 32);
    Mxfp8Call call({{3}, {40}, 1, 1, kernel.head_dim, false, 0.0f}, 1, -3, -2);  // logits so small that every key counts
    REQUIRE(run(kernel, call) == Status::kOk);
    const std::vector<float> lse = call.out.lse;
    for (std::size_t group = 0; group < groups; ++group) {
      call.v.scales.data()[17 * groups + group] += 2;
      REQUIRE(run(kernel, call) == Status::kOk);
      CHECK(call.out.lse == lse);
      check(kernel, call.out.error(call.want()));
    }
    for (const bool key : {false, true}) {
      for (std::size_t group = 0; group < groups; ++group) {
        Mxfp8Data& x = key ? call.k : call.q;
        const float before = call.out.lse[1];
        x.scales.data()[1 * groups + group] += 3;
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
      Mxfp8Call call(ragged(kernel, causal), 3, 10, 10);
      REQUIRE(run(kernel, call) == Status::kOk);
      CHECK(call.out.error(call.want()).o <= kernel.o);
      for (const float x : call.out.lse) CHECK(std::isfinite(x));
    }
  }
}

TEST_CASE("native mxfp8: left to choose, many query rows go to the native kernel and decode nothing beforehand") {
  const emulator_test::ScopedSetup restored;
  emulator_test::current.emulation = &emulator_test::kGfx950;
  for (const std::int32_t head_dim : {64, 128, 256}) {
    CAPTURE(head_dim);
    Mxfp8Call call({{64}, {64}, 4, 2, head_dim, true, 0.0f});
    REQUIRE(call.run("cuda") == Status::kOk);
    CHECK(call.plan.decode() == Mxfp8Decode::kPerTile);
    CHECK(emulator_test::current.planned == on_gfx950(head_dim, kRows));
  }
  // It has no such kernel at another head_dim, and a kernel for everything.
  Mxfp8Call other({{64}, {64}, 4, 2, 96, true, 0.0f});
  REQUIRE(other.run("cuda") == Status::kOk);
  CHECK(other.plan.decode() == Mxfp8Decode::kOnce);

  emulator_test::current.emulation = &emulator_test::kSm120;
  for (const std::int32_t head_dim : {64, 128}) {
    CAPTURE(head_dim);
    Mxfp8Call call({{64}, {64}, 4, 2, head_dim, true, 0.0f});
    REQUIRE(call.run("cuda") == Status::kOk);
    CHECK(call.plan.decode() == Mxfp8Decode::kPerTile);
    CHECK(emulator_test::current.planned == on_sm120(head_dim, kRows));
  }
}

TEST_CASE("native mxfp8: the worst of this file, against its bounds") {
  for (const Kernel& kernel : kernels) {
    std::printf("  %-20s mxfp8: O %.2e (bound %.1e), LSE %.2e (bound %.1e)\n", kernel.name, kernel.worst_o, kernel.o,
                kernel.worst_lse, kernel.lse);
    CHECK(kernel.worst_o > 0.0);  // that it ran
  }
}
