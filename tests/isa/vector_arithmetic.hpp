// What vector instructions do to a value that C++ has no operator for. Source: CDNA4 ISA 12.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/isa/vector_lanes.hpp"

namespace isa {

inline float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
inline float quiet(float x) { return as_float(as_bits(x) | 0x00400000u); }
inline float least(float a, float b) { return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b; }
inline float most(float a, float b) { return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? b : a) : a > b ? a : b; }
/// The bit of v_cmp_class that stands for these bits of a float: signalling and quiet NaN, then from -inf up to +inf.
inline int class_of(u32 bits) {
  const float x = as_float(bits);
  if (std::isnan(x)) return (bits & 0x00400000u) != 0 ? 1 : 0;
  const int size = std::isinf(x) ? 0 : std::isnormal(x) ? 1 : x != 0.0f ? 2 : 3;
  return std::signbit(x) ? 2 + size : 9 - size;
}
inline int exponent(float x) { return static_cast<int>(as_bits(x) >> 23 & 0xff); }

inline u32 to_unsigned(float x) {
  if (std::isnan(x) || x <= 0.0f) return 0;
  return x >= 4294967296.0f ? ~0u : static_cast<u32>(x);
}
inline i32 to_signed(float x) {
  if (std::isnan(x)) return 0;
  if (x >= 2147483648.0f) return std::numeric_limits<i32>::max();
  return x <= -2147483648.0f ? std::numeric_limits<i32>::min() : static_cast<i32>(x);
}

/// The operands of a division are brought away from the ends of the range; the bit says that the quotient has to be taken back.
inline void div_scale(Wave& w, const Instruction& i) {
  Lanes s0, s1, s2;
  fetch(w, i, 2, s0);
  fetch(w, i, 3, s1);
  fetch(w, i, 4, s2);
  u64 scaled = 0;
  for (int l = 0; l < kLanes; ++l) {
    const float a = as_float(s0[l]), b = as_float(s1[l]), c = as_float(s2[l]);
    const bool tiny_reciprocal = std::fpclassify(1.0 / double{b}) == FP_SUBNORMAL || std::abs(1.0 / double{b}) < 0x1p-126;
    const bool tiny_quotient = std::fpclassify(c / b) == FP_SUBNORMAL;
    float d = a;
    bool flag = false;
    if (b == 0.0f || c == 0.0f) {
      d = std::numeric_limits<float>::quiet_NaN();
    } else if (exponent(c) - exponent(b) >= 96) {
      flag = true;
      if (s0[l] == s1[l]) d = std::ldexp(a, 64);
    } else if (std::fpclassify(b) == FP_SUBNORMAL) {
      d = std::ldexp(a, 64);
    } else if (tiny_reciprocal && tiny_quotient) {
      flag = true;
      if (s0[l] == s1[l]) d = std::ldexp(a, 64);
    } else if (tiny_reciprocal) {
      d = std::ldexp(a, -64);
    } else if (tiny_quotient) {
      flag = true;
      if (s0[l] == s2[l]) d = std::ldexp(a, 64);
    } else if (exponent(c) <= 23) {
      d = std::ldexp(a, 64);
    }
    s0[l] = as_bits(d);
    scaled |= u64{flag} << l;
  }
  store(w, i, s0);
  store_mask(w, i, 1, scaled);
}
inline void div_fmas(Wave& w, const Instruction& i) {
  Lanes a, b, c;
  fetch(w, i, 1, a);
  fetch(w, i, 2, b);
  fetch(w, i, 3, c);
  const u64 scaled = w.scalar64(kVcc);
  for (int l = 0; l < kLanes; ++l) {
    float d = std::fma(as_float(a[l]), as_float(b[l]), as_float(c[l]));
    if ((scaled >> l & 1) != 0) d = std::ldexp(d, exponent(as_float(c[l])) > 127 ? 64 : -64);
    a[l] = as_bits(d);
  }
  store(w, i, a);
}
inline u32 div_fixup(u32 quotient, u32 denominator, u32 numerator) {
  const float b = as_float(denominator), c = as_float(numerator);
  const u32 sign = (denominator ^ numerator) & 0x80000000u;
  if (std::isnan(c)) return as_bits(quiet(c));
  if (std::isnan(b)) return as_bits(quiet(b));
  if ((b == 0.0f && c == 0.0f) || (std::isinf(b) && std::isinf(c))) return 0xffc00000u;
  if (b == 0.0f || std::isinf(c)) return sign | 0x7f800000u;
  if (std::isinf(b) || c == 0.0f) return sign;
  return (quotient & 0x7fffffffu) | sign;
}

inline void cndmask(Wave& w, const Instruction& i) {
  Lanes a, b;
  fetch(w, i, 1, a);
  fetch(w, i, 2, b);
  const u64 mask = read_scalar64(w, i, i.operand[3]);
  for (int l = 0; l < kLanes; ++l) a[l] = (mask >> l & 1) != 0 ? b[l] : a[l];
  store(w, i, a);
}

inline u32 permute(u32 high, u32 low, u32 selector) {
  const u64 both = u64{high} << 32 | low;
  u32 out = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 sel = selector >> (8 * k) & 0xffu;
    u32 byte = 0;
    if (sel < 8) byte = static_cast<u32>(both >> (8 * sel)) & 0xffu;
    else if (sel < 12) byte = (both >> (16 * (sel - 8) + 15) & 1) != 0 ? 0xffu : 0u;
    else if (sel > 12) byte = 0xffu;
    out |= byte << (8 * k);
  }
  return out;
}

inline u32 bitop3(u32 table, u32 a, u32 b, u32 c) {
  u32 out = 0;
  for (u32 k = 0; k < 8; ++k) {
    if ((table >> k & 1) != 0) out |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
  }
  return out;
}

inline u32 reverse(u32 x) {
  u32 y = 0;
  for (int k = 0; k < 32; ++k) y |= (x >> k & 1) << (31 - k);
  return y;
}

}  // namespace isa
