// The E8M0 scale of a block, from the largest magnitude in it.
//
// With E the exponent and m the mantissa of amax = m * 2^E, and emax that of the element format's largest value, every
// mode is E - emax or one more, and they differ in when it is one more: never (floor), when m > 1 (ceil), when m
// exceeds the largest element's mantissa (rceil), when m rounds up to 2 at the element's precision (even). Written
// this way the modes need no logarithm and no division, and are exact for every amax.
// Source: OCP MX v1.0, 6.3 (floor); torchao's ScaleCalculationMode for the others, pinned by tests/golden.
#pragma once

#include <cstdint>

#include "core/formats/elements.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

/// What is added to the bits of a magnitude so that a carry out of the mantissa makes the scale one more.
template <class Element>
FP4PA_FN constexpr std::uint32_t e8m0_carry(ScaleMode mode) {
  constexpr std::uint32_t kMantissaMask = 0x007fffffu;
  switch (mode) {
    case ScaleMode::kCeil: return kMantissaMask;
    case ScaleMode::kRceil: return kMantissaMask - (float_bits(Element::kMax) & kMantissaMask);
    // Half a step of the element's mantissa, in float mantissa bits: 0x200000 for E2M1.
    case ScaleMode::kEven: return 1u << (22 - Element::kMantissaBits);
    default: return 0;
  }
}

/// @param amax   largest magnitude of the block; its sign is ignored
/// @param carry  e8m0_carry of the mode
/// @return       0xFF for NaN or infinity; 0 for zero; otherwise clamped to [0, 254]. Where the clamp raises the scale (amax
///               below 2^(emax - 127)) the elements lose range at the bottom and none saturates.
template <class Element>
FP4PA_FN constexpr std::uint8_t e8m0_with_carry(float amax, std::uint32_t carry) {
  const std::uint32_t magnitude = magnitude_bits(amax);
  if (magnitude >= kFloatInfBits) return E8M0::kNan;
  // A subnormal amax has exponent field 0 here, too large a value for most of them, but emax is at least 2 in every
  // element format, so that the clamp catches them all.
  static_assert(Element::kEmax >= 2);
  const int code = static_cast<int>((magnitude + carry) >> 23) - Element::kEmax;
  return static_cast<std::uint8_t>(code > 0 ? (code < 254 ? code : 254) : 0);
}

template <class Element>
FP4PA_FN constexpr std::uint8_t e8m0_from_amax(float amax, ScaleMode mode) {
  return e8m0_with_carry<Element>(amax, e8m0_carry<Element>(mode));
}

}  // namespace fp4pa::core
