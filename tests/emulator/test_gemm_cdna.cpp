// The matrix products of gfx950 and gfx942, lane by lane: MXFP4 by MXFP4 as it lies in memory (gfx950), and W decoded to f16.
#include <doctest/doctest.h>

#include "backends/emulator/gfx950_exec.hpp"
#include "backends/gfx942/gemm.hpp"
#include "backends/gfx950/convert.hpp"
#include "backends/gfx950/gemm.hpp"
#include "tests/emulator/gemm_checks.hpp"
#include "tests/emulator/mutant_exec.hpp"

using namespace fp4pa;
using namespace fp4pa::emulator_test;

namespace {

template <int kTiles, class E = emulator::Gfx950Exec>
constexpr EmulatedGemm kNative = emulated_gemm<gfx950::GemmShim<kTiles, E>>("gfx950 MXFP4", BlockFormat::kMxfp4, false);

constexpr BlockFormat format_of(bool nvfp4) { return nvfp4 ? BlockFormat::kNvfp4 : BlockFormat::kMxfp4; }
template <bool kNvfp4, int kTiles, class E>
using Decode950 = gfx942::GemmDecodeShim<kNvfp4, kTiles, gfx950::MfmaF32_16x16x32<core::F16>, E, gfx950::ConvertedCodes>;
template <bool kNvfp4, int kTiles, class E = emulator::Gfx950Exec>
constexpr EmulatedGemm kDecode950 = emulated_gemm<Decode950<kNvfp4, kTiles, E>>(
    kNvfp4 ? "gfx950 NVFP4 decoded" : "gfx950 MXFP4 decoded", format_of(kNvfp4), true);
template <bool kNvfp4, int kTiles>
constexpr EmulatedGemm kDecode942 =
    emulated_gemm<gfx942::GemmDecodeShim<kNvfp4, kTiles, gfx942::MfmaF32_16x16x16_F16, emulator::Gfx942Exec>>(
        kNvfp4 ? "gfx942 NVFP4 decoded" : "gfx942 MXFP4 decoded", format_of(kNvfp4), true);

/// Scales of the block of columns behind the one that is multiplied.
template <class Base, class E>
struct LateScales : Base {
  static void load_scales(E& exec, const core::GemmScales& w, const core::GemmScales& x, std::int32_t stage,
                          typename E::template PerLane<typename Base::Scales>& out) {
    Base::load_scales(exec, w, x, stage, out);
    typename E::template PerLane<typename Base::Scales> late;
    Base::load_scales(exec, w, x, stage + 1, late);
    exec.each_lane([&](auto lane) { std::memcpy(out[lane].w, late[lane].w, sizeof(late[lane].w)); });
  }
};

using Mutant = MutantExec<emulator::Gfx950Exec>;

}  // namespace

TEST_CASE("gfx950 gemm: a grid of ragged sizes, layouts, types, batches") {
  gemm_grid(kNative<1>, ActivationForm::kFp4, 40);
  gemm_grid(kNative<4>, ActivationForm::kFp4, 40);
}

TEST_CASE("gfx950 and gfx942 gemm: decoding, over the same grid") {
  for (const ActivationForm form : {ActivationForm::k16Bit, ActivationForm::kFp4}) {
    gemm_grid(kDecode950<false, 1>, form, 40);
    gemm_grid(kDecode950<false, 4>, form, 20);
    gemm_grid(kDecode950<true, 1>, form, 40);
    gemm_grid(kDecode950<true, 4>, form, 20);
    gemm_grid(kDecode942<false, 4>, form, 20);
    gemm_grid(kDecode942<true, 4>, form, 20);
  }
}

TEST_CASE("gfx950 and gfx942 gemm: exact sums are exact") {
  gemm_exact(kNative<1>, ActivationForm::kFp4);
  gemm_exact(kNative<4>, ActivationForm::kFp4);
  for (const ActivationForm form : {ActivationForm::k16Bit, ActivationForm::kFp4}) {
    gemm_exact(kDecode950<false, 4>, form);
    gemm_exact(kDecode950<true, 4>, form);
    gemm_exact(kDecode942<false, 1>, form);
    gemm_exact(kDecode942<true, 1>, form);
  }
}

TEST_CASE("gfx950 and gfx942 gemm: a NaN scale gives NaN in its row and nowhere else") {
  gemm_nan_scale(kNative<4>, ActivationForm::kFp4);
  gemm_nan_scale(kDecode950<false, 1>, ActivationForm::k16Bit);
  gemm_nan_scale(kDecode950<true, 1>, ActivationForm::k16Bit);
  gemm_nan_scale(kDecode942<true, 1>, ActivationForm::kFp4);
}

TEST_CASE("gfx950 gemm: planted faults are found") {
  using E = emulator::Gfx950Exec;
  const EmulatedGemm whole[] = {kNative<2>, kDecode950<false, 2>, kDecode950<true, 2>};
  for (const EmulatedGemm& kernel : whole) CHECK_FALSE(gemm_fault_found(kernel, ActivationForm::kFp4));
  using Decode = Decode950<true, 2, E>;
  CHECK(gemm_fault_found(emulated_gemm<LateScales<gfx950::GemmShim<2, E>, E>>("late", BlockFormat::kMxfp4, false),
                         ActivationForm::kFp4));
  CHECK(gemm_fault_found(emulated_gemm<LateScales<Decode, E>>("late", BlockFormat::kNvfp4, true), ActivationForm::kFp4));

  using Kind = Fault::Kind;
  const Fault of_all[] = {{Kind::kSwappedC, 0},     {Kind::kTransposedC, 0},  {Kind::kCopyWait, 0},       {Kind::kCopyWait, 4},
                          {Kind::kBlockBarrier, 1}, {Kind::kBlockBarrier, 4}, {Kind::kBlockBarrierOne, 3}};
  const Fault of_scaled[] = {
      {Kind::kSwappedScaleA, 0}, {Kind::kSwappedScaleB, 0}, {Kind::kWrongByteA, 0}, {Kind::kWrongByteB, 0}};
  const auto check = [](const EmulatedGemm& mutant, const Fault& fault) {
    CAPTURE(std::string(mutant.name));
    CAPTURE(static_cast<int>(fault.kind));
    CAPTURE(fault.nth);
    Mutant::fault = fault;
    CHECK(gemm_fault_found(mutant, ActivationForm::kFp4));
    Mutant::fault = {};
  };
  for (const Fault& fault : of_all) {
    check(kNative<2, Mutant>, fault);
    check(kDecode950<true, 2, Mutant>, fault);
  }
  for (const Fault& fault : of_scaled) check(kNative<2, Mutant>, fault);
}
