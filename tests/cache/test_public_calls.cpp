// The public functions reach this back end's functions by either name, and carry every argument to its place.
#include <doctest/doctest.h>

#include <string>

#include "fp4pa/attention.hpp"
#include "fp4pa/cache.hpp"
#include "fp4pa/quantize.hpp"
#include "fp4pa/status.hpp"
#include "tests/cache/pool.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

namespace {

const char* const kBackends[] = {"cpu", "cpu-scalar"};

ExecDesc on(const char* backend) {
  ExecDesc exec;
  exec.backend = backend;
  return exec;
}

}  // namespace

TEST_CASE("public append, gather and copy_pages do what the back end's do") {
  test::Shape shape;
  shape.k_format = KvFormat::kNvfp4;
  shape.v_format = KvFormat::kFp8E4m3;
  shape.layout = test::Layout::kInterleaved;
  shape.rotation = Rotation::kHadamard64;
  test::Random random(1);
  const test::Rows k(DType::kF16, 3, shape.heads, shape.head_dim, random);
  const test::Rows v(DType::kF32, 3, shape.heads, shape.head_dim, random);
  const std::int32_t slots[] = {40, -1, 7};
  const std::int32_t src[] = {2};
  const std::int32_t dst[] = {5};
  const std::size_t row = static_cast<std::size_t>(shape.heads * shape.head_dim);
  for (const char* backend : kBackends) {
    CAPTURE(std::string(backend));
    test::Pool direct(shape);
    test::Pool through(shape);
    REQUIRE(cpu::append(direct.cache, k.input(), v.input(), {slots, IndexType::kInt32, 3}, {}) == Status::kOk);
    REQUIRE(append(through.cache, k.input(), v.input(), slots, IndexType::kInt32, 3, on(backend)) == Status::kOk);
    CHECK(through.snapshot() == direct.snapshot());
    REQUIRE(cpu::copy_pages(direct.cache, src, dst, 1, {}) == Status::kOk);
    REQUIRE(copy_pages(through.cache, src, dst, 1, on(backend)) == Status::kOk);
    CHECK(through.snapshot() == direct.snapshot());

    std::vector<float> want(2 * 3 * row, -1.0f);
    std::vector<float> got = want;
    const auto stride = static_cast<std::int64_t>(row);
    REQUIRE(cpu::gather(direct.cache, {slots, IndexType::kInt32, 3}, {want.data(), DType::kF32, stride, shape.head_dim},
                        {want.data() + 3 * row, DType::kF32, stride, shape.head_dim}, {}) == Status::kOk);
    // Strides of 0 are dense.
    REQUIRE(gather(through.cache, slots, IndexType::kInt32, 3, {got.data(), DType::kF32, 0, 0},
                   {got.data() + 3 * row, DType::kF32, 0, 0}, on(backend)) == Status::kOk);
    CHECK(got == want);
    CHECK(got[0] != -1.0f);
  }
}

TEST_CASE("append: a head stride that is too small is named, although the token stride is made of it") {
  test::Shape shape;
  shape.heads = 1;
  test::Pool pool(shape);
  test::Random random(1);
  const test::Rows rows(DType::kF32, 2, shape.heads, shape.head_dim, random);
  const std::int32_t slots[] = {0, 1};
  KvInput k = rows.input();
  k.token_stride = 0;
  k.head_stride = 63;
  CHECK(append(pool.cache, k, rows.input(), slots, IndexType::kInt32, 2, on("cpu")) == Status::kInvalidStrides);
  CHECK(std::string(last_error_detail()) == "k.head_stride is 63, so that rows of 64 elements overlap; allowed: 0 (dense) or at least 64");
}

TEST_CASE("public append_two_tier does what the back end's does") {
  test::Shape old_shape;
  old_shape.num_pages = 4;
  test::Shape recent_shape = old_shape;
  recent_shape.k_format = recent_shape.v_format = KvFormat::kBf16;
  test::Random random(2);
  const test::Rows k(DType::kBF16, 90, 2, 64, random);
  const test::Rows v(DType::kBF16, 90, 2, 64, random);
  const std::int32_t indptr[] = {0, 50, 90};
  const std::int32_t lengths[] = {0, 0};
  const std::int32_t old_table[] = {3, 1, 0, 2};
  const std::int32_t recent_table[] = {0, 3, 2, 1};
  const auto tiers = [](const test::Pool& old_pool, const test::Pool& recent_pool) {
    TwoTierDesc desc;
    desc.old_tier = old_pool.cache;
    desc.recent = recent_pool.cache;
    desc.window_tokens = 16;
    desc.group_tokens = 16;
    desc.ring_pages = 2;
    return desc;
  };
  for (const char* backend : kBackends) {
    CAPTURE(std::string(backend));
    test::Pool old_direct(old_shape), recent_direct(recent_shape), old_through(old_shape), recent_through(recent_shape);
    REQUIRE(cpu::append_two_tier({tiers(old_direct, recent_direct), k.input(), v.input(), indptr, lengths, 2, 90,
                                  old_table, 2, recent_table},
                                 {}) == Status::kOk);
    REQUIRE(append_two_tier(tiers(old_through, recent_through), k.input(), v.input(), indptr, lengths, 2, 90, old_table,
                            2, recent_table, on(backend)) == Status::kOk);
    CHECK(old_through.snapshot() == old_direct.snapshot());
    CHECK(recent_through.snapshot() == recent_direct.snapshot());
    CHECK(old_through.snapshot() != test::Pool(old_shape).snapshot());
  }
}

TEST_CASE("public quantize, dequantize and merge_states reach the back end") {
  std::vector<float> x(2 * 64);
  test::Random random(3);
  for (float& value : x) value = random.value();
  QuantizeConfig config;
  config.format = BlockFormat::kMxfp8;
  for (const char* backend : kBackends) {
    CAPTURE(std::string(backend));
    std::vector<std::uint8_t> want(128 + 4), got(128 + 4);
    REQUIRE(cpu::quantize(config, x.data(), DType::kF32, 2, 64, want.data(), want.data() + 128, {}) == Status::kOk);
    REQUIRE(quantize(config, x.data(), DType::kF32, 2, 64, got.data(), got.data() + 128, on(backend)) == Status::kOk);
    CHECK(got == want);
    std::vector<float> y(128), z(128);
    REQUIRE(cpu::dequantize(config, want.data(), want.data() + 128, 2, 64, y.data(), DType::kF32, {}) == Status::kOk);
    REQUIRE(dequantize(config, got.data(), got.data() + 128, 2, 64, z.data(), DType::kF32, on(backend)) == Status::kOk);
    CHECK(z == y);

    const float equal[] = {0.5f, 0.5f};
    float lse[2];
    std::vector<float> merged(128);
    REQUIRE(merge_states(x.data(), equal, x.data(), equal, merged.data(), lse, DType::kF32, 2, 64, on(backend)) ==
            Status::kOk);
    CHECK(merged == x);
    CHECK(lse[0] == doctest::Approx(0.5 + 0.6931472));
  }
}
