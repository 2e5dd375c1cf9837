// mma.sync.m16n8k16 for f16 and bf16 as the PTX manual's tables have it: from matrix element to lane, register and bit.
//
// Source: PTX ISA 9.0, "Matrix fragments for mma.m16n8k16 with floating point type".
#pragma once

#include "backends/emulator/isa/matrix.hpp"

namespace fp4pa::emulator::isa {

template <class Code>
struct Sm80M16N8K16 {
  static constexpr int kM = 16, kN = 8, kK = 16, kLanes = 32, kBlocks = 1;
  using CodeA = Code;
  using CodeB = Code;
  using Scale = ScaleNone;

  static constexpr Place a_at(int row, int k) {
    const int reg = (row < 8 ? 0 : 1) | (k < 8 ? 0 : 2);  // a0a1, a2a3, a4a5, a6a7
    return {((row & 7) << 2) | ((k & 7) >> 1), reg, (k & 1) << 4};
  }
  static constexpr Place b_at(int k, int col) { return {(col << 2) | ((k & 7) >> 1), k < 8 ? 0 : 1, (k & 1) << 4}; }
  static constexpr Place d_at(int row, int col) {
    return {((row & 7) << 2) | (col >> 1), (row < 8 ? 0 : 2) | (col & 1), 0};
  }
};

}  // namespace fp4pa::emulator::isa
