// How a vector instruction's work on a value becomes work on a wave: its operands fetched, a function called for each lane, the result
// stored. By the number and kind of its operands.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/isa/wave.hpp"

namespace isa {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

inline i32 s(u32 x) { return static_cast<i32>(x); }
inline u32 u(i32 x) { return static_cast<u32>(x); }

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

}  // namespace isa
