// append_two_tier on a GPU's kernels: drawn calls, each against the bytes of the CPU back end, whose own tests are tests/cache/test_two_tier.cpp.
// Sequences of a call have no, a few or many new tokens, so that blocks share sequences and a sequence is shared by blocks.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "backends/cpu/cache_ops.hpp"
#include "tests/cache/target.hpp"
#include "tests/cache/two_tier_fixture.hpp"

using namespace fp4pa;

namespace {

template <class T, std::size_t kN>
T pick(test::Random& random, const T (&of)[kN]) {
  return of[random.below(static_cast<int>(kN))];
}

test::Config draw(test::Random& random) {
  constexpr KvFormat kOld[] = {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kE8m0PerToken, KvFormat::kMxfp8, KvFormat::kFp8E4m3, KvFormat::kBf16};
  constexpr KvFormat kRecent[] = {KvFormat::kBf16, KvFormat::kF16, KvFormat::kFp8E4m3};
  constexpr test::Layout kLayouts[] = {test::Layout::kHnd, test::Layout::kNhd, test::Layout::kInterleaved, test::Layout::kGaps};
  constexpr Rotation kRotations[] = {Rotation::kNone, Rotation::kHadamard16, Rotation::kHadamard32};
  const KvFormat v = pick(random, kOld);
  const bool tokens = (v == KvFormat::kMxfp4 || v == KvFormat::kNvfp4) && random.below(2) == 0;
  test::Config c = test::two_tier_config(pick(random, kOld), v, tokens ? VScaleAxis::kTokens : VScaleAxis::kHeadDim, 32, pick(random, kRecent),
                                         16 << random.below(2));
  c.recent_shape.v_format = pick(random, kRecent);
  c.old_shape.heads = c.recent_shape.heads = 1 + random.below(3);
  c.old_shape.head_dim = c.recent_shape.head_dim = 32 * (1 + random.below(4));
  c.old_shape.rotation = c.recent_shape.rotation = pick(random, kRotations);
  c.old_shape.layout = pick(random, kLayouts);
  c.recent_shape.layout = pick(random, kLayouts);
  const int group = kv_token_group(v, c.old_shape.axis);
  c.group = group > 1 ? group : 1 << random.below(6);
  c.old_shape.page_size = 32 << random.below(2);
  c.window = 16 + random.below(40);
  c.spare_ring_pages = random.below(2);
  const int batch = 1 + random.below(6);
  for (int b = 0; b < batch; ++b) c.lengths.push_back(random.below(5) == 0 ? 1 : 1 + random.below(200));
  return c;
}

/// Both pools after the calls that bring the sequences to `lengths`, one of them after the other.
using Append = decltype(api::Backend::append_two_tier);
std::vector<std::vector<std::uint8_t>> pools_after(const test::Config& c, std::uint64_t seed, Append append,
                                                   const std::vector<std::vector<int>>& lengths, DType dtype, int skipped) {
  test::Fixture f(c, seed);
  std::vector<std::vector<std::uint8_t>> pools;
  std::vector<std::int32_t> before(c.lengths.size(), 0);
  for (const std::vector<int>& after : lengths) {
    std::vector<std::int32_t> indptr{0};
    for (std::size_t b = 0; b < after.size(); ++b) indptr.push_back(indptr.back() + after[b] - before[b]);
    test::Random random(seed + pools.size());
    const std::int64_t tokens = indptr.back();
    const test::Rows k(dtype, tokens + 1, c.old_shape.heads, c.old_shape.head_dim, random);
    const test::Rows v(dtype, tokens + 1, c.old_shape.heads, c.old_shape.head_dim, random);
    const auto moved = [&](KvInput input) {
      input.data = static_cast<const std::uint8_t*>(input.data) + skipped * size_of(dtype);
      return input;
    };
    const KvInput k_input = moved(k.input()), v_input = moved(v.input());
    REQUIRE(append({f.desc, k_input, v_input, indptr.data(), before.data(), static_cast<std::int32_t>(after.size()), tokens,
                    f.old_table.data(), f.old_stride, f.recent_table.data()},
                   {}) == Status::kOk);
    pools.push_back(f.old_pool.snapshot());
    pools.push_back(f.recent_pool.snapshot());
    before.assign(after.begin(), after.end());
  }
  return pools;
}

}  // namespace

TEST_CASE("drawn appends over two tiers: the CPU's bytes in both, whatever the formats and whoever has new tokens") {
  constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    test::Random random(seed);
    const test::Config c = draw(random);
    const DType dtype = pick(random, kDTypes);
    const int skipped = random.below(4) == 0 ? 1 : 0;  // elements away from an address of 16 bytes
    // Three calls; in each some have no new tokens.
    std::vector<std::vector<int>> lengths(3, std::vector<int>(c.lengths.size(), 0));
    for (std::size_t b = 0; b < c.lengths.size(); ++b) {
      const int last = c.lengths[b];
      lengths[0][b] = random.below(3) == 0 ? 0 : random.below(last + 1);
      lengths[1][b] = random.below(3) == 0 ? lengths[0][b] : lengths[0][b] + random.below(std::min(last - lengths[0][b], 3) + 1);
      lengths[2][b] = last;
    }
    if (!test::is_run(seed)) continue;
    CAPTURE(seed);
    CAPTURE(std::string(name_of(c.old_shape.k_format)));
    CAPTURE(std::string(name_of(c.old_shape.v_format)));
    CAPTURE(c.old_shape.head_dim);
    CAPTURE(skipped);
    const auto expected = pools_after(c, seed, cpu::append_two_tier, lengths, dtype, skipped);
    for (const test::Target& target : test::kTargets) {
      CAPTURE(std::string(target.name));
      CHECK(pools_after(c, seed, target.append_two_tier, lengths, dtype, skipped) == expected);
    }
  }
}
