// The 16x16 matrix instructions without scales as the CDNA3 and CDNA4 manuals' tables have them: from matrix element to
// lane, register and bit.
//
// A row of A takes lanes row, row + 16, row + 32, row + 48, each with a quarter of k: 64 bits on gfx942, and 128 in the
// instructions that gfx950 has beside them (16x16x32 of f16 and bf16).
// Source: AMD CDNA3 ISA and CDNA4 ISA, "Matrix arithmetic instructions"; AMD matrix instruction calculator.
#pragma once

#include "backends/emulator/isa/matrix.hpp"

namespace fp4pa::emulator::isa {

/// @tparam kBits  of a lane's quarter
template <class Code, int kBits = 64>
struct Gfx942Mfma16x16 {
  static constexpr int kQuarter = kBits / Code::kWidth;
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
