// The Hadamard rotation from its matrix: H[i][j] = (-1)^popcount(i & j) / sqrt(n), block by block along head_dim.
//
// The library uses the butterfly; the quadratic definition here is what the butterfly has to equal. H is symmetric and
// orthonormal, so it is its own inverse.
#pragma once

#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "fp4pa/types.hpp"

namespace fp4pa::reference {

/// Rotates `row` in place. The rotation's block must divide its length; kNone leaves it alone.
inline void rotate(std::span<double> row, Rotation rotation) {
  const auto block = static_cast<std::size_t>(rotation);
  if (block == 0) return;
  std::vector<double> rotated(block);
  for (std::size_t start = 0; start + block <= row.size(); start += block) {
    for (std::size_t i = 0; i < block; ++i) {
      double sum = 0.0;
      for (std::size_t j = 0; j < block; ++j) {
        sum += std::popcount(i & j) % 2 == 0 ? row[start + j] : -row[start + j];
      }
      rotated[i] = sum / std::sqrt(static_cast<double>(block));
    }
    for (std::size_t i = 0; i < block; ++i) row[start + i] = rotated[i];
  }
}

}  // namespace fp4pa::reference
