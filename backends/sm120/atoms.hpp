// The block-scaled warp-level matrix instructions of SM120 and SM121: what each lane holds. No device code.
//
// With g = lane / 4 and t = lane % 4, the layouts of one instruction family differ only in how many values fill a
// register: a register of A, B always covers 4 bytes of one row, at 4t bytes into the first or second half of k.
// Scales are read from a few lanes only: a quad's lanes can hold the scales of several tiles, and the thread-id picks
// one.
//   A    reg r, byte i   row g + 8(r%2), byte 4t + 16(r/2) + i of the row
//   B    reg r, byte i   col g,          byte 4t + 16r + i of the column
//   C/D  c0 c1  row g, cols 2t, 2t+1;   c2 c3  row g + 8
//   SFA  of row m from lane 4(m%8) + 2 tid + m/8;   SFB of column n from lane 4n + tid
// Sources: PTX ISA 9.0, "Matrix multiply-accumulate operation using mma instruction" (fragments of m16n8k32 and
// m16n8k64) and "Block scaling for mma.sync"; CUTLASS mma_traits_sm120.hpp and SageAttention3 for the lanes of SFB, of
// which one other publication says 4n + 2 tid: tests/conformance tells the two apart when it runs on the hardware.
#pragma once

#include <concepts>

#include "core/atom/atom.hpp"

namespace fp4pa::sm120 {

/// What all atoms of this file share. kBits is the width of a container in a register, equal for A and B.
template <int kBits>
struct QuadLayout {
  static constexpr int kM = 16;
  static constexpr int kN = 8;
  static constexpr int kK = 256 / kBits;
  static constexpr int kLanes = 32;
  static constexpr int kPerRegister = 32 / kBits;
  static constexpr int kRegistersA = 4;
  static constexpr int kRegistersB = 2;
  static constexpr int kValuesA = kRegistersA * kPerRegister;
  static constexpr int kValuesB = kRegistersB * kPerRegister;
  static constexpr int kValuesC = 4;

  // (T32, V4 x kPerRegister) -> (M16, K)
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) {
    const int r = value / kPerRegister;
    return {lane / 4 + 8 * (r % 2), (lane % 4) * kPerRegister + (r / 2) * (kK / 2) + value % kPerRegister};
  }
  // (T32, V2 x kPerRegister) -> (N8, K)
  FP4PA_FN static constexpr core::ColK b_coord(int lane, int value) {
    const int r = value / kPerRegister;
    return {lane / 4, (lane % 4) * kPerRegister + r * (kK / 2) + value % kPerRegister};
  }
  // (T32, V4) -> (M16, N8)
  FP4PA_FN static constexpr core::RowCol c_coord(int lane, int value) {
    return {lane / 4 + 8 * (value / 2), 2 * (lane % 4) + value % 2};
  }
  static constexpr unsigned kRowPeerBits = 0b00011;
  static constexpr unsigned kColPeerBits = 0b11100;
};

/// The scale registers: `kVector` bytes from byte-id on, one per group of k.
template <int kVector>
struct QuadScales {
  static constexpr int kScaleGroups = kVector;

  /// byte-id: where a scale vector of this length is aligned. thread-id: two lanes' worth of A, four of B.
  FP4PA_FN static constexpr bool valid_select_a(core::ScaleSelect s) {
    return s.byte >= 0 && s.byte < 4 && s.byte % kVector == 0 && s.thread >= 0 && s.thread < 2;
  }
  FP4PA_FN static constexpr bool valid_select_b(core::ScaleSelect s) {
    return s.byte >= 0 && s.byte < 4 && s.byte % kVector == 0 && s.thread >= 0 && s.thread < 4;
  }
  FP4PA_FN static constexpr core::ScaleCoord sfa_coord(int lane, int byte, core::ScaleSelect s) {
    const int t = lane % 4;
    const bool read = t / 2 == s.thread && byte >= s.byte && byte < s.byte + kVector;
    return read ? core::ScaleCoord{lane / 4 + 8 * (t % 2), byte - s.byte} : core::kNotRead;
  }
  FP4PA_FN static constexpr core::ScaleCoord sfb_coord(int lane, int byte, core::ScaleSelect s) {
    const bool read = lane % 4 == s.thread && byte >= s.byte && byte < s.byte + kVector;
    return read ? core::ScaleCoord{lane / 4, byte - s.byte} : core::kNotRead;
  }
};

/// An element in the byte container of the f8f6f4 family: FP4 in bits [5:2], everything else from bit 0. The pad bits
/// must be zero: the lower ones would be taken for more mantissa.
template <class Element>
inline constexpr core::Packing kByteContainer{8, Element::kBits == 4 ? 2 : 0};

/// mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.A.B.f32.ue8m0
template <class A, class B>
  requires(std::same_as<A, core::E4M3> || std::same_as<A, core::E2M1>) &&
          (std::same_as<B, core::E4M3> || std::same_as<B, core::E2M1>)
struct MmaMxf8f6f4M16N8K32 : QuadLayout<8>, QuadScales<1> {
  using ElementA = A;
  using ElementB = B;
  using Scale = core::E8M0;
  static constexpr int kScaleGroup = 32;
  static constexpr core::Packing kPackingA = kByteContainer<A>;
  static constexpr core::Packing kPackingB = kByteContainer<B>;
};

/// Two packed FP4 operands. kVector scales of type S per row: 2 of UE8M0 (one per 32) or 4 of UE4M3 (one per 16).
template <class S, int kVector>
struct PackedFp4Atom : QuadLayout<4>, QuadScales<kVector> {
  using ElementA = core::E2M1;
  using ElementB = core::E2M1;
  using Scale = S;
  static constexpr int kScaleGroup = 64 / kVector;
  static constexpr core::Packing kPackingA{4};
  static constexpr core::Packing kPackingB{4};
};

/// mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0
struct MmaMxf4M16N8K64 : PackedFp4Atom<core::E8M0, 2> {};

/// mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3
struct MmaMxf4nvf4Ue4m3M16N8K64 : PackedFp4Atom<core::UE4M3, 4> {};

/// mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0
struct MmaMxf4nvf4Ue8m0M16N8K64 : PackedFp4Atom<core::E8M0, 2> {};

static_assert(core::ScaledAtomTraits<MmaMxf8f6f4M16N8K32<core::E4M3, core::E2M1>>);
static_assert(core::ScaledAtomTraits<MmaMxf8f6f4M16N8K32<core::E2M1, core::E4M3>>);
static_assert(core::ScaledAtomTraits<MmaMxf8f6f4M16N8K32<core::E4M3, core::E4M3>>);
static_assert(core::ScaledAtomTraits<MmaMxf4M16N8K64>);
static_assert(core::ScaledAtomTraits<MmaMxf4nvf4Ue4m3M16N8K64>);
static_assert(core::ScaledAtomTraits<MmaMxf4nvf4Ue8m0M16N8K64>);

}  // namespace fp4pa::sm120
