// NVFP4's multiplier is one for a tensor. An infinity or NaN costs the products it takes part in, and no others.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "tests/gemm/problem.hpp"

using namespace fp4pa;
using namespace fp4pa::gemm_test;

namespace {

Tensor with_element(std::vector<float> values, DType dtype, std::size_t at, float element) {
  values[at] = element;
  return Tensor(dtype, values);
}

}  // namespace

TEST_CASE("gemm: what is not finite in a row of X leaves the other rows as they are") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const std::int64_t m : {3, 18, 70}) {
        if (on_a_simulator() && (m != 18 || dtype == DType::kF32)) continue;
        for (const float element : {INFINITY, std::nanf("")}) {
          CAPTURE(std::string(name_of(dtype)));
          CAPTURE(m);
          CAPTURE(element);
          Spec s;
          s.format = BlockFormat::kNvfp4;
          s.activations = ActivationForm::kFp4;
          s.x = dtype;
          s.m = m;
          s.n = 40;
          s.k = 96;
          s.sigma = 1e-3f;  // far from what a multiplier of 1 is for
          const std::vector<float> values = gaussian(static_cast<std::size_t>(s.m * s.k), s.seed, s.sigma);
          const auto at = static_cast<std::size_t>((m - 2) * s.k + 7);
          Problem without(s, backend.c_str()), with(s, backend.c_str());
          without.x = with_element(values, dtype, at, 0.0f);
          with.x = with_element(values, dtype, at, element);
          REQUIRE_MESSAGE(without.run() == Status::kOk, last_error_detail());
          REQUIRE_MESSAGE(with.run() == Status::kOk, last_error_detail());
          CHECK(without.worst() <= 1.0);
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < s.n; ++j) {
              const auto place = static_cast<std::size_t>(i * s.n + j);
              if (i == m - 2) {
                CHECK_FALSE(std::isfinite(with.out.at(place)));
              } else {
                CHECK(with.out.at(place) == without.out.at(place));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("gemm: what is not finite in a weight leaves its multiplier and its other groups as they are") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const std::int64_t cols : {32, 41}) {  // pieces of whole rows, and groups of any
      CAPTURE(cols);
      const std::int64_t rows = 24;
      const std::vector<float> values = gaussian(static_cast<std::size_t>(rows * cols), 3, 1e-3f);
      const auto at = static_cast<std::size_t>(5 * cols + 20);
      const auto codes_of = [&](OwnedWeight& q, float element) {
        REQUIRE(q.quantize(with_element(values, DType::kF32, at, element), ExecDesc{backend.c_str()}) == Status::kOk);
      };
      OwnedWeight without(BlockFormat::kNvfp4, ScaleLayout::kLinear, rows, cols), with(BlockFormat::kNvfp4, ScaleLayout::kLinear, rows, cols);
      codes_of(without, 0.0f);
      codes_of(with, -INFINITY);
      CHECK(std::memcmp(without.globals.data(), with.globals.data(), sizeof(float)) == 0);
      const auto groups = static_cast<std::size_t>((cols + 15) / 16);
      const std::size_t group = 5 * groups + 1;
      for (std::size_t g = 0; g < static_cast<std::size_t>(rows) * groups; ++g) {
        CAPTURE(g);
        CHECK((without.scales.data()[g] == with.scales.data()[g]) == (g != group));
        if (g != group) CHECK(std::memcmp(without.codes.data() + 8 * g, with.codes.data() + 8 * g, 8) == 0);
      }
    }
  }
}
