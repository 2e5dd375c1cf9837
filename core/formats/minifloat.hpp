// Small floats in general: rounding a float's magnitude to a few exponent and mantissa bits, and back, exactly.
//
// All element formats of this library are the same number system with different widths, so it is written once. Rounding
// is done by the float adder: adding a power of two whose ulp is the small format's step at that magnitude makes the
// hardware round to nearest, ties to even, and leaves the step count in the low bits of the sum. That is one addition
// and a few integer operations on any device, and no branch for subnormals.
//
// Bit equality between devices: the magnitude is clamped as an integer before the addition, so that no compiler
// can fuse a caller's multiplication with it. The default rounding mode, and subnormal floats that are not flushed, are
// assumed: libfp4pa is not built with -ffast-math or -use_fast_math.
// Source of the formats: OCP Microscaling Formats (MX) v1.0, 5.3; OCP 8-bit Floating Point (OFP8) v1.0.
#pragma once

#include <bit>
#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

inline constexpr std::uint32_t kFloatSignBit = 0x80000000u;
inline constexpr std::uint32_t kFloatInfBits = 0x7f800000u;  // also the mask of the exponent
inline constexpr std::uint32_t kFloatNanBits = 0x7fc00000u;  // positive and quiet

FP4PA_FN constexpr std::uint32_t float_bits(float x) { return std::bit_cast<std::uint32_t>(x); }
FP4PA_FN constexpr float float_from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Bits of |x|. As integers they are ordered like the magnitudes, with every NaN above infinity.
FP4PA_FN constexpr std::uint32_t magnitude_bits(float x) { return float_bits(x) & ~kFloatSignBit; }

/// 2^exponent for exponent in [-127, 127]; -127 is subnormal.
FP4PA_FN constexpr float exp2_exact(int exponent) {
  return float_from_bits(exponent > -127 ? static_cast<std::uint32_t>(exponent + 127) << 23 : 0x00400000u);
}

/// What tells one small float format from another.
struct MinifloatSpec {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  int max_code;       ///< magnitude bits of the largest finite value
  int nan_code;       ///< what NaN encodes to: max_code where the format has no NaN
  bool has_infinity;  ///< then max_code + 1 is infinity
};

/// A sign bit above exponent and mantissa. Codes stand in the low kBits bits of a byte; the bits above are ignored when
/// decoding and zero when encoding.
template <MinifloatSpec kSpec>
struct Minifloat {
  static constexpr int kExponentBits = kSpec.exponent_bits;
  static constexpr int kMantissaBits = kSpec.mantissa_bits;
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits;
  static constexpr int kBias = kSpec.bias;
  static constexpr int kEmax = (kSpec.max_code >> kMantissaBits) - kBias;
  static constexpr std::uint32_t kMagnitudeMask = (1u << (kBits - 1)) - 1u;

  /// Exponent field of the float that equals the format's smallest normal value.
  static constexpr std::uint32_t kMinNormalExponent = 128 - kBias;
  static constexpr std::uint32_t kMaxBits = (static_cast<std::uint32_t>(kSpec.max_code) << (23 - kMantissaBits)) +
                                            (static_cast<std::uint32_t>(127 - kBias) << 23);
  /// Largest finite value.
  static constexpr float kMax = std::bit_cast<float>(kMaxBits);

  /// Code of a magnitude, given as the bits of a non-negative float: nearest even, saturating. NaN saturates too.
  FP4PA_FN static constexpr std::uint32_t encode_magnitude(std::uint32_t magnitude) {
    const std::uint32_t clamped = magnitude < kMaxBits ? magnitude : kMaxBits;
    // Exponent of the binade that holds the magnitude; subnormals share the step of the first normal binade.
    const std::uint32_t exponent = clamped & kFloatInfBits;
    const std::uint32_t binade = exponent > (kMinNormalExponent << 23) ? exponent : (kMinNormalExponent << 23);
    // The power of two whose ulp (2^-23 of it) is this binade's step (2^-kMantissaBits of it).
    const std::uint32_t magic = binade + (static_cast<std::uint32_t>(23 - kMantissaBits) << 23);
    const std::uint32_t steps = float_bits(float_from_bits(clamped) + float_from_bits(magic)) - magic;
    // A normal value counts its implicit bit as 2^kMantissaBits steps, which is the first binade's exponent field of 1.
    return steps + ((binade - (kMinNormalExponent << 23)) >> (23 - kMantissaBits));
  }

  /// Round to nearest even; finite values and infinities saturate to +-kMax; NaN gives the spec's nan_code.
  FP4PA_FN static constexpr std::uint8_t encode(float x) {
    const std::uint32_t magnitude = magnitude_bits(x);
    const std::uint32_t sign = (float_bits(x) >> (32 - kBits)) & (1u << (kBits - 1));
    const std::uint32_t code = encode_magnitude(magnitude) | sign;
    return static_cast<std::uint8_t>(magnitude > kFloatInfBits ? static_cast<std::uint32_t>(kSpec.nan_code) : code);
  }

  /// Exact. A NaN code gives a quiet NaN.
  FP4PA_FN static constexpr float decode(std::uint8_t code) {
    const std::uint32_t magnitude = code & kMagnitudeMask;
    const std::uint32_t sign = static_cast<std::uint32_t>(code & (1u << (kBits - 1))) << (32 - kBits);
    const std::uint32_t shifted = magnitude << (23 - kMantissaBits);
    std::uint32_t value = shifted + (static_cast<std::uint32_t>(127 - kBias) << 23);
    if (magnitude < (1u << kMantissaBits)) {
      // Subnormal: put the mantissa behind an implicit one, and take the one away again. Both are exact.
      const float one = float_from_bits(kMinNormalExponent << 23);
      value = float_bits(float_from_bits(shifted + (kMinNormalExponent << 23)) - one);
    }
    if (magnitude > static_cast<std::uint32_t>(kSpec.max_code)) {
      const bool infinite = kSpec.has_infinity && magnitude == static_cast<std::uint32_t>(kSpec.max_code) + 1u;
      value = infinite ? kFloatInfBits : kFloatNanBits;
    }
    return float_from_bits(value | sign);
  }
};

}  // namespace fp4pa::core
