// E2M1 codes in the order in which the lanes of a product take them whose other operand keeps its columns in order.
//
// Of 32 columns, four words of a row, lane t of four multiplies columns 2t and 2t + 1 of each word's eight: byte t of each. Word t is made
// of these bytes, of all their lower halves and then of the upper ones, so that sm80::e2m1_to_f16 and e2m1_to_bf16, which pair code n with
// code n + 4, give the two columns of the n-th word.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"

namespace fp4pa::sm90 {

/// @param words  32 codes, the first in the lowest bits
/// @param lanes  a word for each of four lanes
FP4PA_FN void arrange_codes(const std::uint32_t (&words)[4], std::uint32_t (&lanes)[4]) {
  using sm80::byte_perm, sm80::select_bits;
  constexpr std::uint32_t kLower = 0x0f0f0f0fu;
  const std::uint32_t lower[2] = {select_bits(kLower, words[0], words[1] << 4), select_bits(kLower, words[2], words[3] << 4)};
  const std::uint32_t upper[2] = {select_bits(kLower, words[0] >> 4, words[1]), select_bits(kLower, words[2] >> 4, words[3])};
  // Of bytes 0 and 1, and of 2 and 3.
  const std::uint32_t lower_01 = byte_perm(lower[0], lower[1], 0x5140), lower_23 = byte_perm(lower[0], lower[1], 0x7362);
  const std::uint32_t upper_01 = byte_perm(upper[0], upper[1], 0x5140), upper_23 = byte_perm(upper[0], upper[1], 0x7362);
  lanes[0] = byte_perm(lower_01, upper_01, 0x5410);
  lanes[1] = byte_perm(lower_01, upper_01, 0x7632);
  lanes[2] = byte_perm(lower_23, upper_23, 0x5410);
  lanes[3] = byte_perm(lower_23, upper_23, 0x7632);
}

}  // namespace fp4pa::sm90
