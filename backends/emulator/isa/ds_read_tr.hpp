// gfx950's transposing LDS reads and direct-to-LDS loads.
//
// Sixteen lanes that each point at 64 bits form a matrix of 16 rows (lanes) by 64/bits elements, which is cut into
// square-ish pieces and handed out transposed: the instruction's element n of lane l is, in the matrix read row by row
// as pieces of e = 64/bits lanes, element l%e of pointed lane n (16/e) + l/e. For 16 bits: 4 x 4 blocks; for 8: two
// interleaved 8 x 8; for 4: one 16 x 16. Memory is reached through callbacks as in ldmatrix.hpp. Registers are
// d[lane][0..1].
// Source: CDNA4 ISA 7.1, DS_READ_B64_TR_B16, _B8, _B4 (the last by a third-party measurement); GLOBAL_LOAD_LDS_DWORDX4.
#pragma once

#include <cstdint>

namespace fp4pa::emulator::isa {

/// @param bits     4, 8 or 16
/// @param address  [64] byte addresses of LDS, multiples of 8
template <class Addresses, class Read, class D>
void ds_read_b64_tr(int bits, const Addresses& address, const Read& read, D& d) {
  const int per_lane = 64 / bits;
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for (int group = 0; group < 64; group += 16) {
    std::uint64_t rows[16];
    for (int row = 0; row < 16; ++row) {
      std::uint8_t bytes[8];
      read(group + row, address[group + row], 8, bytes);
      rows[row] = 0;
      for (int i = 7; i >= 0; --i) rows[row] = rows[row] << 8 | bytes[i];
    }
    // Read every source element once and ask where it goes: element x of pointed lane p is element n of lane l.
    const int stride = 16 / per_lane;
    std::uint64_t out[16] = {};
    for (int p = 0; p < 16; ++p) {
      for (int x = 0; x < per_lane; ++x) {
        const int n = p / stride;
        const int l = p % stride * per_lane + x;
        out[l] |= (rows[p] >> (x * bits) & mask) << (n * bits);
      }
    }
    for (int l = 0; l < 16; ++l) {
      d[group + l][0] = static_cast<std::uint32_t>(out[l]);
      d[group + l][1] = static_cast<std::uint32_t>(out[l] >> 32);
    }
  }
}

/// buffer_load / global_load ... lds: lane i's bytes go to base + bytes * i, whatever they were read from.
/// read(lane, bytes, out) gets them from the lane's own source; write(lane, address, bytes, in) puts them into LDS.
template <class Read, class Write>
void load_to_lds(int bytes, std::uint32_t base, const Read& read, const Write& write) {
  for (int lane = 0; lane < 64; ++lane) {
    std::uint8_t row[16];
    read(lane, bytes, row);
    write(lane, base + static_cast<std::uint32_t>(bytes * lane), bytes, row);
  }
}

}  // namespace fp4pa::emulator::isa
