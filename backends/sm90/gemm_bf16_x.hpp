// X in bf16 on its way into a block's shared memory, where the products with few rows want f16: times the power of two that puts the
// largest element of the block's part of a row between 2^13 and 2^14 (core/gemm/prepare.hpp), which its sums are divided by again.
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
/// In all lanes: the largest of a warp's, as the upper half of an f32.
__device__ __forceinline__ std::uint32_t largest_of_warp(std::uint32_t most) {
  return __reduce_max_sync(0xffffffffu, most > (most << 16) ? most & 0xffff0000u : most << 16);
}

/// What a row with this largest magnitude is multiplied by, and what brings its sums back.
__device__ __forceinline__ float scale_of_row(std::uint32_t largest) { return core::row_scale(__uint_as_float(largest)); }
__device__ __forceinline__ float inverse_of_row(std::uint32_t largest) {
  return __uint_as_float((254u << 23) - __float_as_uint(scale_of_row(largest)));  // of a power of two
}

/// Eight elements times `scale` in f16.
__device__ __forceinline__ uint4 bf16_to_f16(const uint4& x, float scale) {
  const auto two = [scale](std::uint32_t w) { return sm80::pack_f16(__uint_as_float(w << 16) * scale, __uint_as_float(w & 0xffff0000u) * scale); };
  return make_uint4(two(x.x), two(x.y), two(x.z), two(x.w));
}

}  // namespace fp4pa::sm90
