// Codes to the operands of gfx950's block-scaled products, and by its conversions to those of its 16-bit ones. Plain functions on words,
// compiled for the host too; results are equal bit for bit.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/gfx942/convert.hpp"
#include "core/atom/element.hpp"
#include "core/formats/elements.hpp"

namespace fp4pa::gfx950 {

/// The two codes of a word's lowest or highest byte to f16 or bf16, the lower nibble in the lower half: v_cvt_scalef32_pk_*_fp4 with a
/// scale of 1. It could read any byte, but which of two bits is which, where one alone is set, compilers had two opinions of
/// (docs/gfx950.md).
template <class Element, bool kHighest = false>
FP4PA_FN std::uint32_t e2m1_byte_to(std::uint32_t word) {
#if defined(__AMDGCN__) && defined(__gfx950__)
  constexpr int kByte = kHighest ? 3 : 0;
  if constexpr (std::is_same_v<Element, core::BF16>) {
    return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(word, 1.0f, kByte));
  } else {
    return __builtin_bit_cast(std::uint32_t, __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(word, 1.0f, kByte));
  }
#else
  if constexpr (kHighest) word >>= 24;
  const float low = core::E2M1::decode(static_cast<std::uint8_t>(word & 15u));
  const float high = core::E2M1::decode(static_cast<std::uint8_t>(word >> 4 & 15u));
  return std::is_same_v<Element, core::BF16> ? gfx942::pack_bf16(low, high) : gfx942::pack_f16(low, high);
#endif
}

/// The eight codes of a word to f16, in their order.
FP4PA_FN void e2m1_word_to_f16(std::uint32_t codes, std::uint32_t (&pairs)[4]) {
  const std::uint32_t turned = codes << 16 | codes >> 16;
  pairs[0] = e2m1_byte_to<core::F16>(codes);
  pairs[1] = e2m1_byte_to<core::F16, true>(turned);
  pairs[2] = e2m1_byte_to<core::F16>(turned);
  pairs[3] = e2m1_byte_to<core::F16, true>(codes);
}

/// How a product decodes W (gfx942::TableCodes).
struct ConvertedCodes {
  static constexpr bool kPaired = FP4PA_GFX950_SCALED_CONVERSIONS == 0;
  FP4PA_FN static void to_f16(std::uint32_t codes, std::uint32_t (&pairs)[4]) {
    if constexpr (kPaired) {
      gfx942::e2m1_to_f16(codes, pairs);
    } else {
      e2m1_word_to_f16(codes, pairs);
    }
  }
};

/// Four values of magnitude up to 448 to E4M3, the first in the lowest byte; to nearest even, NaN to NaN.
FP4PA_FN std::uint32_t pack_e4m3(float a, float b, float c, float d) {
#if defined(__AMDGCN__) && defined(__gfx950__)
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0, false);
  return static_cast<std::uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(c, d, low, true));
#else
  using core::E4M3;
  return std::uint32_t{E4M3::encode(a)} | std::uint32_t{E4M3::encode(b)} << 8 | std::uint32_t{E4M3::encode(c)} << 16 |
         std::uint32_t{E4M3::encode(d)} << 24;
#endif
}

/// The four values of a word of E4M3 codes.
FP4PA_FN void unpack_e4m3(std::uint32_t codes, float (&out)[4]) {
#if defined(__AMDGCN__) && defined(__gfx950__)
  const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(codes), false);
  const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(codes), true);
  out[0] = low[0];
  out[1] = low[1];
  out[2] = high[0];
  out[3] = high[1];
#else
  for (int i = 0; i < 4; ++i) out[i] = core::E4M3::decode(static_cast<std::uint8_t>(codes >> (8 * i)));
#endif
}

/// Words of 16-bit columns to words of nibbles. A lane has four neighbouring dims of eight tokens, two tokens a word: 0 and 4,
/// 1 and 5, 2 and 6, 3 and 7. Of dim m it gets the eight tokens in their order, in out[m].
FP4PA_FN void separate_dims(const std::uint32_t (&w)[4], std::uint32_t (&out)[4]) {
  constexpr std::uint32_t kEven = 0x0f0f0f0fu;
  const std::uint32_t even_low = (w[0] & kEven) | ((w[1] << 4) & ~kEven);   // dims 0 and 2 of tokens 0 and 1, 4 and 5
  const std::uint32_t odd_low = ((w[0] >> 4) & kEven) | (w[1] & ~kEven);    // dims 1 and 3
  const std::uint32_t even_high = (w[2] & kEven) | ((w[3] << 4) & ~kEven);  // of tokens 2 and 3, 6 and 7
  const std::uint32_t odd_high = ((w[2] >> 4) & kEven) | (w[3] & ~kEven);
  out[0] = gfx942::permute_bytes(even_high, even_low, 0x06020400u);
  out[1] = gfx942::permute_bytes(odd_high, odd_low, 0x06020400u);
  out[2] = gfx942::permute_bytes(even_high, even_low, 0x07030501u);
  out[3] = gfx942::permute_bytes(odd_high, odd_low, 0x07030501u);
}

}  // namespace fp4pa::gfx950
