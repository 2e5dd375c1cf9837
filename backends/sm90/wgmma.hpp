// wgmma in PTX: D [64, N] += A [64, 16] B [16, N] by the four warps of a warpgroup, A in registers or in shared memory, B in
// shared memory.
//
// A warp has 16 of the rows, and its A (in registers) and D lie as MmaM16N8K16's, eight columns of D after the other. The macros below name
// registers and nothing else. Source: PTX ISA 9.0, "Asynchronous warpgroup level matrix instructions".
#pragma once

#include <concepts>
#include <cstdint>

#include "core/atom/element.hpp"

namespace fp4pa::sm90 {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWgmma = true;
#else
inline constexpr bool kHasWgmma = false;
#endif
extern "C" __device__ void fp4pa_wgmma_needs_target_sm_90a();

#define FP4PA_SUM_4(i) "+f"(d[i][0][0]), "+f"(d[i][0][1]), "+f"(d[i][0][2]), "+f"(d[i][0][3])
#define FP4PA_SUM_16(i) FP4PA_SUM_4(i), FP4PA_SUM_4(i + 1), FP4PA_SUM_4(i + 2), FP4PA_SUM_4(i + 3)
#define FP4PA_SUM_32(i) FP4PA_SUM_16(i), FP4PA_SUM_16(i + 4)
#define FP4PA_SUM_64(i) FP4PA_SUM_32(i), FP4PA_SUM_32(i + 8)
#define FP4PA_WGMMA_32(type)                                                                                                 \
  asm volatile(                                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %21, 0; "                                                                               \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"                                                       \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"                                                 \
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, %22;}"                                                                         \
      : FP4PA_SUM_16(0)                                                                                                      \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposed ? 1 : 0))
#define FP4PA_WGMMA_64(type)                                                                                                 \
  asm volatile(                                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %37, 0; "                                                                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                                                       \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                               \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                                       \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}"                                                                         \
      : FP4PA_SUM_32(0)                                                                                                      \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposed ? 1 : 0))
#define FP4PA_WGMMA_128(type)                                                                                                \
  asm volatile(                                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %69, 0; "                                                                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                                                      \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                               \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                     \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                     \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                                       \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}"                                                                         \
      : FP4PA_SUM_64(0)                                                                                                      \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposed ? 1 : 0))

#define FP4PA_WGMMA_192(type)                                                                                                \
  asm volatile(                                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %101, 0; "                                                                              \
      "wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type " {"                                                      \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                               \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                     \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                     \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                                     \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                     \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                                       \
      "}, {%96, %97, %98, %99}, %100, p, 1, 1, %102;}"                                                                       \
      : FP4PA_SUM_64(0), FP4PA_SUM_32(16)                                                                                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposed ? 1 : 0))
#define FP4PA_WGMMA_256(type)                                                                                                \
  asm volatile(                                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %133, 0; "                                                                              \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {"                                                      \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                               \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                     \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                     \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                                     \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                     \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                     \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                         \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"                       \
      "}, {%128, %129, %130, %131}, %132, p, 1, 1, %134;}"                                                                   \
      : FP4PA_SUM_64(0), FP4PA_SUM_64(16)                                                                                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposed ? 1 : 0))

#define FP4PA_WGMMA_SHARED_64(type)                                                                                          \
  asm volatile(                                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %34, 0; "                                                                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"                                                       \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                               \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                                       \
      "}, %32, %33, p, 1, 1, 0, %35;}"                                                                                       \
      : FP4PA_SUM_32(0)                                                                                                      \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposed ? 1 : 0))
#define FP4PA_WGMMA_SHARED_128(type)                                                                                         \
  asm volatile(                                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %66, 0; "                                                                               \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                                                      \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                               \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                     \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                     \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                                       \
      "}, %64, %65, p, 1, 1, 0, %67;}"                                                                                       \
      : FP4PA_SUM_64(0)                                                                                                      \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransposed ? 1 : 0))

/// @tparam kTransposed  B is MN-major
/// @param d  [N / 8][1][4], not to be touched before a wait
/// @param b  descriptor
/// @param accumulate  false: D is only written
template <class Element, int kN, bool kTransposed>
__device__ __forceinline__ void wgmma(float (&d)[kN / 8][1][4], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate) {
  static_assert(kN == 32 || kN == 64 || kN == 128 || kN == 192 || kN == 256);
  if constexpr (!kHasWgmma) {
    fp4pa_wgmma_needs_target_sm_90a();
  } else if constexpr (kN == 32 && std::same_as<Element, core::BF16>) {
    FP4PA_WGMMA_32("bf16");
  } else if constexpr (kN == 32) {
    FP4PA_WGMMA_32("f16");
  } else if constexpr (kN == 64 && std::same_as<Element, core::BF16>) {
    FP4PA_WGMMA_64("bf16");
  } else if constexpr (kN == 64) {
    FP4PA_WGMMA_64("f16");
  } else if constexpr (kN == 192 && std::same_as<Element, core::BF16>) {
    FP4PA_WGMMA_192("bf16");
  } else if constexpr (kN == 192) {
    FP4PA_WGMMA_192("f16");
  } else if constexpr (kN == 256 && std::same_as<Element, core::BF16>) {
    FP4PA_WGMMA_256("bf16");
  } else if constexpr (kN == 256) {
    FP4PA_WGMMA_256("f16");
  } else if constexpr (std::same_as<Element, core::BF16>) {
    FP4PA_WGMMA_128("bf16");
  } else {
    FP4PA_WGMMA_128("f16");
  }
}

/// The same with A [64, 16] in shared memory, K-major.
/// @param a, b  descriptors
template <class Element, int kN, bool kTransposed>
__device__ __forceinline__ void wgmma(float (&d)[kN / 8][1][4], std::uint64_t a, std::uint64_t b, bool accumulate) {
  static_assert(kN == 64 || kN == 128);
  if constexpr (!kHasWgmma) {
    fp4pa_wgmma_needs_target_sm_90a();
  } else if constexpr (kN == 64 && std::same_as<Element, core::BF16>) {
    FP4PA_WGMMA_SHARED_64("bf16");
  } else if constexpr (kN == 64) {
    FP4PA_WGMMA_SHARED_64("f16");
  } else if constexpr (std::same_as<Element, core::BF16>) {
    FP4PA_WGMMA_SHARED_128("bf16");
  } else {
    FP4PA_WGMMA_SHARED_128("f16");
  }
}

/// Sums that nothing before this point may be moved behind, nor the other way round.
template <int kTiles>
__device__ __forceinline__ void pin(float (&d)[kTiles][1][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) asm volatile("" : FP4PA_SUM_4(i)::"memory");
}

#undef FP4PA_SUM_4
#undef FP4PA_SUM_16
#undef FP4PA_SUM_32
#undef FP4PA_SUM_64
#undef FP4PA_WGMMA_32
#undef FP4PA_WGMMA_64
#undef FP4PA_WGMMA_128
#undef FP4PA_WGMMA_192
#undef FP4PA_WGMMA_256
#undef FP4PA_WGMMA_SHARED_64
#undef FP4PA_WGMMA_SHARED_128

}  // namespace fp4pa::sm90
