// A weight's scales as factors of 16 bits that decoded codes are multiplied by on sm_90, exactly, and what the sums are counted in then.
//
// Decoded codes are 2^-14 of their size in f16 and 2^-126 in bf16 (backends/sm80/convert.hpp). A factor makes up for most of that:
//
//   f16, E8M0    2^(e - 127 + 11), for scales of 2^-20 to 2^4    sums at 2^-3
//   f16, E4M3    as it is                                        sums at 2^-14
//   bf16, E8M0   2^(e - 127 + 120), for scales up to 2^7         sums at 2^-6
//   bf16, E4M3   times 2^114                                     sums at 2^-12
//
// With bf16 a scale of 2^-127 is as good as 0.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/gemm_scale.hpp"

namespace fp4pa::sm90 {

template <bool kNvfp4, bool kBf16>
struct WeightUnit {
  /// What undoes the powers of two.
  static constexpr float kSum = kBf16 ? (kNvfp4 ? 4096.0f : 64.0f) : (kNvfp4 ? 16384.0f : 8.0f);

  /// Whether an E8M0 scale has a factor.
  [[nodiscard]] __device__ __forceinline__ static bool holds(std::uint32_t e8m0) {
    if constexpr (kBf16) return e8m0 <= kMostBf16;
    return sm80::in_f16(e8m0);
  }
  /// Whether one of four has none.
  [[nodiscard]] __device__ __forceinline__ static bool outside(std::uint32_t four) {
    if constexpr (!kBf16) return sm80::outside_f16(four);
    constexpr std::uint32_t kBelow = 0x7f7f7f7fu;  // a byte's highest bit: bytes do not disturb each other
    return (((four & kBelow) + (255u - kMostBf16) * 0x01010101u) & four & 0x80808080u) != 0;
  }
  /// Of two E8M0 scales, one in the lowest byte of each half.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t factors(std::uint32_t two) {
    return kBf16 ? (two << 7) + (120u << 7) * 0x10001u : (two << 10) - (101u << 10) * 0x10001u;
  }
  /// Of two E4M3 scales in the two lowest bytes.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t factors_of_e4m3(std::uint32_t two) {
    const std::uint32_t pair = sm80::e4m3_to_f16(two);
    if constexpr (!kBf16) return pair;
    constexpr float kUp = 0x1p114f;
    return sm80::pack_bf16(sm80::f16_to_f32(pair, 0) * kUp, sm80::f16_to_f32(pair, 1) * kUp);
  }

 private:
  static constexpr std::uint32_t kMostBf16 = 134;
};

}  // namespace fp4pa::sm90
