// The instructions of sm120/atoms.hpp, in PTX. Device code for nvcc (or clang in CUDA mode).
//
// They exist on the family of targets that 120f names (sm_120f, sm_121f and the `a` targets of both); build with
//   -gencode=arch=compute_120f,code=[sm_120f,sm_121f]
// For any other target each call becomes a call of an undefined function, whose name is the message.
// Source: PTX ISA 9.0, "Warp-level matrix instructions: mma" and "Block scaling for mma.sync".
#pragma once

#include <concepts>
#include <cstdint>

#include "backends/sm120/atoms.hpp"

namespace fp4pa::sm120 {

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200 && \
    __CUDA_ARCH_FAMILY_SPECIFIC__ < 1300
inline constexpr bool kHasBlockScaledMma = true;
#else
inline constexpr bool kHasBlockScaledMma = false;
#endif
extern "C" __device__ void fp4pa_block_scaled_mma_needs_target_sm_120f();

/// A and B in byte containers, E8M0 scales of 32.
template <class A, class B>
struct MmaMxf8f6f4M16N8K32Instruction {
  using Atom = MmaMxf8f6f4M16N8K32<A, B>;
  static_assert(std::same_as<A, core::E4M3> || std::same_as<B, core::E4M3>,
                "two FP4 operands belong to the packed instructions below");

  template <core::ScaleSelect kSelectA = core::ScaleSelect{}, core::ScaleSelect kSelectB = core::ScaleSelect{}>
  __device__ __forceinline__ static void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                             const float (&c)[4], std::uint32_t sfa, std::uint32_t sfb) {
    static_assert(Atom::valid_select_a(kSelectA) && Atom::valid_select_b(kSelectB));
    constexpr std::uint16_t kByteA = kSelectA.byte, kThreadA = kSelectA.thread;
    constexpr std::uint16_t kByteB = kSelectB.byte, kThreadB = kSelectB.thread;
    if constexpr (!kHasBlockScaledMma) {
      fp4pa_block_scaled_mma_needs_target_sm_120f();
    } else if constexpr (std::same_as<A, core::E2M1>) {
      asm("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m1.e4m3.f32.ue8m0 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, {%14}, {%15, %16}, {%17}, {%18, %19};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
            "f"(c[3]), "r"(sfa), "h"(kByteA), "h"(kThreadA), "r"(sfb), "h"(kByteB), "h"(kThreadB));
    } else if constexpr (std::same_as<B, core::E2M1>) {
      asm("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e2m1.f32.ue8m0 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, {%14}, {%15, %16}, {%17}, {%18, %19};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
            "f"(c[3]), "r"(sfa), "h"(kByteA), "h"(kThreadA), "r"(sfb), "h"(kByteB), "h"(kThreadB));
    } else {
      asm("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, {%14}, {%15, %16}, {%17}, {%18, %19};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
            "f"(c[3]), "r"(sfa), "h"(kByteA), "h"(kThreadA), "r"(sfb), "h"(kByteB), "h"(kThreadB));
    }
  }
};

/// Two packed FP4 operands, E8M0 scales of 32.
struct MmaMxf4M16N8K64Instruction {
  using Atom = MmaMxf4M16N8K64;

  template <core::ScaleSelect kSelectA = core::ScaleSelect{}, core::ScaleSelect kSelectB = core::ScaleSelect{}>
  __device__ __forceinline__ static void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                             const float (&c)[4], std::uint32_t sfa, std::uint32_t sfb) {
    static_assert(Atom::valid_select_a(kSelectA) && Atom::valid_select_b(kSelectB));
    constexpr std::uint16_t kByteA = kSelectA.byte, kThreadA = kSelectA.thread;
    constexpr std::uint16_t kByteB = kSelectB.byte, kThreadB = kSelectB.thread;
    if constexpr (!kHasBlockScaledMma) {
      fp4pa_block_scaled_mma_needs_target_sm_120f();
    } else {
      asm("mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, {%14}, {%15, %16}, {%17}, {%18, %19};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
            "f"(c[3]), "r"(sfa), "h"(kByteA), "h"(kThreadA), "r"(sfb), "h"(kByteB), "h"(kThreadB));
    }
  }
};

/// Two packed FP4 operands, UE4M3 scales of 16: NVFP4.
struct MmaMxf4nvf4Ue4m3M16N8K64Instruction {
  using Atom = MmaMxf4nvf4Ue4m3M16N8K64;

  template <core::ScaleSelect kSelectA = core::ScaleSelect{}, core::ScaleSelect kSelectB = core::ScaleSelect{}>
  __device__ __forceinline__ static void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                             const float (&c)[4], std::uint32_t sfa, std::uint32_t sfb) {
    static_assert(Atom::valid_select_a(kSelectA) && Atom::valid_select_b(kSelectB));
    constexpr std::uint16_t kByteA = kSelectA.byte, kThreadA = kSelectA.thread;
    constexpr std::uint16_t kByteB = kSelectB.byte, kThreadB = kSelectB.thread;
    if constexpr (!kHasBlockScaledMma) {
      fp4pa_block_scaled_mma_needs_target_sm_120f();
    } else {
      asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, {%14}, {%15, %16}, {%17}, {%18, %19};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
            "f"(c[3]), "r"(sfa), "h"(kByteA), "h"(kThreadA), "r"(sfb), "h"(kByteB), "h"(kThreadB));
    }
  }
};

/// The same data path as kind::mxf4, under its other name.
struct MmaMxf4nvf4Ue8m0M16N8K64Instruction {
  using Atom = MmaMxf4nvf4Ue8m0M16N8K64;

  template <core::ScaleSelect kSelectA = core::ScaleSelect{}, core::ScaleSelect kSelectB = core::ScaleSelect{}>
  __device__ __forceinline__ static void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                             const float (&c)[4], std::uint32_t sfa, std::uint32_t sfb) {
    static_assert(Atom::valid_select_a(kSelectA) && Atom::valid_select_b(kSelectB));
    constexpr std::uint16_t kByteA = kSelectA.byte, kThreadA = kSelectA.thread;
    constexpr std::uint16_t kByteB = kSelectB.byte, kThreadB = kSelectB.thread;
    if constexpr (!kHasBlockScaledMma) {
      fp4pa_block_scaled_mma_needs_target_sm_120f();
    } else {
      asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13}, {%14}, {%15, %16}, {%17}, {%18, %19};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
            "f"(c[3]), "r"(sfa), "h"(kByteA), "h"(kThreadA), "r"(sfb), "h"(kByteB), "h"(kThreadB));
    }
  }
};

static_assert(core::AtomInstruction<MmaMxf8f6f4M16N8K32Instruction<core::E4M3, core::E2M1>>);
static_assert(core::AtomInstruction<MmaMxf8f6f4M16N8K32Instruction<core::E2M1, core::E4M3>>);
static_assert(core::AtomInstruction<MmaMxf8f6f4M16N8K32Instruction<core::E4M3, core::E4M3>>);
static_assert(core::AtomInstruction<MmaMxf4M16N8K64Instruction>);
static_assert(core::AtomInstruction<MmaMxf4nvf4Ue4m3M16N8K64Instruction>);
static_assert(core::AtomInstruction<MmaMxf4nvf4Ue8m0M16N8K64Instruction>);

}  // namespace fp4pa::sm120
