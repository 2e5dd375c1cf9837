// The lane maps of the copies against models of the instructions, and what the copies deliver against what the atoms
// want.
#include <doctest/doctest.h>

#include "backends/emulator/isa/ds_read_tr.hpp"
#include "backends/emulator/isa/ldmatrix.hpp"
#include "backends/gfx950/copies.hpp"
#include "backends/sm120/copies.hpp"
#include "core/atom/roles.hpp"
#include "tests/conformance/atoms_under_test.hpp"
#include "tests/conformance/movement.hpp"

namespace fp4pa::conformance {
namespace {

namespace isa = emulator::isa;

auto reader(const Movement& m) {
  return [&m](int, std::uint32_t address, int bytes, std::uint8_t* out) {
    std::memcpy(out, m.memory.data() + address, static_cast<std::size_t>(bytes));
  };
}

TEST_CASE("ldmatrix m8n16 expands four-bit rows as its map says") {
  for (const int matrices : {1, 2, 4}) {
    const auto numbers = trace_elements(8 * matrices, 16, 4, 16, 32, matrices, 8, [&](const Movement& m) {
      Moved moved{};
      isa::ldmatrix_m8n16_expand(matrices, m.address, reader(m), moved.d);
      return moved;
    });
    for (int lane = 0; lane < 32; ++lane) {
      for (int n = 0; n < 4 * matrices; ++n) {
        const auto x = sm120::expand_coord(lane, n / 4, n % 4);
        CHECK(numbers[lane][n] == (x.matrix * 8 + x.row) * 16 + x.element);
      }
    }
  }
}

TEST_CASE("ldmatrix m16n16.trans expands and transposes four-bit rows as its map says") {
  for (const int matrices : {1, 2}) {
    const auto numbers = trace_elements(16 * matrices, 16, 4, 16, 32, 2 * matrices, 8, [&](const Movement& m) {
      Moved moved{};
      isa::ldmatrix_m16n16_expand_trans(matrices, m.address, reader(m), moved.d);
      return moved;
    });
    for (int lane = 0; lane < 32; ++lane) {
      for (int n = 0; n < 8 * matrices; ++n) {
        const auto x = sm120::expand_trans_coord(lane, n / 4, n % 4);
        CHECK(numbers[lane][n] == (x.matrix * 16 + x.row) * 16 + x.element);
      }
    }
  }
}

TEST_CASE("expanding loads deliver the mxf8f6f4 B fragment") {
  // K: two 8x16 matrices are the two halves of k; register r of B is register r of the load.
  for (int lane = 0; lane < 32; ++lane) {
    for (int v = 0; v < 8; ++v) {
      const auto x = sm120::expand_coord(lane, v / 4, v % 4);
      CHECK(Sm120Fp8Fp4::b_coord(lane, v) == core::ColK{x.row, 16 * x.matrix + x.element});
    }
  }
  // V: tokens are the stored rows. Of an x2 load over tokens 0-15 and 16-31, registers 0 and 2 are B of dims 0-7, 1
  // and 3 of dims 8-15.
  for (int lane = 0; lane < 32; ++lane) {
    for (int tile = 0; tile < 2; ++tile) {
      for (int v = 0; v < 8; ++v) {
        const auto x = sm120::expand_trans_coord(lane, 2 * (v / 4) + tile, v % 4);
        CHECK(Sm120Fp8Fp4::b_coord(lane, v) == core::ColK{x.element - 8 * tile, 16 * x.matrix + x.row});
      }
    }
  }
}

TEST_CASE("expanding loads deliver the mxf8f6f4 A fragment") {
  // K in A: matrices are keys 0-7 and 8-15 of the first half of k, then of the second; register r of A is register r
  // of an x4 load. V in A: the registers of an x2 transposing load over tokens 0-15 and 16-31 are those of A; rows are
  // dims.
  for (int lane = 0; lane < 32; ++lane) {
    for (int v = 0; v < 16; ++v) {
      const auto k = sm120::expand_coord(lane, v / 4, v % 4);
      CHECK(Sm120Fp4Fp8::a_coord(lane, v) == core::RowK{8 * (k.matrix % 2) + k.row, 16 * (k.matrix / 2) + k.element});
      const auto x = sm120::expand_trans_coord(lane, v / 4, v % 4);
      CHECK(Sm120Fp4Fp8::a_coord(lane, v) == core::RowK{x.element, 16 * x.matrix + x.row});
    }
  }
}

TEST_CASE("V rows given in the stated order meet P as a lane has it") {
  // Row addresses are free: lane i pointing at token (i&1) + 8((i>>1)&1) + 2(i>>2) puts into k slot 4t + i the token
  // that directly packed scores have there, column 2t + (i&1) of the n8 tile i>>1.
  using Score = core::ScoreAtom<Sm120Fp8Fp4, core::Operand::kA>;
  for (int lane = 0; lane < 32; ++lane) {
    for (int j = 0; j < 4; ++j) {
      const int row = sm120::expand_trans_coord(lane, 0, j).row;
      const int token = (row & 1) + 8 * ((row >> 1) & 1) + 2 * (row >> 2);
      CHECK(token == 8 * (j / 2) + Score::score_coord(lane, j % 2).key);
    }
  }
}

TEST_CASE("packed codes and expanded codes become the same containers") {
  for (std::uint32_t code = 0; code < 16; ++code) {
    const std::uint32_t packed = code | (15 - code) << 4 | 0x55555500u;
    CHECK((sm120::even_containers(packed) & 0xff) == code << 2);
    CHECK((sm120::odd_containers(packed) & 0xff) == (15 - code) << 2);
    CHECK((sm120::to_container(code | 0x0f0f0f00u) & 0xff) == code << 2);
    std::uint32_t word[1] = {0};
    core::put_code<E2M1>(word, 0, Sm120Fp8Fp4::kPackingB, code);
    CHECK(word[0] == code << 2);
  }
}

TEST_CASE("ldmatrix delivers the 16-bit A fragment, and movmatrix transposes what ldmatrix loads") {
  // Matrices in the order rows 0-7, rows 8-15, then the same of the second half of k: register r is register r of A.
  const auto numbers = trace_elements(32, 8, 16, 16, 32, 4, 16, [&](const Movement& m) {
    Moved moved{};
    isa::ldmatrix_m8n8(4, false, m.address, reader(m), moved.d);
    return moved;
  });
  for (int lane = 0; lane < 32; ++lane) {
    for (int v = 0; v < 8; ++v) {
      const int row = numbers[lane][v] / 8;
      CHECK(Sm80F16::a_coord(lane, v) == core::RowK{row % 16, 8 * (row / 16) + numbers[lane][v] % 8});
    }
  }

  Movement m;
  std::mt19937 random(3);
  for (int i = 0; i < 512; ++i) m.memory.push_back(static_cast<std::uint8_t>(random()));
  for (int i = 0; i < 32; ++i) m.address[i] = 16u * static_cast<std::uint32_t>((i * 5) % 32);
  Moved plain{};
  Moved transposed{};
  isa::ldmatrix_m8n8(4, false, m.address, reader(m), plain.d);
  isa::ldmatrix_m8n8(4, true, m.address, reader(m), transposed.d);
  for (int r = 0; r < 4; ++r) {
    std::uint32_t in[32];
    std::uint32_t out[32];
    for (int lane = 0; lane < 32; ++lane) in[lane] = plain.d[lane][r];
    isa::movmatrix_m8n8_trans(in, out);
    for (int lane = 0; lane < 32; ++lane) CHECK(out[lane] == transposed.d[lane][r]);
  }
  // stmatrix undoes ldmatrix, plain and transposed.
  for (const bool trans : {false, true}) {
    std::vector<std::uint8_t> stored(512, 0);
    isa::stmatrix_m8n8(4, trans, m.address, trans ? transposed.d : plain.d,
                       [&](int, std::uint32_t address, int bytes, const std::uint8_t* in) {
                         std::memcpy(stored.data() + address, in, static_cast<std::size_t>(bytes));
                       });
    CHECK(stored == m.memory);
  }
}

template <int kBits>
void expect_transposing_read() {
  constexpr int kElements = 64 / kBits;
  const auto numbers = trace_elements(64, kElements, kBits, 8, 64, 2, kBits, [&](const Movement& m) {
    Moved moved{};
    isa::ds_read_b64_tr(kBits, m.address, reader(m), moved.d);
    return moved;
  });
  for (int lane = 0; lane < 64; ++lane) {
    for (int n = 0; n < kElements; ++n) {
      const auto x = gfx950::transposed_coord<kBits>(lane, n);
      CHECK(numbers[lane][n] == x.lane * kElements + x.element);
    }
  }
}

TEST_CASE("gfx950 transposing reads follow their map") {
  expect_transposing_read<4>();
  expect_transposing_read<8>();
  expect_transposing_read<16>();
}

TEST_CASE("gfx950 four-bit transposing read is a 16 x 16 transposition, literally") {
  for (int lane = 0; lane < 64; ++lane) {
    for (int n = 0; n < 16; ++n) {
      CHECK(gfx950::transposed_coord<4>(lane, n) == gfx950::PointedElement{lane / 16 * 16 + n, lane % 16});
    }
  }
}

TEST_CASE("direct-to-LDS loads leave a lane's bytes at its number times their count") {
  for (const int bytes : {4, 16}) {
    std::vector<std::uint8_t> lds(64 * 16 + 32, 0xee);
    isa::load_to_lds(
        bytes, 32,
        [](int lane, int count, std::uint8_t* out) { std::memset(out, lane, static_cast<std::size_t>(count)); },
        [&](int, std::uint32_t address, int count, const std::uint8_t* in) {
          std::memcpy(lds.data() + address, in, static_cast<std::size_t>(count));
        });
    for (int lane = 0; lane < 64; ++lane) {
      CHECK(lds[static_cast<std::size_t>(32 + gfx950::lds_offset(lane, bytes))] == lane);
      CHECK(lds[static_cast<std::size_t>(32 + gfx950::lds_offset(lane, bytes) + bytes - 1)] == lane);
    }
  }
}

}  // namespace
}  // namespace fp4pa::conformance
