// NVFP4 groups: 16 E2M1 elements, one E4M3 scale sf, one f32 multiplier `global` for the whole tensor or head.
// value = e2m1 * sf * global; `global` is the decode multiplier, positive and in [2^-126, 2^126].
//
// Encoding normalises by the global scale first, t = |x| * (1 / global), two float operations that round as any
// float operation does, and is exact from there on: sf = e4m3(amax_t / 6), and each code is the E2M1 value nearest to
// the real number t / sf, ties to even, with sf as stored. With a power of two as global scale nothing but the codes
// is ever rounded. Every step gives the same bits on every device, with or without fused multiply-add.
//
// sf has no smallest value but E4M3's: it may be subnormal, and where amax_t / 6 is at most 2^-10 it is 0 and the codes
// are +-0. It saturates at 448, and then codes saturate at +-6. NaN or infinity in a group makes sf 0x7F and all
// codes 0x7.
// Source: NVIDIA, "Introducing NVFP4" (the format); the four-over-six choice is Cook et al., 2025, as in vLLM.
#pragma once

#include <cstdint>

#include "core/formats/amax.hpp"
#include "core/formats/elements.hpp"
#include "core/formats/pack.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

/// |x| in units of the global scale. Clamped to 4096, above which sf and codes all saturate. The clamp is done on
/// bits, which also keeps compilers from fusing this product into the differences below.
/// @param to_units  1 / global
FP4PA_FN constexpr float nvfp4_in_units(float x, float to_units) {
  const std::uint32_t bits = magnitude_bits(x * to_units);
  const std::uint32_t limit = float_bits(4096.0f);
  return float_from_bits(bits < limit ? bits : limit);
}
FP4PA_FN constexpr float nvfp4_normalise(float x, float global) { return nvfp4_in_units(x, 1.0f / global); }

/// Magnitude code (0 to 7) of t / sf: the nearest E2M1 value to the exact quotient, ties to even, without a division
/// per element. The tie points, times sf, have at most 7 significant bits. So t may be cut to 12 bits if a lost bit is
/// remembered in the last one (round to odd): it stays on its side of every tie. The product with the rounded
/// reciprocal is then either within 2^-22 of a tie and meant it, or 2^-12 away; rounding to 16 bits tells them apart.
/// @param t  normalised, not NaN
FP4PA_FN constexpr std::uint32_t nvfp4_magnitude_code(float t, float sf) {
  const float reciprocal = sf > 0.0f ? 1.0f / sf : 0.0f;
  const std::uint32_t bits = float_bits(t);
  const std::uint32_t odd = (bits | ((bits & 0xfffu) + 0xfffu)) & ~0xfffu;
  const std::uint32_t quotient = float_bits(float_from_bits(odd) * reciprocal);
  return E2M1::encode_magnitude((quotient + 0x80u) & ~0xffu);
}

/// Code of one element under a scale that is already chosen. NaN in x or sf gives 0x7.
FP4PA_FN constexpr std::uint8_t e2m1_code_nvfp4(float x, std::uint8_t sf, float global) {
  const std::uint32_t code = nvfp4_magnitude_code(nvfp4_normalise(x, global), UE4M3::decode(sf));
  const std::uint32_t sign = (float_bits(x) >> 28) & 8u;
  const bool nan = (sf & 0x7fu) == UE4M3::kNan || magnitude_bits(x) > kFloatInfBits;
  return static_cast<std::uint8_t>(nan ? 7u : code | sign);
}

/// (e2m1 * sf) is exact; the product with the global scale rounds once.
FP4PA_FN constexpr float nvfp4_value(std::uint8_t code, std::uint8_t sf, float global) {
  return (E2M1::decode(code) * UE4M3::decode(sf)) * global;
}

/// The squared error of a group under one scale, as an exact integer: differences are rounded to 2^-22 of amax's binade
/// and summed in 64 bits, so that the sum depends neither on the order nor on fused multiply-add, and a group may be
/// spread over lanes.
struct Nvfp4SquaredError {
  float sf;
  float unit_reciprocal;  // 2^22 / (power of two just above amax_t)

  /// @param amax_t  normalised amax of the group, at least 2^-10
  FP4PA_FN static constexpr Nvfp4SquaredError make(float amax_t, std::uint8_t scale) {
    const int exponent = static_cast<int>(float_bits(amax_t) >> 23) - 127;
    return {UE4M3::decode(scale), exp2_exact(21 - exponent)};
  }

  /// @param t  normalised, at most amax_t
  FP4PA_FN constexpr std::uint64_t term(float t) const {
    const std::uint8_t code = static_cast<std::uint8_t>(nvfp4_magnitude_code(t, sf));
    // Both products are exact (6 bits, and a power of two), so fusing them with the sums changes nothing.
    // 1.5 * 2^23 has an ulp of 1: the sum's low bits are the difference as an integer below 2^22 in magnitude.
    const float difference = t - E2M1::decode(code) * sf;
    const float rounded = difference * unit_reciprocal + 12582912.0f;
    const std::int64_t steps = static_cast<std::int32_t>(float_bits(rounded)) - 0x4b400000;
    return static_cast<std::uint64_t>(steps * steps);
  }
};

/// The scales that a group may get, from its amax: {amax / 6, amax / 4} as E4M3 codes. Without four-over-six, or where
/// there is nothing to choose (NaN, zero, both the same), they are equal.
struct Nvfp4Candidates {
  std::uint8_t six;
  std::uint8_t four;
};

FP4PA_FN constexpr Nvfp4Candidates nvfp4_candidates_in_units(float amax, float to_units, Nvfp4Scale choice) {
  if (magnitude_bits(amax) >= kFloatInfBits) return {UE4M3::kNan, UE4M3::kNan};
  const float t = nvfp4_in_units(amax, to_units);
  const std::uint8_t six = UE4M3::encode(t / 6.0f);
  return {six, choice == Nvfp4Scale::kFourOverSix ? UE4M3::encode(t * 0.25f) : six};
}

FP4PA_FN constexpr Nvfp4Candidates nvfp4_candidates(float amax, float global, Nvfp4Scale choice) {
  return nvfp4_candidates_in_units(amax, 1.0f / global, choice);
}

/// The candidate under which the n elements `load(i)` have the smaller squared error: amax / 4 only if it is strictly smaller.
template <class Load>
FP4PA_FN constexpr std::uint8_t nvfp4_better(int n, const Load& load, float amax, float global,
                                             Nvfp4Candidates candidates) {
  const float amax_t = nvfp4_normalise(amax, global);
  const auto six = Nvfp4SquaredError::make(amax_t, candidates.six);
  const auto four = Nvfp4SquaredError::make(amax_t, candidates.four);
  std::uint64_t error_six = 0;
  std::uint64_t error_four = 0;
  for (int i = 0; i < n; ++i) {
    const float t = nvfp4_normalise(load(i), global);
    error_six += six.term(t);
    error_four += four.term(t);
  }
  return error_four < error_six ? candidates.four : candidates.six;
}

/// Scale of a group whose elements are read through `load(i)`, i in [0, n): for columns and other strides.
template <class Load>
FP4PA_FN constexpr std::uint8_t nvfp4_scale_of(int n, const Load& load, float global, Nvfp4Scale choice) {
  std::uint32_t amax_bits = 0;
  for (int i = 0; i < n; ++i) amax_bits = amax_step(amax_bits, load(i));
  const float amax = float_from_bits(amax_bits);
  const Nvfp4Candidates candidates = nvfp4_candidates(amax, global, choice);
  if (candidates.six == candidates.four) return candidates.six;
  return nvfp4_better(n, load, amax, global, candidates);
}

/// @param x  n elements (16 in the format), `stride` elements apart
FP4PA_FN constexpr std::uint8_t nvfp4_scale(const float* x, int n, float global, Nvfp4Scale choice,
                                            std::int64_t stride = 1) {
  struct Strided {
    const float* x;
    std::int64_t stride;
    FP4PA_FN constexpr float operator()(int i) const { return x[i * stride]; }
  };
  return nvfp4_scale_of(n, Strided{x, stride}, global, choice);
}

/// @param x       [16]
/// @param packed  [8] bytes, even element in the low nibble
/// @return        the E4M3 scale byte, sign bit clear
FP4PA_FN constexpr std::uint8_t encode_nvfp4(const float* x, float global, Nvfp4Scale choice, std::uint8_t* packed) {
  const std::uint8_t sf = nvfp4_scale(x, 16, global, choice);
  for (int i = 0; i < 16; i += 2) {
    packed[i / 2] = pack_e2m1(e2m1_code_nvfp4(x[i], sf, global), e2m1_code_nvfp4(x[i + 1], sf, global));
  }
  return sf;
}

/// @param packed  [8] bytes
/// @param x       [16]
FP4PA_FN constexpr void decode_nvfp4(const std::uint8_t* packed, std::uint8_t sf, float global, float* x) {
  for (int i = 0; i < 16; ++i) x[i] = nvfp4_value(unpack_e2m1(packed[i / 2], i % 2), sf, global);
}

}  // namespace fp4pa::core
