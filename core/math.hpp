// The functions of <cmath> that device code calls, by one name on every device.
//
// Where the compiler brings its mathematical library to the device these are that library's, so that the host and CUDA get
// what they always got. HIP's comes as separate files that a distribution's clang lacks: there the functions are compiler
// builtins that become instructions, and what has no instruction (`from_exp2`) is made of them.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core::math {

/// tanh and log1p out of exp2 and log: what devices without a library of their own use, and what the tests hold against it.
namespace from_exp2 {

/// Lambert's continued fraction cut after x^2/9 where 1 - 2 / (e^2x + 1) would cancel. Within 4 units of 2^-24, relative.
[[nodiscard]] FP4PA_FN float tanh(float x) {
  const float z = x * x;
  if (z < 0.36f) return x * (945.0f + z * (105.0f + z)) / (945.0f + z * (420.0f + 15.0f * z));
  const float t = 1.0f - 2.0f / (FP4PA_MATH(exp2f)(2.8853900817779268f * (x < 0.0f ? -x : x)) + 1.0f);
  return x < 0.0f ? -t : t;
}

/// log(1 + x) for x from 0 to 1, with what the addition rounded away put back. Within 3 units of 2^-24, relative.
[[nodiscard]] FP4PA_FN float log1p(float x) {
  const float y = 1.0f + x;
  return FP4PA_MATH(logf)(y) + (x - (y - 1.0f)) / y;
}

}  // namespace from_exp2

[[nodiscard]] FP4PA_FN float exp2(float x) { return FP4PA_MATH(exp2f)(x); }
[[nodiscard]] FP4PA_FN float log2(float x) { return FP4PA_MATH(log2f)(x); }
[[nodiscard]] FP4PA_FN float exp(float x) { return FP4PA_MATH(expf)(x); }
[[nodiscard]] FP4PA_FN float fma(float a, float b, float c) { return FP4PA_MATH(fmaf)(a, b, c); }
[[nodiscard]] FP4PA_FN float max(float a, float b) { return FP4PA_MATH(fmaxf)(a, b); }

/// Set bits, by sums of fours and bytes: where there is no instruction for it that is to be trusted (core/macros.hpp).
[[nodiscard]] FP4PA_FN std::int32_t count_bits_by_sums(std::uint64_t x) {
  constexpr std::uint64_t kFirsts = 0x1111111111111111u;
  const std::uint64_t fours = (x & kFirsts) + (x >> 1 & kFirsts) + (x >> 2 & kFirsts) + (x >> 3 & kFirsts);
  const std::uint64_t bytes = (fours & 0x0f0f0f0f0f0f0f0fu) + (fours >> 4 & 0x0f0f0f0f0f0f0f0fu);
  return static_cast<std::int32_t>(bytes * 0x0101010101010101u >> 56);
}
#if defined(FP4PA_POPCOUNT)
[[nodiscard]] FP4PA_FN std::int32_t count_bits(std::uint64_t x) { return FP4PA_POPCOUNT(x); }
#else
[[nodiscard]] FP4PA_FN std::int32_t count_bits(std::uint64_t x) { return count_bits_by_sums(x); }
#endif

#if FP4PA_DEVICE_HAS_LIBM
[[nodiscard]] FP4PA_FN float tanh(float x) { return ::tanhf(x); }
[[nodiscard]] FP4PA_FN float log1p(float x) { return ::log1pf(x); }
#else
using from_exp2::log1p;
using from_exp2::tanh;
#endif

}  // namespace fp4pa::core::math
