// E8M0 scale selection against the modes' definitions, evaluated in double with frexp.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/formats/scale_mode.hpp"
#include "formats_oracle.hpp"

using namespace fp4pa::core;
using fp4pa::ScaleMode;
using oracle::from_bits;

namespace {

constexpr ScaleMode kModes[] = {ScaleMode::kFloor, ScaleMode::kCeil, ScaleMode::kRceil, ScaleMode::kEven};

static_assert(e8m0_from_amax<E2M1>(6.0f, ScaleMode::kFloor) == 127);
static_assert(e8m0_from_amax<E2M1>(6.0f, ScaleMode::kCeil) == 128);
static_assert(e8m0_from_amax<E2M1>(6.0f, ScaleMode::kRceil) == 127);
static_assert(e8m0_from_amax<E2M1>(6.0f, ScaleMode::kEven) == 127);
static_assert(e8m0_from_amax<E2M1>(7.0f, ScaleMode::kEven) == 128);
static_assert(e8m0_from_amax<E4M3>(448.0f, ScaleMode::kRceil) == 127);

int floor_log2(double x) { return std::ilogb(x); }
int ceil_log2(double x) { return std::ilogb(x) + (std::ldexp(1.0, std::ilogb(x)) < x ? 1 : 0); }

/// The definition, with no limit on the exponent; then the clamp.
template <class Element>
int expected_scale(float amax, ScaleMode mode) {
  const double a = static_cast<double>(std::fabs(amax));
  if (!(a < std::numeric_limits<double>::infinity())) return 255;
  if (a == 0.0) return 0;
  int exponent = 0;
  switch (mode) {
    case ScaleMode::kFloor:
      exponent = floor_log2(a) - Element::kEmax;
      break;
    case ScaleMode::kCeil:
      exponent = ceil_log2(a) - Element::kEmax;
      break;
    case ScaleMode::kRceil:
      // Smallest k with 2^k * max >= amax: products with powers of two are exact, quotients would not be.
      exponent = -400;
      while (std::ldexp(static_cast<double>(Element::kMax), exponent) < a) ++exponent;
      break;
    case ScaleMode::kEven: {
      // Half a step is added before truncating: amax rounds half up to the element's mantissa.
      const double half_step = std::ldexp(1.0, floor_log2(a) - Element::kMantissaBits - 1);
      exponent = floor_log2(a + half_step) - Element::kEmax;
      break;
    }
  }
  const int code = exponent + 127;
  return code < 0 ? 0 : code > 254 ? 254 : code;
}

template <class Element>
void check_element() {
  const auto check = [](std::uint32_t bits) {
    const float amax = from_bits(bits);
    for (ScaleMode mode : kModes) {
      CAPTURE(bits);
      CAPTURE(static_cast<int>(mode));
      REQUIRE(e8m0_from_amax<Element>(amax, mode) == expected_scale<Element>(amax, mode));
      REQUIRE(e8m0_from_amax<Element>(-amax, mode) == expected_scale<Element>(amax, mode));
    }
  };
  // Every binade: the mantissas where a mode may change its mind, and their neighbours.
  for (std::uint32_t exponent = 0; exponent <= 255; ++exponent) {
    for (std::uint32_t mantissa = 0; mantissa < 0x800000; mantissa += 0x10000) {
      const std::uint32_t bits = exponent << 23 | mantissa;
      if (bits != 0) check(bits - 1);
      check(bits);
      check(bits + 1);
    }
  }
  oracle::Random random{11};
  for (int i = 0; i < 100'000; ++i) check(static_cast<std::uint32_t>(random.next()) & 0x7fffffffu);
}

TEST_CASE("scale modes: E2M1") { check_element<E2M1>(); }
TEST_CASE("scale modes: E2M3") { check_element<E2M3>(); }
TEST_CASE("scale modes: E3M2") { check_element<E3M2>(); }
TEST_CASE("scale modes: E4M3") { check_element<E4M3>(); }
TEST_CASE("scale modes: E5M2") { check_element<E5M2>(); }

TEST_CASE("scale modes: what each promises about saturation") {
  // rceil never lets amax exceed the largest element; one less would.
  oracle::Random random{13};
  for (int i = 0; i < 100'000; ++i) {
    const float amax = from_bits(static_cast<std::uint32_t>(random.next()) & 0x7fffffffu);
    if (!std::isfinite(amax) || amax < 0x1p-120f) continue;
    const int scale = e8m0_from_amax<E2M1>(amax, ScaleMode::kRceil);
    REQUIRE(static_cast<double>(amax) <= 6.0 * oracle::e8m0_value(scale));
    REQUIRE(static_cast<double>(amax) > 6.0 * oracle::e8m0_value(scale - 1));
  }
}

}  // namespace
