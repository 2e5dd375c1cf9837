// Checks of instructions that move elements between shared memory and lanes: what arrives where, against a documented
// map.
//
// Elements are a few bits wide and cannot carry their own number, so each check fills memory several times over with
// successive bit slices of the element numbers and puts the slices together again afterwards.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace fp4pa::conformance {

/// Shared memory of one warp, the addresses its lanes give, and what each lane ends up with (up to 4 registers).
struct Movement {
  std::vector<std::uint8_t> memory;
  std::uint32_t address[64];
};
struct Moved {
  std::uint32_t d[64][4];
};

/// Rows of `row_elements` elements of `bits` bits, one per address lane, `row_stride` bytes apart in shuffled order.
/// @param execute  (const Movement&) -> Moved
/// @return         numbers[lane][n]: row * row_elements + element of element n of the lane; elements of `out_bits` bits
template <class Execute>
std::vector<std::vector<int>> trace_elements(int rows, int row_elements, int bits, int row_stride, int lanes,
                                             int registers, int out_bits, const Execute& execute) {
  std::vector<int> slot(rows);
  for (int i = 0; i < rows; ++i) slot[i] = i;
  std::mt19937 random(7);
  for (int i = rows - 1; i > 0; --i) std::swap(slot[i], slot[random() % (i + 1)]);

  std::vector<std::vector<int>> numbers(lanes, std::vector<int>(registers * 32 / out_bits, 0));
  for (int slice = 0; slice < 12; slice += bits) {  // element numbers are below 2^12
    Movement m;
    m.memory.assign(static_cast<std::size_t>(rows) * row_stride, 0xee);  // what must be skipped is not zero
    std::memset(m.address, 0, sizeof m.address);
    for (int row = 0; row < rows; ++row) {
      m.address[row] = static_cast<std::uint32_t>(slot[row] * row_stride);
      for (int e = 0; e < row_elements; ++e) {
        const int value = (row * row_elements + e) >> slice & ((1 << bits) - 1);
        const std::size_t bit = static_cast<std::size_t>(e) * bits;
        for (int b = 0; b < bits; ++b) {
          std::uint8_t& byte = m.memory[m.address[row] + (bit + b) / 8];
          byte = static_cast<std::uint8_t>((byte & ~(1u << ((bit + b) % 8))) | ((value >> b & 1) << ((bit + b) % 8)));
        }
      }
    }
    const Moved moved = execute(m);
    for (int lane = 0; lane < lanes; ++lane) {
      for (std::size_t n = 0; n < numbers[lane].size(); ++n) {
        const std::size_t bit = n * out_bits;
        const std::uint32_t value = moved.d[lane][bit / 32] >> (bit % 32) & ((1ull << out_bits) - 1);
        // A value wider than an element means that padding was not skipped or not cleared: make it show.
        numbers[lane][n] |= value >> bits != 0 ? 1 << 20 : static_cast<int>(value << slice);
      }
    }
  }
  return numbers;
}

}  // namespace fp4pa::conformance
