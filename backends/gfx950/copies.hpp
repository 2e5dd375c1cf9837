// How operands reach the registers on gfx950: loads that go straight to LDS, and LDS reads that transpose.
//
// Each wrapper stands beside a constexpr map of what it delivers, which tests/conformance holds against a model of the
// instruction.
//
//   load_to_lds       lane i's 16 (or 4) bytes land at base + 16 i (4 i): a lane chooses only its source
//   read_transposed   per 16 lanes, each pointing at 64 bits: with e = 64 / bits elements a lane,
//                     element n of lane l <- lane n (16/e) + l/e, its element l%e
//
// Sources: CDNA4 ISA 7.1, DS_READ_B64_TR_B4 / _TR_B8 / _TR_B16 and GLOBAL_LOAD_LDS_DWORDX4; LLVM BuiltinsAMDGPU.def.
// That the 4-bit read is a transposition of 16 x 16 nibbles rests on one third-party measurement.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::gfx950 {

/// An element among the 64 bits that each lane of a group of 16 points at.
struct PointedElement {
  int lane;
  int element;
  friend constexpr bool operator==(const PointedElement&, const PointedElement&) = default;
};

/// Where element n of a lane comes from in a transposing read of kBits-wide elements; lanes are counted in the wave.
template <int kBits>
FP4PA_FN constexpr PointedElement transposed_coord(int lane, int n) {
  constexpr int kElements = 64 / kBits;
  const int l = lane % 16;
  return {lane - l + n * (16 / kElements) + l / kElements, l % kElements};
}

/// Offset from the wave's base at which a direct load leaves a lane's bytes.
FP4PA_FN constexpr int lds_offset(int lane, int bytes_per_lane) { return lane * bytes_per_lane; }

#if defined(__HIP__)

using LdsBytes = __attribute__((address_space(3))) void;
using GlobalBytes = __attribute__((address_space(1))) void;
using Int32x2 = std::int32_t __attribute__((ext_vector_type(2)));
using Int16x4 = std::int16_t __attribute__((ext_vector_type(4)));

/// Asynchronous: the bytes are there after s_waitcnt vmcnt, which wait_loads gives.
/// @tparam kBytes  per lane, 4 or 16
/// @param global   per lane, aligned to kBytes
/// @param lds      the same in all lanes of the wave, aligned to kBytes
template <int kBytes>
__attribute__((device)) inline void load_to_lds(const void* global, void* lds) {
  static_assert(kBytes == 4 || kBytes == 16);
  // Both pointers are generic; the casts are what the address spaces of a global buffer and of LDS make them.
  auto* source = (GlobalBytes*)(reinterpret_cast<std::uintptr_t>(global));
  auto* target = (LdsBytes*)(lds);
  if constexpr (kBytes == 16) {
    __builtin_amdgcn_global_load_lds(source, target, 16, 0, 0);  // the size must be a literal
  } else {
    __builtin_amdgcn_global_load_lds(source, target, 4, 0, 0);
  }
}

/// Waits until at most kPending of the wave's latest vector memory operations are under way.
template <int kPending>
__attribute__((device)) inline void wait_loads() {
  asm volatile("s_waitcnt vmcnt(%0)" ::"n"(kPending) : "memory");
}

/// Transposing reads; d is the lane's 64 bits.
/// @param lds  per lane, 8-byte aligned
__attribute__((device)) inline void read_transposed_4(std::uint32_t (&d)[2], const void* lds) {
  using Pointer = __attribute__((address_space(3))) Int32x2*;
  const Int32x2 x = __builtin_amdgcn_ds_read_tr4_b64_v2i32((Pointer)(lds));
  d[0] = static_cast<std::uint32_t>(x.x);
  d[1] = static_cast<std::uint32_t>(x.y);
}

__attribute__((device)) inline void read_transposed_8(std::uint32_t (&d)[2], const void* lds) {
  using Pointer = __attribute__((address_space(3))) Int32x2*;
  const Int32x2 x = __builtin_amdgcn_ds_read_tr8_b64_v2i32((Pointer)(lds));
  d[0] = static_cast<std::uint32_t>(x.x);
  d[1] = static_cast<std::uint32_t>(x.y);
}

__attribute__((device)) inline void read_transposed_16(std::uint32_t (&d)[2], const void* lds) {
  using Pointer = __attribute__((address_space(3))) Int16x4*;
  const Int16x4 x = __builtin_amdgcn_ds_read_tr16_b64_v4i16((Pointer)(lds));
  const auto word = __builtin_bit_cast(std::uint64_t, x);
  d[0] = static_cast<std::uint32_t>(word);
  d[1] = static_cast<std::uint32_t>(word >> 32);
}

#endif  // __HIP__

}  // namespace fp4pa::gfx950
