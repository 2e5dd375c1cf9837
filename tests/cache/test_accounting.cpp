// The pure functions of the two-tier cache against a simulation that moves one token at a time.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "core/paging/page_table.hpp"
#include "core/paging/slot.hpp"
#include "core/paging/two_tier.hpp"
#include "fp4pa/cache.hpp"

using namespace fp4pa;

TEST_CASE("quantised_tokens, old pages and the ring follow a token-by-token simulation") {
  for (const int window : {16, 17, 33, 64, 255, 256}) {
    for (const int group : {16, 32, 48, 64, 128}) {
      for (const int page_size : {1, 3, 16, 64, 1024}) {
        int quantised = 0;
        int most_recent = 0;
        std::set<int> pages;
        for (int length = 0; length <= 3 * window + 4 * group; ++length) {
          // The append that makes the sequence `length` long: a group leaves once a whole window stays behind it.
          if (length - quantised == window + group) {
            for (int t = quantised; t < quantised + group; ++t) pages.insert(t / page_size);
            quantised += group;
          }
          most_recent = std::max(most_recent, length - quantised);
          REQUIRE(quantised_tokens(length, window, group) == quantised);
          REQUIRE(core::old_pages(length, window, group, page_size) == static_cast<int>(pages.size()));
          TwoTierDesc desc;
          desc.window_tokens = window;
          desc.group_tokens = group;
          desc.old_tier.page_size = page_size;
          REQUIRE(old_tier_pages(desc, length) == static_cast<int>(pages.size()));
        }
        // A ring of min_ring_pages holds the most that is ever live, together with the token whose arrival moves a
        // group out; with a page less it does not.
        const int ring = min_ring_pages(window, group, page_size);
        CHECK(ring * page_size >= most_recent + 1);
        CHECK((ring - 1) * page_size < most_recent + 1);
      }
    }
  }
}

TEST_CASE("two_tier_step: chunks end where single tokens end") {
  for (const int window : {16, 50}) {
    for (const int group : {16, 32}) {
      for (int before = 0; before < 150; ++before) {
        for (int n = 0; n < 150; ++n) {
          const int ring = window + group + (before + n) % 40;
          const core::TwoTierStep step = core::two_tier_step(before, n, window, group, ring);
          int quantised = quantised_tokens(before, window, group);
          REQUIRE(step.quantised_before == quantised);
          for (int i = 1; i <= n; ++i) {
            while (before + i - quantised >= window + group) quantised += group;
          }
          REQUIRE(step.quantised_after == quantised);
          REQUIRE(step.length_after == before + n);
          REQUIRE(step.first_kept == std::max(before + n - ring, before));
          REQUIRE(step.first_kept <= std::max(quantised, before));
        }
      }
    }
  }
}

TEST_CASE("min_ring_pages: what a roll-back needs, and not a page more") {
  for (const int window : {16, 64, 100}) {
    for (const int group : {16, 32, 96}) {
      for (const int page_size : {1, 7, 16, 64}) {
        CHECK(min_ring_pages(window, group, page_size, 1) == min_ring_pages(window, group, page_size));
        for (const int rollback : {0, 1, 2, 5, 63, 64}) {
          const int ring = min_ring_pages(window, group, page_size, rollback);
          // The shorter sequence's first token outside of the old tier, for every length that it was shortened from.
          int needed = 0;
          for (int length = rollback; length < 3 * (window + group); ++length) {
            needed = std::max(needed, length - quantised_tokens(length - rollback, window, group));
          }
          CHECK(ring * page_size >= needed);
          if (rollback > 0) CHECK((ring - 1) * page_size < needed);
        }
      }
    }
  }
  CHECK(min_ring_pages(64, 32, 16, -1) == 0);
  CHECK(min_ring_pages(64, 32, 1, INT32_MAX) == INT32_MAX);
  CHECK(core::ring_tokens(INT32_MAX, 1024) == INT32_MAX);
}

TEST_CASE("PageCut covers every token once, and no piece passes its page") {
  for (const int page_size : {1, 3, 16, 24, 64, 80}) {
    for (const int group : {1, 16, 32}) {
      const core::PageCut cut{page_size, group};
      int next = 0;
      for (std::int64_t piece = 0; piece < 40; ++piece) {
        REQUIRE(cut.first_token(piece) == next);
        REQUIRE(cut.piece_of(next) == piece);
        REQUIRE(cut.tokens(piece) >= 1);
        REQUIRE(cut.tokens(piece) <= group);
        const int last = next + cut.tokens(piece) - 1;
        REQUIRE(last / page_size == next / page_size);
        REQUIRE((cut.tokens(piece) == group || (last + 1) % page_size == 0));
        next = last + 1;
      }
    }
  }
}

TEST_CASE("PageTable: block table, CSR and ring") {
  const std::int32_t pages[] = {10, 11, 12, 20, 21, 22};
  const core::PageTable table{pages, 3, nullptr, 0};
  CHECK(table.page(1, 2) == 22);
  CHECK(table.capacity(1) == 3);
  const std::int32_t indptr[] = {0, 1, 1, 6};
  const core::PageTable csr{pages, 0, indptr, 0};
  CHECK(csr.page(0, 0) == 10);
  CHECK(csr.page(2, 4) == 22);
  CHECK(csr.capacity(1) == 0);
  CHECK(csr.capacity(2) == 5);
  const core::PageTable ring{pages, 3, nullptr, 3};
  CHECK(ring.page(1, 0) == 20);
  CHECK(ring.page(1, 3) == 20);
  CHECK(ring.page(1, 3000001) == 21);
  CHECK(ring.capacity(1) == 3);
}

TEST_CASE("slots: place and width") {
  const std::int64_t wide[] = {std::int64_t{1} << 40, -1};
  const std::int32_t narrow[] = {2147483647, -2147483647};
  const core::SlotView wide_view{wide, IndexType::kInt64};
  const core::SlotView narrow_view{narrow, IndexType::kInt32};
  CHECK(wide_view[0] == std::int64_t{1} << 40);
  CHECK(wide_view[1] == -1);
  CHECK(narrow_view[0] == 2147483647);
  CHECK(narrow_view[1] == -2147483647);
  const core::SlotPlace place = core::place_of((std::int64_t{1} << 40) + 5, 48);
  CHECK(place.page == ((std::int64_t{1} << 40) + 5) / 48);
  CHECK(place.row == ((std::int64_t{1} << 40) + 5) % 48);
}
