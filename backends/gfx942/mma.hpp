// The instructions of gfx942/atoms.hpp, as clang builtins. Device code for clang in HIP mode.
//
// On a target without them the builtins do not compile ("needs target feature ..."). On gfx950 they do, and there its
// FP8 is OCP's: the atom's element type would be wrong, so that this shim is refused for it.
// Sources: CDNA3 ISA, V_MFMA_F32_16X16X32_FP8_FP8, V_MFMA_F32_16X16X16_F16, _BF16; LLVM BuiltinsAMDGPU.def.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/gfx942/atoms.hpp"

namespace fp4pa::gfx942 {

#if defined(__gfx950__)
#error "the FP8 of backends/gfx942 is FNUZ and that of gfx950 is OCP: use backends/gfx950"
#endif

using Float32x4 = float __attribute__((ext_vector_type(4)));
using Half4 = _Float16 __attribute__((ext_vector_type(4)));
using Short4 = std::int16_t __attribute__((ext_vector_type(4)));

__attribute__((device)) inline std::uint64_t pair(const std::uint32_t (&registers)[2]) {
  return std::uint64_t{registers[1]} << 32 | registers[0];
}

struct MfmaF32_16x16x32_Fp8Fp8_Instruction {
  using Atom = MfmaF32_16x16x32_Fp8Fp8;

  __attribute__((device)) inline static void mma(float (&d)[4], const std::uint32_t (&a)[2],
                                                 const std::uint32_t (&b)[2], const float (&c)[4]) {
    const Float32x4 sum = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(
        static_cast<long>(pair(a)), static_cast<long>(pair(b)), Float32x4{c[0], c[1], c[2], c[3]}, 0, 0, 0);
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) d[i] = sum[i];
  }
};

struct MfmaF32_16x16x16_F16_Instruction {
  using Atom = MfmaF32_16x16x16_F16;

  __attribute__((device)) inline static void mma(float (&d)[4], const std::uint32_t (&a)[2],
                                                 const std::uint32_t (&b)[2], const float (&c)[4]) {
    const Float32x4 sum = __builtin_amdgcn_mfma_f32_16x16x16f16(
        std::bit_cast<Half4>(pair(a)), std::bit_cast<Half4>(pair(b)), Float32x4{c[0], c[1], c[2], c[3]}, 0, 0, 0);
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) d[i] = sum[i];
  }
};

struct MfmaF32_16x16x16_Bf16_Instruction {
  using Atom = MfmaF32_16x16x16_Bf16;

  __attribute__((device)) inline static void mma(float (&d)[4], const std::uint32_t (&a)[2],
                                                 const std::uint32_t (&b)[2], const float (&c)[4]) {
    const Float32x4 sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
        std::bit_cast<Short4>(pair(a)), std::bit_cast<Short4>(pair(b)), Float32x4{c[0], c[1], c[2], c[3]}, 0, 0, 0);
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) d[i] = sum[i];
  }
};

/// The instruction of an atom.
template <class Atom>
struct InstructionOf;
template <>
struct InstructionOf<MfmaF32_16x16x16_F16> {
  using Type = MfmaF32_16x16x16_F16_Instruction;
};
template <>
struct InstructionOf<MfmaF32_16x16x16_Bf16> {
  using Type = MfmaF32_16x16x16_Bf16_Instruction;
};

static_assert(core::AtomInstruction<MfmaF32_16x16x32_Fp8Fp8_Instruction>);
static_assert(core::AtomInstruction<MfmaF32_16x16x16_Bf16_Instruction>);
static_assert(core::AtomInstruction<MfmaF32_16x16x16_F16_Instruction>);

}  // namespace fp4pa::gfx942
