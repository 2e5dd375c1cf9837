// copy_pages on a GPU's kernels: the bytes of the CPU back end, whose own test is tests/cache/test_copy_pages.cpp. What the CPU
// refuses, an id outside the pool, is passed over here.
#include <doctest/doctest.h>

#include <string>

#include "backends/cpu/cache_ops.hpp"
#include "tests/cache/pool.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

namespace {

using Ids = std::vector<std::int32_t>;

/// Of any bytes, the same for the same shape.
void fill(test::Pool& pool) {
  test::Random random(11);
  for (std::size_t i = 0; i < pool.bytes(); ++i) pool.base()[i] = static_cast<std::uint8_t>(random.bits());
}

/// What a target leaves of a pool's memory after copies src[i] -> dst[i], against what the CPU leaves after `kept_src`, `kept_dst`.
void check(const test::Target& target, const test::Shape& shape, const Ids& src, const Ids& dst, const Ids& kept_src,
           const Ids& kept_dst) {
  test::Pool expected(shape);
  fill(expected);
  const std::vector<std::uint8_t> before = expected.snapshot();
  REQUIRE(cpu::copy_pages(expected.cache, kept_src.data(), kept_dst.data(), static_cast<std::int64_t>(kept_src.size()), {}) ==
          Status::kOk);
  test::Pool pool(shape);
  fill(pool);
  REQUIRE(target.copy_pages(pool.cache, src.data(), dst.data(), static_cast<std::int64_t>(src.size()), {}) == Status::kOk);
  CHECK(pool.snapshot() == expected.snapshot());
  CHECK((expected.snapshot() == before) == kept_src.empty());
}

}  // namespace

TEST_CASE("copy_pages on a GPU: every layout gives the CPU's bytes, those between rows too") {
  struct Formats {
    KvFormat k, v;
    VScaleAxis axis;
  };
  const Formats formats[] = {{KvFormat::kMxfp4, KvFormat::kMxfp4, VScaleAxis::kHeadDim},
                             {KvFormat::kNvfp4, KvFormat::kNvfp4, VScaleAxis::kTokens},
                             {KvFormat::kE8m0PerToken, KvFormat::kMxfp4, VScaleAxis::kTokens},
                             {KvFormat::kMxfp8, KvFormat::kF16, VScaleAxis::kHeadDim},
                             {KvFormat::kBf16, KvFormat::kFp8E4m3, VScaleAxis::kHeadDim}};
  std::uint64_t seed = 0;
  for (const Formats& f : formats) {
    for (const test::Layout layout : {test::Layout::kHnd, test::Layout::kNhd, test::Layout::kInterleaved, test::Layout::kGaps}) {
      for (const int page_size : {1, 3, 16, 40}) {
        for (const int heads : {1, 3}) {
          if (!test::is_run(seed++)) continue;
          CAPTURE(std::string(name_of(f.k)));
          CAPTURE(std::string(name_of(f.v)));
          CAPTURE(std::string(test::name_of(layout)));
          CAPTURE(page_size);
          CAPTURE(heads);
          test::Shape shape;
          shape.k_format = f.k;
          shape.v_format = f.v;
          shape.axis = f.axis;
          shape.layout = layout;
          shape.page_size = page_size;
          shape.heads = heads;
          const Ids src{4, 0, 4}, dst{1, 5, 3};
          for (const test::Target& target : test::kTargets) {
            CAPTURE(std::string(target.name));
            check(target, shape, src, dst, src, dst);
          }
        }
      }
    }
  }
}

TEST_CASE("copy_pages on a GPU: ids outside the pool are passed over, and the other copies are made") {
  // In this layout what lies behind the last page of one array is another array.
  const test::Shape shape;  // 6 pages
  for (const test::Target& target : test::kTargets) {
    CAPTURE(std::string(target.name));
    check(target, shape, {6, 0, 1, 2}, {3, 6, -1, 4}, {2}, {4});
    check(target, shape, {-1, 0, 1 << 30, 2}, {3, 1 << 30, 4, 5}, {2}, {5});
    check(target, shape, {6, -2147483647 - 1}, {0, 1}, {}, {});
  }
}

TEST_CASE("copy_pages on a GPU: hundreds of pages in one call") {
  test::Shape shape;
  shape.page_size = 4;
  shape.heads = 1;
  shape.num_pages = 1400;
  Ids src, dst;
  for (std::int32_t i = 0; i < shape.num_pages / 2; ++i) {
    src.push_back(2 * i);
    dst.push_back(shape.num_pages - 1 - 2 * i);
  }
  for (const test::Target& target : test::kTargets) {
    CAPTURE(std::string(target.name));
    check(target, shape, src, dst, src, dst);
  }
}
