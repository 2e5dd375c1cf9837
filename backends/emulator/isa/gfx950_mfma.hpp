// gfx950's v_mfma_scale_f32_*_f8f6f4 as the CDNA4 manual's tables have it: from matrix element to lane, register and
// bit.
//
// A row of A takes a column of lanes, kRows apart. An FP4 row is cut along k into one piece of 32 per lane. An FP8 row
// does not fit that way: its 32 bytes per lane are two pieces of 16, the first from the lower half of k and the second
// from the upper. The scale of 32 logical elements comes from the lane whose number counts blocks, in the byte that
// opsel names.
// Source: AMD CDNA4 ISA 7.1, matrix layouts of the F8F6F4 instructions; LLVM AMDGPU documentation of the scale
// operands.
#pragma once

#include "backends/emulator/isa/matrix.hpp"

namespace fp4pa::emulator::isa {

template <class Code, int kRows, int kDepth>
constexpr Place gfx950_operand(int row, int k) {
  if constexpr (Code::kWidth == 4) {
    return {row + kRows * (k >> 5), (k & 31) >> 3, (k & 7) << 2};
  } else {
    constexpr int kHalf = kDepth / 2;
    const int piece = (k % kHalf) >> 4;
    const int byte = (k & 15) | (k >= kHalf ? 16 : 0);
    return {row + kRows * piece, byte >> 2, (byte & 3) << 3};
  }
}

template <class A, class B, int kRows, int kDepth>
struct Gfx950MfmaScale {
  static constexpr int kM = kRows, kN = kRows, kK = kDepth, kLanes = 64, kBlocks = kDepth / 32;
  using CodeA = A;
  using CodeB = B;
  using Scale = ScaleE8;

  static constexpr Place a_at(int row, int k) { return gfx950_operand<A, kRows, kDepth>(row, k); }
  static constexpr Place b_at(int k, int col) { return gfx950_operand<B, kRows, kDepth>(col, k); }
  static constexpr Place d_at(int row, int col) {
    // 4 rows a lane; 16x16 stacks four groups of lanes, 32x32 two, four times over.
    if constexpr (kRows == 16) {
      return {col | ((row >> 2) << 4), row & 3, 0};
    } else {
      return {col | (((row >> 2) & 1) << 5), ((row >> 3) << 2) | (row & 3), 0};
    }
  }
  static constexpr ScalePlace sfa_at(int row, int block, const Selectors& s) { return {row + kRows * block, s.byte_a}; }
  static constexpr ScalePlace sfb_at(int col, int block, const Selectors& s) { return {col + kRows * block, s.byte_b}; }
};

}  // namespace fp4pa::emulator::isa
