// The tables of a dense call, against their definition, and whatever an indptr holds.
#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "core/dense/lengths.hpp"
#include "tests/cache/random.hpp"

using fp4pa::core::dense_pages;
using fp4pa::core::DenseLengths;
using fp4pa::core::DenseTables;

namespace {

struct Tables {
  Tables(const DenseLengths& lengths, std::int32_t page_size)
      : num_pages(dense_pages(lengths.kv_tokens, lengths.batch, page_size)),
        qo(static_cast<std::size_t>(lengths.batch + 1), -77),
        lens(static_cast<std::size_t>(lengths.batch), -77),
        kv(static_cast<std::size_t>(lengths.batch + 1), -77),
        pages(static_cast<std::size_t>(num_pages), -77),
        slots(static_cast<std::size_t>(lengths.kv_tokens), -77) {
    const DenseTables t{qo.data(), lens.data(), kv.data(), pages.data(), slots.data(), page_size, num_pages};
    // Entries do not depend on each other: from the last to the first.
    for (std::int64_t i = t.entries(lengths) - 1; i >= 0; --i) fp4pa::core::fill_tables(lengths, t, i);
  }
  std::int64_t num_pages;
  std::vector<std::int32_t> qo, lens, kv, pages;
  std::vector<std::int64_t> slots;
};

}  // namespace

TEST_CASE("dense tables: every sequence has its tokens in pages of its own") {
  test::Random random(4);
  for (int round = 0; round < 300; ++round) {
    const std::int32_t batch = 1 + random.below(6);
    const std::int32_t page_size = round % 2 == 0 ? 64 : 1;
    std::vector<std::int32_t> q{0}, kv{0};
    for (std::int32_t b = 0; b < batch; ++b) {
      q.push_back(q.back() + random.below(4));
      kv.push_back(kv.back() + (random.below(3) == 0 ? 64 * random.below(3) : random.below(200)));
    }
    const Tables t({q.data(), kv.data(), batch, q.back(), kv.back(), kv.back()}, page_size);
    CHECK(t.qo == q);
    std::set<std::int64_t> taken;
    std::int64_t wrong = 0;
    for (std::int32_t b = 0; b < batch; ++b) {
      const auto at = static_cast<std::size_t>(b);
      wrong += t.lens[at] != kv[at + 1] - kv[at];
      wrong += (t.lens[at] + page_size - 1) / page_size > t.kv[at + 1] - t.kv[at];  // what a CSR table must hold
      for (std::int32_t i = 0; i < t.lens[at]; ++i) {
        // What the attention will read is where append was told to write.
        const std::int64_t page = t.pages[static_cast<std::size_t>(t.kv[at] + i / page_size)];
        const std::int64_t slot = page * page_size + i % page_size;
        wrong += t.slots[static_cast<std::size_t>(kv[at] + i)] != slot;
        wrong += page >= t.num_pages || !taken.insert(slot).second;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("dense tables: equal lengths need no indptr") {
  const Tables t({nullptr, nullptr, 3, 6, 210, 70}, 64);
  CHECK(t.qo == std::vector<std::int32_t>{0, 2, 4, 6});
  CHECK(t.lens == std::vector<std::int32_t>{70, 70, 70});
  CHECK(t.kv == std::vector<std::int32_t>{0, 2, 4, 6});
  CHECK(t.slots[70] == 128);
  CHECK(t.slots[209] == 4 * 64 + 69);
}

TEST_CASE("dense tables: no indptr leads out of the pages") {
  test::Random random(5);
  for (int round = 0; round < 500; ++round) {
    const std::int32_t batch = 1 + random.below(5);
    std::vector<std::int32_t> q, kv;
    for (std::int32_t b = 0; b <= batch; ++b) {
      q.push_back(static_cast<std::int32_t>(random.bits()));
      kv.push_back(random.below(2) == 0 ? random.below(400) : static_cast<std::int32_t>(random.bits()));
    }
    const std::int32_t page_size = round % 2 == 0 ? 64 : 1;
    const Tables t({q.data(), kv.data(), batch, 9, 300, 300}, page_size);
    std::int64_t wrong = 0;
    for (const std::int64_t slot : t.slots) wrong += slot < -1 || slot >= t.num_pages * page_size;
    for (std::int32_t b = 0; b < batch; ++b) {
      const auto at = static_cast<std::size_t>(b);
      wrong += t.qo[at] < 0 || t.qo[at] > 9 || t.lens[at] < 0;
      wrong += t.kv[at] < 0 || t.kv[at] + (t.lens[at] + page_size - 1) / page_size > t.num_pages;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("dense tables: a sequence longer than the plan's counts as one without keys, and leaves the others theirs") {
  const std::vector<std::int32_t> q{0, 1, 2, 3}, kv{0, 100, 301, 400};
  const Tables t({q.data(), kv.data(), 3, 3, 400, 200}, 64);
  CHECK(t.lens == std::vector<std::int32_t>{100, 0, 99});
}
