// ldmatrix, stmatrix and movmatrix as the PTX manual describes them: lanes point at rows, and get elements of other
// lanes' rows.
//
// Memory is reached through callbacks, so that an emulator can count conflicts and watch for races:
//   read(lane, address, bytes, out)    lane's address is read, `bytes` bytes are written to out
//   write(lane, address, bytes, in)
// Addresses are byte addresses of shared memory and must be multiples of 16. Registers are d[lane][r].
// Source: PTX ISA 9.0, ldmatrix, stmatrix, movmatrix. The map of m16n16.trans with expansion follows CUTLASS's traits
// for SM120.
#pragma once

#include <cstdint>

namespace fp4pa::emulator::isa {

/// ldmatrix.m8n8.x{1,2,4}{.trans}.b16: matrix i takes its rows' addresses from lanes 8i .. 8i+7.
template <class Addresses, class Read, class D>
void ldmatrix_m8n8(int matrices, bool trans, const Addresses& address, const Read& read, D& d) {
  for (int i = 0; i < matrices; ++i) {
    std::uint8_t rows[8][16];
    for (int row = 0; row < 8; ++row) read(8 * i + row, address[8 * i + row], 16, rows[row]);
    const auto half = [&rows](int row, int col) -> std::uint32_t {
      return rows[row][2 * col] | static_cast<std::uint32_t>(rows[row][2 * col + 1]) << 8;
    };
    for (int lane = 0; lane < 32; ++lane) {
      const int major = lane >> 2;
      const int minor = (lane & 3) << 1;
      d[lane][i] =
          trans ? half(minor, major) | half(minor + 1, major) << 16 : half(major, minor) | half(major, minor + 1) << 16;
    }
  }
}

/// stmatrix.m8n8.x{1,2,4}{.trans}.b16, the other way round.
template <class Addresses, class S, class Write>
void stmatrix_m8n8(int matrices, bool trans, const Addresses& address, const S& s, const Write& write) {
  for (int i = 0; i < matrices; ++i) {
    std::uint8_t rows[8][16];
    for (int lane = 0; lane < 32; ++lane) {
      for (int h = 0; h < 2; ++h) {
        const int major = lane >> 2;
        const int minor = ((lane & 3) << 1) + h;
        const int row = trans ? minor : major;
        const int col = trans ? major : minor;
        const std::uint32_t value = (s[lane][i] >> (16 * h)) & 0xffffu;
        rows[row][2 * col] = static_cast<std::uint8_t>(value);
        rows[row][2 * col + 1] = static_cast<std::uint8_t>(value >> 8);
      }
    }
    for (int row = 0; row < 8; ++row) write(8 * i + row, address[8 * i + row], 16, rows[row]);
  }
}

/// ldmatrix.m8n16.x{1,2,4}.b8x16.b4x16_p64: rows of 16 nibbles (8 bytes, then 8 that are skipped) become rows of 16
/// bytes 0000SEEM.
template <class Addresses, class Read, class D>
void ldmatrix_m8n16_expand(int matrices, const Addresses& address, const Read& read, D& d) {
  for (int i = 0; i < matrices; ++i) {
    std::uint8_t rows[8][8];
    for (int row = 0; row < 8; ++row) read(8 * i + row, address[8 * i + row], 8, rows[row]);
    for (int lane = 0; lane < 32; ++lane) {
      // 16 elements of a row over 4 lanes: two packed bytes each.
      const int first = (lane & 3) << 1;
      const std::uint32_t low = rows[lane >> 2][first];
      const std::uint32_t high = rows[lane >> 2][first + 1];
      d[lane][i] = (low & 15u) | (low >> 4) << 8 | (high & 15u) << 16 | (high >> 4) << 24;
    }
  }
}

/// ldmatrix.m16n16.x{1,2}.trans.b8x16.b4x16_p64: 16 rows of 16 nibbles, expanded and transposed; two registers a
/// matrix.
template <class Addresses, class Read, class D>
void ldmatrix_m16n16_expand_trans(int matrices, const Addresses& address, const Read& read, D& d) {
  for (int i = 0; i < matrices; ++i) {
    std::uint8_t columns[16][16];  // after the transposition: [element of a stored row][stored row]
    for (int row = 0; row < 16; ++row) {
      std::uint8_t packed[8];
      read(16 * i + row, address[16 * i + row], 8, packed);
      for (int pair = 0; pair < 8; ++pair) {
        columns[2 * pair][row] = packed[pair] & 15u;
        columns[2 * pair + 1][row] = packed[pair] >> 4;
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int half = 0; half < 2; ++half) {
        const std::uint8_t* column = columns[8 * half + (lane >> 2)];
        std::uint32_t word = 0;
        for (int j = 3; j >= 0; --j) word = word << 8 | column[4 * (lane & 3) + j];
        d[lane][2 * i + half] = word;
      }
    }
  }
}

/// movmatrix.m8n8.trans.b16: transposes a matrix that lies as ldmatrix leaves it. d and s may be the same.
template <class S, class D>
void movmatrix_m8n8_trans(const S& s, D& d) {
  std::uint32_t matrix[8][8];
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t word = s[lane];
    matrix[lane >> 2][(lane & 3) << 1] = word & 0xffffu;
    matrix[lane >> 2][((lane & 3) << 1) + 1] = word >> 16;
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int row = (lane & 3) << 1;
    d[lane] = matrix[row][lane >> 2] | matrix[row + 1][lane >> 2] << 16;
  }
}

}  // namespace fp4pa::emulator::isa
