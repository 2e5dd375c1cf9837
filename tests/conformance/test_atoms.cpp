// Every atom's traits against the model of its instruction: pack by the traits, execute by the ISA tables, unpack by
// the traits.
#include <doctest/doctest.h>

#include "tests/conformance/atoms_under_test.hpp"
#include "tests/conformance/checks.hpp"

namespace fp4pa::conformance {
namespace {

template <class Atom>
void expect_conforms(const char* name) {
  ModelExecutor<Atom> executor;
  CHECK_MESSAGE(check_all<Atom>(executor, name) == Failure{}, name);
}

/// The model lane by lane, as a device computes it that has the instruction in software (tests/gpu/sm120); it must have execute()'s
/// bits.
template <class T>
struct LaneExecutor {
  using Atom = T;
  static constexpr double kTolerance = ModelExecutor<Atom>::kTolerance;
  long long total = 0;
  long long different = 0;

  void run(Selects select, std::span<const Inputs<Atom>> in, std::span<Outputs<Atom>> out) {
    using Model = typename emulator::isa::ModelOf<Atom>::Type;
    const emulator::isa::Selectors selectors{select.a.byte, select.a.thread, select.b.byte, select.b.thread};
    std::vector<Outputs<Atom>> model(out.size());
    ModelExecutor<Atom>{}.run(select, in, model);
    for (std::size_t i = 0; i < in.size(); ++i) {
      for (int lane = 0; lane < Atom::kLanes; ++lane) {
        emulator::isa::execute_lane<Model>(lane, in[i].a, in[i].b, in[i].c[lane], in[i].sfa, in[i].sfb, selectors, out[i].d[lane]);
        for (int v = 0; v < Atom::kValuesC; ++v, ++total) {
          const float x = out[i].d[lane][v];
          const float y = model[i].d[lane][v];
          different += std::memcmp(&x, &y, sizeof x) == 0 || (std::isnan(x) && std::isnan(y)) ? 0 : 1;
        }
      }
    }
  }
};
template <class Atom>
void expect_lanes_agree(const char* name) {
  LaneExecutor<Atom> executor;
  double worst = 0.0;
  CHECK_MESSAGE(check_random<Atom>(executor, 50, &worst) == Failure{}, name);
  if constexpr (core::kIsScaled<Atom>) CHECK_MESSAGE(check_scales<Atom>(executor) == Failure{}, name);
  CHECK(executor.total > 0);
  CHECK_MESSAGE(executor.different == 0, name);
}

TEST_CASE("what a lane computes alone is its part of the product, bit for bit") {
  expect_lanes_agree<Sm80F16>("sm80 f16");
  expect_lanes_agree<Sm80Bf16>("sm80 bf16");
  expect_lanes_agree<Sm120Fp8Fp4>("sm120 e4m3 e2m1");
  expect_lanes_agree<Sm120Fp4Fp8>("sm120 e2m1 e4m3");
  expect_lanes_agree<Sm120Fp8Fp8>("sm120 e4m3 e4m3");
  expect_lanes_agree<Sm120Mxf4>("sm120 mxf4");
  expect_lanes_agree<Sm120Nvf4>("sm120 mxf4nvf4 ue4m3");
  expect_lanes_agree<Sm120Nvf4Ue8m0>("sm120 mxf4nvf4 ue8m0");
}

TEST_CASE("sm80 atoms conform") {
  expect_conforms<Sm80F16>("sm80 mma.m16n8k16 f16");
  expect_conforms<Sm80Bf16>("sm80 mma.m16n8k16 bf16");
}

TEST_CASE("sm120 atoms conform") {
  expect_conforms<Sm120Fp8Fp4>("sm120 mxf8f6f4.m16n8k32 e4m3 e2m1 1X");
  expect_conforms<Sm120Fp4Fp8>("sm120 mxf8f6f4.m16n8k32 e2m1 e4m3 1X");
  expect_conforms<Sm120Fp8Fp8>("sm120 mxf8f6f4.m16n8k32 e4m3 e4m3 1X");
  expect_conforms<Sm120Mxf4>("sm120 mxf4.m16n8k64 2X ue8m0");
  expect_conforms<Sm120Nvf4>("sm120 mxf4nvf4.m16n8k64 4X ue4m3");
  expect_conforms<Sm120Nvf4Ue8m0>("sm120 mxf4nvf4.m16n8k64 2X ue8m0");
}

TEST_CASE("gfx942 atoms conform") {
  expect_conforms<Gfx942Fp8>("gfx942 mfma 16x16x32 fp8 fp8");
  expect_conforms<Gfx942F16>("gfx942 mfma 16x16x16 f16");
  expect_conforms<Gfx942Bf16>("gfx942 mfma 16x16x16 bf16");
}

TEST_CASE("gfx950 16x16x32 atoms conform") {
  expect_conforms<Gfx950F16>("gfx950 mfma 16x16x32 f16");
  expect_conforms<Gfx950Bf16>("gfx950 mfma 16x16x32 bf16");
}

TEST_CASE("gfx950 16x16x128 atoms conform") {
  expect_conforms<Gfx950Square16<E4M3, E2M1>>("gfx950 mfma_scale 16x16x128 e4m3 e2m1");
  expect_conforms<Gfx950Square16<E2M1, E4M3>>("gfx950 mfma_scale 16x16x128 e2m1 e4m3");
  expect_conforms<Gfx950Square16<E2M1, E2M1>>("gfx950 mfma_scale 16x16x128 e2m1 e2m1");
  expect_conforms<Gfx950Square16<E4M3, E4M3>>("gfx950 mfma_scale 16x16x128 e4m3 e4m3");
}

TEST_CASE("gfx950 32x32x64 atoms conform") {
  expect_conforms<Gfx950Square32<E4M3, E2M1>>("gfx950 mfma_scale 32x32x64 e4m3 e2m1");
  expect_conforms<Gfx950Square32<E2M1, E4M3>>("gfx950 mfma_scale 32x32x64 e2m1 e4m3");
  expect_conforms<Gfx950Square32<E2M1, E2M1>>("gfx950 mfma_scale 32x32x64 e2m1 e2m1");
  expect_conforms<Gfx950Square32<E4M3, E4M3>>("gfx950 mfma_scale 32x32x64 e4m3 e4m3");
}

/// The literal numbers, so that the cases do not depend on the reference either.
template <class Atom>
float sum_of_ones(float scale_a, float scale_b) {
  Matrices<Atom> m;
  for (auto& row : m.a) {
    for (auto& x : row) x = core::value_code<typename Atom::ElementA>(1.0f);
  }
  for (auto& col : m.b) {
    for (auto& x : col) x = core::value_code<typename Atom::ElementB>(1.0f);
  }
  for (auto& row : m.sfa) {
    for (auto& s : row) s = static_cast<std::uint8_t>(core::value_code<typename Atom::Scale>(scale_a));
  }
  for (auto& col : m.sfb) {
    for (auto& s : col) s = static_cast<std::uint8_t>(core::value_code<typename Atom::Scale>(scale_b));
  }
  ModelExecutor<Atom> executor;
  const auto d = multiply<Atom>(executor, {m}, {}, {}).front();
  for (float x : d) {
    if (x != d.front()) return -1.0f;
  }
  return d.front();
}

TEST_CASE("all ones: 32, 128 and 256 from a single instruction") {
  CHECK(sum_of_ones<Sm120Fp8Fp4>(1, 1) == 32.0f);
  CHECK(sum_of_ones<Sm120Fp8Fp8>(2, 2) == 128.0f);
  CHECK(sum_of_ones<Sm120Mxf4>(1, 1) == 64.0f);
  CHECK(sum_of_ones<Sm120Mxf4>(2, 1) == 128.0f);
  CHECK(sum_of_ones<Sm120Nvf4>(1, 2) == 128.0f);
  CHECK(sum_of_ones<Sm120Nvf4>(2, 2) == 256.0f);
  CHECK(sum_of_ones<Sm120Nvf4>(1.5f, 2) == 192.0f);
  CHECK(sum_of_ones<Gfx950Square16<E2M1, E4M3>>(1, 1) == 128.0f);
  CHECK(sum_of_ones<Gfx950Square16<E2M1, E2M1>>(1, 2) == 256.0f);
  CHECK(sum_of_ones<Gfx950Square32<E4M3, E2M1>>(2, 2) == 256.0f);
}

}  // namespace
}  // namespace fp4pa::conformance
