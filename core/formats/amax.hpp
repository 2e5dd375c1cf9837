// The largest magnitude of a group, kept as bits.
//
// Magnitudes order like their bit patterns, and NaN is above everything, so that an integer maximum both avoids the
// NaN rules of fmax (which differ between devices) and carries a NaN through to where the scale is chosen. The
// maximum does not depend on the order, so groups may be split over lanes and columns as a back end likes.
#pragma once

#include <cstdint>

#include "core/formats/minifloat.hpp"

namespace fp4pa::core {

/// Start with 0; the result, read with float_from_bits, is amax: NaN if any x was NaN.
FP4PA_FN constexpr std::uint32_t amax_step(std::uint32_t amax_bits, float x) {
  const std::uint32_t bits = magnitude_bits(x);
  return bits > amax_bits ? bits : amax_bits;
}

/// The same of finite elements alone: for a scale that a whole tensor shares, where one element is no reason to lose the others.
FP4PA_FN constexpr std::uint32_t finite_amax_step(std::uint32_t amax_bits, float x) {
  const std::uint32_t bits = magnitude_bits(x);
  return bits > amax_bits && bits < kFloatInfBits ? bits : amax_bits;
}

/// @param x       n elements, `stride` elements apart
FP4PA_FN constexpr float group_amax(const float* x, int n, std::int64_t stride = 1) {
  std::uint32_t bits = 0;
  for (int i = 0; i < n; ++i) bits = amax_step(bits, x[i * stride]);
  return float_from_bits(bits);
}

}  // namespace fp4pa::core
