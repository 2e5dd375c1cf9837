// The few conversions that native operands need: P from f16 to E4M3, and two bytes of packed codes from each of two words.
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

/// The larger of the halves as integers, which is the order of non-negative floats, with NaN above all.
FP4PA_FN std::uint32_t max_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  std::uint32_t out;
  asm("max.u16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
#else
  const std::uint32_t low = (a & 0xffffu) > (b & 0xffffu) ? a & 0xffffu : b & 0xffffu;
  const std::uint32_t high = (a >> 16) > (b >> 16) ? a >> 16 : b >> 16;
  return low | high << 16;
#endif
}
FP4PA_FN constexpr std::uint32_t swap_halves(std::uint32_t x) { return x << 16 | x >> 16; }

/// Bytes 0 and 2 (odd: 1 and 3) of `first`, then of `second`.
template <bool kOdd>
FP4PA_FN std::uint32_t every_other_byte(std::uint32_t first, std::uint32_t second) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(first, second, kOdd ? 0x7531 : 0x6420);
#else
  const auto two = [](std::uint32_t x) { return kOdd ? ((x >> 8) & 0xffu) | ((x >> 16) & 0xff00u) : (x & 0xffu) | ((x >> 8) & 0xff00u); };
  return two(first) | two(second) << 16;
#endif
}

/// f(integral_constant<int, 0>), ..., for what must be a constant of an instruction.
template <int kCount, class F>
FP4PA_FN void for_constants(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>()), ...); }(
      std::make_integer_sequence<int, kCount>());
}

}  // namespace fp4pa::sm120
