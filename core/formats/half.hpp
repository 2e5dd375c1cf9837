// The two 16-bit floats that queries, outputs and recent tokens come in: IEEE binary16 (f16) and bfloat16 (bf16).
//
// They are kept as std::uint16_t because neither type exists under one name in all three compilers, and they are
// converted in integer and exact arithmetic so that every back end gives the same bits. A back end is free to use its
// conversion instruction instead: for everything but the payload of a NaN the result is the same. Source: IEEE
// 754-2019, 3.6 (binary16) and 4.3.1 (round to nearest, ties to even).
#pragma once

#include <bit>
#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

/// Exact. A NaN keeps its sign and payload (a signalling NaN stays signalling).
FP4PA_FN constexpr float f16_to_f32(std::uint16_t half) {
  // The 15 magnitude bits, moved up by 13, are an f32 whose exponent is short by 127 - 15 = 112. Subnormal halves are
  // renormalised through an integer: they would otherwise pass through subnormal floats, which are slow on x86.
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude < 0x0400u) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  const std::uint32_t exponent_fix = magnitude >= 0x7c00u ? (255u - 31u) << 23 : 112u << 23;
  return std::bit_cast<float>(((magnitude << 13) + exponent_fix) | sign);
}

/// Round to nearest even; overflow gives infinity; a NaN becomes quiet and keeps its sign and upper payload bits.
FP4PA_FN constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16: above every tie, infinity included
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14, the smallest normal half
    // 0.5 has an ulp of 2^-24, the subnormal halves' step: the addition rounds, and its low bits are the code.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    // A carry out of the mantissa steps the exponent, and from 65520 up it steps to infinity, as it should.
    half = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(half | sign);
}

/// Exact.
FP4PA_FN constexpr float bf16_to_f32(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}

/// Round to nearest even; overflow gives infinity; a NaN becomes quiet and keeps its sign and upper payload bits.
FP4PA_FN constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace fp4pa::core
