// core/math.hpp: what devices without a mathematical library compute instead, against double precision.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/math.hpp"

namespace math = fp4pa::core::math;

namespace {

/// Units of 2^-24 of the exact value.
double units(float got, double exact) { return std::abs(got - exact) / std::abs(exact) * 0x1p24; }

}  // namespace

TEST_CASE("tanh without a library") {
  double worst = 0.0;
  // Every 101st float from 2^-60 to 16, and its negative.
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(0x1p-60f); bits < std::bit_cast<std::uint32_t>(16.0f); bits += 101) {
    const auto x = std::bit_cast<float>(bits);
    const float t = math::from_exp2::tanh(x);
    worst = std::fmax(worst, units(t, std::tanh(double{x})));
    if (math::from_exp2::tanh(-x) != -t) FAIL("odd: ", x);
  }
  MESSAGE("worst relative error of tanh, in 2^-24: ", worst);
  CHECK(worst <= 4.0);
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(math::from_exp2::tanh(0.0f) == 0.0f);
  CHECK(math::from_exp2::tanh(1e30f) == 1.0f);
  CHECK(math::from_exp2::tanh(inf) == 1.0f);
  CHECK(math::from_exp2::tanh(-inf) == -1.0f);
  CHECK(std::isnan(math::from_exp2::tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("log1p without a library") {
  double worst = 0.0;
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(0x1p-60f); bits <= std::bit_cast<std::uint32_t>(1.0f); bits += 101) {
    const auto x = std::bit_cast<float>(bits);
    worst = std::fmax(worst, units(math::from_exp2::log1p(x), std::log1p(double{x})));
  }
  MESSAGE("worst relative error of log1p, in 2^-24: ", worst);
  CHECK(worst <= 3.0);
  CHECK(math::from_exp2::log1p(0.0f) == 0.0f);
  CHECK(std::isnan(math::from_exp2::log1p(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("a count of bits without an instruction") {
  int wrong = 0;
  std::uint64_t x = 1;
  for (int i = 0; i < 1'000'000; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    // As many bits as come, and few and many of them.
    const std::uint64_t drawn[] = {x, x & x >> 7 & x << 9, x | x >> 7 | x << 9};
    for (const std::uint64_t y : drawn) wrong += math::count_bits_by_sums(y) != std::popcount(y) ? 1 : 0;
  }
  for (int n = 0; n < 64; ++n) {
    wrong += math::count_bits_by_sums(std::uint64_t{1} << n) != 1 ? 1 : 0;
    wrong += math::count_bits_by_sums(~std::uint64_t{0} >> n) != 64 - n ? 1 : 0;
  }
  CHECK(wrong == 0);
  CHECK(math::count_bits_by_sums(0) == 0);
}
