// The 16-bit warp-level matrix instructions of sm_80 and everything after it: what each lane holds. No device code.
//
// With g = lane / 4 and t = lane % 4, a register holds two neighbours along k:
//   A    reg r, half h   row g + 8(r%2), k = 2t + 8(r/2) + h
//   B    reg r, half h   col g,          k = 2t + 8r + h
//   C/D  c0 c1  row g, cols 2t, 2t+1;   c2 c3  row g + 8
// No scales: FP4 operands are decoded before they get here. Source: PTX ISA 9.0, "Matrix fragments for mma.m16n8k16
// with floating point type".
#pragma once

#include <concepts>

#include "core/atom/atom.hpp"

namespace fp4pa::sm80 {

/// mma.sync.aligned.m16n8k16.row.col.f32.E.E.f32, E f16 or bf16
template <class Element>
  requires std::same_as<Element, core::F16> || std::same_as<Element, core::BF16>
struct MmaM16N8K16 {
  static constexpr int kM = 16;
  static constexpr int kN = 8;
  static constexpr int kK = 16;
  static constexpr int kLanes = 32;
  using ElementA = Element;
  using ElementB = Element;
  using Scale = core::NoScale;
  static constexpr core::Packing kPackingA{16};
  static constexpr core::Packing kPackingB{16};
  static constexpr int kRegistersA = 4;
  static constexpr int kRegistersB = 2;
  static constexpr int kValuesA = 8;
  static constexpr int kValuesB = 4;
  static constexpr int kValuesC = 4;

  // (T32, V8) -> (M16, K16)
  FP4PA_FN static constexpr core::RowK a_coord(int lane, int value) {
    const int r = value / 2;
    return {lane / 4 + 8 * (r % 2), 2 * (lane % 4) + 8 * (r / 2) + value % 2};
  }
  // (T32, V4) -> (N8, K16)
  FP4PA_FN static constexpr core::ColK b_coord(int lane, int value) {
    return {lane / 4, 2 * (lane % 4) + 8 * (value / 2) + value % 2};
  }
  // (T32, V4) -> (M16, N8)
  FP4PA_FN static constexpr core::RowCol c_coord(int lane, int value) {
    return {lane / 4 + 8 * (value / 2), 2 * (lane % 4) + value % 2};
  }
  static constexpr unsigned kRowPeerBits = 0b00011;
  static constexpr unsigned kColPeerBits = 0b11100;
};

static_assert(core::AtomTraits<MmaM16N8K16<core::F16>> && core::AtomTraits<MmaM16N8K16<core::BF16>>);

}  // namespace fp4pa::sm80
