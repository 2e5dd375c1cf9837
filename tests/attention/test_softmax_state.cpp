// Online softmax as an algebra: merging states is associative and commutative, the empty state is its identity, and
// whatever a kernel may meet (all masked, infinite scores, NaN, a sink) has one defined result.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/attention/softmax_state.hpp"
#include "tests/cache/random.hpp"

using fp4pa::core::rescale;
using fp4pa::core::SoftmaxState;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

bool same_bits(SoftmaxState a, SoftmaxState b) {
  return std::bit_cast<std::uint32_t>(a.max) == std::bit_cast<std::uint32_t>(b.max) &&
         std::bit_cast<std::uint32_t>(a.sum) == std::bit_cast<std::uint32_t>(b.sum);
}

/// Distance in units of the last place, for positive finite floats.
std::int64_t ulps(float a, float b) {
  return std::abs(std::int64_t{std::bit_cast<std::int32_t>(a)} - std::bit_cast<std::int32_t>(b));
}

/// A state after some keys: a maximum between -range and range, a sum of at least 1.
SoftmaxState draw(test::Random& random, float range) {
  if (random.below(16) == 0) return {};
  return {range * static_cast<float>(2.0 * random.uniform() - 1.0), static_cast<float>(1.0 + 100.0 * random.uniform())};
}

SoftmaxState of_scores(const std::vector<float>& scores, std::size_t first, std::size_t last) {
  SoftmaxState state;
  for (std::size_t i = first; i < last; ++i) state = SoftmaxState::merge(state, {scores[i], 1.0f});
  return state;
}

}  // namespace

TEST_CASE("merge is commutative to the bit") {
  test::Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const SoftmaxState a = draw(random, 50.0f), b = draw(random, 50.0f);
    CHECK(same_bits(SoftmaxState::merge(a, b), SoftmaxState::merge(b, a)));
  }
}

TEST_CASE("merge is associative: the maximum exactly, the sum to a few units in the last place") {
  test::Random random(2);
  std::int64_t worst = 0;
  for (int i = 0; i < 100000; ++i) {
    const SoftmaxState a = draw(random, 20.0f), b = draw(random, 20.0f), c = draw(random, 20.0f);
    const SoftmaxState left = SoftmaxState::merge(SoftmaxState::merge(a, b), c);
    const SoftmaxState right = SoftmaxState::merge(a, SoftmaxState::merge(b, c));
    CHECK(left.max == right.max);
    const std::int64_t distance = ulps(left.sum, right.sum);
    worst = std::max(worst, distance);
    // Per side two additions, two products and two exponentials whose argument lost half an ulp of up to 40.
    CHECK(distance <= 64);
  }
  CHECK(worst > 0);  // rounding does happen: the bound is not met by accident of the inputs
}

TEST_CASE("the empty state is the identity, to the bit and on either side") {
  test::Random random(3);
  for (int i = 0; i < 10000; ++i) {
    const SoftmaxState s = draw(random, 1000.0f);
    CHECK(same_bits(SoftmaxState::merge(s, {}), s));
    CHECK(same_bits(SoftmaxState::merge({}, s), s));
  }
  const SoftmaxState nothing = SoftmaxState::merge({}, {});
  CHECK(nothing.max == -kInf);
  CHECK(nothing.sum == 0.0f);
  CHECK(nothing.lse() == -kInf);
  CHECK(nothing.normaliser() == 0.0f);
}

TEST_CASE("any way of cutting a row of scores gives its log-sum-exp") {
  test::Random random(4);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> scores;
    for (int k = 0; k < 300; ++k) {
      // A fifth of the keys are masked.
      scores.push_back(random.below(5) == 0 ? -kInf : 30.0f * static_cast<float>(random.uniform()) - 15.0f);
    }
    double sum = 0.0;
    for (const float s : scores) sum += std::exp2(double{s});
    const double expected = std::log(sum);
    const auto cut = static_cast<std::size_t>(random.below(301)), cut2 = static_cast<std::size_t>(random.below(301));
    const std::size_t low = std::min(cut, cut2), high = std::max(cut, cut2);
    const SoftmaxState merged =
        SoftmaxState::merge(SoftmaxState::merge(of_scores(scores, 0, low), of_scores(scores, low, high)),
                            of_scores(scores, high, scores.size()));
    CHECK(std::abs(merged.lse() - expected) <= 1e-5);
    CHECK(std::abs(of_scores(scores, 0, scores.size()).lse() - expected) <= 1e-5);
  }
}

TEST_CASE("a row whose keys are all masked stays empty, then takes the first key whole") {
  SoftmaxState state = of_scores({-kInf, -kInf, -kInf}, 0, 3);
  // Merging {-inf, 1} counts a key that is not there; its weight is what makes the body zero such rows instead.
  CHECK(state.max == -kInf);
  CHECK(state.lse() == -kInf);
  state = SoftmaxState::merge(state, {3.0f, 1.0f});
  CHECK(state.max == 3.0f);
  CHECK(state.sum == 1.0f);
}

TEST_CASE("infinite scores: an infinite key takes all the weight, two of them share it") {
  const SoftmaxState finite{2.0f, 5.0f}, infinite{kInf, 1.0f};
  CHECK(same_bits(SoftmaxState::merge(finite, infinite), infinite));
  CHECK(same_bits(SoftmaxState::merge(infinite, finite), infinite));
  const SoftmaxState two = SoftmaxState::merge(infinite, infinite);
  CHECK(two.max == kInf);
  CHECK(two.sum == 2.0f);
  CHECK(two.normaliser() == 0.5f);
  CHECK(infinite.lse() == kInf);
}

TEST_CASE("NaN propagates from either side") {
  for (const SoftmaxState& nan : {SoftmaxState{kNan, 1.0f}, SoftmaxState{1.0f, kNan}}) {
    for (const SoftmaxState& other : {SoftmaxState{}, SoftmaxState{0.0f, 1.0f}, SoftmaxState{5.0f, 2.0f}}) {
      CHECK(std::isnan(SoftmaxState::merge(nan, other).lse()));
      CHECK(std::isnan(SoftmaxState::merge(other, nan).lse()));
      CHECK(std::isnan(SoftmaxState::merge(nan, other).normaliser()));
    }
  }
}

TEST_CASE("rescale: 2^(from - to), and 1 where the difference is inf - inf") {
  CHECK(rescale(-kInf, -kInf) == 1.0f);
  CHECK(rescale(kInf, kInf) == 1.0f);
  CHECK(rescale(-kInf, 0.0f) == 0.0f);
  CHECK(rescale(3.0f, kInf) == 0.0f);
  CHECK(rescale(-3.0f, 0.0f) == 0.125f);
  CHECK(rescale(1e30f, 1e30f) == 1.0f);
  CHECK(rescale(-1e30f, 1e30f) == 0.0f);
  CHECK(std::isnan(rescale(kNan, 0.0f)));
}

TEST_CASE("a sink grows the denominator and nothing else") {
  test::Random random(5);
  for (int i = 0; i < 10000; ++i) {
    const SoftmaxState s = draw(random, 30.0f);
    const float sink = 60.0f * static_cast<float>(random.uniform()) - 30.0f;
    const SoftmaxState with = s.with_sink(sink);
    const double expected = std::log(std::exp2(double{sink}) + double{s.sum} * std::exp2(double{s.max}));
    CHECK(std::abs(with.lse() - expected) <= 1e-5 * std::max(1.0, std::abs(expected)));
  }
  // Alone it is the whole weight: LSE is the sink's logit.
  const SoftmaxState alone = SoftmaxState{}.with_sink(1.5f);
  CHECK(alone.max == 1.5f);
  CHECK(alone.sum == 1.0f);
  // A sink of -inf is no sink; of +inf it takes everything.
  const SoftmaxState s{2.0f, 3.0f};
  CHECK(same_bits(s.with_sink(-kInf), s));
  CHECK(s.with_sink(kInf).lse() == kInf);
  CHECK(rescale(s.max, s.with_sink(kInf).max) * s.with_sink(kInf).normaliser() == 0.0f);
}

TEST_CASE("lse is natural log and survives magnitudes whose exponential does not") {
  const float e = 2.718281828f;
  CHECK(std::abs(SoftmaxState{0.0f, e}.lse() - 1.0f) <= 1e-6f);
  CHECK(SoftmaxState{0.0f, 1.0f}.lse() == 0.0f);
  CHECK(std::abs(SoftmaxState{4000.0f, 1.0f}.lse() - 2772.5887f) <= 1e-3f);
  CHECK(std::abs(SoftmaxState{-4000.0f, 2.0f}.lse() + 2771.8956f) <= 1e-3f);
}
