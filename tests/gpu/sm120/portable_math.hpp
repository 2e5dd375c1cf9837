// Functions of <cmath> with the same bits on the host and on a device: IEEE operations in double, none of them contracted (build
// with -fmad=false and -ffp-contract=off), rounded to f32 once. A translation unit that includes this file first has core/ call
// them, so that what it computes in two places may be compared bit for bit.
//
// Such a unit must be nvcc's. There every function of core/ is inlined wherever it is called, and leaves nothing behind that the
// linker could take for another unit's.
#pragma once

#if defined(FP4PA_FN)
#error "portable_math.hpp must come before all of core/"
#endif
#if !defined(__CUDACC__)
#error "portable_math.hpp is for nvcc"
#endif

#define FP4PA_MATH(function) ::fp4pa::gpu_test::portable::function

#include <bit>
#include <cstdint>
#include <limits>

#include "core/macros.hpp"

namespace fp4pa::gpu_test::portable {

inline constexpr double kLn2 = 0.693147180559945309417;

/// 2^x; 0 below 2^-126, as ex2.approx.ftz has it.
[[nodiscard]] FP4PA_FN float exp2f(float x) {
  if (!(x >= -126.0f)) return x != x ? x : 0.0f;
  if (x >= 128.0f) return std::numeric_limits<float>::infinity();
  const int n = static_cast<int>(x + (x < 0.0f ? -0.5f : 0.5f));
  const double y = (static_cast<double>(x) - n) * kLn2;  // within 0.35: the first term left out is below 2^-33
  double sum = 1.0;
  for (int i = 9; i > 0; --i) sum = 1.0 + sum * y / i;
  return static_cast<float>(sum * std::bit_cast<double>(static_cast<std::uint64_t>(1023 + n) << 52));
}

/// log2(x).
[[nodiscard]] FP4PA_FN float log2f(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  if (x == std::numeric_limits<float>::infinity()) return x;
  const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(x));
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);  // within 0.172: the first term left out is below 2^-44
  double sum = 0.0;
  for (int i = 15; i > 0; i -= 2) sum = sum * s * s + 1.0 / i;
  return static_cast<float>(exponent + 2.0 * s * sum / kLn2);
}

[[nodiscard]] FP4PA_FN float expf(float x) { return portable::exp2f(static_cast<float>(x / kLn2)); }
[[nodiscard]] FP4PA_FN float logf(float x) { return static_cast<float>(portable::log2f(x) * kLn2); }
// Exact, or a choice between two.
[[nodiscard]] FP4PA_FN float fmaf(float a, float b, float c) { return ::fmaf(a, b, c); }
[[nodiscard]] FP4PA_FN float fmaxf(float a, float b) { return ::fmaxf(a, b); }

}  // namespace fp4pa::gpu_test::portable
