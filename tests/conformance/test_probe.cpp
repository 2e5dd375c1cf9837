// The tables "which lane's scale byte moves which row", printed and pinned as literals for every select.
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/conformance/atoms_under_test.hpp"
#include "tests/conformance/probe.hpp"

namespace fp4pa::conformance {
namespace {

using core::ScaleCoord;
using core::ScaleSelect;

// Row (column) whose scale each lane of a warp supplies; -1: the lane is not read.
constexpr int kSfaThread0[32] = {0, 8,  -1, -1, 1, 9,  -1, -1, 2, 10, -1, -1, 3, 11, -1, -1,
                                 4, 12, -1, -1, 5, 13, -1, -1, 6, 14, -1, -1, 7, 15, -1, -1};
constexpr int kSfaThread1[32] = {-1, -1, 0, 8,  -1, -1, 1, 9,  -1, -1, 2, 10, -1, -1, 3, 11,
                                 -1, -1, 4, 12, -1, -1, 5, 13, -1, -1, 6, 14, -1, -1, 7, 15};
constexpr int kSfbThread0[32] = {0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1,
                                 4, -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7, -1, -1, -1};
constexpr int kSfbThread1[32] = {-1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1,
                                 -1, 4, -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7, -1, -1};
constexpr int kSfbThread2[32] = {-1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3, -1,
                                 -1, -1, 4, -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7, -1};
constexpr int kSfbThread3[32] = {-1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1, 2, -1, -1, -1, 3,
                                 -1, -1, -1, 4, -1, -1, -1, 5, -1, -1, -1, 6, -1, -1, -1, 7};
constexpr const int* kSfa[2] = {kSfaThread0, kSfaThread1};
constexpr const int* kSfb[4] = {kSfbThread0, kSfbThread1, kSfbThread2, kSfbThread3};

// Group of k that each byte scales, by the first byte selected; -1: the byte is not read.
constexpr int kBytes1X[4][4] = {{0, -1, -1, -1}, {-1, 0, -1, -1}, {-1, -1, 0, -1}, {-1, -1, -1, 0}};
constexpr int kBytes2X[4][4] = {{0, 1, -1, -1}, {-2, -2, -2, -2}, {-1, -1, 0, 1}, {-2, -2, -2, -2}};
constexpr int kBytes4X[4][4] = {{0, 1, 2, 3}, {-2, -2, -2, -2}, {-2, -2, -2, -2}, {-2, -2, -2, -2}};

// Row or column, and block of 32 along k, of each lane of a wave.
constexpr int kRow16[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 0,  1,  2,  3, 4,  5,
                            6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11,
                            12, 13, 14, 15, 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15};
constexpr int kBlock16[64] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1,
                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
                              2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
constexpr int kRow32[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                            22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                            12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
constexpr int kBlock32[64] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                              0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                              1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/// One line: index/group of each lane's first byte that is read.
template <class Atom>
void print(const char* name, bool of_a, ScaleSelect s, const ProbeTable<Atom>& table) {
  std::printf("  %s %s, byte %d, thread %d: lane ->", name, of_a ? "SFA row/group" : "SFB col/group", s.byte, s.thread);
  for (const auto& lane : table) {
    ScaleCoord first = core::kNotRead;
    for (const ScaleCoord& x : lane) first = first.read() ? first : x;
    first.read() ? std::printf(" %d/%d", first.index, first.group) : std::printf(" .");
  }
  std::printf("\n");
}

/// @param bytes  [first byte][byte]
template <class Atom>
void expect_quad_tables(const char* name, const int (&bytes)[4][4]) {
  ModelExecutor<Atom> executor;
  for (const bool of_a : {true, false}) {
    for (int byte = 0; byte < 4; ++byte) {
      for (int thread = 0; thread < 4; ++thread) {
        const ScaleSelect s{byte, thread};
        const bool valid = of_a ? Atom::valid_select_a(s) : Atom::valid_select_b(s);
        CHECK(valid == (bytes[byte][0] != -2 && thread < (of_a ? 2 : 4)));
        if (!valid) continue;
        const auto table = probe_scales(executor, of_a ? Selects{s, {}} : Selects{{}, s}, of_a);
        if (byte == 0) print<Atom>(name, of_a, s, table);
        const int* rows = of_a ? kSfa[thread] : kSfb[thread];
        for (int lane = 0; lane < 32; ++lane) {
          for (int j = 0; j < 4; ++j) {
            const bool read = rows[lane] >= 0 && bytes[byte][j] >= 0;
            const ScaleCoord expected = read ? ScaleCoord{rows[lane], bytes[byte][j]} : core::kNotRead;
            CHECK(table[lane][j] == expected);
            CHECK((of_a ? Atom::sfa_coord(lane, j, s) : Atom::sfb_coord(lane, j, s)) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("sm120: which lane's scale moves which row") {
  expect_quad_tables<Sm120Fp8Fp4>("mxf8f6f4 1X", kBytes1X);
  expect_quad_tables<Sm120Fp4Fp8>("mxf8f6f4 1X (e2m1 A)", kBytes1X);
  expect_quad_tables<Sm120Fp8Fp8>("mxf8f6f4 1X (e4m3 B)", kBytes1X);
  expect_quad_tables<Sm120Mxf4>("mxf4 2X", kBytes2X);
  expect_quad_tables<Sm120Nvf4Ue8m0>("mxf4nvf4 2X", kBytes2X);
  expect_quad_tables<Sm120Nvf4>("mxf4nvf4 4X", kBytes4X);
}

template <class Atom>
void expect_wave_tables(const char* name, const int (&rows)[64], const int (&blocks)[64]) {
  ModelExecutor<Atom> executor;
  for (const bool of_a : {true, false}) {
    for (int byte = 0; byte < 4; ++byte) {
      const ScaleSelect s{byte, 0};
      const auto table = probe_scales(executor, of_a ? Selects{s, {}} : Selects{{}, s}, of_a);
      if (byte == 0) print<Atom>(name, of_a, s, table);
      for (int lane = 0; lane < 64; ++lane) {
        for (int j = 0; j < 4; ++j) {
          const ScaleCoord expected = j == byte ? ScaleCoord{rows[lane], blocks[lane]} : core::kNotRead;
          CHECK(table[lane][j] == expected);
          CHECK((of_a ? Atom::sfa_coord(lane, j, s) : Atom::sfb_coord(lane, j, s)) == expected);
        }
      }
    }
  }
}

TEST_CASE("gfx950: which lane's scale moves which row and block") {
  expect_wave_tables<Gfx950Square16<E4M3, E2M1>>("16x16x128 e4m3 e2m1", kRow16, kBlock16);
  expect_wave_tables<Gfx950Square16<E2M1, E4M3>>("16x16x128 e2m1 e4m3", kRow16, kBlock16);
  expect_wave_tables<Gfx950Square32<E2M1, E4M3>>("32x32x64 e2m1 e4m3", kRow32, kBlock32);
  expect_wave_tables<Gfx950Square32<E2M1, E2M1>>("32x32x64 e2m1 e2m1", kRow32, kBlock32);
}

}  // namespace
}  // namespace fp4pa::conformance
