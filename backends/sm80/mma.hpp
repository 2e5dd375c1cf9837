// The instructions of sm80/atoms.hpp, in PTX. Device code for nvcc (or clang in CUDA mode).
//
// Below sm_80 each call becomes a call of an undefined function, whose name is the message.
// Source: PTX ISA 9.0, "Multiply-and-accumulate instruction: mma".
#pragma once

#include <concepts>
#include <cstdint>

#include "backends/sm80/atoms.hpp"

namespace fp4pa::sm80 {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
inline constexpr bool kHasMmaM16N8K16 = true;
#else
inline constexpr bool kHasMmaM16N8K16 = false;
#endif
extern "C" __device__ void fp4pa_mma_m16n8k16_needs_target_sm_80();

template <class Element>
struct MmaM16N8K16Instruction {
  using Atom = MmaM16N8K16<Element>;

  __device__ __forceinline__ static void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                             const float (&c)[4]) {
    if constexpr (!kHasMmaM16N8K16) {
      fp4pa_mma_m16n8k16_needs_target_sm_80();
    } else if constexpr (std::same_as<Element, core::F16>) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
            "f"(c[3]));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
          : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]),
            "f"(c[3]));
    }
  }

  /// d += a b, in the registers of d: where paths of a kernel meet, a sum then needs not be moved.
  __device__ __forceinline__ static void accumulate(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    if constexpr (!kHasMmaM16N8K16) {
      fp4pa_mma_m16n8k16_needs_target_sm_80();
    } else if constexpr (std::same_as<Element, core::F16>) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
  }
};

static_assert(core::AtomInstruction<MmaM16N8K16Instruction<core::F16>>);
static_assert(core::AtomInstruction<MmaM16N8K16Instruction<core::BF16>>);

}  // namespace fp4pa::sm80
