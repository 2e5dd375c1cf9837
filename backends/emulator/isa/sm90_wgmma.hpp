// One warp's share of wgmma.mma_async.m64nNk16 as the PTX manual has it: 16 rows of A and D against all of B. B, and A where it is
// not in registers, lies in shared memory where a descriptor says.
//
// B of 16-bit elements with the 128-byte swizzle, in units of bytes before the swizzle:
//   K-major   row n, element k   start + n%8 * 128 + n/8 * stride + 2k
//   MN-major  column k, row n    start + n%64 * 2 + n/64 * leading + k%8 * 128 + k/8 * stride
// and then bits 4 to 6 of the address are changed by bits 7 to 9. A and D lie in a warp as mma.m16n8k16's, D eight columns after
// eight. Source: PTX ISA 9.0, "Strides", "Matrix descriptor format" and "Register fragments for wgmma.mma_async.m64nNk16".
#pragma once

#include <cstdint>

#include "backends/emulator/isa/sm80_mma.hpp"

namespace fp4pa::emulator::isa {

/// The fields of a descriptor, in bytes; swizzle as encoded, 1 being 128 bytes.
struct WgmmaDescriptor {
  std::uint32_t start, leading, stride, base, swizzle;
  explicit WgmmaDescriptor(std::uint64_t bits)
      : start(field(bits, 0) << 4),
        leading(field(bits, 16) << 4),
        stride(field(bits, 32) << 4),
        base(static_cast<std::uint32_t>(bits >> 49) & 7u),
        swizzle(static_cast<std::uint32_t>(bits >> 62)) {}

  /// Address of element (n, k) of B.
  [[nodiscard]] std::uint32_t at(bool mn_major, int n, int k) const {
    const auto u = [](int x) { return static_cast<std::uint32_t>(x); };
    const std::uint32_t plain = mn_major ? start + u(n % 64 * 2) + u(n / 64) * leading + u(k % 8 * 128) + u(k / 8) * stride
                                         : start + u(n % 8 * 128) + u(n / 8) * stride + u(2 * k);
    return plain ^ ((plain >> 7) & 7u) << 4;
  }

 private:
  static std::uint32_t field(std::uint64_t bits, int from) { return static_cast<std::uint32_t>(bits >> from) & 0x3fffu; }
};

/// One warp's 16 rows of A [row][k].
using WgmmaRows = double[16][16];

/// d (+)= a b; d[lane][register], read(lane, address, 16, out).
template <class Code, int kN, bool kMnMajor, class D, class Read>
void wgmma_warp(const WgmmaRows& a, std::uint64_t descriptor, bool accumulate, const D& d, const Read& read) {
  using Tile = Sm80M16N8K16<Code>;
  const WgmmaDescriptor b(descriptor);
  double columns[Tile::kK][kN];
  // Chunks of 16 bytes run along k or along n.
  for (int n = 0; n < kN; n += kMnMajor ? 8 : 1) {
    for (int k = 0; k < Tile::kK; k += kMnMajor ? 1 : 8) {
      std::uint8_t chunk[16];
      read(0, b.at(kMnMajor, n, k), 16, chunk);
      decode_chunk(chunk, code_table<Code>().data(), &columns[k][n], kMnMajor ? 1 : kN);
    }
  }
  double sums[Tile::kM][kN];
  multiply(Tile::kM, kN, Tile::kK, &a[0][0], Tile::kK, &columns[0][0], &sums[0][0]);
  float* registers[Tile::kLanes];
  for (int lane = 0; lane < Tile::kLanes; ++lane) registers[lane] = &d[lane][0];
  add_rows(kN, detail::Layouts<Tile>::kD.at, &sums[0][0], accumulate, registers);
}

/// A in registers: a[lane][register].
template <class Code, class A>
void wgmma_rows(const A& a, WgmmaRows& rows) {
  using Tile = Sm80M16N8K16<Code>;
  std::uint32_t words[Tile::kLanes][detail::Layouts<Tile>::kA.registers];
  for (int lane = 0; lane < Tile::kLanes; ++lane) {
    for (int r = 0; r < detail::Layouts<Tile>::kA.registers; ++r) words[lane][r] = a[lane][r];
  }
  detail::decode<Code>(detail::Layouts<Tile>::kA, words, rows);
}
/// A in shared memory, K-major: the rows of warp `warp` of the group.
template <class Code, class Read>
void wgmma_rows(std::uint64_t descriptor, int warp, WgmmaRows& rows, const Read& read) {
  const WgmmaDescriptor a(descriptor);
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < 16; k += 8) {
      std::uint8_t chunk[16];
      read(0, a.at(false, 16 * warp + m, k), 16, chunk);
      decode_chunk(chunk, code_table<Code>().data(), &rows[m][k], 1);
    }
  }
}

}  // namespace fp4pa::emulator::isa
