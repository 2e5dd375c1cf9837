// f16, bf16, E4M3 (OCP) and E2M1 from their definitions, through double. Rounding is to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace isa {

/// 2^e of -1022 to 1023, for products that are exact: std::ldexp is a call, and took a sixth of some tests.
constexpr double two_to(int e) { return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52); }

/// x rounded to `digits` significant bits, with no bit below 2^least.
inline double rounded(double x, int digits, int least) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  const int unit = std::max(std::ilogb(x) - digits + 1, least);
  return std::nearbyint(x * two_to(-unit)) * two_to(unit);
}

inline float from_half(std::uint16_t h) {
  const int exponent = h >> 10 & 31;
  const int fraction = h & 1023;
  double x = exponent == 31  ? (fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN())
             : exponent == 0 ? fraction * two_to(-24)
                             : (1024 + fraction) * two_to(exponent - 25);
  return static_cast<float>((h & 0x8000) != 0 ? -x : x);
}
inline std::uint16_t to_half(double x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | 0x7e00);
  const double a = rounded(std::abs(x), 11, -24);
  if (a > 65504.0) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (a < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<int>(a * two_to(24)));
  const int exponent = std::ilogb(a);
  return static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | (static_cast<int>(a * two_to(10 - exponent)) - 1024));
}

inline float from_bfloat(std::uint16_t b) { return std::bit_cast<float>(std::uint32_t{b} << 16); }
inline std::uint16_t to_bfloat(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline float from_e4m3(std::uint8_t e) {
  if ((e & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const int exponent = e >> 3 & 15;
  const int fraction = e & 7;
  const double x = exponent == 0 ? fraction * two_to(-9) : (8 + fraction) * two_to(exponent - 10);
  return static_cast<float>((e & 0x80) != 0 ? -x : x);
}
/// What overflows becomes NaN.
inline std::uint8_t to_e4m3(float x) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const double a = rounded(std::abs(double{x}), 4, -9);
  if (std::isnan(x) || a > 448.0) return static_cast<std::uint8_t>(sign | 0x7f);
  if (a < 0x1p-6) return static_cast<std::uint8_t>(sign | static_cast<int>(a * two_to(9)));
  const int exponent = std::ilogb(a);
  return static_cast<std::uint8_t>(sign | (exponent + 7) << 3 | (static_cast<int>(a * two_to(3 - exponent)) - 8));
}

inline float from_e2m1(unsigned code) {
  static constexpr float kMagnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return (code & 8) != 0 ? -kMagnitude[code & 7] : kMagnitude[code & 7];
}

}  // namespace isa
