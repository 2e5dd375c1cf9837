// Sizes and offsets formed from numbers that nobody has checked yet.
//
// A description may come from a file or a network peer. Products of its fields must not wrap around into something that
// looks small, so they stick at the largest int64 instead; every check that follows then fails by itself.
#pragma once

#include <cstdint>
#include <limits>

namespace fp4pa::api {

inline constexpr std::int64_t kSaturated = std::numeric_limits<std::int64_t>::max();

/// More bytes than any machine addresses (57 bits of address are the most there are), and few enough that sums of several do not wrap:
/// the bound of whatever a description says that memory holds.
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

/// a * b for non-negative factors, or kSaturated.
[[nodiscard]] constexpr std::int64_t saturating_mul(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kSaturated : product;
}

/// a + b for non-negative terms, or kSaturated.
[[nodiscard]] constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kSaturated : sum;
}

/// The next multiple of `step` from a non-negative value on, or kSaturated.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) noexcept {
  const std::int64_t raised = saturating_add(value, step - 1);
  return raised == kSaturated ? kSaturated : raised / step * step;
}

}  // namespace fp4pa::api
