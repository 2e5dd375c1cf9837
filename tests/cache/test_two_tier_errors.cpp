// Calls of append_two_tier that must be refused: the status, a sentence that names the culprit, and not one byte
// written.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "fp4pa/status.hpp"
#include "tests/cache/target.hpp"
#include "tests/cache/two_tier_fixture.hpp"

using namespace fp4pa;
using test::Config;
using test::Fixture;

TEST_CASE("two tiers: what is wrong with a call is named, and nothing is written") {
  Config c = test::two_tier_config(KvFormat::kMxfp4, KvFormat::kMxfp4, VScaleAxis::kHeadDim, 16, KvFormat::kBf16, 16);
  c.window = 16;
  c.group = 16;
  c.lengths = {64, 64};  // 48 tokens and 3 pages in the old tier, a ring of 2 pages
  test::Random random(1);
  const test::Rows rows(DType::kF32, 100, 2, 32, random);
  struct Call {
    std::vector<std::int32_t> indptr, lengths;
    Status status;
    const char* words;
    int old_stride = -1;                // -1: the fixture's
    int bad_old = -1, bad_recent = -1;  // table entry that is put outside the pool
  };
  const Call calls[] = {
      {{1, 2, 3}, {0, 0}, Status::kInvalidIndptr, "indptr[0] = 1"},
      {{0, 5, 3}, {0, 0}, Status::kInvalidIndptr, "indptr[2] = 3 is less than indptr[1] = 5"},
      {{0, 5, 101}, {0, 0}, Status::kInvalidIndptr, "indptr[2] = 101; the input has 100 tokens"},
      {{0, 5, 9}, {0, -1}, Status::kInvalidSize, "seq_lens[1] = -1"},
      {{0, 5, 9}, {0, 2147483640 + 5}, Status::kLengthExceedsTable, "sequence 1"},
      {{0, 40, 80},
       {24, 40},
       Status::kLengthExceedsTable,
       "sequence 1 will have 80 tokens and need 4 old-tier pages",
       3},
      {{0, 64, 64}, {0, 0}, Status::kBlockIdOutOfRange, "old_table of sequence 0", -1, 2},
      {{0, 64, 64}, {0, 0}, Status::kBlockIdOutOfRange, "recent_table of sequence 0", -1, -1, 1},
      {{0, 31, 31}, {0, 0}, Status::kBlockIdOutOfRange, "recent_table of sequence 0 has page id -5 at entry 0", -1, -1, 0},
      {{0, 0, 1},
       {0, 31},
       Status::kBlockIdOutOfRange,
       "recent_table of sequence 1 has page id -5 at entry 0",
       -1,
       -1,
       2},
  };
  for (const Call& call : calls) {
    for (const test::Target& target : test::kTargets) {
      Fixture f(c, 77);
      if (call.bad_old >= 0) f.old_table[static_cast<std::size_t>(call.bad_old)] = f.old_pool.shape.num_pages;
      if (call.bad_recent >= 0) f.recent_table[static_cast<std::size_t>(call.bad_recent)] = -5;
      const int stride = call.old_stride >= 0 ? call.old_stride : f.old_stride;
      const auto old_before = f.old_pool.snapshot();
      const auto recent_before = f.recent_pool.snapshot();
      const Status status =
          target.append_two_tier({f.desc, rows.input(), rows.input(), call.indptr.data(), call.lengths.data(), 2, 100,
                                  f.old_table.data(), stride, f.recent_table.data()},
                                 {});
      const std::string detail = last_error_detail();
      CAPTURE(detail);
      CHECK(status == call.status);
      CHECK(detail.find(call.words) != std::string::npos);
      CHECK(f.old_pool.snapshot() == old_before);
      CHECK(f.recent_pool.snapshot() == recent_before);
    }
  }
}

TEST_CASE("two tiers: page ids that an append does not touch are not looked at") {
  Config c = test::two_tier_config(KvFormat::kMxfp4, KvFormat::kMxfp4, VScaleAxis::kHeadDim, 16, KvFormat::kBf16, 16);
  c.window = 16;
  c.group = 16;
  c.lengths = {64};
  test::Random random(1);
  const test::Rows rows(DType::kF32, 8, 2, 32, random);
  for (const test::Target& target : test::kTargets) {
    Fixture f(c, 78);
    std::fill(f.old_table.begin(), f.old_table.end(), -1);
    f.recent_table[1] = -1;  // tokens 16 to 31: not there yet
    const std::int32_t indptr[] = {0, 8};
    const std::int32_t lengths[] = {4};
    CHECK(target.append_two_tier({f.desc, rows.input(), rows.input(), indptr, lengths, 1, 8, f.old_table.data(),
                                  f.old_stride, f.recent_table.data()},
                                 {}) == Status::kOk);
  }
}
