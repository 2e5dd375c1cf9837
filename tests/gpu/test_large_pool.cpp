// append, gather and copy_pages at the far end of a pool past 4 GiB, which no mirror carries: it is allocated on the device alone,
// and what the CPU is given is a small pool of the pages that are touched. Those are equal byte for byte. An offset formed in 32
// bits, or a page id in 16, would lead to another page of the same pool: those pages still hold what they held.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "tests/cache/pool.hpp"
#include "tests/gpu/mirror.hpp"

namespace {

using namespace fp4pa;
using gpu_test::must;

constexpr std::int64_t kPages = 600000;  // 8 KiB of codes a page: 4.6 GiB for K and as much for V
constexpr std::int64_t kPageBytes = 8192;
constexpr std::int64_t kBehindWrap = 3 + (std::int64_t{1} << 32) / kPageBytes;  // 2^32 bytes past page 3

/// Pages of the large pool that a call names. The CPU's pool has them as pages 0, 1, ...
constexpr std::int64_t kTouched[] = {70000, kPages - 1, kBehindWrap, 65536 + 7, kPages - 2};
constexpr std::int64_t kAppended = 3;  // of these, in this order; the others are copied to

test::Shape shape_of(KvFormat format, VScaleAxis axis) {
  test::Shape shape;
  shape.k_format = shape.v_format = format;
  shape.axis = axis;
  shape.head_dim = 128;
  shape.page_size = 64;
  shape.num_pages = static_cast<int>(std::size(kTouched));
  return shape;
}

/// One array of a cache by its pages, on the device.
struct DeviceArray {
  std::uint8_t* data = nullptr;
  std::int64_t page_bytes = 0;

  [[nodiscard]] std::vector<std::uint8_t> page(std::int64_t id) const {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(page_bytes));
    must(RUNTIME(Memcpy)(bytes.data(), data + id * page_bytes, bytes.size(), RUNTIME(MemcpyDeviceToHost)), "a page");
    return bytes;
  }
};

/// The large pool: four poisoned arrays. `fits` is false where the device has no room.
class LargePool {
 public:
  explicit LargePool(const KvCacheDesc& small) : cache(small) {
    cache.num_pages = kPages;
    place(cache.k.data, cache.k.page_stride_bytes, 0);
    place(cache.k.scales, cache.k.scale_page_stride_bytes, 1);
    place(cache.v.data, cache.v.page_stride_bytes, 2);
    place(cache.v.scales, cache.v.scale_page_stride_bytes, 3);
  }
  ~LargePool() {
    for (const DeviceArray& a : arrays) static_cast<void>(RUNTIME(Free)(a.data));
  }
  LargePool(const LargePool&) = delete;
  LargePool& operator=(const LargePool&) = delete;

  KvCacheDesc cache;
  std::array<DeviceArray, 4> arrays;
  bool fits = true;

 private:
  void place(void*& pointer, std::int64_t page_bytes, std::size_t i) {
    arrays[i].page_bytes = page_bytes;
    const auto bytes = static_cast<std::size_t>(kPages * page_bytes);
    void* memory = nullptr;
    if (!fits || RUNTIME(Malloc)(&memory, bytes) != RUNTIME(Success)) {
      static_cast<void>(RUNTIME(GetLastError)());
      fits = false;
      return;
    }
    must(RUNTIME(Memset)(memory, test::kPoison, bytes), "poisoning a large pool");
    pointer = arrays[i].data = static_cast<std::uint8_t*>(memory);
  }
};

/// Of the CPU's pool, in the order of LargePool's arrays.
std::vector<std::uint8_t> small_page(const test::Pool& pool, std::size_t array, int page) {
  const KvTensorDesc& t = array < 2 ? pool.cache.k : pool.cache.v;
  const bool scales = array % 2 != 0;
  const auto* const data = static_cast<const std::uint8_t*>(scales ? t.scales : t.data);
  const std::int64_t stride = scales ? t.scale_page_stride_bytes : t.page_stride_bytes;
  return {data + page * stride, data + (page + 1) * stride};
}

/// Pages that a wrapped id or offset of a touched page would lead to, none of them touched.
std::vector<std::int64_t> wrapped_pages() {
  std::vector<std::int64_t> pages;
  for (const std::int64_t page : kTouched) {
    for (const std::int64_t other : {page % 65536, page % 32768, page * kPageBytes % (std::int64_t{1} << 32) / kPageBytes,
                                     page * kPageBytes % (std::int64_t{1} << 31) / kPageBytes}) {
      if (std::find(std::begin(kTouched), std::end(kTouched), other) == std::end(kTouched)) pages.push_back(other);
    }
  }
  return pages;
}

/// The tokens of the appended pages, and slots for them in a pool that has page i of kTouched as `page_of(i)`.
template <class PageOf>
std::vector<std::int64_t> slots_of(const PageOf& page_of) {
  std::vector<std::int64_t> slots;
  for (std::int64_t i = 0; i < kAppended; ++i) {
    for (std::int64_t row = 0; row < 64; ++row) slots.push_back(page_of(i) * 64 + row);
  }
  return slots;
}

/// Memory of a call other than the pool, mirrored: announced whole, and at its place on the device afterwards.
template <class T>
void announce(gpu_test::Mirror& mirror, const std::vector<T>& x) {
  mirror.add(x.data(), static_cast<std::int64_t>(x.size() * sizeof(T)));
}

void check(KvFormat format, VScaleAxis axis) {
  const test::Shape shape = shape_of(format, axis);
  test::Pool small(shape);
  REQUIRE(small.cache.k.page_stride_bytes == kPageBytes);
  REQUIRE(kPages * kPageBytes > std::int64_t{1} << 32);
  const LargePool large(small.cache);
  if (!large.fits) {
    MESSAGE("not run: the device has no room for such a pool");
    return;
  }

  // The same calls on both: new tokens, then two of their pages copied to the other two, then all of that read back.
  constexpr std::int64_t kTokens = kAppended * 64;
  constexpr std::int64_t kRow = 2 * 128;
  test::Random random(21);
  std::vector<float> k(kTokens * kRow), v(kTokens * kRow);
  for (std::vector<float>* x : {&k, &v}) {
    for (float& value : *x) value = random.value();
  }
  std::vector<std::int32_t> src[2] = {{1, 0}, {}}, dst[2] = {{3, 4}, {}};
  for (const std::int32_t i : src[0]) src[1].push_back(static_cast<std::int32_t>(kTouched[i]));
  for (const std::int32_t i : dst[0]) dst[1].push_back(static_cast<std::int32_t>(kTouched[i]));
  std::vector<float> k_out[2], v_out[2];
  const auto calls = [&](const api::Backend& backend, const KvCacheDesc& cache, int which, const std::vector<std::int64_t>& slots,
                         auto&& at) {
    k_out[which].assign(kTokens * kRow, -1.0f);
    v_out[which].assign(kTokens * kRow, -1.0f);
    const ExecDesc exec{};
    const api::SlotList list{at(slots), IndexType::kInt64, kTokens};
    REQUIRE(backend.append(cache, {at(k), DType::kF32, kRow, 128}, {at(v), DType::kF32, kRow, 128}, list, exec) == Status::kOk);
    REQUIRE(backend.copy_pages(cache, at(src[which]), at(dst[which]), 2, exec) == Status::kOk);
    REQUIRE(backend.gather(cache, list, {at(k_out[which]), DType::kF32, kRow, 128}, {at(v_out[which]), DType::kF32, kRow, 128},
                           exec) == Status::kOk);
  };
  calls(api::kCpuBackend, small.cache, 0, slots_of([](std::int64_t i) { return i; }), [](auto& x) { return x.data(); });

  const std::vector<std::int64_t> far = slots_of([](std::int64_t i) { return kTouched[i]; });
  k_out[1].resize(kTokens * kRow);
  v_out[1].resize(kTokens * kRow);
  gpu_test::Mirror mirror;
  announce(mirror, far);
  for (const std::vector<std::int32_t>* ids : {&src[1], &dst[1]}) announce(mirror, *ids);
  for (const std::vector<float>* x : {&k, &v, &k_out[1], &v_out[1]}) announce(mirror, *x);
  calls(gpu_test::kBackend, large.cache, 1, far, [&](auto& x) { return mirror.device(x.data()); });
  mirror.bring_home();

  CHECK(k_out[1] == k_out[0]);
  CHECK(v_out[1] == v_out[0]);
  for (std::size_t a = 0; a < large.arrays.size(); ++a) {
    CAPTURE(a);
    const std::vector<std::uint8_t> untouched(static_cast<std::size_t>(large.arrays[a].page_bytes), test::kPoison);
    for (std::size_t i = 0; i < std::size(kTouched); ++i) {
      CAPTURE(kTouched[i]);
      const std::vector<std::uint8_t> page = large.arrays[a].page(kTouched[i]);
      CHECK(page == small_page(small, a, static_cast<int>(i)));
      CHECK(page != untouched);
    }
    for (const std::int64_t page : wrapped_pages()) {
      CAPTURE(page);
      CHECK(large.arrays[a].page(page) == untouched);
    }
  }
}

}  // namespace

TEST_CASE("a cache past 4 GiB: append, copy_pages and gather at its far end give the CPU's bytes") {
  check(KvFormat::kMxfp4, VScaleAxis::kHeadDim);
  check(KvFormat::kMxfp4, VScaleAxis::kTokens);
  check(KvFormat::kNvfp4, VScaleAxis::kTokens);
}

TEST_CASE("copy_pages: more copies than a launch has blocks") {
  test::Shape shape;
  shape.heads = 1;
  shape.head_dim = 32;
  shape.page_size = 1;
  shape.num_pages = 2 * 65536 + 20;
  const auto filled = [&] {
    auto pool = std::make_unique<test::Pool>(shape);
    test::Random random(3);
    for (std::size_t i = 0; i < pool->bytes(); ++i) pool->base()[i] = static_cast<std::uint8_t>(random.bits());
    return pool;
  };
  std::vector<std::int32_t> src, dst;
  for (std::int32_t i = 0; i < shape.num_pages / 2; ++i) {
    src.push_back(2 * i);
    dst.push_back(shape.num_pages - 1 - 2 * i);
  }
  const auto copies = static_cast<std::int64_t>(src.size());
  REQUIRE(copies > 65536);
  const auto expected = filled();
  const auto pool = filled();
  REQUIRE(api::kCpuBackend.copy_pages(expected->cache, src.data(), dst.data(), copies, {}) == Status::kOk);
  REQUIRE(api::kMirroredBackend.copy_pages(pool->cache, src.data(), dst.data(), copies, {}) == Status::kOk);
  CHECK(pool->snapshot() == expected->snapshot());
  CHECK(pool->snapshot() != filled()->snapshot());
}
