// SM120's block-scaled mma.sync as the PTX manual's tables have it: from matrix element to lane, register and bit.
//
// Source: PTX ISA 9.0, fragment layouts of .m16n8k64 (4-bit types) and .m16n8k32 (8-bit and smaller types), and "Block
// scaling for mma.sync" for the lanes and bytes of the scale operands. Written from those tables and the project's
// notes on them (docs/atoms.md), without the shim's traits.
#pragma once

#include "backends/emulator/isa/matrix.hpp"

namespace fp4pa::emulator::isa {

/// groupID = row of 8, threadID_in_group = position along k; eight rows of four lanes make a warp.
constexpr int quad_lane(int group_id, int thread_in_group) { return (group_id << 2) | thread_in_group; }

/// kind::mxf4 and kind::mxf4nvf4: 64 nibbles a row, in two halves of 32; a lane holds 8 consecutive nibbles of each.
template <class ScaleCode, int kVectorSize>
struct Sm120PackedFp4 {
  static constexpr int kM = 16, kN = 8, kK = 64, kLanes = 32, kBlocks = kVectorSize;
  using CodeA = Fp4Nibble;
  using CodeB = Fp4Nibble;
  using Scale = ScaleCode;

  static constexpr Place a_at(int row, int k) {
    const int upper_rows = row >= 8 ? 1 : 0;
    const int upper_k = k >= 32 ? 2 : 0;
    return {quad_lane(row & 7, (k & 31) >> 3), upper_rows + upper_k, (k & 7) << 2};
  }
  static constexpr Place b_at(int k, int col) { return {quad_lane(col, (k & 31) >> 3), k >= 32 ? 1 : 0, (k & 7) << 2}; }
  static constexpr Place d_at(int row, int col) {
    return {quad_lane(row & 7, col >> 1), (row >= 8 ? 2 : 0) + (col & 1), 0};
  }
  static constexpr ScalePlace sfa_at(int row, int block, const Selectors& s) {
    // thread-id-a 0: the first two lanes of a quad, 1: the last two; of the two, the second has the upper eight rows.
    return {quad_lane(row & 7, (s.thread_a << 1) + (row >> 3)), s.byte_a + block};
  }
  static constexpr ScalePlace sfb_at(int col, int block, const Selectors& s) {
    return {quad_lane(col, s.thread_b), s.byte_b + block};
  }
};

/// kind::mxf8f6f4: 32 bytes a row, in two halves of 16; a lane holds 4 consecutive bytes of each. One scale for all of
/// k.
template <class A, class B>
struct Sm120Bytes {
  static constexpr int kM = 16, kN = 8, kK = 32, kLanes = 32, kBlocks = 1;
  using CodeA = A;
  using CodeB = B;
  using Scale = ScaleE8;

  static constexpr Place a_at(int row, int k) {
    const int upper_rows = row >= 8 ? 1 : 0;
    const int upper_k = k >= 16 ? 2 : 0;
    return {quad_lane(row & 7, (k & 15) >> 2), upper_rows + upper_k, (k & 3) << 3};
  }
  static constexpr Place b_at(int k, int col) { return {quad_lane(col, (k & 15) >> 2), k >= 16 ? 1 : 0, (k & 3) << 3}; }
  static constexpr Place d_at(int row, int col) {
    return {quad_lane(row & 7, col >> 1), (row >= 8 ? 2 : 0) + (col & 1), 0};
  }
  static constexpr ScalePlace sfa_at(int row, int, const Selectors& s) {
    return {quad_lane(row & 7, (s.thread_a << 1) + (row >> 3)), s.byte_a};
  }
  static constexpr ScalePlace sfb_at(int col, int, const Selectors& s) {
    return {quad_lane(col, s.thread_b), s.byte_b};
  }
};

}  // namespace fp4pa::emulator::isa
