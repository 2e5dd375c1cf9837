// The instructions of gfx950/atoms.hpp, as clang builtins. Device code for clang in HIP mode.
//
// On another target the builtin does not compile ("needs target feature gfx950-insts").
//
// The builtin always takes eight registers of each operand; the compiler drops the upper four of an FP4 operand when
// it chooses the instruction's encoding, so they are left zero here and cost nothing (the ISA gates see to it). Scales
// are run-time values in vector registers: literal zeros would be folded to the instruction without scales, and scales
// in scalar registers are read wrongly by the hardware (the compiler forces vector registers).
// Sources: CDNA4 ISA 7.1, V_MFMA_SCALE_F32_*_F8F6F4, V_MFMA_F32_16X16X32_F16, _BF16; LLVM BuiltinsAMDGPU.def.
#pragma once

#include <concepts>
#include <cstdint>

#include "backends/gfx950/atoms.hpp"

namespace fp4pa::gfx950 {

using Int32x8 = std::int32_t __attribute__((ext_vector_type(8)));
using Float32x4 = float __attribute__((ext_vector_type(4)));
using Float32x16 = float __attribute__((ext_vector_type(16)));

/// The instruction's cbsz (A) and blgp (B) fields.
template <ScaledMfmaElement Element>
inline constexpr int kFormatField = std::same_as<Element, core::E4M3> ? 0 : 4;

template <int kRegisters>
__attribute__((device)) inline Int32x8 operand(const std::uint32_t (&registers)[kRegisters]) {
  Int32x8 x = 0;
  FP4PA_UNROLL
  for (int i = 0; i < kRegisters; ++i) x[i] = static_cast<std::int32_t>(registers[i]);
  return x;
}

template <class A, class B>
struct MfmaScaleF32_16x16x128_F8f6f4_Instruction {
  using Atom = MfmaScaleF32_16x16x128_F8f6f4<A, B>;

  template <core::ScaleSelect kSelectA = core::ScaleSelect{}, core::ScaleSelect kSelectB = core::ScaleSelect{}>
  __attribute__((device)) inline static void mma(float (&d)[4], const std::uint32_t (&a)[Atom::kRegistersA],
                                                 const std::uint32_t (&b)[Atom::kRegistersB], const float (&c)[4],
                                                 std::uint32_t sfa, std::uint32_t sfb) {
    static_assert(Atom::valid_select_a(kSelectA) && Atom::valid_select_b(kSelectB));
    const Float32x4 sum = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
        operand(a), operand(b), Float32x4{c[0], c[1], c[2], c[3]}, kFormatField<A>, kFormatField<B>, kSelectA.byte,
        static_cast<int>(sfa), kSelectB.byte, static_cast<int>(sfb));
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) d[i] = sum[i];
  }
};

template <class A, class B>
struct MfmaScaleF32_32x32x64_F8f6f4_Instruction {
  using Atom = MfmaScaleF32_32x32x64_F8f6f4<A, B>;

  template <core::ScaleSelect kSelectA = core::ScaleSelect{}, core::ScaleSelect kSelectB = core::ScaleSelect{}>
  __attribute__((device)) inline static void mma(float (&d)[16], const std::uint32_t (&a)[Atom::kRegistersA],
                                                 const std::uint32_t (&b)[Atom::kRegistersB], const float (&c)[16],
                                                 std::uint32_t sfa, std::uint32_t sfb) {
    static_assert(Atom::valid_select_a(kSelectA) && Atom::valid_select_b(kSelectB));
    Float32x16 sum;
    FP4PA_UNROLL
    for (int i = 0; i < 16; ++i) sum[i] = c[i];
    sum = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(operand(a), operand(b), sum, kFormatField<A>, kFormatField<B>,
                                                          kSelectA.byte, static_cast<int>(sfa), kSelectB.byte,
                                                          static_cast<int>(sfb));
    FP4PA_UNROLL
    for (int i = 0; i < 16; ++i) d[i] = sum[i];
  }
};

using Half8 = _Float16 __attribute__((ext_vector_type(8)));
using Bfloat8 = __bf16 __attribute__((ext_vector_type(8)));
using Word4 = std::uint32_t __attribute__((ext_vector_type(4)));

template <class Element>
struct MfmaF32_16x16x32_Instruction {
  using Atom = MfmaF32_16x16x32<Element>;

  __attribute__((device)) inline static void mma(float (&d)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[4], const float (&c)[4]) {
    const Word4 wa{a[0], a[1], a[2], a[3]};
    const Word4 wb{b[0], b[1], b[2], b[3]};
    const Float32x4 wc{c[0], c[1], c[2], c[3]};
    Float32x4 sum;
    if constexpr (std::same_as<Element, core::F16>) {
      sum = __builtin_amdgcn_mfma_f32_16x16x32_f16(__builtin_bit_cast(Half8, wa), __builtin_bit_cast(Half8, wb), wc, 0,
                                                   0, 0);
    } else {
      sum = __builtin_amdgcn_mfma_f32_16x16x32_bf16(__builtin_bit_cast(Bfloat8, wa), __builtin_bit_cast(Bfloat8, wb), wc, 0,
                                                    0, 0);
    }
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) d[i] = sum[i];
  }
};

/// The instruction of an atom.
template <class Atom>
struct InstructionOf;
template <class A, class B>
struct InstructionOf<MfmaScaleF32_16x16x128_F8f6f4<A, B>> {
  using Type = MfmaScaleF32_16x16x128_F8f6f4_Instruction<A, B>;
};
template <class Element>
struct InstructionOf<MfmaF32_16x16x32<Element>> {
  using Type = MfmaF32_16x16x32_Instruction<Element>;
};

static_assert(core::AtomInstruction<MfmaF32_16x16x32_Instruction<core::F16>>);
static_assert(core::AtomInstruction<MfmaScaleF32_16x16x128_F8f6f4_Instruction<core::E4M3, core::E2M1>>);
static_assert(core::AtomInstruction<MfmaScaleF32_32x32x64_F8f6f4_Instruction<core::E2M1, core::E4M3>>);

}  // namespace fp4pa::gfx950
