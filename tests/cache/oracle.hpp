// What a cache must hold, worked out in the slowest way that is plainly right.
//
// Nothing here shares code with the library: element formats are a list of values in double precision, encoding is a
// search for the nearest one, scales come from frexp and comparisons of doubles. Inputs are finite; NaN and infinity
// are the formats' own tests' business.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4pa/types.hpp"

namespace oracle {

using fp4pa::DType;
using fp4pa::KvFormat;
using fp4pa::Nvfp4Scale;
using fp4pa::ScaleMode;

/// A sign, exponent and mantissa format: the list of its non-negative finite values, codes 0 .. max_code in ascending
/// order.
class Float {
 public:
  Float(int exponent_bits, int mantissa, int bias, int max_code)
      : mantissa_bits(mantissa), emax((max_code >> mantissa) - bias), sign_bit(1 << (exponent_bits + mantissa)) {
    for (int code = 0; code <= max_code; ++code) {
      const int exponent = code >> mantissa_bits;
      const int fraction = code & ((1 << mantissa_bits) - 1);
      values_.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa_bits)
                                      : std::ldexp((1 << mantissa_bits) + fraction, exponent - bias - mantissa_bits));
    }
  }

  const int mantissa_bits, emax, sign_bit;

  [[nodiscard]] double largest() const { return values_.back(); }
  [[nodiscard]] double value(int code) const {
    const double m = values_[static_cast<std::size_t>(code & (sign_bit - 1))];
    return (code & sign_bit) != 0 ? -m : m;
  }
  /// Nearest code to x, ties to the even code, saturating.
  [[nodiscard]] int nearest(double x) const {
    const double m = std::fabs(x);
    const auto next = std::upper_bound(values_.begin(), values_.end(), m);
    const int low = static_cast<int>(next - values_.begin()) - 1;
    int code = low;
    if (next != values_.end()) {
      const double below = m - *(next - 1);
      const double above = *next - m;
      if (above < below || (above == below && low % 2 == 1)) code = low + 1;
    }
    return std::signbit(x) ? code | sign_bit : code;
  }

 private:
  std::vector<double> values_;
};

inline const Float kE2m1{2, 1, 1, 7};
inline const Float kE4m3{4, 3, 7, 0x7e};
inline const Float kF16{5, 10, 15, 0x7bff};
inline const Float kBf16{8, 7, 127, 0x7f7f};

/// E8M0 byte for a group's largest magnitude, in an element format.
inline int e8m0(double amax, const Float& element, ScaleMode mode) {
  if (amax == 0.0) return 0;
  const auto floor_log2 = [](double x) {
    int e;
    std::frexp(x, &e);
    return e - 1;
  };
  int exponent = floor_log2(amax) - element.emax;
  switch (mode) {
    case ScaleMode::kFloor: break;
    case ScaleMode::kCeil: exponent += std::ldexp(1.0, floor_log2(amax)) < amax ? 1 : 0; break;
    case ScaleMode::kRceil:
      while (std::ldexp(element.largest(), exponent) < amax) ++exponent;
      break;
    case ScaleMode::kEven: {
      // amax to the element's mantissa width, halves up.
      const double step = std::ldexp(1.0, floor_log2(amax) - element.mantissa_bits);
      exponent = floor_log2(std::floor(amax / step + 0.5) * step) - element.emax;
      break;
    }
  }
  return std::clamp(exponent + 127, 0, 254);
}

struct Group {
  int scale = 0;
  std::vector<int> codes;
  std::vector<double> values;  // as decoded; NVFP4's product with the global scale is the caller's
};

inline double amax_of(const std::vector<float>& x) {
  double amax = 0.0;
  for (const float v : x) amax = std::max(amax, std::fabs(static_cast<double>(v)));
  return amax;
}

inline Group mx(const std::vector<float>& x, const Float& element, ScaleMode mode) {
  Group g;
  g.scale = e8m0(amax_of(x), element, mode);
  const double scale = std::ldexp(1.0, g.scale - 127);
  for (const float v : x) {
    g.codes.push_back(element.nearest(v / scale));
    g.values.push_back(element.value(g.codes.back()) * scale);
  }
  return g;
}

/// Under a scale already chosen. `t` is x over the global scale.
inline Group nvfp4_with(const std::vector<float>& t, int sf) {
  Group g;
  g.scale = sf;
  const double scale = kE4m3.value(sf);
  for (const float v : t) {
    // A zero scale leaves nothing to represent: zeros, with their signs.
    const int code = scale > 0.0 ? kE2m1.nearest(v / scale) : std::signbit(v) ? 8 : 0;
    g.codes.push_back(code);
    g.values.push_back(kE2m1.value(code) * scale);
  }
  return g;
}

inline Group nvfp4(const std::vector<float>& x, float global, Nvfp4Scale choice) {
  std::vector<float> t;
  const float reciprocal = 1.0f / global;
  for (const float v : x) t.push_back(v * reciprocal);
  const auto amax = static_cast<float>(amax_of(t));
  const Group six = nvfp4_with(t, kE4m3.nearest(amax / 6.0f));
  if (choice == Nvfp4Scale::kAmaxOver6) return six;
  const Group four = nvfp4_with(t, kE4m3.nearest(amax / 4.0f));
  double error_six = 0.0;
  double error_four = 0.0;
  for (std::size_t i = 0; i < t.size(); ++i) {
    error_six += (t[i] - six.values[i]) * (t[i] - six.values[i]);
    error_four += (t[i] - four.values[i]) * (t[i] - four.values[i]);
  }
  return error_four < error_six ? four : six;
}

}  // namespace oracle
