// How far a result is from the reference: relative Frobenius error, cosine, largest difference, LSE error.
//
// A NaN on one side only, or an infinity that does not match, makes every figure infinite: a comparison that could be
// satisfied by garbage would be no comparison.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace fp4pa::reference {

/// Accumulates pairs (result, reference); add with `add`, combine partial sums with `merge`.
class Difference {
 public:
  void add(double result, double reference) {
    if (!std::isfinite(result) || !std::isfinite(reference)) {
      broken_ = broken_ || result != reference;
      return;
    }
    const double d = result - reference;
    squared_error_ += d * d;
    squared_reference_ += reference * reference;
    squared_result_ += result * result;
    product_ += result * reference;
    max_abs_ = std::max(max_abs_, std::abs(d));
  }
  void merge(const Difference& other) {
    squared_error_ += other.squared_error_;
    squared_reference_ += other.squared_reference_;
    squared_result_ += other.squared_result_;
    product_ += other.product_;
    max_abs_ = std::max(max_abs_, other.max_abs_);
    broken_ = broken_ || other.broken_;
  }

  /// |result - reference| / |reference|; 0 when both are zero, infinite when only the reference is.
  [[nodiscard]] double relative() const {
    if (broken_) return kInfinity;
    if (squared_error_ == 0.0) return 0.0;
    return squared_reference_ == 0.0 ? kInfinity : std::sqrt(squared_error_ / squared_reference_);
  }
  /// 1 when both are zero, 0 when only one is.
  [[nodiscard]] double cosine() const {
    if (broken_) return -kInfinity;
    if (squared_result_ == 0.0 && squared_reference_ == 0.0) return 1.0;
    if (squared_result_ == 0.0 || squared_reference_ == 0.0) return 0.0;
    return product_ / (std::sqrt(squared_result_) * std::sqrt(squared_reference_));
  }
  /// The largest absolute difference.
  [[nodiscard]] double max_abs() const { return broken_ ? kInfinity : max_abs_; }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double squared_error_ = 0.0;
  double squared_reference_ = 0.0;
  double squared_result_ = 0.0;
  double product_ = 0.0;
  double max_abs_ = 0.0;
  bool broken_ = false;
};

/// |a - b| of two LSE values; 0 when both are -inf, infinite when only one is or either is NaN.
[[nodiscard]] inline double lse_difference(double result, double reference) {
  if (result == reference) return 0.0;
  const double d = std::abs(result - reference);
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

}  // namespace fp4pa::reference
