// What every emulated matrix product has to show, whatever the architecture.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/emulator/emulated_gemm.hpp"
#include "tests/gemm/problem.hpp"

namespace fp4pa::emulator_test {

/// A thinned grid of ragged sizes, layouts, types and batches, against double products of the decoded operands.
/// @param form  what X is multiplied as
inline void gemm_grid(const EmulatedGemm& kernel, ActivationForm form, int cases) {
  const auto pick = [](std::mt19937& random, const auto& choices) { return choices[random() % std::size(choices)]; };
  const char* const asked = std::getenv("FP4PA_GEMM_CASES");
  if (asked != nullptr) cases = std::atoi(asked);
  double worst = 0, worst_f32 = 0;  // the second of results that are not rounded to 16 bits
  for (int i = 0; i < cases; ++i) {
    std::mt19937 random(static_cast<std::uint32_t>(500 + i));
    const ScaleLayout layouts[] = {ScaleLayout::kLinear, ScaleLayout::kBlocked};
    const DType types[] = {DType::kF16, DType::kBF16, DType::kF32};
    const std::int64_t ms[] = {1, 2, 7, 8, 9, 16, 17, 33, 65, 70};
    const std::int64_t ns[] = {1, 5, 16, 17, 33, 100, 127, 128, 129, 160};
    const std::int64_t ks[] = {1, 15, 16, 17, 31, 33, 48, 64, 80, 127, 128, 129, 144, 272, 400, 513, 700};
    gemm_test::Spec s;
    s.seed = static_cast<std::uint32_t>(11 * i + 1);
    s.format = kernel.format;
    s.activations = form;
    s.layout = pick(random, layouts);
    s.x = types[random() % (form == ActivationForm::kFp4 ? 3 : 2)];
    s.out = pick(random, types);
    s.m = pick(random, ms);
    s.n = pick(random, ns);
    s.k = pick(random, ks);
    s.batch = 1 + static_cast<std::int64_t>(random() % 2);
    s.shared_weight = random() % 2 == 0;
    s.bias = random() % 2 == 0;
    s.scale_mode = static_cast<ScaleMode>(random() % 4);
    s.nvfp4_scale = static_cast<Nvfp4Scale>(random() % 2);
    if (s.format == BlockFormat::kNvfp4 && form == ActivationForm::kFp4 && random() % 2 == 0) s.x_global_scale = 0.01f;
    CAPTURE(gemm_test::text(s));

    emulator::Findings findings;
    const emulator::Order orders[] = {emulator::Order::forwards(), emulator::Order::backwards(),
                                      emulator::Order::random(random())};
    const ScopedGemm scoped(kernel, {orders[i % 3], &findings, nullptr});
    gemm_test::Problem p(s, "cuda");
    REQUIRE_MESSAGE(p.run() == Status::kOk, last_error_detail());
    CHECK_MESSAGE(findings.empty(), findings.text());
    const double error = p.worst();
    CHECK(error <= 1.0);
    CHECK(p.out.memory.intact());
    CHECK(p.workspace->intact());
    worst = std::max(worst, error);
    if (s.out == DType::kF32) worst_f32 = std::max(worst_f32, error);
  }
  std::printf("  %s, %s, %d rows of X a block: %d cases, worst error %.3f of the bound, %.3f of f32 results\n", kernel.name,
              name_of(form), kernel.x_rows, cases, worst, worst_f32);
}

/// Runs a problem on a kernel; what the emulator objects to.
inline std::string run_on(const EmulatedGemm& kernel, gemm_test::Problem& p) {
  emulator::Findings findings;
  const ScopedGemm scoped(kernel, {emulator::Order::forwards(), &findings, nullptr});
  REQUIRE_MESSAGE(p.run() == Status::kOk, last_error_detail());
  return findings.text();
}

/// X of integers that FP4 holds, with a 6 in every 16, so that quantising loses nothing; W of any codes, with scales that leave
/// all sums exact in whatever order.
struct ExactProblem : gemm_test::Problem {
  ExactProblem(const EmulatedGemm& kernel, ActivationForm form, std::int64_t k) : Problem(spec_of(kernel, form, k), "cuda") {
    std::mt19937 random(3);
    const float integers[] = {0, 1, 2, 3, 4, 6};
    std::vector<float> values(static_cast<std::size_t>(s.m * s.k));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float magnitude = static_cast<std::int64_t>(i) % s.k % 16 == 0 ? 6.0f : integers[random() % 6];
      values[i] = random() % 2 != 0 ? magnitude : -magnitude;
    }
    x = gemm_test::Tensor(s.x, values);
    const bool nvfp4 = kernel.format == BlockFormat::kNvfp4;
    const std::uint8_t scales[2][4] = {{125, 127, 128, 129}, {0x30, 0x38, 0x3c, 0x40}};  // MXFP4 and NVFP4, 1/4 to 4
    for (std::size_t i = 0; i < weight.codes.bytes(); ++i) weight.codes.data()[i] = static_cast<std::uint8_t>(random());
    for (std::size_t i = 0; i < weight.scales.bytes(); ++i) weight.scales.data()[i] = scales[nvfp4 ? 1 : 0][random() % 4];
    weight.view.global_scale_ptr = nullptr;
    weight.view.global_scale = 1.0f;
  }

 private:
  static gemm_test::Spec spec_of(const EmulatedGemm& kernel, ActivationForm form, std::int64_t k) {
    gemm_test::Spec s;
    s.format = kernel.format;
    s.activations = form;
    s.x = DType::kF16;
    s.m = 19;
    s.n = 140;
    s.k = k;
    s.x_global_scale = kernel.format == BlockFormat::kNvfp4 && form == ActivationForm::kFp4 ? 1.0f : 0.0f;
    return s;
  }
};

/// Sums that are exact must be so to the bit.
inline void gemm_exact(const EmulatedGemm& kernel, ActivationForm form) {
  for (const std::int64_t k : {64, 128, 200, 513}) {
    CAPTURE(k);
    ExactProblem p(kernel, form, k);
    CHECK(run_on(kernel, p) == "");
    const reference::Matrix x = gemm_test::multiplied_x(p.s, p.x, 0);
    for (std::size_t i = 0; i < x.at.size(); ++i) REQUIRE(x.at[i] == p.x.at(i));
    const reference::Matrix w = reference::decode(p.weight.view);
    int wrong = 0;
    for (std::int64_t i = 0; i < p.s.m; ++i) {
      for (std::int64_t j = 0; j < p.s.n; ++j) {
        wrong += p.out.at(static_cast<std::size_t>(i * p.s.n + j)) != reference::product(x, i, w, j).sum;
      }
    }
    CHECK(wrong == 0);
  }
}

/// A NaN scale makes its row NaN, and nothing else.
inline void gemm_nan_scale(const EmulatedGemm& kernel, ActivationForm form) {
  ExactProblem p(kernel, form, 160);
  const std::int64_t groups = 160 / group_size(kernel.format);
  p.weight.scales.data()[17 * groups + groups - 1] = kernel.format == BlockFormat::kNvfp4 ? 0x7f : 0xff;
  CHECK(run_on(kernel, p) == "");
  int wrong = 0;
  for (std::int64_t i = 0; i < p.s.m; ++i) {
    for (std::int64_t j = 0; j < p.s.n; ++j) {
      wrong += std::isnan(p.out.at(static_cast<std::size_t>(i * p.s.n + j))) != (j == 17);
    }
  }
  CHECK(wrong == 0);
}

/// Whether a kernel with a fault in it is found out: by the emulator, or by a wrong result.
inline bool gemm_fault_found(const EmulatedGemm& mutant, ActivationForm form) {
  gemm_test::Spec s;
  s.format = mutant.format;
  s.activations = form;
  s.x = DType::kF16;
  s.m = 19;
  s.n = 140;
  s.k = 1107;  // not whole groups, but whole chunks, which are copied asynchronously
  gemm_test::Problem p(s, "cuda");
  const std::string objections = run_on(mutant, p);
  return !objections.empty() || p.worst() > 1.0;
}

}  // namespace fp4pa::emulator_test
