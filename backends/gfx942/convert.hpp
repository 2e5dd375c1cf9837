// From the codes of a cache to the 16-bit operands of mfma, two values a register.
//
// Codes become the values themselves: no power of two is left for somebody to take away, and no f16 or bf16 operand is
// subnormal. E2M1's eight magnitudes are looked up by v_perm_b32, four codes at a time: of an f16 only the upper byte differs.
//
// Plain functions on words, compiled for the host too; results are equal bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "core/macros.hpp"
#include "core/math.hpp"

#if !defined(FP4PA_GFX950_SCALED_CONVERSIONS)
#define FP4PA_GFX950_SCALED_CONVERSIONS 1  // 0: E2M1 by table, as on gfx942, and E4M3 by way of f32
#endif

namespace fp4pa::gfx942 {

/// v_perm_b32: byte i of the result is byte `s` of low (s 0 to 3) or of high (4 to 7), s being byte i of the selector; 12 is 0.
FP4PA_FN std::uint32_t permute_bytes(std::uint32_t high, std::uint32_t low, std::uint32_t selector) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_perm(high, low, selector);
#else
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t s = (selector >> (8 * i)) & 0xffu;
    if (s < 8) out |= static_cast<std::uint32_t>((both >> (8 * s)) & 0xffu) << (8 * i);
  }
  return out;
#endif
}

/// Eight codes, nibble n of q, to f16: out[p] holds nibble p in its lower and nibble p + 4 in its upper half.
FP4PA_FN void e2m1_to_f16(std::uint32_t q, std::uint32_t (&out)[4]) {
  // Upper bytes of 0, 0.5, 1, 1.5 and of 2, 3, 4, 6.
  constexpr std::uint32_t kLow = 0x3e3c3800u;
  constexpr std::uint32_t kHigh = 0x46444240u;
  const std::uint32_t q4 = q >> 4;
  const std::uint32_t even = permute_bytes(kHigh, kLow, q & 0x07070707u) | ((q << 4) & 0x80808080u);
  const std::uint32_t odd = permute_bytes(kHigh, kLow, q4 & 0x07070707u) | (q & 0x80808080u);
  out[0] = permute_bytes(0, even, 0x020c000cu);
  out[1] = permute_bytes(0, odd, 0x020c000cu);
  out[2] = even & 0xff00ff00u;
  out[3] = odd & 0xff00ff00u;
}

/// The same to bf16, whose lower bytes differ too.
FP4PA_FN void e2m1_to_bf16(std::uint32_t q, std::uint32_t (&out)[4]) {
  constexpr std::uint32_t kUpperLow = 0x3f3f3f00u;
  constexpr std::uint32_t kUpperHigh = 0x40404040u;
  constexpr std::uint32_t kLowerLow = 0xc0800000u;
  constexpr std::uint32_t kLowerHigh = 0xc0804000u;
  const std::uint32_t q4 = q >> 4;
  const std::uint32_t even = permute_bytes(kUpperHigh, kUpperLow, q & 0x07070707u) | ((q << 4) & 0x80808080u);
  const std::uint32_t odd = permute_bytes(kUpperHigh, kUpperLow, q4 & 0x07070707u) | (q & 0x80808080u);
  const std::uint32_t even_low = permute_bytes(kLowerHigh, kLowerLow, q & 0x07070707u);
  const std::uint32_t odd_low = permute_bytes(kLowerHigh, kLowerLow, q4 & 0x07070707u);
  out[0] = permute_bytes(even, even_low, 0x06020400u);
  out[1] = permute_bytes(odd, odd_low, 0x06020400u);
  out[2] = permute_bytes(even, even_low, 0x07030501u);
  out[3] = permute_bytes(odd, odd_low, 0x07030501u);
}

FP4PA_FN std::uint32_t pack_f16(float low, float high) {
#if defined(__AMDGCN__)
  using Half2 = _Float16 __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(std::uint32_t, Half2{static_cast<_Float16>(low), static_cast<_Float16>(high)});
#else
  return std::uint32_t{core::f32_to_f16(low)} | std::uint32_t{core::f32_to_f16(high)} << 16;
#endif
}
FP4PA_FN std::uint32_t pack_bf16(float low, float high) {
#if defined(__AMDGCN__) && defined(__gfx950__)
  using Bfloat2 = __bf16 __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(std::uint32_t, Bfloat2{static_cast<__bf16>(low), static_cast<__bf16>(high)});
#else
  return std::uint32_t{core::f32_to_bf16(low)} | std::uint32_t{core::f32_to_bf16(high)} << 16;
#endif
}

/// Two bf16, none below 0, times 2^(byte - top) each: `bytes` has E8M0 scales in the lower byte of each half, `top` in both halves
/// 2^7 times what no byte exceeds. Exponents are added as integers; what would be less than 2^-126 ends between 0 and that, and 0 stays 0.
FP4PA_FN std::uint32_t scale_bf16(std::uint32_t pair, std::uint32_t bytes, std::uint32_t top) {
  const std::uint32_t sum = (bytes << 7) + pair;
#if defined(__AMDGCN__)
  using Short2 = unsigned short __attribute__((ext_vector_type(2)));
  const auto least = __builtin_elementwise_max(__builtin_bit_cast(Short2, sum), __builtin_bit_cast(Short2, top));
  return __builtin_bit_cast(std::uint32_t, least) - top;
#else
  const auto above = [&](int shift) {
    const std::uint32_t half = sum >> shift & 0xffffu;
    const std::uint32_t limit = top >> shift & 0xffffu;
    return half > limit ? half - limit : 0u;
  };
  return above(0) | above(16) << 16;
#endif
}

/// Two E4M3 (OCP) codes, bytes 2 kPair and 2 kPair + 1 of a word, to f16. Exact; NaN gives NaN.
///
/// gfx942's own conversions read another format, FNUZ. Of gfx950's those with a scale, here 1, make f16 and bf16, the others f32.
template <int kPair>
FP4PA_FN std::uint32_t e4m3_to_f16(std::uint32_t codes) {
#if defined(__AMDGCN__) && defined(__gfx950__) && FP4PA_GFX950_SCALED_CONVERSIONS
  return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(codes, 1.0f, kPair == 1));
#elif defined(__AMDGCN__) && defined(__gfx950__)
  const auto values = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(codes), kPair == 1);
  return pack_f16(values[0], values[1]);
#elif defined(__AMDGCN__)
  // The bits moved are the value times 2^-8, subnormals included. NaN comes out as 480, which alone is infinite times 137, and infinity
  // times 0 is NaN: of two codes at once, where comparisons would take them one by one.
  using Half2 = _Float16 __attribute__((ext_vector_type(2)));
  const std::uint32_t spread = permute_bytes(0, codes, kPair == 0 ? 0x0c010c00u : 0x0c030c02u);
  const Half2 moved = __builtin_bit_cast(Half2, ((spread & 0x00800080u) << 8) | ((spread & 0x007f007fu) << 7));
  const Half2 value = moved * Half2{256.0f16, 256.0f16};
  const Half2 nan = moved * Half2{35072.0f16, 35072.0f16} * Half2{0.0f16, 0.0f16};  // or a zero of the value's sign
  return __builtin_bit_cast(std::uint32_t, value) | __builtin_bit_cast(std::uint32_t, nan);
#else
  const auto one = [](std::uint32_t code) {
    return std::uint32_t{core::f32_to_f16(core::E4M3::decode(static_cast<std::uint8_t>(code)))};
  };
  return one(codes >> 16 * kPair & 0xffu) | one(codes >> (16 * kPair + 8) & 0xffu) << 16;
#endif
}

/// Byte `index` of a word as an E8M0 scale. 2^-127 (code 0) becomes as good as 0; 0xFF becomes NaN by the stray last bit,
/// which changes every other value by less than f32 can tell from rounding.
FP4PA_FN float e8m0_to_f32(std::uint32_t word, int index) {
  const std::uint32_t moved = index == 0 ? word << 23 : index == 1 ? word << 15 : index == 2 ? word << 7 : word >> 1;
  return std::bit_cast<float>((moved & 0x7f800000u) | 1u);
}

/// a * b in each half.
FP4PA_FN std::uint32_t multiply_f16(std::uint32_t a, std::uint32_t b) {
#if defined(__AMDGCN__)
  using Half2 = _Float16 __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(Half2, a) * __builtin_bit_cast(Half2, b));
#else
  const auto one = [&](int s) {
    return std::uint32_t{core::f32_to_f16(core::f16_to_f32(static_cast<std::uint16_t>(a >> s)) *
                                          core::f16_to_f32(static_cast<std::uint16_t>(b >> s)))};
  };
  return one(0) | one(16) << 16;
#endif
}

/// Two E4M3 codes as in e4m3_to_f16, to bf16. Exact.
template <int kPair>
FP4PA_FN std::uint32_t e4m3_to_bf16(std::uint32_t codes) {
#if defined(__AMDGCN__) && defined(__gfx950__) && FP4PA_GFX950_SCALED_CONVERSIONS
  return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(codes, 1.0f, kPair == 1));
#elif defined(__AMDGCN__) && defined(__gfx950__)
  const auto values = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(codes), kPair == 1);
  return pack_bf16(values[0], values[1]);
#else
  const std::uint32_t halves = e4m3_to_f16<kPair>(codes);
  return pack_bf16(core::f16_to_f32(static_cast<std::uint16_t>(halves)),
                   core::f16_to_f32(static_cast<std::uint16_t>(halves >> 16)));
#endif
}

/// What is left of low and high after packing them: the second term of a query.
FP4PA_FN std::uint32_t pack_f16_rest(float low, float high, std::uint32_t packed) {
  return pack_f16(low - core::f16_to_f32(static_cast<std::uint16_t>(packed)),
                  high - core::f16_to_f32(static_cast<std::uint16_t>(packed >> 16)));
}
FP4PA_FN std::uint32_t pack_bf16_rest(float low, float high, std::uint32_t packed) {
  return pack_bf16(low - core::bf16_to_f32(static_cast<std::uint16_t>(packed)),
                   high - core::bf16_to_f32(static_cast<std::uint16_t>(packed >> 16)));
}

/// 2^x to about 1 ulp; below 2^-126 the result is 0.
FP4PA_FN float exp2_fast(float x) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_exp2f(x);
#else
  return core::math::exp2(x);
#endif
}

}  // namespace fp4pa::gfx942
