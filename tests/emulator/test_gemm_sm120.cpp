// SM120's matrix product of two FP4 operands, lane by lane.
#include <doctest/doctest.h>

#include "backends/emulator/sm120_exec.hpp"
#include "backends/sm120/gemm.hpp"
#include "tests/emulator/gemm_checks.hpp"
#include "tests/emulator/mutant_exec.hpp"

using namespace fp4pa;
using namespace fp4pa::emulator_test;

namespace {

template <bool kNvfp4, int kTiles, class E = emulator::Sm120Exec>
constexpr EmulatedGemm kKernel = emulated_gemm<sm120::GemmShim<kNvfp4, kTiles, E>>(
    kNvfp4 ? "SM120 NVFP4" : "SM120 MXFP4", kNvfp4 ? BlockFormat::kNvfp4 : BlockFormat::kMxfp4, false);

/// Scales of the block of columns behind the one that is multiplied.
template <bool kNvfp4, bool kOfX>
struct LateScales : sm120::GemmShim<kNvfp4, 4, emulator::Sm120Exec> {
  using Base = sm120::GemmShim<kNvfp4, 4, emulator::Sm120Exec>;
  static void load_scales(emulator::Sm120Exec& exec, const core::GemmScales& w, const core::GemmScales& x, std::int32_t stage,
                          typename Base::template PerLane<typename Base::Scales>& out) {
    typename Base::template PerLane<typename Base::Scales> late;
    Base::load_scales(exec, w, x, stage, out);
    Base::load_scales(exec, w, x, stage + 1, late);
    exec.each_lane([&](auto lane) {
      if constexpr (kOfX) {
        std::memcpy(out[lane].x, late[lane].x, sizeof(late[lane].x));
      } else {
        std::memcpy(out[lane].w, late[lane].w, sizeof(late[lane].w));
      }
    });
  }
};

using Mutant = MutantExec<emulator::Sm120Exec>;

}  // namespace

TEST_CASE("SM120 gemm: a grid of ragged sizes, layouts, types, batches") {
  gemm_grid(kKernel<false, 1>, ActivationForm::kFp4, 40);
  gemm_grid(kKernel<false, 2>, ActivationForm::kFp4, 40);
  gemm_grid(kKernel<false, 4>, ActivationForm::kFp4, 40);
  gemm_grid(kKernel<false, 8>, ActivationForm::kFp4, 40);
  gemm_grid(kKernel<true, 1>, ActivationForm::kFp4, 40);
  gemm_grid(kKernel<true, 2>, ActivationForm::kFp4, 40);
  gemm_grid(kKernel<true, 4>, ActivationForm::kFp4, 40);
  gemm_grid(kKernel<true, 8>, ActivationForm::kFp4, 40);
}

TEST_CASE("SM120 gemm: exact sums are exact") {
  gemm_exact(kKernel<false, 1>, ActivationForm::kFp4);
  gemm_exact(kKernel<false, 8>, ActivationForm::kFp4);
  gemm_exact(kKernel<true, 1>, ActivationForm::kFp4);
  gemm_exact(kKernel<true, 8>, ActivationForm::kFp4);
}

TEST_CASE("SM120 gemm: a NaN scale gives NaN in its row and nowhere else") {
  gemm_nan_scale(kKernel<false, 4>, ActivationForm::kFp4);
  gemm_nan_scale(kKernel<true, 4>, ActivationForm::kFp4);
}

TEST_CASE("SM120 gemm: planted faults are found") {
  const EmulatedGemm whole[] = {kKernel<false, 4>, kKernel<true, 4>};
  for (const EmulatedGemm& kernel : whole) CHECK_FALSE(gemm_fault_found(kernel, ActivationForm::kFp4));
  const EmulatedGemm late[] = {
      emulated_gemm<LateScales<false, false>>("late scales of W", BlockFormat::kMxfp4, false),
      emulated_gemm<LateScales<false, true>>("late scales of X", BlockFormat::kMxfp4, false),
      emulated_gemm<LateScales<true, false>>("late scales of W", BlockFormat::kNvfp4, false),
      emulated_gemm<LateScales<true, true>>("late scales of X", BlockFormat::kNvfp4, false)};
  for (const EmulatedGemm& mutant : late) {
    CAPTURE(std::string(mutant.name));
    CHECK(gemm_fault_found(mutant, ActivationForm::kFp4));
  }
  using Kind = Fault::Kind;
  const Fault faults[] = {{Kind::kSwappedScaleA, 0}, {Kind::kSwappedScaleB, 0}, {Kind::kWrongByteA, 0}, {Kind::kWrongByteB, 0},
                          {Kind::kSwappedC, 0},      {Kind::kTransposedC, 0},   {Kind::kCopyWait, 0},   {Kind::kCopyWait, 4},
                          {Kind::kBlockBarrier, 1},  {Kind::kBlockBarrier, 4},  {Kind::kBlockBarrierOne, 3}};
  const EmulatedGemm mutants[] = {kKernel<false, 4, Mutant>, kKernel<true, 4, Mutant>};
  for (const EmulatedGemm& mutant : mutants) {
    for (const Fault& fault : faults) {
      CAPTURE(std::string(mutant.name));
      CAPTURE(static_cast<int>(fault.kind));
      CAPTURE(fault.nth);
      Mutant::fault = fault;
      CHECK(gemm_fault_found(mutant, ActivationForm::kFp4));
      Mutant::fault = {};
    }
  }
}
