// Pools past 4 GiB, page ids past 65535: address space is reserved and only the touched pages become memory.
//
// An offset formed in 32 bits lands in another page of the same reservation, so the checks are two: the row that was
// written reads back, and the places where a wrapped offset would have landed still hold what they held.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>

#if defined(__unix__)
#include <sys/mman.h>
#endif

#include "tests/cache/expect.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

#if defined(__unix__)
namespace {

// Zeroed address space that costs memory only where it is touched.
class Reservation {
 public:
  explicit Reservation(std::size_t bytes) : bytes_(bytes) {
    base_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Reservation() {
    if (valid()) munmap(base_, bytes_);
  }
  Reservation(const Reservation&) = delete;
  [[nodiscard]] bool valid() const { return base_ != MAP_FAILED; }
  [[nodiscard]] std::uint8_t* base() const { return static_cast<std::uint8_t*>(base_); }

 private:
  void* base_;
  std::size_t bytes_;
};

constexpr int kHeads = 2;
constexpr int kHeadDim = 128;
constexpr int kPageSize = 64;
constexpr std::int64_t kPages = 600000;  // 8 KiB of codes a page: 4.6 GiB for K and as much for V

KvTensorDesc tensor(std::uint8_t* data, std::uint8_t* scales) {
  KvTensorDesc t;
  t.format = KvFormat::kMxfp4;
  t.data = data;
  t.page_stride_bytes = kHeads * kPageSize * kHeadDim / 2;
  t.head_stride_bytes = kPageSize * kHeadDim / 2;
  t.token_stride_bytes = kHeadDim / 2;
  t.scales = scales;
  t.scale_page_stride_bytes = kHeads * kPageSize * kHeadDim / 32;
  t.scale_head_stride_bytes = kPageSize * kHeadDim / 32;
  t.scale_token_stride_bytes = kHeadDim / 32;
  return t;
}

}  // namespace

TEST_CASE("a pool past 4 GiB with page ids past 65535") {
  const std::int64_t code_bytes = kPages * kHeads * kPageSize * kHeadDim / 2;
  const std::int64_t scale_bytes = code_bytes / 16;
  REQUIRE(code_bytes > std::int64_t{1} << 32);
  const Reservation memory(static_cast<std::size_t>(2 * (code_bytes + scale_bytes)));
  if (!memory.valid()) {
    MESSAGE("this machine does not reserve " << 2 * (code_bytes + scale_bytes) << " bytes of address space; skipped");
    return;
  }
  std::uint8_t* const base = memory.base();
  KvCacheDesc cache;
  cache.num_kv_heads = kHeads;
  cache.head_dim = kHeadDim;
  cache.page_size = kPageSize;
  cache.num_pages = kPages;
  cache.k = tensor(base, base + code_bytes);
  cache.v = tensor(base + code_bytes + scale_bytes, base + 2 * code_bytes + scale_bytes);

  test::Random random(21);
  const std::vector<std::int64_t> slots = {70000 * std::int64_t{kPageSize} + 5, (kPages - 1) * kPageSize + 63,
                                           // 2^32 bytes past page 3's row 1: the same offset, once wrapped.
                                           (3 + (std::int64_t{1} << 32) / cache.k.page_stride_bytes) * kPageSize + 1};
  const auto tokens = static_cast<std::int64_t>(slots.size());
  const test::Rows k(DType::kBF16, tokens, kHeads, kHeadDim, random);
  const test::Rows v(DType::kBF16, tokens, kHeads, kHeadDim, random);
  const std::size_t row = kHeads * kHeadDim;
  for (const test::Target& target : test::kTargets) {
    const api::SlotList list{slots.data(), IndexType::kInt64, tokens};
    REQUIRE(target.append(cache, k.input(), v.input(), list, {}) == Status::kOk);
    std::vector<float> k_out(slots.size() * row);
    std::vector<float> v_out(slots.size() * row);
    REQUIRE(target.gather(cache, list, {k_out.data(), DType::kF32, kHeads * kHeadDim, kHeadDim},
                          {v_out.data(), DType::kF32, kHeads * kHeadDim, kHeadDim}, {}) == Status::kOk);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      for (int head = 0; head < kHeads; ++head) {
        for (std::size_t g = 0; g < kHeadDim / 32; ++g) {
          const auto wanted = [&](const test::Rows& rows) {
            const std::vector<float> x = rows.row(static_cast<std::int64_t>(i), head);
            const auto first = x.begin() + static_cast<std::ptrdiff_t>(g * 32);
            return oracle::mx({first, first + 32}, oracle::kE2m1, ScaleMode::kFloor).values;
          };
          const std::vector<double> k_want = wanted(k);
          const std::vector<double> v_want = wanted(v);
          for (std::size_t e = 0; e < 32; ++e) {
            const std::size_t at = i * row + static_cast<std::size_t>(head) * kHeadDim + g * 32 + e;
            CHECK(k_out[at] == k_want[e]);
            CHECK(v_out[at] == v_want[e]);
          }
        }
      }
    }
  }

  // A copy across the 4 GiB line, and where a wrapped offset would have written.
  const std::int32_t src[] = {static_cast<std::int32_t>(kPages - 1)};
  const std::int32_t dst[] = {65536 + 7};
  REQUIRE(cpu::copy_pages(cache, src, dst, 1, {}) == Status::kOk);
  CHECK(std::memcmp(base + src[0] * cache.k.page_stride_bytes, base + dst[0] * cache.k.page_stride_bytes,
                    static_cast<std::size_t>(cache.k.page_stride_bytes)) == 0);
  const auto is_zero = [&](std::int64_t page) {
    for (std::int64_t i = 0; i < cache.k.page_stride_bytes; ++i) {
      if (base[page * cache.k.page_stride_bytes + i] != 0) return false;
    }
    return true;
  };
  CHECK(is_zero(3));  // offsets modulo 2^32
  CHECK(is_zero(7));  // page ids modulo 2^16
  CHECK(is_zero(70000 - 65536));
  CHECK_FALSE(is_zero(kPages - 1));
  CHECK_FALSE(is_zero(70000));
}
#endif
