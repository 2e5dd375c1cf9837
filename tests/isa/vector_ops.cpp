// Vector instructions, without memory and matrices. Source: CDNA4 ISA 6, 12 (VOP1, VOP2, VOP3, VOPC).
//
// Single precision keeps subnormals and rounds to nearest even, as a kernel's mode asks; v_exp, v_log and v_rcp flush them, as
// the hardware's do whatever the mode, and are rounded correctly, which the hardware's need not be.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "tests/isa/small_floats.hpp"
#include "tests/isa/wave.hpp"

namespace isa {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

i32 s(u32 x) { return static_cast<i32>(x); }
u32 u(i32 x) { return static_cast<u32>(x); }

template <class F>
constexpr Handler one(F) {
  return +[](Wave& w, const Instruction& i) {
    Lanes a;
    fetch(w, i, 1, a);
    for (u32& x : a) x = F{}(x);
    store(w, i, a);
  };
}
template <class F>
constexpr Handler two(F) {
  return +[](Wave& w, const Instruction& i) {
    Lanes a, b;
    fetch(w, i, 1, a);
    fetch(w, i, 2, b);
    for (int l = 0; l < kLanes; ++l) a[l] = F{}(a[l], b[l]);
    store(w, i, a);
  };
}
template <class F>
constexpr Handler three(F) {
  return +[](Wave& w, const Instruction& i) {
    Lanes a, b, c;
    fetch(w, i, 1, a);
    fetch(w, i, 2, b);
    fetch(w, i, 3, c);
    for (int l = 0; l < kLanes; ++l) a[l] = F{}(a[l], b[l], c[l]);
    store(w, i, a);
  };
}
template <class F>
constexpr Handler one_f(F) {
  return one([](u32 a) { return as_bits(F{}(as_float(a))); });
}
template <class F>
constexpr Handler two_f(F) {
  return two([](u32 a, u32 b) { return as_bits(F{}(as_float(a), as_float(b))); });
}
template <class F>
constexpr Handler three_f(F) {
  return three([](u32 a, u32 b, u32 c) { return as_bits(F{}(as_float(a), as_float(b), as_float(c))); });
}
/// 64 bits shifted by operand 1.
template <class F>
constexpr Handler shift64(F) {
  return +[](Wave& w, const Instruction& i) {
    Lanes a;
    Lanes64 b;
    fetch(w, i, 1, a);
    fetch64(w, i, 2, b);
    for (int l = 0; l < kLanes; ++l) b[l] = F{}(b[l], a[l] & 63);
    store64(w, i, b);
  };
}
/// Sum or difference with carry: f(a, b, carry) of 64 bits, whose bit 32 is the carry. kIn: operand 4 is the carry in.
template <bool kIn, class F>
constexpr Handler carry(F) {
  return +[](Wave& w, const Instruction& i) {
    Lanes a, b;
    fetch(w, i, 2, a);
    fetch(w, i, 3, b);
    u64 in = 0;
    if (kIn) in = read_scalar64(w, i, i.operand[4]);
    u64 out = 0;
    for (int l = 0; l < kLanes; ++l) {
      const u64 x = F{}(u64{a[l]}, u64{b[l]}, in >> l & 1);
      a[l] = static_cast<u32>(x);
      out |= (x >> 32 & 1) << l;
    }
    store(w, i, a);
    store_mask(w, i, 1, out);
  };
}
/// a * b + c of 64 bits; the carry of v_mad_*64 is used by nobody here, but written.
template <bool kSigned>
constexpr Handler mad64() {
  return +[](Wave& w, const Instruction& i) {
    Lanes a, b;
    Lanes64 c;
    fetch(w, i, 2, a);
    fetch(w, i, 3, b);
    fetch64(w, i, 4, c);
    u64 out = 0;
    for (int l = 0; l < kLanes; ++l) {
      const u64 product = kSigned ? static_cast<u64>(i64{s(a[l])} * s(b[l])) : u64{a[l]} * b[l];
      const u64 sum = product + c[l];
      out |= u64{sum < product} << l;
      c[l] = sum;
    }
    store64(w, i, c);
    store_mask(w, i, 1, out);
  };
}

template <class T, class F>
constexpr Handler compare(F) {
  return +[](Wave& w, const Instruction& i) {
    u64 mask = 0;
    if constexpr (sizeof(T) == 8) {
      Lanes64 a, b;
      fetch64(w, i, 1, a);
      fetch64(w, i, 2, b);
      for (int l = 0; l < kLanes; ++l) mask |= u64{F{}(static_cast<T>(a[l]), static_cast<T>(b[l]))} << l;
    } else {
      Lanes a, b;
      fetch(w, i, 1, a);
      fetch(w, i, 2, b);
      for (int l = 0; l < kLanes; ++l) {
        if constexpr (std::is_same_v<T, float>) {
          mask |= u64{F{}(as_float(a[l]), as_float(b[l]))} << l;
        } else {
          mask |= u64{F{}(static_cast<T>(a[l]), static_cast<T>(b[l]))} << l;
        }
      }
    }
    store_mask(w, i, 0, mask);
  };
}

template <class T>
void add_compares(std::unordered_map<std::string, Handler>& t, const std::string& type) {
  t["v_cmp_lt_" + type] = compare<T>([](T a, T b) { return a < b; });
  t["v_cmp_eq_" + type] = compare<T>([](T a, T b) { return a == b; });
  t["v_cmp_le_" + type] = compare<T>([](T a, T b) { return a <= b; });
  t["v_cmp_gt_" + type] = compare<T>([](T a, T b) { return a > b; });
  t["v_cmp_ge_" + type] = compare<T>([](T a, T b) { return a >= b; });
  if constexpr (std::is_same_v<T, float>) {
    t["v_cmp_lg_f32"] = compare<T>([](T a, T b) { return a < b || a > b; });
    t["v_cmp_o_f32"] = compare<T>([](T a, T b) { return !std::isnan(a) && !std::isnan(b); });
    t["v_cmp_u_f32"] = compare<T>([](T a, T b) { return std::isnan(a) || std::isnan(b); });
    t["v_cmp_nge_f32"] = compare<T>([](T a, T b) { return !(a >= b); });
    t["v_cmp_nlg_f32"] = compare<T>([](T a, T b) { return !(a < b || a > b); });
    t["v_cmp_ngt_f32"] = compare<T>([](T a, T b) { return !(a > b); });
    t["v_cmp_nle_f32"] = compare<T>([](T a, T b) { return !(a <= b); });
    t["v_cmp_neq_f32"] = compare<T>([](T a, T b) { return !(a == b); });
    t["v_cmp_nlt_f32"] = compare<T>([](T a, T b) { return !(a < b); });
  } else {
    t["v_cmp_ne_" + type] = compare<T>([](T a, T b) { return a != b; });
  }
}

float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float quiet(float x) { return as_float(as_bits(x) | 0x00400000u); }
float least(float a, float b) { return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b; }
float most(float a, float b) { return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? b : a) : a > b ? a : b; }
int exponent(float x) { return static_cast<int>(as_bits(x) >> 23 & 0xff); }

u32 to_unsigned(float x) {
  if (std::isnan(x) || x <= 0.0f) return 0;
  return x >= 4294967296.0f ? ~0u : static_cast<u32>(x);
}
i32 to_signed(float x) {
  if (std::isnan(x)) return 0;
  if (x >= 2147483648.0f) return std::numeric_limits<i32>::max();
  return x <= -2147483648.0f ? std::numeric_limits<i32>::min() : static_cast<i32>(x);
}

/// The operands of a division are brought away from the ends of the range; the bit says that the quotient has to be taken back.
void div_scale(Wave& w, const Instruction& i) {
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
void div_fmas(Wave& w, const Instruction& i) {
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
u32 div_fixup(u32 quotient, u32 denominator, u32 numerator) {
  const float b = as_float(denominator), c = as_float(numerator);
  const u32 sign = (denominator ^ numerator) & 0x80000000u;
  if (std::isnan(c)) return as_bits(quiet(c));
  if (std::isnan(b)) return as_bits(quiet(b));
  if ((b == 0.0f && c == 0.0f) || (std::isinf(b) && std::isinf(c))) return 0xffc00000u;
  if (b == 0.0f || std::isinf(c)) return sign | 0x7f800000u;
  if (std::isinf(b) || c == 0.0f) return sign;
  return (quotient & 0x7fffffffu) | sign;
}

void cndmask(Wave& w, const Instruction& i) {
  Lanes a, b;
  fetch(w, i, 1, a);
  fetch(w, i, 2, b);
  const u64 mask = read_scalar64(w, i, i.operand[3]);
  for (int l = 0; l < kLanes; ++l) a[l] = (mask >> l & 1) != 0 ? b[l] : a[l];
  store(w, i, a);
}

u32 permute(u32 high, u32 low, u32 selector) {
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

u32 bitop3(u32 table, u32 a, u32 b, u32 c) {
  u32 out = 0;
  for (u32 k = 0; k < 8; ++k) {
    if ((table >> k & 1) != 0) out |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
  }
  return out;
}

u32 reverse(u32 x) {
  u32 y = 0;
  for (int k = 0; k < 32; ++k) y |= (x >> k & 1) << (31 - k);
  return y;
}

/// Conversions of two values to the halves of a word.
template <class F>
constexpr Handler pack(F) {
  return two([](u32 a, u32 b) { return u32{F{}(as_float(a))} | u32{F{}(as_float(b))} << 16; });
}

/// F of the two halves of words for themselves; op_sel_hi says which halves of the sources make the upper one.
template <class F>
constexpr Handler packed_halves(F) {
  return [](Wave& w, const Instruction& i) {
    if (i.op_sel != 0) refuse(i, "op_sel");
    Lanes a, b;
    fetch(w, i, 1, a);
    fetch(w, i, 2, b);
    for (int l = 0; l < kLanes; ++l) {
      const u32 low = F{}(a[l] & 0xffffu, b[l] & 0xffffu);
      const u32 high = F{}((i.op_sel_hi & 1) != 0 ? a[l] >> 16 : a[l] & 0xffffu, (i.op_sel_hi & 2) != 0 ? b[l] >> 16 : b[l] & 0xffffu);
      a[l] = low | high << 16;
    }
    store(w, i, a);
  };
}

std::unordered_map<std::string, Handler> make() {
  std::unordered_map<std::string, Handler> t = {
      {"v_nop", [](Wave&, const Instruction&) {}},
      {"v_mov_b32", one([](u32 a) { return a; })},
      {"v_not_b32", one([](u32 a) { return ~a; })},
      {"v_bfrev_b32", one([](u32 a) { return reverse(a); })},
      {"v_ffbl_b32", one([](u32 a) { return a == 0 ? ~0u : static_cast<u32>(std::countr_zero(a)); })},
      {"v_ffbh_u32", one([](u32 a) { return a == 0 ? ~0u : static_cast<u32>(std::countl_zero(a)); })},
      {"v_accvgpr_read_b32", one([](u32 a) { return a; })},
      {"v_accvgpr_write_b32", one([](u32 a) { return a; })},
      {"v_accvgpr_mov_b32", one([](u32 a) { return a; })},
      {"v_cvt_f32_u32", one([](u32 a) { return as_bits(static_cast<float>(a)); })},
      {"v_cvt_f32_i32", one([](u32 a) { return as_bits(static_cast<float>(s(a))); })},
      {"v_cvt_f32_ubyte0", one([](u32 a) { return as_bits(static_cast<float>(a & 0xffu)); })},
      {"v_cvt_u32_f32", one([](u32 a) { return to_unsigned(as_float(a)); })},
      {"v_cvt_i32_f32", one([](u32 a) { return u(to_signed(as_float(a))); })},
      {"v_cvt_f32_f16", one([](u32 a) { return as_bits(from_half(static_cast<std::uint16_t>(a))); })},
      {"v_cvt_f16_f32", one([](u32 a) { return u32{to_half(as_float(a))}; })},
      {"v_exp_f32", one_f([](float a) { return flush(static_cast<float>(std::exp2(double{a}))); })},
      {"v_log_f32", one_f([](float a) { return static_cast<float>(std::log2(double{flush(a)})); })},
      {"v_rcp_f32", one_f([](float a) { return flush(static_cast<float>(1.0 / double{flush(a)})); })},
      {"v_rcp_iflag_f32", one_f([](float a) { return flush(static_cast<float>(1.0 / double{flush(a)})); })},
      {"v_rndne_f32", one_f([](float a) { return std::nearbyint(a); })},
      {"v_trunc_f32", one_f([](float a) { return std::trunc(a); })},
      {"v_floor_f32", one_f([](float a) { return std::floor(a); })},
      {"v_add_f32", two_f([](float a, float b) { return a + b; })},
      {"v_sub_f32", two_f([](float a, float b) { return a - b; })},
      {"v_subrev_f32", two_f([](float a, float b) { return b - a; })},
      {"v_mul_f32", two_f([](float a, float b) { return a * b; })},
      {"v_min_f32", two_f([](float a, float b) { return least(a, b); })},
      {"v_max_f32", two_f([](float a, float b) { return most(a, b); })},
      {"v_max3_f32", three_f([](float a, float b, float c) { return most(most(a, b), c); })},
      {"v_min3_f32", three_f([](float a, float b, float c) { return least(least(a, b), c); })},
      {"v_fma_f32", three_f([](float a, float b, float c) { return std::fma(a, b, c); })},
      {"v_fmaak_f32", three_f([](float a, float b, float c) { return std::fma(a, b, c); })},
      {"v_fmamk_f32", three_f([](float a, float k, float b) { return std::fma(a, k, b); })},
      {"v_fmac_f32",
       [](Wave& w, const Instruction& i) {
         Lanes a, b, d;
         fetch(w, i, 1, a);
         fetch(w, i, 2, b);
         fetch(w, i, 0, d);
         for (int l = 0; l < kLanes; ++l) d[l] = as_bits(std::fma(as_float(a[l]), as_float(b[l]), as_float(d[l])));
         store(w, i, d);
       }},
      {"v_ldexp_f32", two([](u32 a, u32 b) { return as_bits(std::ldexp(as_float(a), s(b))); })},
      {"v_div_scale_f32", div_scale},
      {"v_div_fmas_f32", div_fmas},
      {"v_div_fixup_f32", three([](u32 a, u32 b, u32 c) { return div_fixup(a, b, c); })},
      {"v_add_u32", two([](u32 a, u32 b) { return a + b; })},
      {"v_sub_u32", two([](u32 a, u32 b) { return a - b; })},
      {"v_subrev_u32", two([](u32 a, u32 b) { return b - a; })},
      {"v_and_b32", two([](u32 a, u32 b) { return a & b; })},
      {"v_or_b32", two([](u32 a, u32 b) { return a | b; })},
      {"v_xor_b32", two([](u32 a, u32 b) { return a ^ b; })},
      {"v_lshlrev_b32", two([](u32 a, u32 b) { return b << (a & 31); })},
      {"v_lshrrev_b32", two([](u32 a, u32 b) { return b >> (a & 31); })},
      {"v_ashrrev_i32", two([](u32 a, u32 b) { return u(s(b) >> (a & 31)); })},
      // 16 bits, with zeros above them.
      {"v_add_u16", two([](u32 a, u32 b) { return (a + b) & 0xffffu; })},
      {"v_sub_u16", two([](u32 a, u32 b) { return (a - b) & 0xffffu; })},
      {"v_subrev_u16", two([](u32 a, u32 b) { return (b - a) & 0xffffu; })},
      {"v_mul_lo_u16", two([](u32 a, u32 b) { return (a * b) & 0xffffu; })},
      {"v_lshlrev_b16", two([](u32 a, u32 b) { return (b << (a & 15)) & 0xffffu; })},
      {"v_lshrrev_b16", two([](u32 a, u32 b) { return (b & 0xffffu) >> (a & 15); })},
      {"v_ashrrev_i16", two([](u32 a, u32 b) { return u(static_cast<std::int16_t>(b) >> (a & 15)) & 0xffffu; })},
      {"v_min_u32", two([](u32 a, u32 b) { return a < b ? a : b; })},
      {"v_max_u32", two([](u32 a, u32 b) { return a > b ? a : b; })},
      {"v_min_i32", two([](u32 a, u32 b) { return s(a) < s(b) ? a : b; })},
      {"v_max_i32", two([](u32 a, u32 b) { return s(a) > s(b) ? a : b; })},
      {"v_max3_u32", three([](u32 a, u32 b, u32 c) { return std::max(std::max(a, b), c); })},
      {"v_min3_u32", three([](u32 a, u32 b, u32 c) { return std::min(std::min(a, b), c); })},
      {"v_min3_i32", three([](u32 a, u32 b, u32 c) { return u(std::min(std::min(s(a), s(b)), s(c))); })},
      {"v_max3_i32", three([](u32 a, u32 b, u32 c) { return u(std::max(std::max(s(a), s(b)), s(c))); })},
      {"v_med3_u32", three([](u32 a, u32 b, u32 c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); })},
      {"v_med3_i32", three([](u32 a, u32 b, u32 c) {
         return u(std::max(std::min(s(a), s(b)), std::min(std::max(s(a), s(b)), s(c))));
       })},
      {"v_mul_lo_u32", two([](u32 a, u32 b) { return a * b; })},
      {"v_mul_hi_u32", two([](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); })},
      {"v_mul_hi_i32", two([](u32 a, u32 b) { return static_cast<u32>(i64{s(a)} * s(b) >> 32); })},
      {"v_mul_u32_u24", two([](u32 a, u32 b) { return (a & 0xffffffu) * (b & 0xffffffu); })},
      {"v_mul_i32_i24", two([](u32 a, u32 b) { return u(s(a << 8) >> 8) * u(s(b << 8) >> 8); })},
      {"v_mul_hi_i32_i24", two([](u32 a, u32 b) { return static_cast<u32>(i64{s(a << 8) >> 8} * (s(b << 8) >> 8) >> 32); })},
      {"v_mad_u32_u24", three([](u32 a, u32 b, u32 c) { return (a & 0xffffffu) * (b & 0xffffffu) + c; })},
      {"v_mad_i32_i24", three([](u32 a, u32 b, u32 c) { return u(s(a << 8) >> 8) * u(s(b << 8) >> 8) + c; })},
      {"v_add3_u32", three([](u32 a, u32 b, u32 c) { return a + b + c; })},
      {"v_lshl_add_u32", three([](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; })},
      {"v_add_lshl_u32", three([](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); })},
      {"v_lshl_or_b32", three([](u32 a, u32 b, u32 c) { return (a << (b & 31)) | c; })},
      {"v_and_or_b32", three([](u32 a, u32 b, u32 c) { return (a & b) | c; })},
      {"v_or3_b32", three([](u32 a, u32 b, u32 c) { return a | b | c; })},
      {"v_xad_u32", three([](u32 a, u32 b, u32 c) { return (a ^ b) + c; })},
      {"v_bfi_b32", three([](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); })},
      {"v_bfe_u32", three([](u32 a, u32 b, u32 c) { return (a >> (b & 31)) & ((1u << (c & 31)) - 1); })},
      {"v_bfe_i32", three([](u32 a, u32 b, u32 c) {
         const u32 width = c & 31;
         return width == 0 ? 0u : u(s((a >> (b & 31)) << (32 - width)) >> (32 - width));
       })},
      {"v_alignbit_b32", three([](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> (c & 31)); })},
      {"v_perm_b32", three([](u32 a, u32 b, u32 c) { return permute(a, b, c); })},
      {"v_bitop3_b32",
       [](Wave& w, const Instruction& i) {
         Lanes a, b, c;
         fetch(w, i, 1, a);
         fetch(w, i, 2, b);
         fetch(w, i, 3, c);
         for (int l = 0; l < kLanes; ++l) a[l] = bitop3(i.table, a[l], b[l], c[l]);
         store(w, i, a);
       }},
      {"v_bitop3_b16",
       [](Wave& w, const Instruction& i) {
         Lanes a, b, c, d;
         fetch(w, i, 1, a);
         fetch(w, i, 2, b);
         fetch(w, i, 3, c);
         fetch(w, i, 0, d);
         for (int l = 0; l < kLanes; ++l) a[l] = (d[l] & 0xffff0000u) | (bitop3(i.table, a[l], b[l], c[l]) & 0xffffu);
         store(w, i, a);
       }},
      {"v_cndmask_b32", cndmask},
      {"v_add_co_u32", carry<false>([](u64 a, u64 b, u64) { return a + b; })},
      {"v_addc_co_u32", carry<true>([](u64 a, u64 b, u64 c) { return a + b + c; })},
      {"v_sub_co_u32", carry<false>([](u64 a, u64 b, u64) { return a - b; })},
      {"v_subb_co_u32", carry<true>([](u64 a, u64 b, u64 c) { return a - b - c; })},
      {"v_subrev_co_u32", carry<false>([](u64 a, u64 b, u64) { return b - a; })},
      {"v_subbrev_co_u32", carry<true>([](u64 a, u64 b, u64 c) { return b - a - c; })},
      {"v_mad_u64_u32", mad64<false>()},
      {"v_mad_i64_i32", mad64<true>()},
      {"v_lshlrev_b64", shift64([](u64 b, u32 n) { return b << n; })},
      {"v_lshrrev_b64", shift64([](u64 b, u32 n) { return b >> n; })},
      {"v_ashrrev_i64", shift64([](u64 b, u32 n) { return static_cast<u64>(static_cast<i64>(b) >> n); })},
      {"v_mov_b64",
       [](Wave& w, const Instruction& i) {
         Lanes64 a;
         fetch64(w, i, 1, a);
         store64(w, i, a);
       }},
      {"v_lshl_add_u64",
       [](Wave& w, const Instruction& i) {
         Lanes64 a, c;
         Lanes b;
         fetch64(w, i, 1, a);
         fetch(w, i, 2, b);
         fetch64(w, i, 3, c);
         for (int l = 0; l < kLanes; ++l) {
           if (b[l] > 4) refuse(i, "a shift of more than 4");
           a[l] = (a[l] << b[l]) + c[l];
         }
         store64(w, i, a);
       }},
      {"v_pk_mul_f16", packed_halves([](u32 a, u32 b) {
         return u32{to_half(from_half(static_cast<std::uint16_t>(a)) * from_half(static_cast<std::uint16_t>(b)))};
       })},
      {"v_pk_lshlrev_b16", packed_halves([](u32 n, u32 b) { return b << (n & 15u) & 0xffffu; })},
      {"v_cvt_pk_f16_f32", pack([](float x) { return to_half(x); })},
      {"v_cvt_pk_bf16_f32", pack([](float x) { return to_bfloat(x); })},
      {"v_cvt_pk_fp8_f32",
       [](Wave& w, const Instruction& i) {
         Lanes a, b, d;
         fetch(w, i, 1, a);
         fetch(w, i, 2, b);
         fetch(w, i, 0, d);
         const int shift = (i.op_sel & 4) != 0 ? 16 : 0;  // the third bit is the destination's
         for (int l = 0; l < kLanes; ++l) {
           const u32 codes = u32{to_e4m3(as_float(a[l]))} | u32{to_e4m3(as_float(b[l]))} << 8;
           d[l] = (d[l] & ~(0xffffu << shift)) | codes << shift;
         }
         store(w, i, d);
       }},
      {"v_cvt_pk_f32_fp8",
       [](Wave& w, const Instruction& i) {
         Lanes a;
         Lanes64 d;
         fetch(w, i, 1, a);
         for (int l = 0; l < kLanes; ++l) {
           d[l] = as_bits(from_e4m3(static_cast<std::uint8_t>(a[l]))) | u64{as_bits(from_e4m3(static_cast<std::uint8_t>(a[l] >> 8)))} << 32;
         }
         store64(w, i, d);
       }},
      {"v_mbcnt_lo_u32_b32",
       [](Wave& w, const Instruction& i) {
         Lanes a, b;
         fetch(w, i, 1, a);
         fetch(w, i, 2, b);
         for (int l = 0; l < kLanes; ++l) {
           const u32 below = l >= 32 ? ~0u : (1u << l) - 1;
           a[l] = static_cast<u32>(std::popcount(a[l] & below)) + b[l];
         }
         store(w, i, a);
       }},
      {"v_mbcnt_hi_u32_b32",
       [](Wave& w, const Instruction& i) {
         Lanes a, b;
         fetch(w, i, 1, a);
         fetch(w, i, 2, b);
         for (int l = 0; l < kLanes; ++l) {
           const u32 below = l >= 32 ? (1u << (l - 32)) - 1 : 0u;
           a[l] = static_cast<u32>(std::popcount(a[l] & below)) + b[l];
         }
         store(w, i, a);
       }},
      {"v_readfirstlane_b32",
       [](Wave& w, const Instruction& i) {
         const u64 exec = w.exec();
         Lanes a;
         fetch(w, i, 1, a);
         w.scalar[i.operand[0].index] = a[exec == 0 ? 0 : std::countr_zero(exec)];
       }},
      {"v_readlane_b32",
       [](Wave& w, const Instruction& i) {
         Lanes a;
         fetch(w, i, 1, a);
         w.scalar[i.operand[0].index] = a[read_scalar(w, i.operand[2]) & 63];
       }},
      {"v_writelane_b32",
       [](Wave& w, const Instruction& i) {
         w.vector[i.operand[0].index][read_scalar(w, i.operand[2]) & 63] = read_scalar(w, i.operand[1]);
       }},
  };
  add_compares<float>(t, "f32");
  add_compares<i32>(t, "i32");
  add_compares<u32>(t, "u32");
  add_compares<i64>(t, "i64");
  add_compares<u64>(t, "u64");
  add_compares<std::int16_t>(t, "i16");
  add_compares<std::uint16_t>(t, "u16");
  return t;
}

}  // namespace

Handler vector_handler(const std::string& name) {
  static const std::unordered_map<std::string, Handler> kTable = make();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace isa
