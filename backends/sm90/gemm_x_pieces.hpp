// Pieces of X, eight columns in 16 bytes, on their way into a block's shared memory, where the products with few rows want f16 in pairs.
// X in bf16 is multiplied by the power of two that puts the largest element of a part of a row between 2^13 and 2^14
// (core/gemm/prepare.hpp), which the part's sums are divided by again.
//
// Infinity and NaN count as largest: what they leave of finite elements does not show beside them.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "core/gemm/prepare.hpp"

namespace fp4pa::sm90 {

/// The larger magnitude of the bf16 in each half, of `most` and eight elements.
__device__ __forceinline__ std::uint32_t largest_bf16(std::uint32_t most, const uint4& x) {
  constexpr std::uint32_t kMagnitudes = 0x7fff7fffu;
  most = sm80::max_halves(sm80::max_halves(most, x.x & kMagnitudes), x.y & kMagnitudes);
  return sm80::max_halves(sm80::max_halves(most, x.z & kMagnitudes), x.w & kMagnitudes);
}
/// The larger of the two halves, as the upper half of an f32.
__device__ __forceinline__ std::uint32_t larger_half(std::uint32_t most) {
  return most > (most << 16) ? most & 0xffff0000u : most << 16;
}

/// What a part of a row with this largest magnitude is multiplied by, and what brings its sums back.
__device__ __forceinline__ float scale_of_row(std::uint32_t largest) { return core::row_scale(__uint_as_float(largest)); }
__device__ __forceinline__ float inverse_of_scale(float scale) {
  return __uint_as_float((254u << 23) - __float_as_uint(scale));  // of a power of two
}

/// Eight columns as the decoded codes are paired: each with the fourth behind it.
__device__ __forceinline__ uint4 paired(const uint4& x) {
  return make_uint4(__byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632), __byte_perm(x.y, x.w, 0x5410),
                    __byte_perm(x.y, x.w, 0x7632));
}
/// The same of bf16, times `scale` in f16.
__device__ __forceinline__ uint4 paired_in_f16(const uint4& x, float scale) {
  const auto low = [scale](std::uint32_t a, std::uint32_t b) {
    return sm80::pack_f16(__uint_as_float(a << 16) * scale, __uint_as_float(b << 16) * scale);
  };
  const auto high = [scale](std::uint32_t a, std::uint32_t b) {
    return sm80::pack_f16(__uint_as_float(a & 0xffff0000u) * scale, __uint_as_float(b & 0xffff0000u) * scale);
  };
  return make_uint4(low(x.x, x.z), high(x.x, x.z), low(x.y, x.w), high(x.y, x.w));
}

}  // namespace fp4pa::sm90
