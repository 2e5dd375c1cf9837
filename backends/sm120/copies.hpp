// How operands reach the registers on SM120: the 8-bit matrix loads that expand FP4 on the way.
//
// Each wrapper stands beside a constexpr map of what it delivers, which tests/conformance holds against a model of the
// instruction. Plain ldmatrix is the same as on sm_80. g = lane / 4, t = lane % 4.
//
//   ldmatrix_expand        8 rows of 16 FP4 -> bytes: lane gets row g, elements 4t .. 4t+3
//   ldmatrix_expand_trans  16 rows of 16 FP4 -> bytes, transposed: register r holds rows 4t .. 4t+3 of column g + 8r
//
// In both a row of shared memory is 16 bytes: 8 of data, low nibble first, and 8 that are skipped (TMA's 16U4_ALIGN16B
// leaves them so), and a delivered byte is 0000SEEM. The f8f6f4 container is 00SEEM00: shift left by 2 (to_container).
// Sources: PTX ISA 9.0, ldmatrix (.b8x16.b4x16_p64); the transposing map from CUTLASS mma_traits_sm120 and
// copy traits, not from the PTX figure.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::sm120 {

/// An element of the stored matrices: which of the instruction's matrices, which 16-byte row, which nibble of it.
struct StoredElement {
  int matrix;
  int row;
  int element;
  friend constexpr bool operator==(const StoredElement&, const StoredElement&) = default;
};

/// The element in byte j of register r after ldmatrix_expand. The row's address comes from lane 8 * matrix + row.
FP4PA_FN constexpr StoredElement expand_coord(int lane, int r, int j) { return {r, lane / 4, 4 * (lane % 4) + j}; }

/// The element in byte j of register r after ldmatrix_expand_trans. The row's address comes from lane 16 * matrix +
/// row.
FP4PA_FN constexpr StoredElement expand_trans_coord(int lane, int r, int j) {
  return {r / 2, 4 * (lane % 4) + j, lane / 4 + 8 * (r % 2)};
}

/// 0000SEEM in each byte -> 00SEEM00. The upper nibbles are zero, so that no bit crosses into the next byte.
FP4PA_FN constexpr std::uint32_t to_container(std::uint32_t expanded) { return expanded << 2; }

/// Eight packed E2M1 codes to byte containers: the even elements (low nibbles) and the odd ones.
FP4PA_FN constexpr std::uint32_t even_containers(std::uint32_t packed) { return (packed & 0x0f0f0f0fu) << 2; }
FP4PA_FN constexpr std::uint32_t odd_containers(std::uint32_t packed) { return (packed >> 2) & 0x3c3c3c3cu; }

#if defined(__CUDACC__)

#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200 && \
    __CUDA_ARCH_FAMILY_SPECIFIC__ < 1300
inline constexpr bool kHasExpandingLdmatrix = true;
#else
inline constexpr bool kHasExpandingLdmatrix = false;
#endif
extern "C" __device__ void fp4pa_expanding_ldmatrix_needs_target_sm_120f();

/// The address of shared memory as PTX counts it.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// @tparam kMatrices  1, 2 or 4; addresses are read from the first 8 * kMatrices lanes
/// @param address     of a 16-byte aligned row
template <int kMatrices>
__device__ __forceinline__ void ldmatrix_expand(std::uint32_t (&d)[kMatrices], std::uint32_t address) {
  static_assert(kMatrices == 1 || kMatrices == 2 || kMatrices == 4);
  if constexpr (!kHasExpandingLdmatrix) {
    fp4pa_expanding_ldmatrix_needs_target_sm_120f();
  } else if constexpr (kMatrices == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64 {%0}, [%1];"
                 : "=r"(d[0])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kMatrices == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
  }
}

/// @tparam kMatrices  1 or 2, two registers each; addresses are read from the first 16 * kMatrices lanes
/// @param address     of a 16-byte aligned row
template <int kMatrices>
__device__ __forceinline__ void ldmatrix_expand_trans(std::uint32_t (&d)[2 * kMatrices], std::uint32_t address) {
  static_assert(kMatrices == 1 || kMatrices == 2);
  if constexpr (!kHasExpandingLdmatrix) {
    fp4pa_expanding_ldmatrix_needs_target_sm_120f();
  } else if constexpr (kMatrices == 1) {
    asm volatile("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8x16.b4x16_p64 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b4x16_p64 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(address)
                 : "memory");
  }
}

#endif  // __CUDACC__

}  // namespace fp4pa::sm120
