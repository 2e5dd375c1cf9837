// The element and scale formats of libfp4pa by name. docs/formats.md has their bit tables and rules.
//
// Common to all: encode rounds to nearest, ties to even, and saturates finite values and infinities to the largest
// finite value, as the satfinite conversions of PTX do; decode is exact. NaN gives the format's positive NaN, or +kMax
// where there is none; that too is what the PTX instructions and cuda_fp4.h do, so that a back end may use them.
// Sources: OCP MX v1.0, OCP OFP8 v1.0; E4M3 FNUZ as in the CDNA3 ISA (bias 8, one NaN in the place of -0).
#pragma once

#include <cstdint>

#include "core/formats/minifloat.hpp"

namespace fp4pa::core {

/// FP4. 0 0.5 1 1.5 2 3 4 6, and the same with bit 3 set for the negatives. NaN encodes to +6.
struct E2M1 : Minifloat<MinifloatSpec{2, 1, 1, 0x07, 0x07, false}> {};

/// FP6 with the longer mantissa: up to 7.5 in steps of 1/8 to 1/2. NaN encodes to +7.5.
struct E2M3 : Minifloat<MinifloatSpec{2, 3, 1, 0x1f, 0x1f, false}> {};

/// FP6 with the longer exponent: up to 28. NaN encodes to +28.
struct E3M2 : Minifloat<MinifloatSpec{3, 2, 3, 0x1f, 0x1f, false}> {};

/// FP8 of OCP: up to 448, no infinity, NaN is 0x7F (and 0xFF).
struct E4M3 : Minifloat<MinifloatSpec{4, 3, 7, 0x7e, 0x7f, false}> {};

/// FP8 with infinity (0x7C), which encode never makes: up to 57344, NaN is 0x7F (and 0x7D, 0x7E, and the negatives).
struct E5M2 : Minifloat<MinifloatSpec{5, 2, 15, 0x7b, 0x7f, true}> {};

/// FP8 of gfx942: twice the bias range of E4M3, up to 240, no infinity and no -0; 0x80 is the only NaN.
struct E4M3Fnuz {
  using Magnitude = Minifloat<MinifloatSpec{4, 3, 8, 0x7f, 0x7f, false}>;
  static constexpr int kBits = Magnitude::kBits;
  static constexpr int kExponentBits = Magnitude::kExponentBits;
  static constexpr int kMantissaBits = Magnitude::kMantissaBits;
  static constexpr int kBias = Magnitude::kBias;
  static constexpr int kEmax = Magnitude::kEmax;
  static constexpr float kMax = Magnitude::kMax;

  /// A negative value that rounds to zero gives 0x00.
  FP4PA_FN static constexpr std::uint8_t encode(float x) {
    const std::uint32_t magnitude = magnitude_bits(x);
    if (magnitude > kFloatInfBits) return 0x80;
    const std::uint32_t code = Magnitude::encode_magnitude(magnitude);
    return static_cast<std::uint8_t>(code == 0 ? 0u : code | ((float_bits(x) >> 24) & 0x80u));
  }

  FP4PA_FN static constexpr float decode(std::uint8_t code) {
    return code == 0x80 ? float_from_bits(kFloatNanBits) : Magnitude::decode(code);
  }
};

/// NVFP4's scale: E4M3 of which only the magnitude counts. The sign bit is ignored when decoding; negative values
/// encode to 0, the nearest that is left.
struct UE4M3 {
  static constexpr int kBits = 8;
  static constexpr int kExponentBits = E4M3::kExponentBits;
  static constexpr int kMantissaBits = E4M3::kMantissaBits;
  static constexpr int kBias = E4M3::kBias;
  static constexpr int kEmax = E4M3::kEmax;
  static constexpr float kMax = E4M3::kMax;
  static constexpr std::uint8_t kNan = 0x7f;

  FP4PA_FN static constexpr std::uint8_t encode(float x) {
    const std::uint32_t magnitude = magnitude_bits(x);
    if (magnitude > kFloatInfBits) return kNan;
    return static_cast<std::uint8_t>(float_bits(x) != magnitude ? 0u : E4M3::encode_magnitude(magnitude));
  }

  FP4PA_FN static constexpr float decode(std::uint8_t code) {
    return E4M3::decode(static_cast<std::uint8_t>(code & 0x7fu));
  }
};

/// A power of two, 2^(code - 127) for codes 0 to 254; 0xFF is NaN. No zero and no sign. Code 0 is 2^-127, a subnormal
/// float.
struct E8M0 {
  static constexpr int kBits = 8;
  static constexpr int kExponentBits = 8;
  static constexpr int kMantissaBits = 0;
  static constexpr int kBias = 127;
  static constexpr int kEmax = 127;
  static constexpr float kMax = 0x1p127f;
  static constexpr std::uint8_t kNan = 0xff;

  /// The nearest power of two (3 * 2^k is a tie: the even code wins), saturating to codes 0 and 254. Zeros of either
  /// sign give 0; NaN and negative values give NaN. The scale of a block is not chosen this way: see scale_mode.hpp.
  FP4PA_FN static constexpr std::uint8_t encode(float x) {
    const std::uint32_t bits = float_bits(x);
    if (bits > kFloatInfBits) return bits == kFloatSignBit ? 0 : kNan;
    // Below 2^-126 the exponent field is 0 for all values: only those above 1.5 * 2^-127 leave code 0.
    if (bits < 0x00800000u) return bits > 0x00600000u ? 1 : 0;
    const std::uint32_t code = (bits + 0x003fffffu + ((bits >> 23) & 1u)) >> 23;
    return static_cast<std::uint8_t>(code < 254u ? code : 254u);
  }

  FP4PA_FN static constexpr float decode(std::uint8_t code) {
    if (code == kNan) return float_from_bits(kFloatNanBits);
    return exp2_exact(static_cast<int>(code) - kBias);
  }
};

}  // namespace fp4pa::core
