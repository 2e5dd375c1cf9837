// The product of gfx950 with X of 16 bits as a sum of E4M3 terms beside W of MXFP4 as it lies in memory, lane by lane.
#include <doctest/doctest.h>

#include <cstring>

#include "backends/emulator/gfx950_exec.hpp"
#include "backends/gfx950/gemm_terms.hpp"
#include "tests/emulator/gemm_checks.hpp"
#include "tests/emulator/mutant_exec.hpp"
#include "tests/gemm/far_apart.hpp"

using namespace fp4pa;
using namespace fp4pa::emulator_test;
using gemm_test::FarApart;

namespace {

constexpr ActivationForm kForm = ActivationForm::k16Bit;

template <class Shim>
constexpr EmulatedGemm terms_of(const char* name) {
  return emulated_gemm<Shim>(name, BlockFormat::kMxfp4, XForm::kTerms);
}
template <int kTiles, class E = emulator::Gfx950Exec>
constexpr EmulatedGemm kTerms = terms_of<gfx950::GemmTermsShim<kTiles, E>>("gfx950 MXFP4, X in terms");

using Base = gfx950::GemmTermsShim<2, emulator::Gfx950Exec>;
using Mutant = MutantExec<emulator::Gfx950Exec>;

/// What the terms leave is left out.
struct NoRest : Base {
  template <class... Args>
  static void multiply_rest(Args&&...) {}
};

/// What they leave of another stage.
struct RestOfAnotherStage : Base {
  template <class... Args>
  static void multiply_rest(emulator::Gfx950Exec& exec, std::uint32_t w, const core::GemmScales& w_scales,
                            const core::GemmScales& x_scales, const core::GemmRest& rest, std::int32_t stage, Args&&... args) {
    Base::multiply_rest(exec, w, w_scales, x_scales, rest, stage == 0 ? 1 : stage - 1, args...);
  }
};

/// Scales of X, W or both changed on their way.
template <class Change>
struct ChangedScales : Base {
  using E = emulator::Gfx950Exec;
  static void load_scales(E& exec, const core::GemmScales& w, const core::GemmScales& x, std::int32_t stage,
                          PerLane<Scales>& out) {
    Base::load_scales(exec, w, x, stage, out);
    PerLane<Scales> late;
    Base::load_scales(exec, w, x, stage + 1, late);
    exec.each_lane([&](auto lane) { Change{}(out[lane], late[lane]); });
  }
};
struct LateW {
  void operator()(Base::Scales& now, const Base::Scales& late) const { std::memcpy(now.w, late.w, sizeof now.w); }
};
struct LateX {
  void operator()(Base::Scales& now, const Base::Scales& late) const { std::memcpy(now.x, late.x, sizeof now.x); }
};
/// The first two terms' scales exchanged.
struct ExchangedTerms {
  void operator()(Base::Scales& now, const Base::Scales&) const {
    for (std::uint32_t& word : now.x) word = (word & 0xffff0000u) | (word & 0xffu) << 8 | (word >> 8 & 0xffu);
  }
};
/// The last term taken for the one before it.
struct TermTwice {
  void operator()(Base::Scales& now, const Base::Scales&) const {
    for (std::uint32_t& word : now.x) word = (word & 0xff00ffffu) | (word & 0xff00u) << 8;
  }
};

double worst_far_apart(const EmulatedGemm& kernel, DType x, int high, int low, int weight_scale = 127) {
  FarApart p(x, high, low, weight_scale, "cuda");
  CHECK(run_on(kernel, p) == "");
  CHECK(p.workspace->intact());
  return p.worst();
}

}  // namespace

TEST_CASE("gfx950 gemm, X in terms: a grid of ragged sizes, layouts, types, batches") {
  gemm_grid(kTerms<1>, kForm, 40);
  gemm_grid(kTerms<2>, kForm, 20);
  gemm_grid(kTerms<4>, kForm, 40);
}

TEST_CASE("gfx950 gemm, X in terms: exact sums are exact, a NaN scale of W stays in its row") {
  gemm_exact(kTerms<1>, kForm);
  gemm_exact(kTerms<4>, kForm);
  gemm_nan_scale(kTerms<1>, kForm);
  gemm_nan_scale(kTerms<4>, kForm);
}

TEST_CASE("gfx950 gemm, X in terms: elements far below their group's largest") {
  for (const EmulatedGemm* kernel : {&kTerms<1>, &kTerms<4>}) {
    double worst = 0;
    const auto check = [&](DType x, int high, int low, int weight_scale) {
      CAPTURE(high);
      CAPTURE(low);
      const double error = worst_far_apart(*kernel, x, high, low, weight_scale);
      CHECK(error <= 1.0);
      worst = std::max(worst, error);
    };
    for (int low = 14; low >= -10; low -= 3) check(DType::kF16, 15, low, 127);
    for (int low = 14; low >= -26; low -= 4) check(DType::kBF16, 15, low, 127);
    // Both ends of bf16, and W's scales that bring the sums back.
    check(DType::kBF16, 126, 90, 20);
    check(DType::kBF16, 126, 120, 10);
    check(DType::kBF16, -88, -124, 237);
    check(DType::kBF16, -119, -126, 254);
    std::printf("  %s, %d rows of X a block, far apart: worst error %.3f of the bound\n", kernel->name, kernel->x_rows, worst);
  }
}

TEST_CASE("gfx950 gemm, X in terms: infinities and NaN come out as the double product has them") {
  for (const DType x : {DType::kF16, DType::kBF16}) {
    gemm_test::SpecialX p(x, "cuda");
    CHECK(run_on(kTerms<2>, p) == "");
    CHECK(p.wrong() == 0);
  }
}

TEST_CASE("gfx950 gemm, X in terms: planted faults are found") {
  CHECK_FALSE(gemm_fault_found(kTerms<2>, kForm));
  CHECK(gemm_fault_found(terms_of<ChangedScales<LateW>>("late W"), kForm));
  CHECK(gemm_fault_found(terms_of<ChangedScales<LateX>>("late X"), kForm));
  CHECK(gemm_fault_found(terms_of<ChangedScales<ExchangedTerms>>("exchanged terms"), kForm));
  CHECK(gemm_fault_found(terms_of<ChangedScales<TermTwice>>("term twice"), kForm));
  for (const DType x : {DType::kF16, DType::kBF16}) {
    const int low = x == DType::kF16 ? -8 : -14;
    CHECK(worst_far_apart(terms_of<Base>("whole"), x, 15, low) <= 1.0);
    CHECK(worst_far_apart(terms_of<NoRest>("no rest"), x, 15, low) > 1.0);
    CHECK(worst_far_apart(terms_of<RestOfAnotherStage>("another stage's rest"), x, 15, low) > 1.0);
  }

  using Kind = Fault::Kind;
  const Fault faults[] = {{Kind::kSwappedC, 0},      {Kind::kTransposedC, 0},   {Kind::kCopyWait, 0},     {Kind::kCopyWait, 4},
                          {Kind::kBlockBarrier, 1},  {Kind::kBlockBarrier, 4},  {Kind::kBlockBarrierOne, 3},
                          {Kind::kSwappedScaleA, 0}, {Kind::kSwappedScaleB, 0}, {Kind::kWrongByteA, 0},   {Kind::kWrongByteB, 0}};
  for (const Fault& fault : faults) {
    CAPTURE(static_cast<int>(fault.kind));
    CAPTURE(fault.nth);
    Mutant::fault = fault;
    CHECK(gemm_fault_found(kTerms<2, Mutant>, kForm));
    Mutant::fault = {};
  }
}
