// What the kernels of append write where a quicker way to the same bytes is taken only for most numbers: the CPU's bytes.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tests/cache/pool.hpp"
#include "tests/cache/target.hpp"

namespace {

using namespace fp4pa;

constexpr std::int64_t kTokens = 8;

std::vector<float> rows_of(const test::Shape& shape) {
  return std::vector<float>(static_cast<std::size_t>(kTokens * shape.heads * shape.head_dim));
}

/// The rows, as K and as V, into the first slots. `multiplier` is of both.
void check_bytes(const test::Shape& shape, const std::vector<float>& rows, float multiplier = 1.0f) {
  const std::int64_t slots[kTokens] = {0, 1, 2, 3, 4, 5, 6, 7};
  const KvInput in{rows.data(), DType::kF32, 0, 0};
  test::Pool wanted(shape);
  wanted.cache.k.global_scale = wanted.cache.v.global_scale = multiplier;
  REQUIRE(append(wanted.cache, in, in, slots, IndexType::kInt64, kTokens, ExecDesc{"cpu-scalar"}) == Status::kOk);
  const KvInput strided{rows.data(), DType::kF32, std::int64_t{shape.heads} * shape.head_dim, shape.head_dim};
  for (const test::Target& target : test::kTargets) {
    INFO(std::string(target.name));
    test::Pool pool(shape);
    pool.cache.k.global_scale = pool.cache.v.global_scale = multiplier;
    REQUIRE(target.append(pool.cache, strided, strided, {slots, IndexType::kInt64, kTokens}, {}) == Status::kOk);
    CHECK(pool.snapshot() == wanted.snapshot());
  }
}

test::Shape shape_of(KvFormat format, int head_dim, Rotation rotation) {
  test::Shape shape;
  shape.k_format = shape.v_format = format;
  shape.head_dim = head_dim;
  shape.rotation = rotation;
  shape.num_pages = 2;
  return shape;
}

}  // namespace

TEST_CASE("append, rotated: blocks whose scales are at either end of E8M0") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kE8m0PerToken}) {
    const test::Shape shape = shape_of(format, 64, Rotation::kHadamard32);
    for (const int exponent : {-148, -140, -126, -118, -100, 90, 110}) {
      INFO(std::string(name_of(format)), " 2^", exponent);
      test::Random random(9);
      std::vector<float> rows = rows_of(shape);
      for (float& x : rows) x = std::ldexp(static_cast<float>(random.below(255) - 127), exponent);
      check_bytes(shape, rows);
    }
    // One element a block, so that all of a rotated block lie near the tie between 4 and 6.
    INFO(std::string(name_of(format)), " ties");
    std::vector<float> rows = rows_of(shape);
    for (std::size_t block = 0; block < rows.size() / 32; ++block) {
      rows[32 * block] = std::ldexp(28.2842712f * (1.0f + (static_cast<float>(block) - 16.0f) * 0x1p-15f), 122);
    }
    check_bytes(shape, rows);
  }
}

TEST_CASE("append, FP8: a multiplier that is no power of two divides") {
  // Multiples of the multiplier by ties of E4M3, from 17 / 16 to 248: a quotient that is off by its last place is another code.
  constexpr float kMultiplier = 0.3f;
  const test::Shape shape = shape_of(KvFormat::kFp8E4m3, 256, Rotation::kNone);
  std::vector<float> rows = rows_of(shape);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = kMultiplier * (static_cast<float>(1 << (i / 8 % 8)) * (1.0f + (static_cast<float>(i % 8) + 0.5f) / 8));
  }
  check_bytes(shape, rows, kMultiplier);
}
