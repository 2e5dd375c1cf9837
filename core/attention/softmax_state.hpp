// Online softmax as an algebra: the state of a row after some of its keys, and how states combine.
//
// A state is (max, sum): the largest score so far in log2 units and the sum of 2^(score - max). The empty state is
// (-inf, 0); `rescale` is 2^(old - new) with the one case that arithmetic gets wrong, -inf - (-inf), defined as 1 so that
// nothing times it stays nothing. NaN scores propagate. Source: Milakov and Gimelshein 2018, in base 2.
#pragma once

#include <limits>

#include "core/attention/params.hpp"
#include "core/macros.hpp"
#include "core/math.hpp"

namespace fp4pa::core {

inline constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

/// 2^(from - to) for from <= to.
[[nodiscard]] FP4PA_FN float rescale(float from, float to) { return from == to ? 1.0f : math::exp2(from - to); }

struct SoftmaxState {
  float max = kMinusInf;
  float sum = 0.0f;

  /// The state after the keys of both.
  [[nodiscard]] FP4PA_FN static SoftmaxState merge(SoftmaxState a, SoftmaxState b) {
    const float m = a.max > b.max || a.max != a.max ? a.max : b.max;
    return {m, a.sum * rescale(a.max, m) + b.sum * rescale(b.max, m)};
  }
  /// A score without a value (a sink): only the denominator grows.
  [[nodiscard]] FP4PA_FN SoftmaxState with_sink(float score_log2) const { return merge(*this, {score_log2, 1.0f}); }
  /// Multiplier that normalises an output accumulated under this state; 0 for the empty state.
  [[nodiscard]] FP4PA_FN float normaliser() const { return sum == 0.0f ? 0.0f : 1.0f / sum; }
  /// Natural log of the sum of exp(score), -inf for the empty state.
  [[nodiscard]] FP4PA_FN float lse() const { return sum == 0.0f ? kMinusInf : (max + math::log2(sum)) * kLn2; }
};

}  // namespace fp4pa::core
