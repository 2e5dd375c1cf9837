// E8M0 scales of a weight as factors of sums.
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

}  // namespace fp4pa::sm80
