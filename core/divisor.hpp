// Division by a number that a kernel is told at launch: a product and a shift instead of some twenty instructions.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

/// n / d for n below 2^31. With s = ceil(log2 d) the multiplier is ceil(2^(31+s) / d): it is less than 1 / 2^31 off in relation
/// to d, which no such n can bring to a whole.
struct Divisor {
  std::uint32_t divisor;
  std::uint32_t multiplier;
  std::uint32_t shift;

  /// @param d  1 to 2^31 - 1
  [[nodiscard]] static constexpr Divisor of(std::uint32_t d) {
    std::uint32_t log2 = 0;
    while ((std::uint64_t{1} << log2) < d) ++log2;
    const std::uint64_t multiplier = ((std::uint64_t{1} << (31 + log2)) + d - 1) / d;
    return {d, static_cast<std::uint32_t>(multiplier), log2};
  }
  [[nodiscard]] FP4PA_FN constexpr std::uint32_t quotient(std::uint32_t n) const {
    // 2n for n, so that the multiplier of a power of two has room and no divisor needs a branch.
    return static_cast<std::uint32_t>((std::uint64_t{n + n} * multiplier) >> 32) >> shift;
  }
};

}  // namespace fp4pa::core
