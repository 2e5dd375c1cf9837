// The matrix instructions of gfx942 (CDNA3) that the decode path uses: what each lane of a wave of 64 holds. No device
// code.
//
//   A  row lane%16, k = n (lane/16) + j        n values of a lane: 8 of FP8, 4 of f16 and bf16
//   B  col lane%16, k the same
//   C/D  col lane%16, row 4 (lane/16) + i
// There are no scales, and FP8 is FNUZ (bias 8, 0x80 is NaN), not the OCP format of the cache.
// Source: AMD CDNA3 ISA, "Matrix arithmetic instructions"; AMD matrix instruction calculator.
#pragma once

#include "core/atom/atom.hpp"

namespace fp4pa::gfx942 {

/// A lane's values are neighbours along k.
template <class Element, int kValues>
struct Mfma16x16 {
  static constexpr int kM = 16;
  static constexpr int kN = 16;
  static constexpr int kK = 4 * kValues;
  static constexpr int kLanes = 64;
  using ElementA = Element;
  using ElementB = Element;
  using Scale = core::NoScale;
  static constexpr core::Packing kPackingA{Element::kBits};
  static constexpr core::Packing kPackingB{Element::kBits};
  static constexpr int kValuesA = kValues;
  static constexpr int kValuesB = kValues;
  static constexpr int kValuesC = 4;
  static constexpr int kRegistersA = 2;
  static constexpr int kRegistersB = 2;

  // (T64, V) -> (M16, K)
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) {
    return {lane % 16, kValues * (lane / 16) + value};
  }
  // (T64, V) -> (N16, K)
  FP4PA_FN static constexpr core::ColK b_coord(int lane, int value) {
    return {lane % 16, kValues * (lane / 16) + value};
  }
  // (T64, V4) -> (M16, N16)
  FP4PA_FN static constexpr core::RowCol c_coord(int lane, int value) { return {4 * (lane / 16) + value, lane % 16}; }
  static constexpr unsigned kRowPeerBits = 0b001111;
  static constexpr unsigned kColPeerBits = 0b110000;
};

/// v_mfma_f32_16x16x32_fp8_fp8
struct MfmaF32_16x16x32_Fp8Fp8 : Mfma16x16<core::E4M3Fnuz, 8> {};

/// v_mfma_f32_16x16x16_f16
struct MfmaF32_16x16x16_F16 : Mfma16x16<core::F16, 4> {};

/// v_mfma_f32_16x16x16_bf16
struct MfmaF32_16x16x16_Bf16 : Mfma16x16<core::BF16, 4> {};

static_assert(core::AtomTraits<MfmaF32_16x16x32_Fp8Fp8> && core::AtomTraits<MfmaF32_16x16x16_F16> &&
              core::AtomTraits<MfmaF32_16x16x16_Bf16>);

}  // namespace fp4pa::gfx942
