// X in f16 for the products that decode W: rows times a power of two, columns in the order in which W's codes are
// decoded, which is their own or pairs them.
#pragma once

#include <cstdint>

#include "core/formats/elements.hpp"
#include "core/macros.hpp"

namespace fp4pa::core {

/// The power of two that puts a row's largest finite element between 2^13 and 2^14, where f16's smallest number is 2^-37 of it.
FP4PA_FN constexpr float row_scale(float amax) {
  if (!(amax > 0.0f)) return 1.0f;
  const int exponent = 13 - (static_cast<int>(float_bits(amax) >> 23) - 127);
  return exp2_exact(exponent < -126 ? -126 : exponent > 126 ? 126 : exponent);
}

/// Eight columns times `scale` to f16, column c beside c + 4.
/// @param pack  two floats to a word of f16, the first in its lower half
template <class Pack>
FP4PA_FN void pair_columns(const float* x, float scale, Pack&& pack, std::uint32_t (&out)[4]) {
  FP4PA_UNROLL
  for (int p = 0; p < 4; ++p) out[p] = pack(x[p] * scale, x[p + 4] * scale);
}

/// The same with columns in their order.
template <class Pack>
FP4PA_FN void neighbour_columns(const float* x, float scale, Pack&& pack, std::uint32_t (&out)[4]) {
  FP4PA_UNROLL
  for (int p = 0; p < 4; ++p) out[p] = pack(x[2 * p] * scale, x[2 * p + 1] * scale);
}

}  // namespace fp4pa::core
