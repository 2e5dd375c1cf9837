// gfx942's 16x16 matrix instructions as the CDNA3 manual's tables have them: from matrix element to lane, register and
// bit.
//
// A row of A takes lanes row, row + 16, row + 32, row + 48, each with a quarter of k: 64 bits.
// Source: AMD CDNA3 ISA, "Matrix arithmetic instructions"; AMD matrix instruction calculator.
#pragma once

#include "backends/emulator/isa/matrix.hpp"

namespace fp4pa::emulator::isa {

template <class Code>
struct Gfx942Mfma16x16 {
  static constexpr int kQuarter = 64 / Code::kWidth;
  static constexpr int kM = 16, kN = 16, kK = 4 * kQuarter, kLanes = 64, kBlocks = 1;
  using CodeA = Code;
  using CodeB = Code;
  using Scale = ScaleNone;

  static constexpr Place a_at(int row, int k) {
    const int bit = k % kQuarter * Code::kWidth;
    return {(k / kQuarter << 4) | row, bit >> 5, bit & 31};
  }
  static constexpr Place b_at(int k, int col) { return a_at(col, k); }
  static constexpr Place d_at(int row, int col) { return {(row >> 2 << 4) | col, row & 3, 0}; }
};

}  // namespace fp4pa::emulator::isa
