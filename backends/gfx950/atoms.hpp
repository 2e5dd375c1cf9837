// The matrix instructions of gfx950 (CDNA4), block-scaled and of 16 bits: what each lane of a wave of 64 holds. No device
// code.
//
// With D = 16 or 32 rows, row (of A) or column (of B) is lane % D, and g = lane / D cuts k into pieces. Which pieces
// depends on the operand's own format, whatever the other operand is:
//   FP4   k = 32 g + j                          a lane holds one whole scale block
//   FP8   k = 16 g + j%16 + (kK/2) (j/16)       a lane holds halves of two blocks, from the two halves of k
//   C/D   16x16  col lane%16, row 4 (lane/16) + i        32x32  col lane%32, row 8 (i/4) + 4 (lane/32) + i%4
//   scale of row m, block b (32 of k)           lane m + D b, the byte that opsel names
// For FP8 the lane that supplies a block's scale is not a lane that holds the block's data.
// Sources: AMD CDNA4 ISA 7.1, "Matrix arithmetic instructions"; LLVM AMDGPU tests of mfma.scale; Composable Kernel
// test/mx_mfma_op; agreed with by AMD's open CDNA4 ISA emulator (docs/atoms.md).
#pragma once

#include <concepts>

#include "core/atom/atom.hpp"

namespace fp4pa::gfx950 {

template <class Element>
concept ScaledMfmaElement = std::same_as<Element, core::E4M3> || std::same_as<Element, core::E2M1>;

/// "No scale": 127, 2^0. A literal 0 would be folded by the compiler to the instruction without scales, and a run-time 0 means 2^-127.
inline constexpr std::uint8_t kUnitScale = 0x7f;

/// A and B of either shape, and the scales. kRows is D above.
template <class A, class B, int kRows, int kDepth>
struct ScaledMfmaOperands {
  static constexpr int kM = kRows;
  static constexpr int kN = kRows;
  static constexpr int kK = kDepth;
  static constexpr int kLanes = 64;
  using ElementA = A;
  using ElementB = B;
  using Scale = core::E8M0;
  static constexpr int kScaleGroup = 32;
  static constexpr int kScaleGroups = kK / kScaleGroup;
  static constexpr core::Packing kPackingA{A::kBits};
  static constexpr core::Packing kPackingB{B::kBits};
  static constexpr int kValuesA = 32;
  static constexpr int kValuesB = 32;
  static constexpr int kRegistersA = A::kBits;
  static constexpr int kRegistersB = B::kBits;
  static constexpr int kValuesC = kRows * kRows / kLanes;

  // (T64, V32) -> (M, K)
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) { return {lane % kRows, k_of<A>(lane, value)}; }
  // (T64, V32) -> (N, K)
  FP4PA_FN static constexpr core::ColK b_coord(int lane, int value) { return {lane % kRows, k_of<B>(lane, value)}; }

  /// opsel: the byte, the same in all lanes. There is no thread to choose.
  FP4PA_FN static constexpr bool valid_select_a(core::ScaleSelect s) {
    return s.byte >= 0 && s.byte < 4 && s.thread == 0;
  }
  FP4PA_FN static constexpr bool valid_select_b(core::ScaleSelect s) { return valid_select_a(s); }
  FP4PA_FN static constexpr core::ScaleCoord sfa_coord(int lane, int byte, core::ScaleSelect s) {
    return byte == s.byte ? core::ScaleCoord{lane % kRows, lane / kRows} : core::kNotRead;
  }
  FP4PA_FN static constexpr core::ScaleCoord sfb_coord(int lane, int byte, core::ScaleSelect s) {
    return sfa_coord(lane, byte, s);
  }

 private:
  template <class Element>
  FP4PA_FN static constexpr int k_of(int lane, int value) {
    const int g = lane / kRows;
    if constexpr (Element::kBits == 8) {
      return 16 * g + value % 16 + (kK / 2) * (value / 16);
    } else {
      return 32 * g + value;
    }
  }
};

/// v_mfma_scale_f32_16x16x128_f8f6f4
template <ScaledMfmaElement A, ScaledMfmaElement B>
struct MfmaScaleF32_16x16x128_F8f6f4 : ScaledMfmaOperands<A, B, 16, 128> {
  // (T64, V4) -> (M16, N16)
  FP4PA_FN static constexpr core::RowCol c_coord(int lane, int value) { return {4 * (lane / 16) + value, lane % 16}; }
  static constexpr unsigned kRowPeerBits = 0b001111;
  static constexpr unsigned kColPeerBits = 0b110000;
};

/// v_mfma_scale_f32_32x32x64_f8f6f4
template <ScaledMfmaElement A, ScaledMfmaElement B>
struct MfmaScaleF32_32x32x64_F8f6f4 : ScaledMfmaOperands<A, B, 32, 64> {
  // (T64, V16) -> (M32, N32)
  FP4PA_FN static constexpr core::RowCol c_coord(int lane, int value) {
    return {8 * (value / 4) + 4 * (lane / 32) + value % 4, lane % 32};
  }
  static constexpr unsigned kRowPeerBits = 0b011111;
  static constexpr unsigned kColPeerBits = 0b100000;
};

/// v_mfma_f32_16x16x32_f16 and _bf16, of the decode path: a lane holds eight neighbours along k.
template <class Element>
  requires std::same_as<Element, core::F16> || std::same_as<Element, core::BF16>
struct MfmaF32_16x16x32 {
  static constexpr int kM = 16;
  static constexpr int kN = 16;
  static constexpr int kK = 32;
  static constexpr int kLanes = 64;
  using ElementA = Element;
  using ElementB = Element;
  using Scale = core::NoScale;
  static constexpr core::Packing kPackingA{16};
  static constexpr core::Packing kPackingB{16};
  static constexpr int kValuesA = 8;
  static constexpr int kValuesB = 8;
  static constexpr int kValuesC = 4;
  static constexpr int kRegistersA = 4;
  static constexpr int kRegistersB = 4;

  // (T64, V8) -> (M16, K32)
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) { return {lane % 16, 8 * (lane / 16) + value}; }
  // (T64, V8) -> (N16, K32)
  FP4PA_FN static constexpr core::ColK b_coord(int lane, int value) { return {lane % 16, 8 * (lane / 16) + value}; }
  // (T64, V4) -> (M16, N16)
  FP4PA_FN static constexpr core::RowCol c_coord(int lane, int value) { return {4 * (lane / 16) + value, lane % 16}; }
  static constexpr unsigned kRowPeerBits = 0b001111;
  static constexpr unsigned kColPeerBits = 0b110000;
};

static_assert(core::AtomTraits<MfmaF32_16x16x32<core::F16>> && core::AtomTraits<MfmaF32_16x16x32<core::BF16>>);
static_assert(core::ScaledAtomTraits<MfmaScaleF32_16x16x128_F8f6f4<core::E4M3, core::E2M1>>);
static_assert(core::ScaledAtomTraits<MfmaScaleF32_16x16x128_F8f6f4<core::E2M1, core::E4M3>>);
static_assert(core::ScaledAtomTraits<MfmaScaleF32_16x16x128_F8f6f4<core::E2M1, core::E2M1>>);
static_assert(core::ScaledAtomTraits<MfmaScaleF32_16x16x128_F8f6f4<core::E4M3, core::E4M3>>);
static_assert(core::ScaledAtomTraits<MfmaScaleF32_32x32x64_F8f6f4<core::E2M1, core::E4M3>>);
static_assert(core::ScaledAtomTraits<MfmaScaleF32_32x32x64_F8f6f4<core::E4M3, core::E4M3>>);

}  // namespace fp4pa::gfx950
