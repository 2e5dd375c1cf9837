// Pools past 4 GiB and page ids past 65535: address space is reserved, only the touched pages become memory. An offset
// formed in 32 bits, or a page id in 16, would read zeros from another page of the same reservation.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#if defined(__unix__)
#include <sys/mman.h>

#include "tests/attention/scene.hpp"

using namespace fp4pa;
using scene::Scene;
using scene::Spec;

namespace {

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
  [[nodiscard]] std::uint8_t* data() const { return static_cast<std::uint8_t*>(base_); }

 private:
  std::size_t bytes_;
  void* base_;
};

/// Moves a scene's old tier into a pool of `num_pages`, page p to `place(p)`, and changes the tables to match.
template <class Place>
void move_pages(Scene& s, std::int64_t num_pages, const Reservation& memory, Place&& place) {
  const KvCacheDesc from = s.config.cache;
  KvCacheDesc to = from;
  to.num_pages = num_pages;
  set_dense_strides(to, PageOrder::kHnd);
  std::uint8_t* next = memory.data();
  to.k.data = next;
  to.k.scales = next += dense_data_bytes(to, to.k);
  to.v.data = next += (dense_scale_bytes(to, to.k) + 255) / 256 * 256;
  to.v.scales = next += dense_data_bytes(to, to.v);
  const auto copy = [&](const KvTensorDesc& a, const KvTensorDesc& b, std::int64_t p) {
    std::memcpy(static_cast<std::uint8_t*>(b.data) + place(p) * b.page_stride_bytes,
                static_cast<const std::uint8_t*>(a.data) + p * a.page_stride_bytes,
                static_cast<std::size_t>(a.page_stride_bytes));
    std::memcpy(static_cast<std::uint8_t*>(b.scales) + place(p) * b.scale_page_stride_bytes,
                static_cast<const std::uint8_t*>(a.scales) + p * a.scale_page_stride_bytes,
                static_cast<std::size_t>(a.scale_page_stride_bytes));
  };
  for (std::int64_t p = 0; p < from.num_pages; ++p) {
    copy(from.k, to.k, p);
    copy(from.v, to.v, p);
  }
  for (std::vector<std::int32_t>* table : {&s.block_table, &s.kv_indices}) {
    for (std::int32_t& id : *table) id = id >= 0 ? static_cast<std::int32_t>(place(id)) : id;
  }
  s.config.cache = to;
}

}  // namespace

TEST_CASE("a pool past 4 GiB with page ids past 65535 gives the bits of a small one") {
  Spec spec;
  spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.sequences = {{1, 90, 0}, {2, 33, 1}};
  Scene s(spec);
  REQUIRE(s.run() == Status::kOk);
  const std::vector<std::uint8_t> first = s.bits_of(0), second = s.bits_of(1);

  constexpr std::int64_t kPages = 700000;  // 8 KiB of codes a page, 5.3 GiB of K and as much of V
  Reservation memory(std::size_t{13} << 30);
  if (!memory.valid()) {
    MESSAGE("no address space for 13 GiB: not tested");
    return;
  }
  // The last page, one past 4 GiB in K, ids whose low 16 bits are small, and small ones.
  move_pages(s, kPages, memory, [&](std::int64_t p) { return p % 2 == 0 ? kPages - 1 - p : 65536 + p; });
  CHECK((kPages - 1) * s.config.cache.k.page_stride_bytes > std::int64_t{1} << 32);
  s.reset_outputs();
  REQUIRE(s.run() == Status::kOk);
  CHECK(s.bits_of(0) == first);
  CHECK(s.bits_of(1) == second);
  // One past the end is refused, the last one was not.
  for (std::int32_t& id : s.block_table) id = id == kPages - 1 ? static_cast<std::int32_t>(kPages) : id;
  bool used = false;
  for (const std::int32_t id : s.block_table) used = used || id == kPages;
  if (!used) s.block_table[0] = static_cast<std::int32_t>(kPages);
  s.reset_outputs();
  CHECK_REFUSED(s.run(), Status::kBlockIdOutOfRange, "700000", "0 to 699999");
  CHECK(s.outputs_untouched());
}
#endif
