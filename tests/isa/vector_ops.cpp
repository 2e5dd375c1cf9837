// Vector instructions, without memory and matrices. Source: CDNA4 ISA 6, 12 (VOP1, VOP2, VOP3, VOPC).
//
// Single precision keeps subnormals and rounds to nearest even, as a kernel's mode asks; v_exp, v_log and v_rcp flush them, as
// the hardware's do whatever the mode, and are rounded correctly, which the hardware's need not be.
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "tests/isa/small_floats.hpp"
#include "tests/isa/vector_arithmetic.hpp"
#include "tests/isa/vector_lanes.hpp"
#include "tests/isa/wave.hpp"

namespace isa {
namespace {

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

/// Two codes times the power of two that a float's exponent is, NaN if all its bits are set: of E2M1 those of the byte, of E4M3 those of the
/// half that op_sel chooses.
/// @tparam Narrow  from double, where no product is rounded
template <bool kE4m3, class Narrow>
Handler from_pair(Narrow) {
  return [](Wave& w, const Instruction& i) {
    Lanes a, scale;
    fetch(w, i, 1, a);
    fetch(w, i, 2, scale);
    for (int l = 0; l < kLanes; ++l) {
      const int exponent = static_cast<int>(scale[l] >> 23 & 0xffu);
      const auto one = [&](float value) {
        return u32{Narrow{}(exponent == 255 ? std::numeric_limits<double>::quiet_NaN() : value * two_to(exponent - 127))};
      };
      if constexpr (kE4m3) {
        const u32 half = a[l] >> (16 * (i.op_sel & 1));
        a[l] = one(from_e4m3(static_cast<std::uint8_t>(half))) | one(from_e4m3(static_cast<std::uint8_t>(half >> 8))) << 16;
      } else {
        const u32 byte = a[l] >> (8 * (i.op_sel & 3)) & 0xffu;
        a[l] = one(from_e2m1(byte & 15u)) | one(from_e2m1(byte >> 4)) << 16;
      }
    }
    store(w, i, a);
  };
}

std::unordered_map<std::string, Handler> make() {
  std::unordered_map<std::string, Handler> t = {
      {"v_nop", [](Wave&, const Instruction&) {}},
      {"v_cmp_class_f32", compare<u32>([](u32 a, u32 classes) { return (classes >> class_of(a) & 1) != 0; })},
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
      {"v_pk_max_u16", two([](u32 a, u32 b) {
         return std::max(a & 0xffffu, b & 0xffffu) | std::max(a >> 16, b >> 16) << 16;
       })},
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
      {"v_cvt_scalef32_pk_f16_fp4", from_pair<false>([](double x) { return to_half(x); })},
      {"v_cvt_scalef32_pk_bf16_fp4", from_pair<false>([](double x) { return to_bfloat(static_cast<float>(x)); })},
      {"v_cvt_scalef32_pk_f16_fp8", from_pair<true>([](double x) { return to_half(x); })},
      {"v_cvt_scalef32_pk_bf16_fp8", from_pair<true>([](double x) { return to_bfloat(static_cast<float>(x)); })},
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
