// What surrounds the matrix products: weights to the CPU's bits, and X prepared in f16 without loss.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "tests/gemm/problem.hpp"
#include "tests/kernels/on_host.hpp"

using namespace fp4pa;
using namespace fp4pa::gemm_test;
using kernels_test::kLanes32;
using kernels_test::kLanes64;
using kernels_test::OnHost;

TEST_CASE("gemm kernels: weights are quantised to the CPU's bits") {
  for (const OnHost* kernels : {&kLanes32, &kLanes64}) {
    for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
      for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
        for (const bool calibrated : {false, true}) {
          for (const std::int64_t cols : {1, 30, 48, 65}) {
            constexpr std::int64_t kRows = 130, kBatch = 2;
            CAPTURE(cols);
            const DType dtype = cols % 2 == 0 ? DType::kBF16 : DType::kF32;
            const Tensor w(dtype, gaussian(static_cast<std::size_t>(kBatch * kRows * cols), 5));
            OwnedWeight want(format, layout, kRows, cols, kBatch);
            OwnedWeight got(format, layout, kRows, cols, kBatch);
            const bool finds_globals = format == BlockFormat::kNvfp4 && !calibrated;
            if (format == BlockFormat::kNvfp4) want.config.global_scale = got.config.global_scale = 0.003f;
            const auto globals = [&](OwnedWeight& of) {
              return finds_globals ? reinterpret_cast<float*>(of.globals.data()) : nullptr;
            };
            REQUIRE(fp4_quantize_weight(want.config, w.memory.data(), dtype, kRows, cols, kBatch, want.codes.data(),
                                        want.scales.data(), globals(want), &want.view, ExecDesc{"cpu-scalar"}) == Status::kOk);
            const api::WeightRequest request{got.config, w.memory.data(), dtype, kRows, cols, kBatch,
                                             got.codes.data(), got.scales.data(), globals(got)};
            REQUIRE(kernels->backend.quantize_weight(request, ExecDesc{}) == Status::kOk);
            CHECK(std::memcmp(got.codes.data(), want.codes.data(), want.codes.bytes()) == 0);
            CHECK(std::memcmp(got.scales.data(), want.scales.data(), want.scales.bytes()) == 0);
            CHECK(std::memcmp(got.globals.data(), want.globals.data(), want.globals.bytes()) == 0);
            CHECK(got.codes.intact());
            CHECK(got.scales.intact());
          }
        }
      }
    }
  }
}

TEST_CASE("gemm kernels: X prepared in f16 is X, or what quantising makes of it") {
  for (const OnHost* kernels : {&kLanes32, &kLanes64}) {
    for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
      for (const ActivationForm form : {ActivationForm::k16Bit, ActivationForm::kFp4}) {
        for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
          // With more than 128 rows a block has a row for itself, and reads one of bf16 once.
          for (const auto& [calibrated, m, k] : {std::tuple{0.0f, 3, 300}, {0.01f, 3, 300}, {0.0f, 65, 264}, {0.0f, 65, 300}, {0.0f, 65, 8200}}) {
            if (dtype == DType::kF32 && form == ActivationForm::k16Bit) continue;
            if (k > 1000 && (dtype != DType::kBF16 || form == ActivationForm::kFp4)) continue;  // more than is read at once
            Spec s;
            s.format = format;
            s.activations = form;
            s.x = dtype;
            s.m = m;
            s.k = k;
            s.batch = 2;
            if (format == BlockFormat::kNvfp4 && form == ActivationForm::kFp4) s.x_global_scale = calibrated;
            CAPTURE(text(s));
            const Tensor x(dtype, gaussian(static_cast<std::size_t>(s.batch * s.m * s.k), 9));
            LinearArgs a;
            a.weight.format = format;
            a.weight.rows = 1;
            a.weight.cols = s.k;
            a.x = x.memory.data();
            a.x_dtype = dtype;
            a.m = s.m;
            a.batch = s.batch;
            a.activations = form;
            a.x_global_scale = s.x_global_scale;
            const api::PreparedX to = api::PreparedX::of(a);
            Memory workspace(static_cast<std::size_t>(to.bytes), 0xff);
            a.workspace = workspace.data();
            REQUIRE(kernels->prepare_x(a, to, ExecDesc{}) == Status::kOk);
            CHECK(workspace.intact());

            const auto* const rows = reinterpret_cast<const std::uint16_t*>(workspace.data());
            const auto* const inverse = reinterpret_cast<const float*>(workspace.data() + to.inverse);
            const auto* const globals = reinterpret_cast<const float*>(workspace.data() + to.globals);
            double worst = 0;
            for (std::int64_t b = 0; b < s.batch; ++b) {
              const reference::Matrix want = multiplied_x(s, x, b);
              for (std::int64_t i = 0; i < s.m; ++i) {
                const std::int64_t row = b * s.m + i;
                for (std::int64_t c = 0; c < to.cols; ++c) {
                  // Column c stands beside c + 4.
                  const std::int64_t at = row * to.cols + c / 8 * 8 + c % 4 * 2 + c % 8 / 4;
                  const double got = double{core::f16_to_f32(rows[at])} * inverse[row] * (to.has_globals ? globals[b] : 1.0f);
                  const double expected = c < s.k ? want.at[static_cast<std::size_t>(i * s.k + c)] : 0.0;
                  worst = std::fmax(worst, std::fabs(got - expected));
                }
              }
            }
            // The largest elements are below 8, and 2^-37 of that may be lost.
            CHECK(worst <= 0x1p-34);
          }
        }
      }
    }
  }
}
