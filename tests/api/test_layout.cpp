// Strides: what the helpers fill in, and the overlap rule against a brute force that marks every byte.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "api/stride_overlap.hpp"
#include "tests/api/small_cache.hpp"

using namespace fp4pa;
using api::StridedDim;

namespace {

struct BruteForce {
  bool disjoint = true;
  std::int64_t last_byte = 0;
};

/// Marks the bytes of every row, one by one.
BruteForce mark_rows(const std::array<StridedDim, 3>& dims, std::int64_t row_bytes) {
  BruteForce result;
  std::vector<bool> taken;
  for (std::int64_t a = 0; a < dims[0].size; ++a) {
    for (std::int64_t b = 0; b < dims[1].size; ++b) {
      for (std::int64_t c = 0; c < dims[2].size; ++c) {
        const std::int64_t first = a * dims[0].stride_bytes + b * dims[1].stride_bytes + c * dims[2].stride_bytes;
        for (std::int64_t byte = first; byte < first + row_bytes; ++byte) {
          if (static_cast<std::size_t>(byte) >= taken.size()) taken.resize(static_cast<std::size_t>(byte) + 1);
          if (taken[static_cast<std::size_t>(byte)]) result.disjoint = false;
          taken[static_cast<std::size_t>(byte)] = true;
        }
      }
    }
  }
  result.last_byte = static_cast<std::int64_t>(taken.size());
  return result;
}

/// Rows that share no byte although their strides do not nest: some step of one dimension ends inside the span of the
/// others. The rule refuses these on purpose.
bool interlocked(const std::array<StridedDim, 3>& dims, std::int64_t row_bytes) {
  for (std::size_t outer = 0; outer < dims.size(); ++outer) {
    if (dims[outer].size == 1) continue;
    std::array<StridedDim, 3> inner = dims;
    for (StridedDim& dim : inner) {
      if (dim.stride_bytes > dims[outer].stride_bytes || &dim == &inner[outer]) dim.size = 1;
    }
    if (dims[outer].stride_bytes < mark_rows(inner, row_bytes).last_byte) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the overlap rule agrees with brute force on small shapes") {
  std::mt19937 random(20240611);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int accepted = 0, refused = 0, interlocks = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::array<StridedDim, 3> dims = {
        {{"page", draw(1, 3), draw(0, 40)}, {"token", draw(1, 4), draw(0, 16)}, {"head", draw(1, 3), draw(0, 24)}}};
    const std::int64_t row_bytes = draw(1, 4);
    const api::StrideCheck check = api::check_strides(dims, row_bytes);
    const BruteForce truth = mark_rows(dims, row_bytes);
    INFO("pages ", dims[0].size, " x ", dims[0].stride_bytes, ", tokens ", dims[1].size, " x ", dims[1].stride_bytes,
         ", heads ", dims[2].size, " x ", dims[2].stride_bytes, ", rows of ", row_bytes);
    if (check.disjoint) {
      ++accepted;
      REQUIRE(truth.disjoint);
      REQUIRE(check.span_bytes == truth.last_byte);
    } else {
      ++refused;
      REQUIRE(check.dim->stride_bytes < check.needed_bytes);
      if (truth.disjoint) {
        ++interlocks;
        REQUIRE(interlocked(dims, row_bytes));
      }
    }
  }
  // All three kinds must have been met, or the test says nothing.
  CHECK(accepted > 1000);
  CHECK(refused > 1000);
  CHECK(interlocks > 0);
}

TEST_CASE("every permutation of a padded array is accepted") {
  std::mt19937 random(7);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t row_bytes = draw(1, 8);
    std::array<StridedDim, 3> dims = {{{"page", draw(1, 4), 0}, {"token", draw(1, 5), 0}, {"head", draw(1, 4), 0}}};
    std::array<std::size_t, 3> order = {0, 1, 2};
    std::shuffle(order.begin(), order.end(), random);
    std::int64_t span = row_bytes;
    for (const std::size_t i : order) {
      dims[i].stride_bytes = span + draw(0, 3);
      span = dims[i].stride_bytes * dims[i].size;
    }
    REQUIRE(api::check_strides(dims, row_bytes).disjoint);
    REQUIRE(mark_rows(dims, row_bytes).disjoint);
  }
}

TEST_CASE("hostile strides saturate instead of wrapping") {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::array<StridedDim, 3> dims = {{{"page", kHuge, kHuge}, {"token", 2, kHuge - 1}, {"head", 1, 0}}};
  const api::StrideCheck check = api::check_strides(dims, 16);
  CHECK((!check.disjoint || check.span_bytes == kHuge));
}

namespace {

/// Strides that nest, of dimensions in any order.
std::array<StridedDim, 3> draw_nest(std::mt19937& random, std::int64_t row_bytes, int gap) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  std::array<StridedDim, 3> dims = {{{"page", draw(1, 4), 0}, {"token", draw(1, 4), 0}, {"head", draw(1, 3), 0}}};
  std::array<std::size_t, 3> order = {0, 1, 2};
  std::shuffle(order.begin(), order.end(), random);
  std::int64_t span = row_bytes;
  for (const std::size_t i : order) {
    dims[i].stride_bytes = span + draw(0, gap);
    span += (dims[i].size - 1) * dims[i].stride_bytes;
  }
  return dims;
}

/// Which bytes the rows take, from the first row's first.
std::vector<bool> bytes_of(const std::array<StridedDim, 3>& dims, std::int64_t row_bytes) {
  std::vector<bool> taken(static_cast<std::size_t>(mark_rows(dims, row_bytes).last_byte));
  for (std::int64_t a = 0; a < dims[0].size; ++a) {
    for (std::int64_t b = 0; b < dims[1].size; ++b) {
      for (std::int64_t c = 0; c < dims[2].size; ++c) {
        const std::int64_t first = a * dims[0].stride_bytes + b * dims[1].stride_bytes + c * dims[2].stride_bytes;
        for (std::int64_t byte = first; byte < first + row_bytes; ++byte) taken[static_cast<std::size_t>(byte)] = true;
      }
    }
  }
  return taken;
}

}  // namespace

TEST_CASE("whether two arrays' rows overlap agrees with brute force") {
  std::mt19937 random(20261126);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const unsigned char* const memory = reinterpret_cast<const unsigned char*>(std::uintptr_t{1} << 20);  // never read
  int apart = 0, overlap = 0, within = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::int64_t row_a = draw(1, 4), row_b = draw(1, 4);
    const std::array<StridedDim, 3> a = draw_nest(random, row_a, 8);
    std::array<StridedDim, 3> b = draw_nest(random, row_b, 8);
    if (draw(0, 1) == 0) {  // interleaved: the largest stride is shared where it still nests
      const auto largest = [](const StridedDim& x, const StridedDim& y) { return x.stride_bytes < y.stride_bytes; };
      StridedDim& dim = *std::max_element(b.begin(), b.end(), largest);
      const std::int64_t shared = std::max_element(a.begin(), a.end(), largest)->stride_bytes;
      if (shared >= dim.stride_bytes) dim.stride_bytes = shared;
    }
    const std::vector<bool> of_a = bytes_of(a, row_a), of_b = bytes_of(b, row_b);
    const std::int64_t offset = draw(-static_cast<int>(of_b.size()) - 1, static_cast<int>(of_a.size()) + 1);
    bool truth = false;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(of_b.size()); ++i) {
      const std::int64_t at = i + offset;
      if (at < 0 || at >= static_cast<std::int64_t>(of_a.size())) continue;
      truth = truth || (of_a[static_cast<std::size_t>(at)] && of_b[static_cast<std::size_t>(i)]);
    }
    const bool spans_meet = offset < static_cast<std::int64_t>(of_a.size()) && -offset < static_cast<std::int64_t>(of_b.size());
    INFO("a ", a[0].size, " x ", a[0].stride_bytes, ", ", a[1].size, " x ", a[1].stride_bytes, ", ", a[2].size, " x ", a[2].stride_bytes,
         " of ", row_a, "; b ", b[0].size, " x ", b[0].stride_bytes, ", ", b[1].size, " x ", b[1].stride_bytes, ", ", b[2].size, " x ",
         b[2].stride_bytes, " of ", row_b, " at ", offset);
    REQUIRE(api::rows_overlap({memory, a, row_a}, {memory + offset, b, row_b}) == truth);
    REQUIRE(api::rows_overlap({memory + offset, b, row_b}, {memory, a, row_a}) == truth);
    ++(truth ? overlap : spans_meet ? within : apart);
  }
  // All three kinds must have been met, or the test says nothing.
  CHECK(apart > 100);
  CHECK(overlap > 1000);
  CHECK(within > 1000);
}

TEST_CASE("whether rows overlap is decided at once, also of arrays without a stride in common") {
  const unsigned char* const memory = reinterpret_cast<const unsigned char*>(std::uintptr_t{1} << 20);  // never read
  constexpr std::int64_t kMany = std::int64_t{1} << 31;
  const std::array<StridedDim, 1> a = {{{"a", kMany, 1 << 20}}}, b = {{{"b", kMany, (1 << 20) + 2}}};
  CHECK(api::rows_overlap({memory, a, 64}, {memory + 32, b, 64}));
  // Odd bytes of one and even bytes of the other: 2^31 steps would prove that they never meet, and are not taken.
  CHECK(!api::rows_overlap({memory, a, 1}, {memory + 1, b, 1}));
}

TEST_CASE("dense strides: HND and NHD, codes and scales") {
  KvCacheDesc cache;
  cache.k.format = KvFormat::kMxfp4;
  cache.v.format = KvFormat::kNvfp4;
  cache.v.scale_axis = VScaleAxis::kTokens;
  cache.num_kv_heads = 4;
  cache.head_dim = 128;
  cache.page_size = 32;
  cache.num_pages = 10;

  set_dense_strides(cache, PageOrder::kHnd);
  CHECK(cache.k.token_stride_bytes == 64);
  CHECK(cache.k.head_stride_bytes == 64 * 32);
  CHECK(cache.k.page_stride_bytes == 64 * 32 * 4);
  CHECK(cache.k.scale_token_stride_bytes == 4);
  CHECK(cache.k.scale_head_stride_bytes == 4 * 32);
  CHECK(cache.v.scale_token_stride_bytes == 128);  // from one group of 16 tokens to the next
  CHECK(cache.v.scale_head_stride_bytes == 128 * 2);
  CHECK(cache.v.scale_page_stride_bytes == 128 * 2 * 4);

  set_dense_strides(cache, PageOrder::kNhd);
  CHECK(cache.k.head_stride_bytes == 64);
  CHECK(cache.k.token_stride_bytes == 64 * 4);
  CHECK(cache.k.page_stride_bytes == 64 * 32 * 4);
  CHECK(cache.v.scale_head_stride_bytes == 128);
  CHECK(cache.v.scale_token_stride_bytes == 128 * 4);

  CHECK(dense_data_bytes(cache, cache.k) == 10 * 64 * 32 * 4);
  CHECK(dense_scale_bytes(cache, cache.k) == 10 * 4 * 32 * 4);
  CHECK(dense_scale_bytes(cache, cache.v) == 10 * 128 * 2 * 4);
}

TEST_CASE("interleaved pages of every format and order validate and do not overlap") {
  const KvFormat formats[] = {KvFormat::kMxfp4,  KvFormat::kNvfp4, KvFormat::kE8m0PerToken,
                              KvFormat::kFp8E4m3, KvFormat::kBf16,  KvFormat::kF16, KvFormat::kMxfp8};
  for (const KvFormat k : formats) {
    for (const KvFormat v : formats) {
      for (const PageOrder order : {PageOrder::kHnd, PageOrder::kNhd}) {
        for (const std::int32_t page_size : {1, 3, 16}) {
          KvCacheDesc cache;
          cache.k.format = k;
          cache.v.format = v;
          cache.num_kv_heads = 3;
          cache.head_dim = 96;
          cache.page_size = page_size;
          cache.num_pages = 4;
          const std::int64_t page_bytes = set_interleaved_pages(cache, order, nullptr);
          CHECK(page_bytes % 16 == 0);
          test::Bytes pool(page_bytes * cache.num_pages);
          CHECK(set_interleaved_pages(cache, order, pool.data()) == page_bytes);
          const void* const k_data = cache.k.data;
          const void* const v_scales = cache.v.scales;
          CHECK(set_interleaved_pages(cache, order, nullptr) == page_bytes);  // strides alone: pointers stay
          CHECK(cache.k.data == k_data);
          CHECK(cache.v.scales == v_scales);
          INFO(name_of(k), " ", name_of(v), ": ", last_error_detail());
          CHECK(validate(cache) == Status::kOk);

          // Every byte of the pool belongs to at most one row of one of the four parts.
          std::vector<int> owners(static_cast<std::size_t>(page_bytes * cache.num_pages), 0);
          for (const KvTensorDesc* tensor : {&cache.k, &cache.v}) {
            for (std::int64_t p = 0; p < cache.num_pages; ++p) {
              for (std::int64_t t = 0; t < page_size; ++t) {
                for (std::int64_t h = 0; h < 3; ++h) {
                  const auto mark = [&](const void* base, std::int64_t at, std::int64_t bytes) {
                    const std::int64_t first = static_cast<const std::uint8_t*>(base) - pool.data() + at;
                    for (std::int64_t i = first; i < first + bytes; ++i) ++owners.at(static_cast<std::size_t>(i));
                  };
                  mark(tensor->data,
                       p * tensor->page_stride_bytes + t * tensor->token_stride_bytes + h * tensor->head_stride_bytes,
                       kv_data_bytes(tensor->format, 96));
                  if (tensor->scales == nullptr) continue;
                  mark(tensor->scales,
                       p * tensor->scale_page_stride_bytes + t * tensor->scale_token_stride_bytes +
                           h * tensor->scale_head_stride_bytes,
                       kv_scale_bytes(tensor->format, tensor->scale_axis, 96));
                }
              }
            }
          }
          CHECK(*std::max_element(owners.begin(), owners.end()) == 1);
        }
      }
    }
  }
}

TEST_CASE("interleaved pages of sizes that no cache has, or at a base that data cannot have: 0 bytes, and nothing set") {
  test::SmallCache good;
  const KvCacheDesc& desc = good.desc;
  REQUIRE(desc.k.page_stride_bytes == 2048);
  for (int wrong = 0; wrong < 3; ++wrong) {
    KvCacheDesc cache = desc;
    if (wrong == 0) cache.head_dim = 33;
    if (wrong == 1) cache.num_pages = -1;
    CHECK(set_interleaved_pages(cache, PageOrder::kHnd, good.k_data.data() + (wrong == 2 ? 4 : 0)) == 0);
    CHECK(cache.k.page_stride_bytes == 2048);
    CHECK(cache.k.data == desc.k.data);
    if (wrong == 2) continue;
    CHECK(dense_data_bytes(cache, cache.k) == 0);
    CHECK(dense_scale_bytes(cache, cache.v) == 0);
  }
}

TEST_CASE("sizes of a row") {
  CHECK(kv_data_bytes(KvFormat::kMxfp4, 128) == 64);
  CHECK(kv_data_bytes(KvFormat::kFp8E4m3, 128) == 128);
  CHECK(kv_data_bytes(KvFormat::kBf16, 128) == 256);
  CHECK(kv_data_bytes(static_cast<KvFormat>(77), 128) == 0);
  CHECK(kv_data_bytes(KvFormat::kMxfp8, 128) == 128);
  CHECK(kv_scale_bytes(KvFormat::kMxfp4, VScaleAxis::kHeadDim, 128) == 4);
  CHECK(kv_scale_bytes(KvFormat::kMxfp8, VScaleAxis::kHeadDim, 128) == 4);
  CHECK(kv_scale_bytes(KvFormat::kNvfp4, VScaleAxis::kHeadDim, 128) == 8);
  CHECK(kv_scale_bytes(KvFormat::kMxfp4, VScaleAxis::kTokens, 128) == 128);
  CHECK(kv_scale_bytes(KvFormat::kE8m0PerToken, VScaleAxis::kHeadDim, 128) == 1);
  CHECK(kv_scale_bytes(KvFormat::kBf16, VScaleAxis::kHeadDim, 128) == 0);
  CHECK(kv_token_group(KvFormat::kMxfp4, VScaleAxis::kTokens) == 32);
  CHECK(kv_token_group(KvFormat::kNvfp4, VScaleAxis::kTokens) == 16);
  CHECK(kv_token_group(KvFormat::kMxfp4, VScaleAxis::kHeadDim) == 1);
}
