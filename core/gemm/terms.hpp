// X of 16 bits as a sum of E4M3 terms with an E8M0 scale for every 32 columns of each, as a block-scaled product takes them beside
// a weight of E2M1.
//
// A term is what is left of X, rounded to E4M3 in the unit that brings the largest of its 32 columns to between 224 and 448. A term
// has four significant bits, so three have all eleven of f16 and all eight of bf16. E4M3's smallest number is 2^-17 of its largest
// binade: of elements below 2^-15 (f16) or 2^-18 (bf16) of a group's largest something may be left even so. That is kept as the
// rest, in f16 and a unit of its own: every bit of f16; of bf16 what is not below 2^-60 of the group's largest. Infinities and NaN
// have no terms, they are in the rest alone.
//
//   terms   [row][stage][term][128 columns], a byte each
//   scales  [row][stage][group], a word: bytes 0 to 2 are the terms', byte 3 the rest's; 0 there says that nothing is left
//   rest    [row][stage][128 columns] in f16, paired as core/gemm/prepare.hpp has it; written and read only where something is left
#pragma once

#include <cstdint>

#include "core/formats/elements.hpp"
#include "core/macros.hpp"

namespace fp4pa::core {

inline constexpr int kXTerms = 3;
inline constexpr int kTermStageBytes = kXTerms * 128;  // of a row

/// x 2^n, n from -127 to 127; exactly where the result is normal.
FP4PA_FN constexpr float times_exp2(float x, int n) { return x * exp2_exact(n); }

/// log2 of the least power of two that brings a group's largest element, given by its bits, to at most 448.
FP4PA_FN constexpr int term_log2(std::uint32_t bits) {
  const int log2 = static_cast<int>(bits >> 23) - 127 - 8 + ((bits & 0x007fffffu) > 0x00600000u ? 1 : 0);
  return log2 < -127 ? -127 : log2;
}

/// The rest's unit: it brings the largest to between 2^13 and 2^14. Not 2^-127, which says that there is none.
/// @param bits  of the largest finite one
FP4PA_FN constexpr int rest_log2(std::uint32_t bits) {
  if (bits == 0) return 0;
  const int log2 = static_cast<int>(bits >> 23) - 127 - 13;
  return log2 < -126 ? -126 : log2;
}

}  // namespace fp4pa::core
