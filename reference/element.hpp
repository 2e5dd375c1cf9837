// Decoding one code of every element and scale format, the slow and obvious way.
//
// The reference must not share an error with the library, so nothing here comes from core/: E2M1 is a table copied from
// the OCP MX v1.0 specification (section 5.3.3), the other formats are their defining formulas in double precision,
// where every value of every format is exact.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "fp4pa/types.hpp"

namespace fp4pa::reference {

/// E2M1: sign, two exponent bits, one mantissa bit; no infinities, no NaN. Only the low four bits of `code` count.
[[nodiscard]] inline double decode_e2m1(unsigned code) {
  static constexpr double kValues[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                                         -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};
  return kValues[code & 15u];
}

/// 2^n, by doubling and halving.
[[nodiscard]] constexpr double power_of_two(int n) {
  double x = 1.0;
  for (; n > 0; --n) x *= 2.0;
  for (; n < 0; ++n) x /= 2.0;
  return x;
}
/// decode(0), decode(1), ...: references decode millions of codes.
template <std::size_t kCount, class Decode>
[[nodiscard]] constexpr std::array<double, kCount> table_of(Decode&& decode) {
  std::array<double, kCount> values{};
  for (std::size_t code = 0; code < kCount; ++code) values[code] = decode(static_cast<int>(code));
  return values;
}

/// E8M0: 2^(code - 127); 255 is NaN.
[[nodiscard]] inline double decode_e8m0(std::uint8_t code) {
  static constexpr auto kValues = table_of<256>([](int c) {
    return c == 255 ? std::numeric_limits<double>::quiet_NaN() : power_of_two(c - 127);
  });
  return kValues[code];
}

/// E4M3 (OCP): bias 7, subnormals, no infinities, NaN at S.1111.111. A scale (UE4M3) is the same with the sign clear.
[[nodiscard]] inline double decode_e4m3(std::uint8_t code) {
  static constexpr auto kValues = table_of<256>([](int c) {
    const int exponent = (c >> 3) & 15;
    const int mantissa = c & 7;
    double magnitude = exponent == 0 ? mantissa * power_of_two(-9) : (8 + mantissa) * power_of_two(exponent - 10);
    if (exponent == 15 && mantissa == 7) magnitude = std::numeric_limits<double>::quiet_NaN();
    return (c & 0x80) != 0 ? -magnitude : magnitude;
  });
  return kValues[code];
}

/// IEEE binary16.
[[nodiscard]] inline double decode_f16(std::uint16_t bits) {
  static constexpr auto kPowers = table_of<32>([](int exponent) { return power_of_two(exponent - 25); });
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double magnitude = exponent == 0 ? mantissa * kPowers[1] : (1024 + mantissa) * kPowers[static_cast<std::size_t>(exponent)];
  if (exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// bfloat16: the upper half of a binary32.
[[nodiscard]] inline double decode_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/// Element `index` of a dense array of `dtype`.
[[nodiscard]] inline double decode_plain(const void* data, DType dtype, std::int64_t index) {
  const auto* bytes = static_cast<const unsigned char*>(data) + index * (dtype == DType::kF32 ? 4 : 2);
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return dtype == DType::kF16 ? decode_f16(bits) : decode_bf16(bits);
}

}  // namespace fp4pa::reference
