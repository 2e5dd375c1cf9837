// MX blocks: elements that share one E8M0 scale. MXFP4 (E2M1, 32 elements), MXFP8 (E4M3, 32) and e8m0_per_token (E2M1,
// one token's whole head_dim).
//
// The scale is chosen first, and the elements are then encoded with the scale as stored. A power of two divides
// exactly, so the only rounding is the element's own.
//
// NaN or infinity in a block makes its scale 0xFF and every code the element's NaN code: 0x7 (E2M1), 0x7F (E4M3). A
// zero block has scale 0 and codes 0 (with the sign bit for -0). Source: OCP MX v1.0, 5.1 and 6.3.
#pragma once

#include <cstdint>

#include "core/formats/amax.hpp"
#include "core/formats/elements.hpp"
#include "core/formats/pack.hpp"
#include "core/formats/scale_mode.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

/// 1 / scale, exact, for codes 0 to 254 (2^127 down to the subnormal 2^-127); NaN for 0xFF.
FP4PA_FN constexpr float e8m0_reciprocal(std::uint8_t scale) {
  return scale == E8M0::kNan ? float_from_bits(kFloatNanBits) : exp2_exact(127 - static_cast<int>(scale));
}

/// Code of one element under a scale that is already chosen: exact division, nearest even, saturating.
template <class Element>
FP4PA_FN constexpr std::uint8_t mx_code(float x, std::uint8_t scale) {
  // The product is exact unless it leaves the float range: below it the code is 0 in any case, above it saturates.
  return Element::encode(x * e8m0_reciprocal(scale));
}

/// Value of one element. Exact, except that values of 2^128 and more (scale 253 and 254 only) overflow to infinity.
template <class Element>
FP4PA_FN constexpr float mx_value(std::uint8_t code, std::uint8_t scale) {
  return Element::decode(code) * E8M0::decode(scale);
}

FP4PA_FN constexpr std::uint8_t e2m1_code(float x, std::uint8_t e8m0_scale) { return mx_code<E2M1>(x, e8m0_scale); }
FP4PA_FN constexpr std::uint8_t e4m3_code(float x, std::uint8_t e8m0_scale) { return mx_code<E4M3>(x, e8m0_scale); }

/// One E8M0 scale over n elements.
/// @param x       [n], n even
/// @param packed  [n/2] bytes, even element in the low nibble
/// @return        the scale byte
FP4PA_FN constexpr std::uint8_t encode_e2m1_e8m0(const float* x, int n, ScaleMode mode, std::uint8_t* packed) {
  const std::uint8_t scale = e8m0_from_amax<E2M1>(group_amax(x, n), mode);
  for (int i = 0; i < n; i += 2) packed[i / 2] = pack_e2m1(e2m1_code(x[i], scale), e2m1_code(x[i + 1], scale));
  return scale;
}

/// @param packed  [n/2] bytes
/// @param x       [n], n even
FP4PA_FN constexpr void decode_e2m1_e8m0(const std::uint8_t* packed, int n, std::uint8_t scale, float* x) {
  for (int i = 0; i < n; ++i) x[i] = mx_value<E2M1>(unpack_e2m1(packed[i / 2], i % 2), scale);
}

/// One MXFP4 block. N is 32 in the format; any even N serves.
template <int N>
FP4PA_FN constexpr std::uint8_t encode_mxfp4(const float (&x)[N], ScaleMode mode, std::uint8_t* packed) {
  static_assert(N % 2 == 0);
  return encode_e2m1_e8m0(x, N, mode, packed);
}

template <int N>
FP4PA_FN constexpr void decode_mxfp4(const std::uint8_t* packed, std::uint8_t scale, float (&x)[N]) {
  static_assert(N % 2 == 0);
  decode_e2m1_e8m0(packed, N, scale, x);
}

/// One E8M0 scale over n E4M3 elements (32 in the format).
/// @param x      [n]
/// @param codes  [n] bytes
/// @return       the scale byte
FP4PA_FN constexpr std::uint8_t encode_mxfp8(const float* x, int n, ScaleMode mode, std::uint8_t* codes) {
  const std::uint8_t scale = e8m0_from_amax<E4M3>(group_amax(x, n), mode);
  for (int i = 0; i < n; ++i) codes[i] = e4m3_code(x[i], scale);
  return scale;
}

FP4PA_FN constexpr void decode_mxfp8(const std::uint8_t* codes, int n, std::uint8_t scale, float* x) {
  for (int i = 0; i < n; ++i) x[i] = mx_value<E4M3>(codes[i], scale);
}

}  // namespace fp4pa::core
