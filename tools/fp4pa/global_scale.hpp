// NVFP4's decode multiplier where none is given.
#pragma once

#include <algorithm>
#include <cmath>

namespace fp4pa::tool {

inline constexpr float kLeastGlobalScale = 0x1p-126f, kMostGlobalScale = 0x1p126f;  // that the library takes

/// The larger one of `largest` and |x|; an infinity or a NaN does not count.
[[nodiscard]] inline double larger_finite(double largest, double x) {
  return std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
}

/// The largest magnitude becomes 448 * 6, the top of the scale's and the element's range.
[[nodiscard]] inline float default_global_scale(double largest) {
  if (largest == 0.0) return 1.0f;
  return static_cast<float>(std::clamp<double>(largest / 2688.0, kLeastGlobalScale, kMostGlobalScale));
}

}  // namespace fp4pa::tool
