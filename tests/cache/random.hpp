// Reproducible inputs for the cache tests.
//
// The generator is written out (SplitMix64, Steele et al. 2014), because the standard distributions give different
// numbers in different standard libraries, and a failing seed should mean the same thing everywhere.
#pragma once

#include <cmath>
#include <cstdint>

namespace test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// From 0 to n - 1.
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint64_t>(n)); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  /// What a KV cache sees: mostly around 1, some large channels, some zeros of either sign, and now and then something
  /// tiny.
  float value() {
    const double magnitude = std::exp2(6.0 * uniform() - 4.0);
    const double x = (bits() & 1) != 0 ? -magnitude : magnitude;
    switch (below(32)) {
      case 0: return x < 0 ? -0.0f : 0.0f;
      case 1: return static_cast<float>(x * 40.0);
      case 2: return static_cast<float>(x * 0x1p-20);
      default: return static_cast<float>(x);
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace test
