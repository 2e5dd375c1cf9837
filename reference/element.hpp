// Decoding one code of every element and scale format, the slow and obvious way.
//
// The reference must not share an error with the library, so nothing here comes from core/: E2M1 is a table copied from
// the OCP MX v1.0 specification (section 5.3.3), the other formats are their defining formulas in double precision,
// where every value of every format is exact.
#pragma once

#include <cmath>
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

/// E8M0: 2^(code - 127); 255 is NaN.
[[nodiscard]] inline double decode_e8m0(std::uint8_t code) {
  return code == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, int{code} - 127);
}

/// E4M3 (OCP): bias 7, subnormals, no infinities, NaN at S.1111.111. A scale (UE4M3) is the same with the sign clear.
[[nodiscard]] inline double decode_e4m3(std::uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  if (exponent == 15 && mantissa == 7) magnitude = std::numeric_limits<double>::quiet_NaN();
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

/// IEEE binary16.
[[nodiscard]] inline double decode_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
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
