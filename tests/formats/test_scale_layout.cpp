// The 128x4 scale layout, element by element, and nibble packing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/formats/pack.hpp"
#include "core/formats/scale_layout.hpp"

using namespace fp4pa::core;

namespace {

static_assert(blocked_scale_offset(0, 0, 4) == 0 && blocked_scale_offset(1, 0, 4) == 16);
static_assert(blocked_scale_offset(32, 0, 4) == 4 && blocked_scale_offset(127, 3, 4) == 511);
static_assert(blocked_scale_offset(0, 4, 5) == 512 && blocked_scale_offset(128, 0, 5) == 1024);
static_assert(blocked_scale_size(1, 1) == 512 && blocked_scale_size(129, 5) == 2048 && blocked_scale_size(0, 4) == 0);

/// The layout as a walk through memory: for each byte in order, which (row, group) it holds. Written as nested loops
/// over the layout's dimensions, slowest first, so that no division is shared with the code under test.
std::vector<std::pair<int, int>> memory_order(int row_atoms, int group_atoms) {
  std::vector<std::pair<int, int>> order;
  for (int row_atom = 0; row_atom < row_atoms; ++row_atom) {
    for (int group_atom = 0; group_atom < group_atoms; ++group_atom) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int quarter = 0; quarter < 4; ++quarter) {
          for (int group = 0; group < 4; ++group) {
            order.emplace_back(row_atom * 128 + quarter * 32 + lane, group_atom * 4 + group);
          }
        }
      }
    }
  }
  return order;
}

TEST_CASE("scale layout: every element of padded shapes lies where the layout says, and fills it exactly") {
  for (int rows : {1, 31, 32, 33, 127, 128, 129, 255, 256, 257, 400}) {
    for (int groups : {1, 2, 3, 4, 5, 7, 8, 9, 17}) {
      CAPTURE(rows);
      CAPTURE(groups);
      const int row_atoms = (rows + 127) / 128;
      const int group_atoms = (groups + 3) / 4;
      const auto order = memory_order(row_atoms, group_atoms);
      REQUIRE(blocked_scale_size(rows, groups) == order.size());
      for (std::size_t offset = 0; offset < order.size(); ++offset) {
        // Padding has its own places: the map is a bijection of the padded shape.
        REQUIRE(blocked_scale_offset(order[offset].first, order[offset].second, groups) == offset);
      }
    }
  }
}

TEST_CASE("scale layout: offsets past 2^32") {
  const std::int64_t rows = std::int64_t{1} << 33;
  CHECK(blocked_scale_size(rows, 4) == static_cast<std::size_t>(rows) * 4);
  CHECK(blocked_scale_offset(rows - 1, 3, 4) == static_cast<std::size_t>(rows) * 4 - 1);
}

TEST_CASE("pack: low nibble is the even element") {
  static_assert(pack_e2m1(0x1, 0xf) == 0xf1 && unpack_e2m1(0xf1, 0) == 0x1 && unpack_e2m1(0xf1, 1) == 0xf);
  for (int even = 0; even < 256; ++even) {
    for (int odd = 0; odd < 256; ++odd) {
      const std::uint8_t byte = pack_e2m1(static_cast<std::uint8_t>(even), static_cast<std::uint8_t>(odd));
      REQUIRE(byte == (even % 16) + 16 * (odd % 16));
      REQUIRE(unpack_e2m1(byte, 0) == even % 16);
      REQUIRE(unpack_e2m1(byte, 1) == odd % 16);
    }
  }
}

}  // namespace
