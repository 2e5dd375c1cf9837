// The orthonormal Walsh-Hadamard transform: y = H x / sqrt(block), H[i][j] = (-1)^popcount(i & j).
//
// Applied to K on append and to Q on load it cancels in their product (H is symmetric and its own inverse at this norm)
// while spreading a channel's outliers over the block, which is what a 4-bit format needs.
//
// Bit equality between devices fixes the order: butterflies at distance 1, 2, 4, ... block/2, each a sum and a
// difference, then one multiplication by the rounded 1/sqrt(block). A back end may spread it over lanes as long as each
// value passes the same additions. A sum followed by a product cannot be fused; but do not hand in values that are
// themselves unrounded products of the caller, which a compiler may fuse with the first sums: round them through memory
// or bits.
#pragma once

#include "core/macros.hpp"

namespace fp4pa::core {

/// 1 / sqrt(block), rounded to nearest, for block 16, 32, 64 or 128.
FP4PA_FN constexpr float hadamard_norm(int block) {
  switch (block) {
    case 16:
      return 0.25f;
    case 32:
      return 0.17677669529663688f;
    case 64:
      return 0.125f;
    default:
      return 0.08838834764831845f;
  }
}

/// In place.
/// @param x      [n]
/// @param n      a multiple of block; elements after the last whole block are left as they are
/// @param block  16, 32, 64 or 128
FP4PA_FN constexpr void hadamard(float* x, int n, int block) {
  const float norm = hadamard_norm(block);
  for (int start = 0; start + block <= n; start += block) {
    float* y = x + start;
    for (int distance = 1; distance < block; distance *= 2) {
      for (int i = 0; i < block; ++i) {
        if ((i & distance) != 0) continue;
        const float sum = y[i] + y[i + distance];
        const float difference = y[i] - y[i + distance];
        y[i] = sum;
        y[i + distance] = difference;
      }
    }
    for (int i = 0; i < block; ++i) y[i] *= norm;
  }
}

}  // namespace fp4pa::core
