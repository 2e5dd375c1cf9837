// E2M1 codes eight at a time: what a lane of a GPU encodes and decodes, with the results of elements.hpp's functions.
//
// E2M1 is the upper end of an f16 that is scaled by 2^-14: its subnormals are f16's, its exponents 1 to 3 are f16's, and its one
// mantissa bit is the first of f16's ten. So a value that was divided by its scale, times 2^-14, is converted to f16, and
// rounding to nearest even at bit 9 makes the code; two values go through each operation, and four once only the upper bytes
// are left.
//
// The conversion rounds too, to steps of 2^-10 of E2M1's unit. That is harmless for values with few bits, bfloat16's, and other
// values are given few bits first: a tie between two codes has three significant bits, four times as many with a scale of
// NVFP4, so that a value cut to eight bits, the last one remembering what was lost, stays on its side of every tie.
#pragma once

#include <cstdint>

#include "core/formats/minifloat.hpp"
#include "core/math.hpp"

namespace fp4pa::core {

/// What values are multiplied by, besides the reciprocal of their scale, before they are converted to f16.
inline constexpr float kE2m1HalfUnit = 0x1p-14f;

/// x cut to bfloat16, with the last bit set if that lost anything. Not for NaN.
FP4PA_FN constexpr float odd_bf16(float x) {
  const std::uint32_t bits = float_bits(x);
  return float_from_bits((bits | ((bits & 0xffffu) + 0xffffu)) & 0xffff0000u);
}

/// |x| over a scale that is a power of two, times 2^-14, rounded to E2M1's steps, ties to even; 8 may come out. The adder
/// rounds, as e2m1_pairs.hpp says, so that any f32 is right. Not for NaN.
FP4PA_FN float e2m1_rounded(float y) {
  const float large = math::max(y, 1.5f * kE2m1HalfUnit);
  return math::fma(large, 0x1p22f, -math::fma(large, 0x1p22f, -y));
}

/// Two f16 of magnitude up to 10 * 2^-14: rounded at bit 9 of each, sign left alone. 8 may come out for what saturates to 6.
FP4PA_FN constexpr std::uint32_t e2m1_round_halves(std::uint32_t halves) {
  return halves + 0x00ff00ffu + ((halves >> 9) & 0x00010001u);
}

/// Eight codes, element n in nibble n, of elements that come as pairs of f16 times 2^-14: (0, 4), (1, 5), (2, 6), (3, 7). What
/// stands below bit 9 of an f16 is cut off.
/// @tparam Pairs  the device's words of e2m1_pairs.hpp: select and bytes
template <class Pairs>
FP4PA_FN std::uint32_t e2m1_codes_of_rounded(const std::uint32_t (&halves)[4]) {
  // Upper bytes: sign, three bits that are zero unless the value is 8, code, a bit that is left over.
  const std::uint32_t even = Pairs::bytes(halves[0], halves[2], 0x7351u);
  const std::uint32_t odd = Pairs::bytes(halves[1], halves[3], 0x7351u);
  const std::uint32_t codes = Pairs::select(0x0f0f0f0fu, even >> 1, odd << 3);
  const std::uint32_t signs = Pairs::select(0x80808080u, odd, even >> 4);
  return Pairs::select(0x88888888u, signs, codes - ((codes & 0x88888888u) >> 3));  // 8, code 8, becomes code 7
}
/// The same of halves that are not rounded yet.
template <class Pairs>
FP4PA_FN std::uint32_t e2m1_codes(const std::uint32_t (&halves)[4]) {
  return e2m1_codes_of_rounded<Pairs>({e2m1_round_halves(halves[0]), e2m1_round_halves(halves[1]), e2m1_round_halves(halves[2]),
                                       e2m1_round_halves(halves[3])});
}

/// The inverse: out[p] holds elements p and p + 4 as f16, times 2^-14.
FP4PA_FN constexpr void e2m1_halves(std::uint32_t codes, std::uint32_t (&out)[4]) {
  const std::uint32_t even = ((codes << 4) & 0x80808080u) | ((codes << 1) & 0x0e0e0e0eu);
  const std::uint32_t odd = (codes & 0x80808080u) | ((codes >> 3) & 0x0e0e0e0eu);
  constexpr std::uint32_t kUpper = 0xff00ff00u;
  out[0] = (even << 8) & kUpper;
  out[1] = (odd << 8) & kUpper;
  out[2] = even & kUpper;
  out[3] = odd & kUpper;
}

}  // namespace fp4pa::core
