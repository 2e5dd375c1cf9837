// What append_two_tier's kernels do with tables and indptr that nobody could look at before: nothing outside of the pools and the tokens
// that were handed in is read or written.
#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "tests/cache/target.hpp"
#include "tests/cache/two_tier_fixture.hpp"

namespace {

using namespace fp4pa;
using test::Fixture;

test::Config one_sequence() {
  test::Config c = test::two_tier_config(KvFormat::kMxfp4, KvFormat::kMxfp4, VScaleAxis::kHeadDim, 16, KvFormat::kBf16, 16);
  c.window = 16;
  c.group = 32;
  c.lengths = {64};
  return c;
}

}  // namespace

TEST_CASE("bounds of two tiers: a page of the ring that is not in the pool is not read when its tokens leave") {
  const test::Config c = one_sequence();
  test::Random random(3);
  const test::Rows rows(DType::kF32, 40, 2, 32, random);
  for (const test::Target& target : test::kTargets) {
    for (const std::int32_t bad : {-1, 1 << 20}) {
      Fixture f(c, 79);
      const auto append = [&](std::int32_t length, std::int32_t tokens) {
        const std::int32_t indptr[] = {0, tokens};
        return target.append_two_tier({f.desc, rows.input(), rows.input(), indptr, &length, 1, tokens, f.old_table.data(), f.old_stride,
                                       f.recent_table.data()},
                                      {});
      };
      REQUIRE(append(0, 40) == Status::kOk);
      const auto old_before = f.old_pool.snapshot();
      const std::int32_t good = f.recent_table[1];  // tokens 16 to 31
      f.recent_table[1] = bad;
      CHECK(append(40, 8) == Status::kOk);
      // Tokens 0 to 15 may have left, but no byte of the others may be made of what is no page of the pool.
      const auto after_bad = f.old_pool.snapshot();
      f.recent_table[1] = good;
      CHECK(append(40, 8) == Status::kOk);
      const auto after_good = f.old_pool.snapshot();
      CHECK(after_good != old_before);
      CHECK(after_bad != after_good);
      for (std::size_t i = 0; i < after_bad.size(); ++i) {
        if (after_bad[i] != old_before[i]) CHECK(after_bad[i] == after_good[i]);
      }
    }
  }
}

TEST_CASE("bounds of two tiers: an indptr beyond the tokens that were handed in ends with them") {
  const test::Config c = one_sequence();
  test::Random random(4);
  const test::Rows rows(DType::kF32, 40, 2, 32, random);
  for (const test::Target& target : test::kTargets) {
    const auto pools_after = [&](std::int32_t begin, std::int32_t end) {
      Fixture f(c, 80);
      const std::int32_t indptr[] = {begin, end};
      const std::int32_t length = 0;
      CHECK(target.append_two_tier({f.desc, rows.input(), rows.input(), indptr, &length, 1, 40, f.old_table.data(), f.old_stride,
                                    f.recent_table.data()},
                                   {}) == Status::kOk);
      return std::pair{f.old_pool.snapshot(), f.recent_pool.snapshot()};
    };
    const auto expected = pools_after(0, 40);
    CHECK(pools_after(0, 63) == expected);
    CHECK(pools_after(-9, 40) == expected);
    CHECK(pools_after(0, 39) != expected);
  }
}

TEST_CASE("bounds of two tiers: a negative length counts as 0, and one near the largest number writes nothing outside") {
  const test::Config c = one_sequence();
  test::Random random(5);
  const test::Rows rows(DType::kF32, 48, 2, 32, random);  // of which 32 leave the window
  for (const test::Target& target : test::kTargets) {
    const auto pools_after = [&](std::int32_t length) {
      Fixture f(c, 81);
      const std::int32_t indptr[] = {0, 48};
      CHECK(target.append_two_tier({f.desc, rows.input(), rows.input(), indptr, &length, 1, 48, f.old_table.data(), f.old_stride,
                                    f.recent_table.data()},
                                   {}) == Status::kOk);
      return std::pair{f.old_pool.snapshot(), f.recent_pool.snapshot()};
    };
    const auto expected = pools_after(0);
    CHECK(pools_after(-1) == expected);
    CHECK(pools_after(-0x7fffffff - 1) == expected);
    const auto untouched = Fixture(c, 81).old_pool.snapshot();
    CHECK(expected.first != untouched);
    CHECK(pools_after(0x7fffffff).first == untouched);  // its old pages lie past its row of the table
  }
}
