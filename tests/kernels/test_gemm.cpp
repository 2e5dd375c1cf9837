// What surrounds the matrix products: weights to the CPU's bits, and X prepared in f16 without loss.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "core/gemm/terms.hpp"
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
          for (const std::int64_t cols : {1, 30, 48, 65, 96, 160}) {  // the last two, and 48 of NVFP4, in pieces
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
          for (const auto& [calibrated, m, k] : {std::tuple{0.0f, 3, 300}, {0.01f, 3, 300}, {0.0f, 65, 264}, {0.0f, 65, 300}, {0.0f, 65, 8200},
                                                 // In pieces, of one block's row and of two's.
                                                 {0.0f, 3, 416}, {0.01f, 65, 416}, {0.0f, 2, 4128}, {0.01f, 2, 8192}}) {
            if (dtype == DType::kF32 && form == ActivationForm::k16Bit) continue;
            if (k == 8200 && (dtype != DType::kBF16 || form == ActivationForm::kFp4)) continue;  // more than is read at once
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

// Rows at addresses of 16 bytes go in pieces, others do not.
TEST_CASE("gemm kernels: an operand's address does not change a bit of what it becomes") {
  constexpr std::int64_t kRows = 5, kCols = 192;
  std::vector<float> values = gaussian(static_cast<std::size_t>(kRows * kCols), 17);
  std::mt19937 random(3);
  for (std::int64_t c = 0; c < kCols; ++c) {
    values[static_cast<std::size_t>(c)] = std::ldexp(values[static_cast<std::size_t>(c)], static_cast<int>(random() % 30) - 20);
    values[static_cast<std::size_t>(4 * kCols + c)] *= c < 96 ? 0.0f : 0x1p-15f;
  }
  values[kCols + 7] = INFINITY;
  values[kCols + 100] = -INFINITY;
  values[2 * kCols + 33] = std::nanf("");
  const auto same = [](std::uint16_t a, std::uint16_t b) { return a == b || ((a & 0x7fff) > 0x7c00 && (b & 0x7fff) > 0x7c00); };
  for (const OnHost* kernels : {&kLanes32, &kLanes64}) {
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      const Tensor x(dtype, values);
      const std::size_t bytes = static_cast<std::size_t>(kRows * kCols * size_of(dtype));
      Memory moved(bytes + 16);
      std::uint8_t* const elsewhere = moved.data() + size_of(dtype);
      std::memcpy(elsewhere, x.memory.data(), bytes);
      for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
        for (const ScaleMode mode : {ScaleMode::kFloor, ScaleMode::kCeil, ScaleMode::kRceil, ScaleMode::kEven}) {
          const bool four_over_six = mode == ScaleMode::kCeil || mode == ScaleMode::kEven;
          if (format == BlockFormat::kNvfp4 && mode > ScaleMode::kCeil) continue;
          CAPTURE(std::string(name_of(dtype)));
          CAPTURE(std::string(name_of(format)));
          CAPTURE(static_cast<int>(mode));
          QuantizeConfig config;
          config.format = format;
          config.scale_layout = ScaleLayout::kBlocked;
          config.scale_mode = mode;
          config.nvfp4_scale = four_over_six ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
          if (format == BlockFormat::kNvfp4) config.global_scale = 0.003f;
          OwnedWeight here(format, config.scale_layout, kRows, kCols, 1);
          OwnedWeight there(format, config.scale_layout, kRows, kCols, 1);
          const auto quantize = [&](OwnedWeight& to, const void* from) {
            const api::WeightRequest request{config, from, dtype, kRows, kCols, 1, to.codes.data(), to.scales.data(), nullptr};
            REQUIRE(kernels->backend.quantize_weight(request, ExecDesc{}) == Status::kOk);
          };
          quantize(here, x.memory.data());
          quantize(there, elsewhere);
          CHECK(std::memcmp(here.codes.data(), there.codes.data(), here.codes.bytes()) == 0);
          CHECK(std::memcmp(here.scales.data(), there.scales.data(), here.scales.bytes()) == 0);

          LinearArgs a;
          a.weight.format = format;
          a.weight.rows = 1;
          a.weight.cols = kCols;
          a.x_dtype = dtype;
          a.m = kRows;
          a.activations = ActivationForm::kFp4;
          a.scale_mode = mode;
          a.nvfp4_scale = config.nvfp4_scale;
          if (format == BlockFormat::kNvfp4) a.x_global_scale = config.global_scale;
          const api::PreparedX to = api::PreparedX::of(a);
          Memory one(static_cast<std::size_t>(to.bytes), 0xff);
          Memory other(static_cast<std::size_t>(to.bytes), 0xff);
          const auto prepare = [&](Memory& workspace, const void* from) {
            a.x = from;
            a.workspace = workspace.data();
            REQUIRE(kernels->prepare_x(a, to, ExecDesc{}) == Status::kOk);
            CHECK(workspace.intact());
          };
          prepare(one, x.memory.data());
          prepare(other, elsewhere);
          const auto* const left = reinterpret_cast<const std::uint16_t*>(one.data());
          const auto* const right = reinterpret_cast<const std::uint16_t*>(other.data());
          std::int64_t differ = 0;
          for (std::int64_t i = 0; i < kRows * to.cols; ++i) differ += same(left[i], right[i]) ? 0 : 1;
          CHECK(differ == 0);
          CHECK(std::memcmp(one.data() + to.inverse, other.data() + to.inverse, kRows * sizeof(float)) == 0);
        }
      }
    }
  }
}

TEST_CASE("gemm kernels: X in terms is X, to the last bit of f16 and to 2^-60 of a group's largest of bf16") {
  for (const OnHost* kernels : {&kLanes32, &kLanes64}) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const int spread : {0, 4, 30, 200}) {
        constexpr std::int64_t kRows = 9, kCols = 300;
        CAPTURE(std::string(name_of(dtype)));
        CAPTURE(spread);
        std::vector<float> values = gaussian(static_cast<std::size_t>(kRows * kCols), 11, dtype == DType::kF16 ? 100.0f : 1.0f);
        std::mt19937 random(5);
        for (float& v : values) v = std::ldexp(v, -static_cast<int>(random() % static_cast<unsigned>(spread + 1)) + spread / 3);
        if (dtype == DType::kF16) {
          for (float& v : values) v = std::fmin(std::fmax(v, -65504.0f), 65504.0f);
        }
        const std::size_t infinite = 2 * kCols + 7, nan = 5 * kCols + 299;
        values[infinite] = -INFINITY;
        values[nan] = std::nanf("");
        for (std::int64_t c = 64; c < 96; ++c) values[static_cast<std::size_t>(7 * kCols + c)] = 0.0f;
        const Tensor x(dtype, values);
        LinearArgs a;
        a.weight.rows = 1;
        a.weight.cols = kCols;
        a.x = x.memory.data();
        a.x_dtype = dtype;
        a.m = kRows;
        const api::SplitX to = api::SplitX::of(a);
        Memory workspace(static_cast<std::size_t>(to.bytes), 0xff);
        a.workspace = workspace.data();
        REQUIRE(kernels->split_x(a, to, ExecDesc{}) == Status::kOk);
        CHECK(workspace.intact());

        const auto* const scales = reinterpret_cast<const std::uint32_t*>(workspace.data() + to.scales);
        const auto* const rest = reinterpret_cast<const std::uint16_t*>(workspace.data() + to.rest);
        int wrong = 0, with_rest = 0;
        for (std::int64_t r = 0; r < kRows; ++r) {
          for (std::int64_t g = 0; g < 4 * to.stages; ++g) {
            const std::uint32_t word = scales[r * 4 * to.stages + g];
            with_rest += word >> 24 != 0;
            double largest = 0;
            for (std::int64_t c = 32 * g; c < 32 * (g + 1) && c < kCols; ++c) {
              const double v = std::fabs(x.at(static_cast<std::size_t>(r * kCols + c)));
              if (std::isfinite(v)) largest = std::fmax(largest, v);
            }
            for (std::int64_t c = 32 * g; c < 32 * (g + 1); ++c) {
              double got = 0;
              for (int term = 0; term < core::kXTerms; ++term) {
                const std::int64_t at = (r * to.stages + c / 128) * core::kTermStageBytes + 128 * term + c % 128;
                const double code = core::E4M3::decode(workspace.data()[at]);
                got += std::ldexp(code, static_cast<int>(word >> (8 * term) & 0xffu) - 127);
              }
              const std::int64_t at = r * 128 * to.stages + c / 8 * 8 + c % 4 * 2 + c % 8 / 4;  // column c stands beside c + 4
              if (word >> 24 != 0) got += std::ldexp(double{core::f16_to_f32(rest[at])}, static_cast<int>(word >> 24) - 127);
              const double want = c < kCols ? x.at(static_cast<std::size_t>(r * kCols + c)) : 0.0;
              const double allowed = dtype == DType::kF16 ? 0.0 : largest * 0x1p-60;
              wrong += std::isnan(want) ? !std::isnan(got) : std::isinf(want) ? got != want : !(std::fabs(got - want) <= allowed);
            }
          }
        }
        CHECK(wrong == 0);
        CHECK(with_rest >= 2);  // where the infinity and the NaN are
        if (spread == 0) CHECK(with_rest <= 4);
        if (spread >= 30) CHECK(with_rest > 20);
      }
    }
  }
}
