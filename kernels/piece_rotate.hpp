// Pieces of a row multiplied by a Hadamard matrix, in registers of neighbouring lanes.
#pragma once

#include "core/formats/hadamard.hpp"
#include "core/math.hpp"
#include "kernels/piece.hpp"

namespace fp4pa::FP4PA_GPU {

/// The transform of hadamard.hpp on neighbouring lanes' pieces but for its norm: every value passes the same additions.
/// @tparam kBlock  16, 128, or 0 for any above 16, which costs a loop that nothing else can be done beside
template <int kBlock, int kN>
FP4PA_DEVICE inline void rotate_pieces(float (&x)[kN], int block) {
  FP4PA_UNROLL
  for (int distance = 1; distance < (kBlock == 16 ? 16 : kN); distance *= 2) {
    FP4PA_UNROLL
    for (int i = 0; i < kN; ++i) {
      if ((i & distance) != 0) continue;
      const float a = x[i];
      const float b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  }
  const auto across = [&](int lanes) {
    const float sign = (thread_id() & lanes) != 0 ? -1.0f : 1.0f;
    FP4PA_UNROLL
    for (int i = 0; i < kN; ++i) {
      const float peer = core::float_from_bits(shuffle_xor(core::float_bits(x[i]), lanes));
      x[i] = core::math::fma(x[i], sign, peer);  // a product that is exact
    }
  };
  if constexpr (kBlock == 0) {
    for (int lanes = 1; kN * lanes < block; lanes *= 2) across(lanes);
  } else {
    FP4PA_UNROLL
    for (int lanes = 1; kN * lanes < kBlock; lanes *= 2) across(lanes);
  }
}

}  // namespace fp4pa::FP4PA_GPU
