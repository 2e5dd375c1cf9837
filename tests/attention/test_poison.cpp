// What a call must not look at, and what it must not hide: freed pages, bytes that belong to no token, NaN where a
// scale or a key may hold one. Run for every instruction set (tests.cmake).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/attention/checks.hpp"

using namespace fp4pa;
using scene::check_close;
using scene::row_is_nan;
using scene::Scene;
using scene::Spec;

TEST_SUITE_BEGIN("paths");

TEST_CASE("pages before a sliding window may be gone: neither their ids nor what they hold matters") {
  for (const TableKind table : {TableKind::kBlockTable, TableKind::kCsr}) {
    for (const std::int32_t window : {16, 27}) {
      Spec spec;
      spec.table = table;
      spec.sequences = {{2, 300, 0}, {1, 5, 1}};
      Scene s(spec);
      s.config.sliding_window = window;
      check_close(s);
      REQUIRE(s.run() == Status::kOk);
      const std::vector<std::uint8_t> before = s.bits_of(0);
      // Queries at 298 and 299: the first key is 283 or 272, in or at the beginning of page 17, in the middle of the tile that
      // begins at 256. What is read before it would be masked in K, and in V it would be NaN times zero.
      for (std::int32_t t = 0; t < 272; ++t) {
        for (std::int32_t h = 0; h < 2; ++h) {
          for (const bool value : {false, true}) std::memset(s.scales(value, 0, t, h), 0xFF, 2);
        }
      }
      s.reset_outputs();
      REQUIRE(s.run() == Status::kOk);
      CHECK(s.bits_of(0) == before);
      auto& ids = table == TableKind::kCsr ? s.kv_indices : s.block_table;
      for (std::size_t p = 0; p < 17; ++p) ids[p] = -1;
      s.reset_outputs();
      REQUIRE(s.run() == Status::kOk);
      CHECK(s.bits_of(0) == before);
      // One more would be followed.
      ids[17] = -1;
      s.reset_outputs();
      CHECK_REFUSED(s.run(), Status::kBlockIdOutOfRange, "page -1", "position 17");
      CHECK(s.outputs_untouched());
    }
  }
}

TEST_CASE("a table that no sequence has a page in may be empty, or null") {
  Spec spec;
  spec.window = 64;
  spec.group_tokens = 32;
  spec.sequences = {{1, 40, 0}, {0, 200, 1}, {2, 0, 2}};  // all in its recent tier, asked for nothing, and without a key
  Scene s(spec);
  check_close(s);
  REQUIRE(s.run() == Status::kOk);
  const std::vector<std::uint8_t> before = s.bits_of(0);
  for (const std::int32_t* table : {s.block_table.data(), static_cast<std::int32_t*>(nullptr)}) {
    s.args.block_table = table;
    s.args.table_stride = 0;
    s.reset_outputs();
    INFO(std::string(last_error_detail()));
    REQUIRE(s.run() == Status::kOk);
    CHECK(s.bits_of(0) == before);
  }
  s.seq_lens[0] = 200;
  CHECK_REFUSED(s.run(), Status::kNullPointer, "block_table");
  s.args.block_table = s.block_table.data();
  CHECK_REFUSED(s.run(), Status::kInvalidSize, "table_stride is 0");
}

TEST_CASE("pages before a sliding window may be gone from both tiers") {
  Spec spec;
  spec.window = 64;
  spec.group_tokens = 32;
  spec.sequences = {{1, 300, 0}};
  Scene s(spec);
  s.config.sliding_window = 20;  // inside the recent tier: the old one is not looked at
  check_close(s);
  REQUIRE(s.run() == Status::kOk);
  const std::vector<std::uint8_t> before = s.bits_of(0);
  std::fill(s.block_table.begin(), s.block_table.end(), -1);
  // Keys 280 to 299: logical pages 17 and 18 of a ring of 6. The recent tier holds 224 to 299, pages 14 to 18.
  for (const std::size_t gone : {14 % 6, 15 % 6, 16 % 6}) s.recent_table[gone] = -1;
  s.reset_outputs();
  REQUIRE(s.run() == Status::kOk);
  CHECK(s.bits_of(0) == before);
  s.recent_table[17 % 6] = -1;
  s.reset_outputs();
  CHECK_REFUSED(s.run(), Status::kBlockIdOutOfRange, "recent_table", "page -1", "position 5");
  CHECK(s.outputs_untouched());
}

TEST_CASE("what belongs to no token does not matter: poison of every kind gives the same bits") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kE8m0PerToken, KvFormat::kFp8E4m3,
                                KvFormat::kBf16, KvFormat::kF16, KvFormat::kMxfp8}) {
    for (const std::int32_t window : {0, 16}) {
      Spec spec;
      spec.k = spec.v = format;
      spec.window = window;
      spec.sequences = {{2, 37, 0}, {1, 1, 1}, {20, 65, 2}};
      std::vector<std::vector<std::uint8_t>> bits;
      for (const std::uint8_t poison : {std::uint8_t{0xFF}, std::uint8_t{0x7F}, std::uint8_t{0x00}}) {
        spec.poison = poison;
        Scene s(spec);
        REQUIRE(s.run() == Status::kOk);
        for (std::int32_t b = 0; b < 3; ++b) bits.push_back(s.bits_of(b));
        INFO(std::string(name_of(format)), " window ", window);
        CHECK(!row_is_nan(s, 0, 0));
      }
      for (std::size_t i = 3; i < bits.size(); ++i) CHECK(bits[i] == bits[i % 3]);
    }
  }
}

TEST_CASE("a NaN scale makes NaN of the outputs that it belongs to, and of no other") {
  // Sequence 0: two queries that see all keys but the last one's; sequence 1 beside it on other pages.
  for (const char* backend : {"cpu", "cpu-scalar"}) {
    for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kE8m0PerToken, KvFormat::kMxfp8}) {
      for (const std::int32_t token : {0, 7, 38, 63, 64, 98}) {
        for (const bool value : {false, true}) {
          Spec spec;
          spec.k = spec.v = format;
          spec.group_heads = 1;
          spec.sequences = {{1, 99, 0}, {1, 70, 1}};
          Scene s(spec);
          s.config.backend = backend;
          *s.scales(value, 0, token, 1) = format == KvFormat::kNvfp4 ? 0x7F : 0xFF;
          INFO(std::string(backend), " ", std::string(name_of(format)), value ? " V" : " K", " token ", token);
          REQUIRE(s.run() == Status::kOk);
          CHECK(row_is_nan(s, 0, 1));
          CHECK(std::isnan(s.lse_of(0, 1)) == !value);  // V has no part in LSE
          CHECK(!row_is_nan(s, 0, 0));
          CHECK(!row_is_nan(s, 1, 0));
          CHECK(!row_is_nan(s, 1, 1));
          if (value && format != KvFormat::kE8m0PerToken) {
            // The scale covers the first 32 or 16 columns.
            const std::vector<double> row = s.o_row(0, 1);
            const std::size_t group = format == KvFormat::kNvfp4 ? 16 : 32;
            for (std::size_t d = 0; d < row.size(); ++d) CHECK(std::isnan(row[d]) == (d < group));
          }
        }
      }
    }
  }
}

TEST_CASE("a NaN key is not there for a query that does not see it") {
  // A NaN value is, for the rows of its tile: a matrix core multiplies it with a probability of 0
  // (docs/design_body.md).
  for (const char* backend : {"cpu", "cpu-scalar"}) {
    Spec spec;
    spec.group_heads = 1;
    spec.sequences = {{3, 40, 0}};
    Scene s(spec);
    s.config.backend = backend;
    *s.scales(false, 0, 39, 0) = 0xFF;  // queries at 37 and 38 do not see key 39
    REQUIRE(s.run() == Status::kOk);
    INFO(std::string(backend));
    CHECK(!row_is_nan(s, 0, 0));
    CHECK(!row_is_nan(s, 1, 0));
    CHECK(row_is_nan(s, 2, 0));
  }
}

TEST_SUITE_END();
