// Between E2M1 codes and bfloat16 values, two values to an operation: for devices that have arithmetic on pairs of bfloat16.
//
// To codes, rounding is left to the adder. A bfloat16 has eight significant bits: 64 |y| - |y| is rounded to eight, and what
// it lacks of 64 |y| is |y| rounded to two bits, ties to even. Below 2, where E2M1's steps stay at a half, 96 takes the place
// of 64 |y|. (A sum in place of the difference could pass a power of two, behind which the steps are twice as large.)
//
// Values are in a unit of 2^-126 then: an E2M1 value is then a bfloat16 whose bits 8 to 6 are its code, since E2M1's subnormals
// are bfloat16's. 64 y is what is computed first, so that y keeps its bits.
//
// From codes, the bytes of the value are looked up: a permutation of eight bytes by selectors of four bits is a table of E2M1.
#pragma once

#include <cstdint>

#include "core/formats/elements.hpp"
#include "core/formats/minifloat.hpp"

namespace fp4pa::core {

/// Two bfloat16, in a word.
[[nodiscard]] FP4PA_FN constexpr std::uint32_t bf16_pair(std::uint32_t bits) { return bits | bits << 16; }
/// What elements under an E8M0 scale are multiplied by, a pair of equal numbers: kFirst, if `twice`, and `factor`.
struct Bf16ToUnits {
  std::uint32_t factor;
  bool twice;

  static constexpr int kUnit = -120;  // of 64 y, as an exponent
  static constexpr std::uint32_t kFirst = bf16_pair(static_cast<std::uint32_t>(kUnit + 127) << 7);
  /// Of larger scales `twice` holds.
  static constexpr std::uint32_t kMostOnce = 133;

  /// `factor` for the scales in two halves, at most kMostOnce.
  [[nodiscard]] FP4PA_FN static constexpr std::uint32_t factors_of(std::uint32_t scales) {
    return (bf16_pair(kMostOnce + 1) - scales) << 7;
  }

  /// @param scale  not NaN. Above 64 the factor would be a subnormal.
  [[nodiscard]] FP4PA_FN static constexpr Bf16ToUnits of(std::uint8_t scale) {
    const int exponent = 127 - static_cast<int>(scale);
    const bool twice = exponent + kUnit < -126;
    return {bf16_pair(static_cast<std::uint32_t>(exponent + (twice ? 0 : kUnit) + 127) << 7), twice};
  }
};

/// The largest magnitude of `kWords` pairs, as f32; NaN if one of them is.
/// @tparam Pairs  the device's arithmetic on pairs: mul, sub, fma, each result rounded once, subnormals kept; max_magnitude and
///                min_magnitude, whose sign is the product's; max_halves of integers; select(mask, a, b) and
///                bytes(a, b, selectors) of words
template <class Pairs, int kWords>
[[nodiscard]] FP4PA_FN float bf16_amax(const std::uint32_t* x) {
  std::uint32_t most = x[0];
  FP4PA_UNROLL
  for (int i = 1; i < kWords; ++i) most = Pairs::max_magnitude(most, x[i]);
  const std::uint32_t low = most << 16 & 0x7fffffffu;
  const std::uint32_t high = most & 0x7fff0000u;
  return float_from_bits(low > high ? low : high);
}

/// E8M0 scales, in halves, of two groups whose largest magnitudes are `most`, finite: as e8m0_with_carry.
/// @param carries  its `carry` in both halves, of which a bfloat16 has the upper half's bits alone
template <class Pairs>
[[nodiscard]] FP4PA_FN std::uint32_t e8m0_of_bf16_amax(std::uint32_t most, std::uint32_t carries) {
  constexpr std::uint32_t kEmax = bf16_pair(E2M1::kEmax);
  return Pairs::max_halves(((most & 0x7fff7fffu) + carries) >> 7 & 0x01ff01ffu, kEmax) - kEmax;
}

/// Two E8M0 scales, in halves, as bfloat16.
template <class Pairs>
[[nodiscard]] FP4PA_FN std::uint32_t bf16_of_e8m0(std::uint32_t two) {
  // 0 and 255 are 2^-127 and NaN: a mantissa of a half, and else of nothing.
  constexpr std::uint32_t kHalf = bf16_pair(0x40);
  const std::uint32_t usual = ((two + bf16_pair(1)) & bf16_pair(0xfe)) << 5;
  return two << 7 | (Pairs::max_halves(usual, kHalf) - usual);
}

/// Eight codes, element n in nibble n.
/// @param x        pairs (0, 1), (2, 3), (4, 5), (6, 7)
/// @param factors  of the elements (0, 4), (1, 5), (2, 6), (3, 7)
template <class Pairs>
[[nodiscard]] FP4PA_FN std::uint32_t e2m1_codes_of_bf16(const std::uint32_t* x, const std::uint32_t (&factors)[4]) {
  constexpr std::uint32_t kMost = bf16_pair(0x04c0);   // 6 * 64 * 2^-126
  constexpr std::uint32_t kFloor = bf16_pair(0x03c0);  // 96 * 2^-126
  constexpr std::uint32_t kMinus64th = bf16_pair(0xbc80);
  // Elements p and p + 4, whose nibbles are 16 bits apart.
  const std::uint32_t values[4] = {Pairs::bytes(x[0], x[2], 0x5410u), Pairs::bytes(x[0], x[2], 0x7632u),
                                   Pairs::bytes(x[1], x[3], 0x5410u), Pairs::bytes(x[1], x[3], 0x7632u)};
  std::uint32_t halves[4];
  FP4PA_UNROLL
  for (int p = 0; p < 4; ++p) {
    const std::uint32_t y = Pairs::min_magnitude(Pairs::mul(values[p], factors[p]), kMost);
    const std::uint32_t large = Pairs::max_magnitude(y, kFloor);
    const std::uint32_t rounded = Pairs::sub(large, Pairs::fma(y, kMinus64th, large));
    halves[p] = rounded | (values[p] & 0x80008000u);  // a zero has lost its sign
  }
  // A half has its sign in bit 15 and its code in bits 8 to 6. Two of them side by side: signs in 15 and 11, codes in 8 to 6
  // and 4 to 2; then both signs go to their codes, six bits down.
  std::uint32_t bytes[2];
  FP4PA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t both = halves[2 * i + 1] + (halves[2 * i] >> 4);
    bytes[i] = Pairs::select(0x02200220u, both >> 6, both);
  }
  return Pairs::select(0x00ff00ffu, bytes[0] >> 2, bytes[1] << 6);
}

/// The inverse without a scale.
/// @param x  pairs (0, 1), (2, 3), (4, 5), (6, 7)
template <class Pairs>
FP4PA_FN void bf16_of_e2m1(std::uint32_t codes, std::uint32_t (&x)[4]) {
  // Signs of the even codes where those of the odd ones are in `codes`: at the tops of bytes.
  const std::uint32_t even = codes << 4;
  FP4PA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t selectors = (codes & 0x77777777u) >> (16 * i);
    const std::uint32_t signs = Pairs::bytes(even, codes, i == 0 ? 0x5140u : 0x7362u) & 0x80808080u;
    const std::uint32_t upper = Pairs::bytes(0x3f3f3f00u, 0x40404040u, selectors) | signs;
    const std::uint32_t lower = Pairs::bytes(0xc0800000u, 0xc0804000u, selectors);
    x[2 * i] = Pairs::bytes(lower, upper, 0x5140u);
    x[2 * i + 1] = Pairs::bytes(lower, upper, 0x7362u);
  }
}

}  // namespace fp4pa::core
