// From the codes of a cache to the 16-bit operands of mma.sync, two values a register, in as few instructions as are known.
//
// E2M1 is a small f16: its sign, exponent and mantissa bits only have to be moved to f16's, and the result is the value times
// a power of two, subnormals included, that somebody multiplies away for nothing. On sm_80 to sm_100 logic instructions
// issue at half rate, so they are what is counted: 11 instructions for eight codes to f16, seven of them logic, 15 to bf16.
//
// Plain functions on words, compiled for the host too; tests/gpu pins them on all codes. Where a target has an instruction
// for the purpose, it is used; results are equal bit for bit.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "core/macros.hpp"

namespace fp4pa::sm80 {

/// What e2m1_to_f16 multiplies values by: f16's bias less E2M1's.
inline constexpr int kE2m1F16Log2 = -14;
inline constexpr int kE4m3Bf16Log2 = -120;

/// mask ? a : b, bit by bit. One instruction, which a compiler does not find by itself: it sees that some bits are used by
/// nobody, spares them in the mask, and needs two.
FP4PA_FN std::uint32_t select_bits(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(out) : "r"(mask), "r"(a), "r"(b));
  return out;
#else
  return (a & mask) | (b & ~mask);
#endif
}

#if defined(__CUDA_ARCH__)
/// __byte_perm, which takes no notice of a selector's bit 3.
__device__ __forceinline__ std::uint32_t prmt(std::uint32_t x, std::uint32_t selector) {
  std::uint32_t out;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(out) : "r"(x), "r"(selector));
  return out;
}
#endif

/// Eight codes, nibble n of q, to f16 times 2^-14: out[p] holds nibble p in its lower and nibble p + 4 in its upper half.
///
/// A byte at a time: sign to bit 7, the three magnitude bits to bits 3 to 1, which is the upper byte of an f16. Then bytes
/// 0 and 2, or 1 and 3, go to the upper bytes of the two halves, and what lay between the bits goes away. Seven of the eleven
/// instructions are logic; shifts to the left are multiplications, which have a pipe of their own.
FP4PA_FN void e2m1_to_f16(std::uint32_t q, std::uint32_t (&out)[4]) {
  constexpr std::uint32_t kSigns = 0x80808080u;
  constexpr std::uint32_t kHalves = 0x8e008e00u;
  const std::uint32_t even = select_bits(kSigns, q << 4, q << 1);
  const std::uint32_t odd = select_bits(kSigns, q, q >> 3);
  out[0] = (even << 8) & kHalves;
  out[1] = (odd << 8) & kHalves;
  out[2] = even & kHalves;
  out[3] = odd & kHalves;
}

/// The same to bf16, times 2^-126.
///
/// Two codes at a time, nibbles that are neighbours, whose signs and magnitudes go the same ways: those of the upper one to where bf16 has
/// them, bits 15 and 8 to 6, those of the lower one to four bits below. Seven of the eleven instructions are logic, as in f16.
FP4PA_FN void e2m1_to_bf16(std::uint32_t q, std::uint32_t (&out)[4]) {
  constexpr std::uint32_t kSigns = 0x88008800u;
  constexpr std::uint32_t kBits = 0x81c081c0u;
  const std::uint32_t low = select_bits(kSigns, q << 8, q << 2);
  const std::uint32_t high = select_bits(kSigns, q, q >> 6);
  out[0] = (low << 4) & kBits;
  out[1] = low & kBits;
  out[2] = (high << 4) & kBits;
  out[3] = high & kBits;
}

/// Two E4M3 codes, in bits 7..0 and 15..8, to f16. Exact; NaN gives NaN.
FP4PA_FN std::uint32_t e4m3_to_f16(std::uint32_t pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t out;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}" : "=r"(out) : "r"(pair));
  return out;
#elif defined(__CUDA_ARCH__)
  // As E2M1: the bits moved are the value times 2^-8. NaN would come out as 480 * 2^-8.
  const std::uint32_t spread = (pair & 0xffu) | ((pair & 0xff00u) << 8);
  const std::uint32_t bits = ((spread & 0x00800080u) << 8) | ((spread & 0x007f007fu) << 7);
  std::uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(bits), "r"(0x5c005c00u));  // 2^8
  if ((spread & 0x7fu) == 0x7fu) out |= 0x7e00u;
  if ((spread & 0x7f0000u) == 0x7f0000u) out |= 0x7e000000u;
  return out;
#else
  const auto one = [](std::uint32_t code) {
    return std::uint32_t{core::f32_to_f16(core::E4M3::decode(static_cast<std::uint8_t>(code)))};
  };
  return one(pair & 0xffu) | one((pair >> 8) & 0xffu) << 16;
#endif
}

/// Four E4M3 codes to f16, the first two to out[0].
FP4PA_FN void e4m3_to_f16(std::uint32_t codes, std::uint32_t (&out)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high;}"
      : "=r"(out[0]), "=r"(out[1])
      : "r"(codes));
#else
  out[0] = e4m3_to_f16(codes & 0xffffu);
  out[1] = e4m3_to_f16(codes >> 16);
#endif
}

/// Four E4M3 codes to bf16 times 2^-120, the first two to out[0]. bf16 has E4M3's bits and more, so that they only have to be
/// moved; a NaN fills its half with ones.
FP4PA_FN void e4m3_to_bf16(std::uint32_t codes, std::uint32_t (&out)[2]) {
  constexpr std::uint32_t kSigns = 0x80008000u;
  constexpr std::uint32_t kBits = 0x87f087f0u;
  const std::uint32_t over = (codes & 0x7f7f7f7fu) + 0x01010101u;  // bit 7 of a byte where its code is 0x7f
#if defined(__CUDA_ARCH__)
  const std::uint32_t upper[2] = {__byte_perm(codes, 0, 0x1404), __byte_perm(codes, 0, 0x3424)};
  // Selectors with bit 3 repeat a byte's highest bit.
  const std::uint32_t nan[2] = {prmt(over, 0x9988), prmt(over, 0xbbaa)};
#else
  const std::uint32_t upper[2] = {(codes & 0xffu) << 8 | (codes & 0xff00u) << 16,
                                  (codes & 0xff0000u) >> 8 | (codes & 0xff000000u)};
  const auto ones = [over](int i) { return (over >> (8 * i + 7) & 1u) * 0xffffu; };
  const std::uint32_t nan[2] = {ones(0) | ones(1) << 16, ones(2) | ones(3) << 16};
#endif
  for (int i = 0; i < 2; ++i) out[i] = (select_bits(kSigns, upper[i], upper[i] >> 4) & kBits) | nan[i];
}

FP4PA_FN std::uint32_t byte_of(std::uint32_t word, int index) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, 0x4440 | index);
#else
  return (word >> (8 * index)) & 0xffu;
#endif
}

/// a * b + c. As an instruction: a compiler that knows a's mask would shift and mask once more.
FP4PA_FN std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#if defined(__CUDA_ARCH__)
  std::uint32_t out;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
#else
  return a * b + c;
#endif
}

/// __byte_perm, for the host too: byte i of the result is byte s of `low` (s 0 to 3) or `high` (4 to 7), s being digit i of the selector.
FP4PA_FN std::uint32_t byte_perm(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, selector);
#else
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= (static_cast<std::uint32_t>(both >> (8 * (selector >> (4 * i) & 7u))) & 0xffu) << (8 * i);
  return out;
#endif
}

/// Bytes 0, 2, 1 and 3 of a word.
FP4PA_FN std::uint32_t exchange_middle_bytes(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, 0x3120);
#else
  return (word & 0xff0000ffu) | ((word & 0xff00u) << 8) | ((word >> 8) & 0xff00u);
#endif
}

/// A half of a word in both halves.
FP4PA_FN std::uint32_t twice_low(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, 0x1010);
#else
  return (word & 0xffffu) | (word << 16);
#endif
}
FP4PA_FN std::uint32_t twice_high(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, 0x3232);
#else
  return (word >> 16) | (word & 0xffff0000u);
#endif
}

/// Byte `index` of a word as an E8M0 scale. 2^-127 (code 0) becomes as good as 0; 0xFF becomes NaN by the stray last bit,
/// which changes every other value by less than f32 can tell from rounding.
FP4PA_FN float e8m0_to_f32(std::uint32_t word, int index) {
#if defined(__CUDA_ARCH__)
  if (index < 3) {
    std::uint32_t out;
    asm("lop3.b32 %0, %1, 0x7f800000, %2, 0xea;" : "=r"(out) : "r"(word << (23 - 8 * index)), "r"(1u));
    return std::bit_cast<float>(out);
  }
#endif
  return std::bit_cast<float>(byte_of(word, index) * 0x00800000u + 1u);
}

/// Byte `index` of two words as E8M0 scales in bf16; 2^-127 becomes 0 and NaN becomes infinity, see scale_bf16. Two bytes of
/// both words are brought together first, a single permutation that serves two indices.
FP4PA_FN std::uint32_t e8m0_to_bf16(std::uint32_t low, std::uint32_t high, int index) {
  const std::uint32_t both =
      index < 2 ? (low & 0xffffu) | (high << 16) : (low >> 16) | (high & 0xffff0000u);
  return (index % 2 == 0 ? both << 7 : both >> 1) & 0x7f807f80u;
}

/// Half `index` of a word, an f16.
FP4PA_FN float f16_to_f32(std::uint32_t word, int index) {
#if defined(__CUDA_ARCH__)
  float out;
  if (index == 0) {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(out) : "r"(word));
  } else {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}" : "=f"(out) : "r"(word));
  }
  return out;
#else
  return core::f16_to_f32(static_cast<std::uint16_t>(word >> (16 * index)));
#endif
}

/// Byte `index` of a word as an E4M3 scale in f32, sign ignored.
FP4PA_FN float ue4m3_to_f32(std::uint32_t word, int index) {
  return f16_to_f32(e4m3_to_f16((word >> (8 * index)) & 0x7fu), 0);
}

namespace host {
template <class F>
inline std::uint32_t each_half(F&& f) {
  return std::uint32_t{f(0)} | std::uint32_t{f(16)} << 16;
}
inline float f16(std::uint32_t x, int shift) { return core::f16_to_f32(static_cast<std::uint16_t>(x >> shift)); }
inline float bf16(std::uint32_t x, int shift) { return core::bf16_to_f32(static_cast<std::uint16_t>(x >> shift)); }
}  // namespace host

/// a * b in each half.
FP4PA_FN std::uint32_t multiply_f16(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
#else
  return host::each_half([&](int s) { return core::f32_to_f16(host::f16(a, s) * host::f16(b, s)); });
#endif
}

/// p * scale in each half of bf16, where a scale of infinity stands for NaN: p * scale + scale * 0.
FP4PA_FN std::uint32_t scale_bf16(std::uint32_t p, std::uint32_t scale) {
#if defined(__CUDA_ARCH__)
  std::uint32_t nan;
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(nan) : "r"(scale), "r"(0u), "r"(0u));
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(p), "r"(scale), "r"(nan));
  return out;
#else
  return host::each_half([&](int s) {
    return core::f32_to_bf16(host::bf16(p, s) * host::bf16(scale, s) + host::bf16(scale, s) * 0.0f);
  });
#endif
}

FP4PA_FN std::uint32_t pack_f16(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  return std::uint32_t{core::f32_to_f16(low)} | std::uint32_t{core::f32_to_f16(high)} << 16;
#endif
}
FP4PA_FN std::uint32_t pack_bf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
#else
  return std::uint32_t{core::f32_to_bf16(low)} | std::uint32_t{core::f32_to_bf16(high)} << 16;
#endif
}

FP4PA_FN std::uint16_t round_f16(float x) { return static_cast<std::uint16_t>(pack_f16(x, 0.0f)); }
FP4PA_FN std::uint16_t round_bf16(float x) { return static_cast<std::uint16_t>(pack_bf16(x, 0.0f)); }

/// What is left of low and high after packing them: the second term of a query.
FP4PA_FN std::uint32_t pack_f16_rest(float low, float high, std::uint32_t packed) {
  return pack_f16(low - core::f16_to_f32(static_cast<std::uint16_t>(packed)),
                  high - core::f16_to_f32(static_cast<std::uint16_t>(packed >> 16)));
}
FP4PA_FN std::uint32_t pack_bf16_rest(float low, float high, std::uint32_t packed) {
  return pack_bf16(low - core::bf16_to_f32(static_cast<std::uint16_t>(packed)),
                   high - core::bf16_to_f32(static_cast<std::uint16_t>(packed >> 16)));
}

/// 2^x to about 2 ulp; below 2^-126 the result is 0.
FP4PA_FN float exp2_fast(float x) {
#if defined(__CUDA_ARCH__)
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return std::exp2(x);
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

}  // namespace fp4pa::sm80
