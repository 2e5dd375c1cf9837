// E8M0 scales of a weight: as factors of sums, and whether f16 can hold what they multiply.
#pragma once

#include <bit>
#include <cstdint>

namespace fp4pa::sm80 {

/// Byte `index` of a word as an E8M0 scale: to the bit, but that 2^-127 becomes 0. 255 is infinity as it stands, and infinity
/// times 0 makes it NaN.
__device__ __forceinline__ float e8m0_exact(std::uint32_t word, int index) {
  const std::uint32_t moved = index == 0 ? word << 23 : index == 1 ? word << 15 : index == 2 ? word << 7 : word >> 1;
  const float scale = std::bit_cast<float>(moved & 0x7f800000u);
  return fmaf(scale, 0.0f, scale);
}

/// Whether f16 holds codes times an E8M0 scale: 2^-20 to 2^4.
[[nodiscard]] __device__ __forceinline__ bool in_f16(std::uint32_t e8m0) { return e8m0 - 107u <= 131u - 107u; }
/// Whether it does not for one of four.
[[nodiscard]] __device__ __forceinline__ bool outside_f16(std::uint32_t four) {
  constexpr std::uint32_t kBelow = 0x7f7f7f7fu;  // a byte's highest bit: bytes do not disturb each other
  const std::uint32_t at_least_107 = ((four & kBelow) + 0x15151515u) | four;
  const std::uint32_t above_131 = ((four & kBelow) + 0x7c7c7c7cu) & four;
  return ((~at_least_107 | above_131) & 0x80808080u) != 0;
}

}  // namespace fp4pa::sm80
