// Scalar instructions. Source: CDNA4 ISA 5, 12 (SOP1, SOP2, SOPC, SOPK, SOPP).
#include <bit>
#include <limits>
#include <unordered_map>

#include "tests/isa/wave.hpp"

namespace isa {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

u32 source(const Wave& w, const Instruction& i, int k) { return read_scalar(w, i.operand[static_cast<std::size_t>(k)]); }
u64 source64(const Wave& w, const Instruction& i, int k) {
  return read_scalar64(w, i, i.operand[static_cast<std::size_t>(k)]);
}
void put(Wave& w, const Instruction& i, u32 x) { w.scalar[i.operand[0].index] = x; }
void put64(Wave& w, const Instruction& i, u64 x) { w.set_scalar64(i.operand[0].index, x); }

/// f(a, b, scc) -> result.
template <class F>
constexpr Handler two(F) {
  return +[](Wave& w, const Instruction& i) {
    bool scc = w.scc;
    const u32 x = F{}(source(w, i, 1), source(w, i, 2), scc);
    put(w, i, x);
    w.scc = scc;
  };
}
template <class F>
constexpr Handler two64(F) {
  return +[](Wave& w, const Instruction& i) {
    const u64 x = F{}(source64(w, i, 1), source64(w, i, 2));
    put64(w, i, x);
    w.scc = x != 0;
  };
}
template <class F>
constexpr Handler logic(F) {
  return +[](Wave& w, const Instruction& i) {
    const u32 x = F{}(source(w, i, 1), source(w, i, 2));
    put(w, i, x);
    w.scc = x != 0;
  };
}
/// 64 bits shifted by 32.
template <class F>
constexpr Handler shift64(F) {
  return +[](Wave& w, const Instruction& i) {
    const u64 x = F{}(source64(w, i, 1), source(w, i, 2) & 63u);
    put64(w, i, x);
    w.scc = x != 0;
  };
}
template <class F>
constexpr Handler compare(F) {
  return +[](Wave& w, const Instruction& i) { w.scc = F{}(source(w, i, 0), source(w, i, 1)); };
}
template <class F>
constexpr Handler compare64(F) {
  return +[](Wave& w, const Instruction& i) { w.scc = F{}(source64(w, i, 0), source64(w, i, 1)); };
}
/// 16 bits of a literal, sign-extended.
i32 short_literal(const Instruction& i, int k) {
  return static_cast<std::int16_t>(i.operand[static_cast<std::size_t>(k)].literal);
}
template <class F>
constexpr Handler compare_short(F) {
  return +[](Wave& w, const Instruction& i) { w.scc = F{}(static_cast<i32>(source(w, i, 0)), short_literal(i, 1)); };
}
template <class F>
constexpr Handler compare_short_unsigned(F) {
  return +[](Wave& w, const Instruction& i) {
    w.scc = F{}(source(w, i, 0), static_cast<u32>(i.operand[1].literal) & 0xffffu);
  };
}
template <class F>
constexpr Handler save_exec(F) {
  return +[](Wave& w, const Instruction& i) {
    const u64 s = source64(w, i, 1);
    const u64 old = w.exec();
    const u64 now = F{}(s, old);
    put64(w, i, old);
    w.set_scalar64(kExec, now);
    w.scc = now != 0;
  };
}
template <class F>
constexpr Handler branch(F) {
  return +[](Wave& w, const Instruction& i) {
    if (!F{}(w)) return;
    w.pc = i.address + 4 + static_cast<u64>(i64{static_cast<std::int16_t>(i.operand[0].literal)} * 4);
    w.branched = true;
  };
}
template <int kShift>
constexpr Handler shift_add() {
  return two([](u32 a, u32 b, bool& scc) {
    const u64 sum = (u64{a} << kShift) + b;
    scc = sum >> 32 != 0;
    return static_cast<u32>(sum);
  });
}
bool overflows(i64 x) { return x != static_cast<i32>(x); }

const std::unordered_map<std::string, Handler>& table() {
  static const std::unordered_map<std::string, Handler> kTable = {
      {"s_mov_b32", [](Wave& w, const Instruction& i) { put(w, i, source(w, i, 1)); }},
      {"s_mov_b64", [](Wave& w, const Instruction& i) { put64(w, i, source64(w, i, 1)); }},
      {"s_movk_i32", [](Wave& w, const Instruction& i) { put(w, i, static_cast<u32>(short_literal(i, 1))); }},
      {"s_addk_i32",
       [](Wave& w, const Instruction& i) {
         const i64 sum = i64{static_cast<i32>(source(w, i, 0))} + short_literal(i, 1);
         put(w, i, static_cast<u32>(sum));
         w.scc = overflows(sum);
       }},
      {"s_mulk_i32", [](Wave& w, const Instruction& i) { put(w, i, source(w, i, 0) * static_cast<u32>(short_literal(i, 1))); }},
      {"s_add_u32", two([](u32 a, u32 b, bool& c) { const u64 s = u64{a} + b; c = s >> 32 != 0; return static_cast<u32>(s); })},
      {"s_addc_u32", two([](u32 a, u32 b, bool& c) { const u64 s = u64{a} + b + (c ? 1 : 0); c = s >> 32 != 0; return static_cast<u32>(s); })},
      {"s_sub_u32", two([](u32 a, u32 b, bool& c) { c = b > a; return a - b; })},
      {"s_subb_u32", two([](u32 a, u32 b, bool& c) { const u64 s = u64{b} + (c ? 1 : 0); c = s > a; return static_cast<u32>(a - s); })},
      {"s_add_i32", two([](u32 a, u32 b, bool& c) { c = overflows(i64{static_cast<i32>(a)} + static_cast<i32>(b)); return a + b; })},
      {"s_sub_i32", two([](u32 a, u32 b, bool& c) { c = overflows(i64{static_cast<i32>(a)} - static_cast<i32>(b)); return a - b; })},
      {"s_mul_i32", two([](u32 a, u32 b, bool&) { return a * b; })},
      {"s_mul_hi_u32", two([](u32 a, u32 b, bool&) { return static_cast<u32>(u64{a} * b >> 32); })},
      {"s_mul_hi_i32", two([](u32 a, u32 b, bool&) { return static_cast<u32>(i64{static_cast<i32>(a)} * static_cast<i32>(b) >> 32); })},
      {"s_min_u32", two([](u32 a, u32 b, bool& c) { c = a < b; return c ? a : b; })},
      {"s_max_u32", two([](u32 a, u32 b, bool& c) { c = a >= b; return c ? a : b; })},
      {"s_min_i32", two([](u32 a, u32 b, bool& c) { c = static_cast<i32>(a) < static_cast<i32>(b); return c ? a : b; })},
      {"s_max_i32", two([](u32 a, u32 b, bool& c) { c = static_cast<i32>(a) >= static_cast<i32>(b); return c ? a : b; })},
      {"s_cselect_b32", two([](u32 a, u32 b, bool& c) { return c ? a : b; })},
      {"s_cselect_b64", [](Wave& w, const Instruction& i) { put64(w, i, w.scc ? source64(w, i, 1) : source64(w, i, 2)); }},
      {"s_and_b32", logic([](u32 a, u32 b) { return a & b; })},
      {"s_or_b32", logic([](u32 a, u32 b) { return a | b; })},
      {"s_xor_b32", logic([](u32 a, u32 b) { return a ^ b; })},
      {"s_andn2_b32", logic([](u32 a, u32 b) { return a & ~b; })},
      {"s_lshl_b32", logic([](u32 a, u32 b) { return a << (b & 31); })},
      {"s_lshr_b32", logic([](u32 a, u32 b) { return a >> (b & 31); })},
      {"s_ashr_i32", logic([](u32 a, u32 b) { return static_cast<u32>(static_cast<i32>(a) >> (b & 31)); })},
      {"s_bfe_u32", logic([](u32 a, u32 b) {
         const u32 width = b >> 16 & 127;
         return width == 0 ? 0u : (a >> (b & 31)) & static_cast<u32>((u64{1} << width) - 1);
       })},
      {"s_bfe_i32", logic([](u32 a, u32 b) {
         const u32 width = b >> 16 & 127;
         if (width == 0) return 0u;
         const u32 x = (a >> (b & 31)) & static_cast<u32>((u64{1} << width) - 1);
         return width >= 32 ? x : static_cast<u32>(static_cast<i32>(x << (32 - width)) >> (32 - width));
       })},
      {"s_bfe_i64",
       [](Wave& w, const Instruction& i) {
         const u32 b = source(w, i, 2);
         const u32 width = b >> 16 & 127;
         const u64 x = source64(w, i, 1) >> (b & 63);
         const u64 y = width == 0 ? 0 : width >= 64 ? x : static_cast<u64>(static_cast<i64>(x << (64 - width)) >> (64 - width));
         put64(w, i, y);
         w.scc = y != 0;
       }},
      {"s_bfm_b32", two([](u32 a, u32 b, bool&) { return ((1u << (a & 31)) - 1) << (b & 31); })},
      {"s_abs_i32",
       [](Wave& w, const Instruction& i) {
         const u32 a = source(w, i, 1);
         put(w, i, static_cast<i32>(a) < 0 ? 0u - a : a);
         w.scc = a != 0;
       }},
      {"s_not_b32",
       [](Wave& w, const Instruction& i) {
         put(w, i, ~source(w, i, 1));
         w.scc = w.scalar[i.operand[0].index] != 0;
       }},
      {"s_brev_b32",
       [](Wave& w, const Instruction& i) {
         u32 x = source(w, i, 1), y = 0;
         for (int k = 0; k < 32; ++k) y |= (x >> k & 1) << (31 - k);
         put(w, i, y);
       }},
      {"s_ff1_i32_b32",
       [](Wave& w, const Instruction& i) {
         const u32 a = source(w, i, 1);
         put(w, i, a == 0 ? ~0u : static_cast<u32>(std::countr_zero(a)));
       }},
      {"s_flbit_i32_b32",
       [](Wave& w, const Instruction& i) {
         const u32 x = source(w, i, 1);
         put(w, i, x == 0 ? ~0u : static_cast<u32>(std::countl_zero(x)));
       }},
      {"s_bitset1_b32", [](Wave& w, const Instruction& i) { put(w, i, source(w, i, 0) | 1u << (source(w, i, 1) & 31)); }},
      {"s_bitcmp0_b32", compare([](u32 a, u32 b) { return (a >> (b & 31) & 1) == 0; })},
      {"s_bitcmp1_b32", compare([](u32 a, u32 b) { return (a >> (b & 31) & 1) == 1; })},
      {"s_lshl1_add_u32", shift_add<1>()},
      {"s_lshl2_add_u32", shift_add<2>()},
      {"s_lshl3_add_u32", shift_add<3>()},
      {"s_lshl4_add_u32", shift_add<4>()},
      {"s_and_b64", two64([](u64 a, u64 b) { return a & b; })},
      {"s_or_b64", two64([](u64 a, u64 b) { return a | b; })},
      {"s_xor_b64", two64([](u64 a, u64 b) { return a ^ b; })},
      {"s_nor_b64", two64([](u64 a, u64 b) { return ~(a | b); })},
      {"s_nand_b64", two64([](u64 a, u64 b) { return ~(a & b); })},
      {"s_xnor_b64", two64([](u64 a, u64 b) { return ~(a ^ b); })},
      {"s_andn2_b64", two64([](u64 a, u64 b) { return a & ~b; })},
      {"s_orn2_b64", two64([](u64 a, u64 b) { return a | ~b; })},
      {"s_not_b64",
       [](Wave& w, const Instruction& i) {
         const u64 x = ~source64(w, i, 1);
         put64(w, i, x);
         w.scc = x != 0;
       }},
      {"s_lshl_b64", shift64([](u64 a, u32 n) { return a << n; })},
      {"s_lshr_b64", shift64([](u64 a, u32 n) { return a >> n; })},
      {"s_ashr_i64", shift64([](u64 a, u32 n) { return static_cast<u64>(static_cast<i64>(a) >> n); })},
      {"s_and_saveexec_b64", save_exec([](u64 s, u64 e) { return s & e; })},
      {"s_or_saveexec_b64", save_exec([](u64 s, u64 e) { return s | e; })},
      {"s_xor_saveexec_b64", save_exec([](u64 s, u64 e) { return s ^ e; })},
      {"s_andn2_saveexec_b64", save_exec([](u64 s, u64 e) { return s & ~e; })},
      {"s_cmp_eq_u32", compare([](u32 a, u32 b) { return a == b; })},
      {"s_cmp_lg_u32", compare([](u32 a, u32 b) { return a != b; })},
      {"s_cmp_eq_i32", compare([](u32 a, u32 b) { return a == b; })},
      {"s_cmp_lg_i32", compare([](u32 a, u32 b) { return a != b; })},
      {"s_cmp_gt_u32", compare([](u32 a, u32 b) { return a > b; })},
      {"s_cmp_ge_u32", compare([](u32 a, u32 b) { return a >= b; })},
      {"s_cmp_lt_u32", compare([](u32 a, u32 b) { return a < b; })},
      {"s_cmp_le_u32", compare([](u32 a, u32 b) { return a <= b; })},
      {"s_cmp_gt_i32", compare([](u32 a, u32 b) { return static_cast<i32>(a) > static_cast<i32>(b); })},
      {"s_cmp_ge_i32", compare([](u32 a, u32 b) { return static_cast<i32>(a) >= static_cast<i32>(b); })},
      {"s_cmp_lt_i32", compare([](u32 a, u32 b) { return static_cast<i32>(a) < static_cast<i32>(b); })},
      {"s_cmp_le_i32", compare([](u32 a, u32 b) { return static_cast<i32>(a) <= static_cast<i32>(b); })},
      {"s_cmp_eq_u64", compare64([](u64 a, u64 b) { return a == b; })},
      {"s_cmp_lg_u64", compare64([](u64 a, u64 b) { return a != b; })},
      {"s_cmpk_eq_i32", compare_short([](i32 a, i32 b) { return a == b; })},
      {"s_cmpk_lg_i32", compare_short([](i32 a, i32 b) { return a != b; })},
      {"s_cmpk_gt_i32", compare_short([](i32 a, i32 b) { return a > b; })},
      {"s_cmpk_ge_i32", compare_short([](i32 a, i32 b) { return a >= b; })},
      {"s_cmpk_lt_i32", compare_short([](i32 a, i32 b) { return a < b; })},
      {"s_cmpk_le_i32", compare_short([](i32 a, i32 b) { return a <= b; })},
      {"s_cmpk_eq_u32", compare_short_unsigned([](u32 a, u32 b) { return a == b; })},
      {"s_cmpk_lg_u32", compare_short_unsigned([](u32 a, u32 b) { return a != b; })},
      {"s_cmpk_gt_u32", compare_short_unsigned([](u32 a, u32 b) { return a > b; })},
      {"s_cmpk_ge_u32", compare_short_unsigned([](u32 a, u32 b) { return a >= b; })},
      {"s_cmpk_lt_u32", compare_short_unsigned([](u32 a, u32 b) { return a < b; })},
      {"s_cmpk_le_u32", compare_short_unsigned([](u32 a, u32 b) { return a <= b; })},
      {"s_branch", branch([](const Wave&) { return true; })},
      {"s_cbranch_scc0", branch([](const Wave& w) { return !w.scc; })},
      {"s_cbranch_scc1", branch([](const Wave& w) { return w.scc; })},
      {"s_cbranch_vccz", branch([](const Wave& w) { return w.scalar64(kVcc) == 0; })},
      {"s_cbranch_vccnz", branch([](const Wave& w) { return w.scalar64(kVcc) != 0; })},
      {"s_cbranch_execz", branch([](const Wave& w) { return w.exec() == 0; })},
      {"s_cbranch_execnz", branch([](const Wave& w) { return w.exec() != 0; })},
      {"s_getpc_b64", [](Wave& w, const Instruction& i) { put64(w, i, i.address + 4); }},
      {"s_setpc_b64",
       [](Wave& w, const Instruction& i) {
         w.pc = source64(w, i, 0);
         w.branched = true;
       }},
      {"s_nop", [](Wave&, const Instruction&) {}},
      {"s_endpgm",
       [](Wave& w, const Instruction&) {
         w.wait_vector(0);
         w.wait_local(0);
         w.ended = true;
       }},
      {"s_barrier", [](Wave& w, const Instruction&) { w.at_barrier = true; }},
      {"s_waitcnt",
       [](Wave& w, const Instruction& i) {
         w.wait_vector(i.vmcnt);
         w.wait_local(i.lgkmcnt);
       }},
      {"s_set_gpr_idx_on",
       [](Wave& w, const Instruction& i) {
         w.scalar[kM0] = (source(w, i, 0) & 0xffu) | i.index_roles << 12;
         w.index_roles = i.index_roles;
       }},
      {"s_set_gpr_idx_off", [](Wave& w, const Instruction&) { w.index_roles = 0; }},
  };
  return kTable;
}

}  // namespace

Handler scalar_handler(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : found->second;
}

}  // namespace isa
