// A sequence in two tiers that loses its last tokens again, as with rejected drafts or a truncated answer: in a ring with room for
// it the caller lowers the length, and both tiers hold what the shorter sequence would have had.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cache/target.hpp"
#include "tests/cache/two_tier_fixture.hpp"

using namespace fp4pa;
using test::Config;
using test::Fixture;

namespace {

/// The tokens of one sequence, [tokens, heads, head_dim].
struct Tokens {
  std::vector<float> k, v;
};

class OneSequence {
 public:
  OneSequence(const test::Target& target, const Config& config, std::uint64_t seed) : target_(target), f_(config, seed) {}

  /// Appends tokens `from` .. `to` - 1 to a sequence of `from` tokens.
  void append(const Tokens& tokens, int from, int to) {
    const std::int32_t indptr[] = {0, to - from};
    const std::int32_t length = from;
    REQUIRE(target_.append_two_tier({f_.desc, input(tokens.k, from), input(tokens.v, from), indptr, &length, 1, to - from,
                                     f_.old_table.data(), f_.old_stride, f_.recent_table.data()},
                                    {}) == Status::kOk);
  }
  /// K and V as a reader of a sequence of `length` tokens finds them.
  [[nodiscard]] Tokens read(int length) {
    const int quantised = Fixture::tokens_quantised(f_.config, length);
    Tokens found;
    read(f_.desc.old_tier, slots(f_.old_table, f_.config.old_shape.page_size, 0, 0, quantised), &found);
    read(f_.desc.recent, slots(f_.recent_table, f_.config.recent_shape.page_size, f_.desc.ring_pages, quantised, length), &found);
    return found;
  }

 private:
  [[nodiscard]] int row() const { return f_.config.old_shape.heads * f_.config.old_shape.head_dim; }
  [[nodiscard]] KvInput input(const std::vector<float>& x, int first) const {
    return {x.data() + first * row(), DType::kF32, row(), f_.config.old_shape.head_dim};
  }
  static std::vector<std::int64_t> slots(const std::vector<std::int32_t>& table, int page_size, int ring_pages, int first, int end) {
    std::vector<std::int64_t> all;
    for (int t = first; t < end; ++t) {
      const int page = ring_pages != 0 ? t / page_size % ring_pages : t / page_size;
      all.push_back(std::int64_t{table[static_cast<std::size_t>(page)]} * page_size + t % page_size);
    }
    return all;
  }
  void read(const KvCacheDesc& cache, const std::vector<std::int64_t>& from, Tokens* to) {
    if (from.empty()) return;
    const auto count = static_cast<std::int64_t>(from.size());
    std::vector<float> k(from.size() * static_cast<std::size_t>(row())), v = k;
    REQUIRE(target_.gather(cache, {from.data(), IndexType::kInt64, count}, {k.data(), DType::kF32, row(), cache.head_dim},
                           {v.data(), DType::kF32, row(), cache.head_dim}, {}) == Status::kOk);
    to->k.insert(to->k.end(), k.begin(), k.end());
    to->v.insert(to->v.end(), v.begin(), v.end());
  }

  const test::Target& target_;
  Fixture f_;
};

/// Appends of a few and of many tokens, after each of which up to `rollback` of its tokens are dropped; their places are taken by
/// others later.
void append_and_drop(const test::Target& target, Config c, int rollback, std::uint64_t seed, int steps) {
  c.lengths = {400};
  c.spare_ring_pages = min_ring_pages(c.window, c.group, c.recent_shape.page_size, rollback) -
                       min_ring_pages(c.window, c.group, c.recent_shape.page_size);
  test::Random random(seed);
  OneSequence sequence(target, c, seed);
  Tokens truth;
  const auto row = static_cast<std::size_t>(c.old_shape.heads * c.old_shape.head_dim);
  int length = 0;
  for (int step = 0; step < steps; ++step) {
    const int wanted = 1 + random.below(random.below(3) == 0 ? 2 * (c.window + c.group) : 9);
    const int n = std::min(wanted, c.lengths[0] - length);
    for (std::size_t i = 0; i < static_cast<std::size_t>(n) * row; ++i) {
      truth.k.push_back(random.value());
      truth.v.push_back(random.value());
    }
    sequence.append(truth, length, length + n);
    length += n - random.below(std::min(n, rollback) + 1);
    truth.k.resize(static_cast<std::size_t>(length) * row);
    truth.v.resize(static_cast<std::size_t>(length) * row);

    OneSequence straight(target, c, seed);
    straight.append(truth, 0, length);
    const Tokens expected = straight.read(length);
    const Tokens found = sequence.read(length);
    CAPTURE(step);
    CAPTURE(length);
    CHECK(found.k == expected.k);
    CHECK(found.v == expected.v);
  }
}

}  // namespace

TEST_CASE("roll-back over two tiers: a shorter sequence is as if it had never been longer") {
  std::uint64_t seed = 0;
  for (const VScaleAxis axis : {VScaleAxis::kHeadDim, VScaleAxis::kTokens}) {
    for (const int rollback : {1, 7, 32}) {
      if (!test::is_run(seed++)) continue;
      Config c = test::two_tier_config(KvFormat::kMxfp4, KvFormat::kMxfp4, axis, 32, KvFormat::kBf16, 8);
      c.window = 32;
      c.group = 32;
      c.old_shape.heads = c.recent_shape.heads = 1;
      CAPTURE(rollback);
      for (const test::Target& target : test::kTargets) {
        CAPTURE(std::string(target.name));
        append_and_drop(target, c, rollback, 91 + seed, 10);
      }
    }
  }
}
