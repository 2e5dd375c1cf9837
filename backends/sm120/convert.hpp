// The few conversions that native operands need: P from f16 to E4M3 or E2M1, and bytes of packed codes from two words.
// Plain functions on words, compiled for the host too.
#pragma once

#include <cstdint>
#include <utility>

#include "backends/sm80/convert.hpp"

namespace fp4pa::sm120 {

/// Four halves to E4M3, nearest even, saturating, NaN to NaN: bytes 0 and 1 are the halves of `first`.
FP4PA_FN std::uint32_t f16_to_e4m3(std::uint32_t first, std::uint32_t second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t out;
  asm("{.reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f16x2 low, %1; cvt.rn.satfinite.e4m3x2.f16x2 high, %2; "
      "mov.b32 %0, {low, high};}"
      : "=r"(out)
      : "r"(first), "r"(second));
  return out;
#else
  const auto code = [](std::uint32_t half) {
    return std::uint32_t{core::E4M3::encode(core::f16_to_f32(static_cast<std::uint16_t>(half)))};
  };
  return code(first) | code(first >> 16) << 8 | code(second) << 16 | code(second >> 16) << 24;
#endif
}

/// Two halves to E4M3 in bits 7..0 and 15..8, likewise.
FP4PA_FN std::uint32_t f16_to_e4m3(std::uint32_t pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t out;
  asm("{.reg .b16 codes; cvt.rn.satfinite.e4m3x2.f16x2 codes, %1; cvt.u32.u16 %0, codes;}" : "=r"(out) : "r"(pair));
  return out;
#else
  return f16_to_e4m3(pair, 0);
#endif
}

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200 && __CUDA_ARCH_FAMILY_SPECIFIC__ < 1300
#define FP4PA_CONVERTS_E2M1 1
#else
#define FP4PA_CONVERTS_E2M1 0
#endif

/// Two halves to E2M1 in bits 3..0 and 7..4, nearest even, saturating: by way of f32, which every half is exactly.
FP4PA_FN std::uint32_t f16_to_e2m1_by_f32(std::uint32_t pair) {
#if FP4PA_CONVERTS_E2M1
  // The first operand becomes bits 7..4.
  std::uint32_t out;
  asm("{.reg .b16 low, high; .reg .f32 first, second; .reg .b8 codes; mov.b32 {low, high}, %1; cvt.f32.f16 first, low; "
      "cvt.f32.f16 second, high; cvt.rn.satfinite.e2m1x2.f32 codes, second, first; cvt.u32.u8 %0, codes;}"
      : "=r"(out)
      : "r"(pair));
  return out;
#else
  const auto code = [](std::uint32_t half) {
    return std::uint32_t{core::E2M1::encode(core::f16_to_f32(static_cast<std::uint16_t>(half)))};
  };
  return code(pair) | code(pair >> 16) << 4;
#endif
}
/// The same by one instruction, which ptxas takes since 13.0.
FP4PA_FN std::uint32_t f16_to_e2m1(std::uint32_t pair) {
#if FP4PA_CONVERTS_E2M1 && __CUDACC_VER_MAJOR__ >= 13
  std::uint32_t out;
  asm("{.reg .b8 codes; cvt.rn.satfinite.e2m1x2.f16x2 codes, %1; cvt.u32.u8 %0, codes;}" : "=r"(out) : "r"(pair));
  return out;
#else
  return f16_to_e2m1_by_f32(pair);
#endif
}
/// And back, exactly; bits from 8 on are not looked at.
FP4PA_FN std::uint32_t e2m1_pair_to_f16(std::uint32_t codes) {
#if FP4PA_CONVERTS_E2M1
  std::uint32_t out;
  asm("{.reg .b8 codes; cvt.u8.u32 codes, %1; cvt.rn.f16x2.e2m1x2 %0, codes;}" : "=r"(out) : "r"(codes));
  return out;
#else
  const auto half = [](std::uint32_t code) {
    return std::uint32_t{core::f32_to_f16(core::E2M1::decode(static_cast<std::uint8_t>(code & 0xfu)))};
  };
  return half(codes) | half(codes >> 4) << 16;
#endif
}

/// 1 / x in each half, for numbers of four significant bits: an approximation to f32 rounds to the same f16.
FP4PA_FN std::uint32_t reciprocal_f16(std::uint32_t x) {
  const auto reciprocal = [](float value) {
#if FP4PA_CONVERTS_E2M1
    float out;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(value));
    return out;
#else
    return 1.0f / value;
#endif
  };
  return sm80::pack_f16(reciprocal(sm80::f16_to_f32(x, 0)), reciprocal(sm80::f16_to_f32(x, 1)));
}

/// a * b + c in each half, rounded once.
FP4PA_FN std::uint32_t fma_f16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#if defined(__CUDA_ARCH__)
  std::uint32_t out;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
#else
  // A product of two halves, and its sum with a third, need 48 bits where they do not overflow.
  return sm80::host::each_half([&](int s) {
    const double sum = static_cast<double>(sm80::host::f16(a, s)) * sm80::host::f16(b, s) + sm80::host::f16(c, s);
    return core::f32_to_f16(static_cast<float>(sum));
  });
#endif
}

/// The lower halves of two words, or the upper ones.
template <bool kUpper>
FP4PA_FN std::uint32_t halves_of(std::uint32_t first, std::uint32_t second) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(first, second, kUpper ? 0x7632 : 0x5410);
#else
  return kUpper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
#endif
}
FP4PA_FN constexpr std::uint32_t swap_halves(std::uint32_t x) { return x << 16 | x >> 16; }

/// Byte `index` of two words, and again: bytes 0 and 2 of the result are the first's.
FP4PA_FN std::uint32_t bytes_twice(std::uint32_t first, std::uint32_t second, int index) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(first, second, 0x4040 + 0x1111 * index);
#else
  return (((first >> (8 * index)) & 0xffu) | ((second >> (8 * index)) & 0xffu) << 8) * 0x00010001u;
#endif
}

/// Bytes 0 and 2 (odd: 1 and 3) of `first`, then of `second`.
template <bool kOdd>
FP4PA_FN std::uint32_t every_other_byte(std::uint32_t first, std::uint32_t second) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(first, second, kOdd ? 0x7531 : 0x6420);
#else
  const auto two = [](std::uint32_t x) {
    return kOdd ? ((x >> 8) & 0xffu) | ((x >> 16) & 0xff00u) : (x & 0xffu) | ((x >> 8) & 0xff00u);
  };
  return two(first) | two(second) << 16;
#endif
}

/// The lower nibbles of the bytes of `lower`, the upper ones of `upper`; one instruction, which compilers do not find.
FP4PA_FN std::uint32_t nibbles_of(std::uint32_t lower, std::uint32_t upper) {
  constexpr std::uint32_t kLower = 0x0f0f0f0fu;
#if defined(__CUDA_ARCH__)
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(out) : "r"(lower), "r"(upper), "n"(kLower));
  return out;
#else
  return (lower & kLower) | (upper & ~kLower);
#endif
}

/// f(integral_constant<int, 0>), ..., for what must be a constant of an instruction.
template <int kCount, class F>
FP4PA_FN void for_constants(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>()), ...); }(
      std::make_integer_sequence<int, kCount>());
}

}  // namespace fp4pa::sm120
