// Prefill on wgmma, as cuda/ compiles it, on the emulator; and the form of its operands in shared memory.
#include <doctest/doctest.h>

#include <vector>

#include "tests/attention/grid_instance.hpp"
#include "tests/emulator/sm90_instances.hpp"
#include "tests/emulator/sweep.hpp"

namespace {

using namespace fp4pa;

/// As sm_80's.
emulator_test::Bounds bounds(const grid::Case& c, const core::SimtConfig&) {
  return {grid::has_bf16_operands(c) ? 8e-3 : 2e-3, 1e-3};
}

/// Every element of a tile has a place of its own, and both products find it there.
template <int kTokens, int kHeadDim>
void check_tile() {
  using Tile = sm90::OperandTile<kTokens, kHeadDim>;
  constexpr std::uint32_t kBase = 3 * sm90::kSwizzleBytes;
  const auto place = [](int token, int dim) {
    return Tile::chunk_address(Tile::row_address(kBase, token), dim / 8) + static_cast<std::uint32_t>(dim % 8 * 2);
  };
  std::vector<int> taken(Tile::kBytes / 2, 0);
  for (int token = 0; token < kTokens; ++token) {
    for (int dim = 0; dim < kHeadDim; ++dim) {
      const std::uint32_t at = place(token, dim);
      REQUIRE(at >= kBase);
      REQUIRE(at < kBase + Tile::kBytes);
      ++taken[(at - kBase) / 2];
    }
  }
  for (const int n : taken) CHECK(n == 1);

  const auto descriptor = [](const sm90::SharedMatrix& m) {
    return emulator::isa::WgmmaDescriptor(sm90::matrix_descriptor(m.offset, m));
  };
  int wrong = 0;
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const auto d = descriptor(Tile::key_step(kBase, step));
    CHECK(d.swizzle == 1);
    CHECK(d.base == 0);
    for (int token = 0; token < kTokens; ++token) {
      for (int k = 0; k < 16; ++k) wrong += d.at(false, token, k) != place(token, 16 * step + k) ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
  for (int step = 0; step < kTokens / 16; ++step) {
    const auto d = descriptor(Tile::value_step(kBase, step));
    for (int dim = 0; dim < kHeadDim; ++dim) {
      for (int k = 0; k < 16; ++k) wrong += d.at(true, dim, k) != place(16 * step + k, dim) ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

/// The same of a warpgroup's queries.
template <int kHeadDim>
void check_query(int terms) {
  using Query = sm90::QueryTile<kHeadDim>;
  const int warp_bytes = terms * 16 * kHeadDim * 2;
  std::vector<int> taken(static_cast<std::size_t>(4 * warp_bytes / 16), 0);
  int wrong = 0;
  for (int warp = 0; warp < 4; ++warp) {
    const auto start = static_cast<std::uint32_t>(2 * sm90::kSwizzleBytes + warp * warp_bytes);
    CHECK(Query::group(start, terms, warp + 4) == 2 * sm90::kSwizzleBytes);
    for (int term = 0; term < terms; ++term) {
      for (int row = 0; row < 16; ++row) {
        for (int chunk = 0; chunk < kHeadDim / 8; ++chunk) {
          const std::uint32_t at = Query::chunk_address(start, terms, term, row, chunk);
          ++taken.at((at - 2 * sm90::kSwizzleBytes) / 16);
          const sm90::SharedMatrix m = Query::step(2 * sm90::kSwizzleBytes, terms, term, chunk / 2);
          const emulator::isa::WgmmaDescriptor d(sm90::matrix_descriptor(m.offset, m));
          wrong += d.at(false, 16 * warp + row, chunk % 2 * 8) != at ? 1 : 0;
        }
      }
    }
  }
  CHECK(wrong == 0);
  for (const int n : taken) CHECK(n == 1);
}

}  // namespace

TEST_CASE("sm_90a: operand tiles lie where the descriptors say") {
  check_tile<64, 64>();
  check_tile<64, 128>();
  check_tile<128, 128>();
  for (const int terms : {1, 2}) {
    check_query<64>(terms);
    check_query<128>(terms);
  }
}

TEST_CASE("sm_90a: which kernel a configuration gets") {
  AttentionConfig c;
  c.cache.k.format = c.cache.v.format = KvFormat::kMxfp4;
  c.cache.num_kv_heads = 8;
  c.cache.head_dim = 128;
  c.num_q_heads = 32;
  c.max_q_len = 512;
  CHECK(cuda::is_sm90(cuda::select_variant(c, 90)));
  CHECK_FALSE(cuda::is_sm90(cuda::select_variant(c, 80)));
  CHECK_FALSE(cuda::is_sm90(cuda::select_variant(c, 89)));
  CHECK_FALSE(cuda::is_sm90(cuda::select_variant(c, 100)));
  CHECK_FALSE(cuda::is_sm90(cuda::select_variant(c, 120)));
  c.max_q_len = 1;
  CHECK_FALSE(cuda::is_sm90(cuda::select_variant(c, 90)));
  // Two terms of f32 queries beside bf16 keys do not fit in shared memory.
  c.max_q_len = 512;
  c.cache.k.format = c.cache.v.format = KvFormat::kBf16;
  c.q_dtype = DType::kBF16;
  CHECK(cuda::is_sm90(cuda::select_variant(c, 90)));
  c.q_dtype = DType::kF32;
  CHECK(cuda::select_variant(c, 90) >= 0);
  CHECK_FALSE(cuda::is_sm90(cuda::select_variant(c, 90)));
}

TEST_CASE("sm_90a: the grid on the emulator") {
  CHECK(emulator_test::run_sweep({&emulator_test::kSm90, bounds, 100, 6, 4}) > 40);
}
