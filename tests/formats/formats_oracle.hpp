// The formats once more, from their definitions, in double: what the tests of core/formats compare against.
//
// Nothing here shares code or method with core/formats. A value is written out as sign, exponent and fraction; an
// encoding is a search for the nearest value, or a list of thresholds, one for each code. A double holds every value,
// every midpoint of two neighbours and every product with a scale exactly.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace oracle {

struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  int max_code;  // of the magnitude
};

inline constexpr Format kE2M1{"E2M1", 2, 1, 1, 0x7};
inline constexpr Format kE2M3{"E2M3", 2, 3, 1, 0x1f};
inline constexpr Format kE3M2{"E3M2", 3, 2, 3, 0x1f};
inline constexpr Format kE4M3{"E4M3", 4, 3, 7, 0x7e};
inline constexpr Format kE4M3Fnuz{"E4M3Fnuz", 4, 3, 8, 0x7f};
inline constexpr Format kE5M2{"E5M2", 5, 2, 15, 0x7b};
inline constexpr Format kF16{"f16", 5, 10, 15, 0x7bff};

/// Value of a magnitude code, finite.
inline double magnitude_value(const Format& f, int code) {
  const int exponent = code >> f.mantissa_bits;
  const double fraction = static_cast<double>(code & ((1 << f.mantissa_bits) - 1)) / (1 << f.mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - f.bias) : std::ldexp(1.0 + fraction, exponent - f.bias);
}

/// Nearest code to a magnitude by exhaustive search; ties to the even code; saturating.
inline int nearest_code(const Format& f, double magnitude) {
  // Far above the largest value the differences below would all round to the same double.
  if (magnitude >= magnitude_value(f, f.max_code)) return f.max_code;
  int best = 0;
  for (int code = 1; code <= f.max_code; ++code) {
    const double difference = std::fabs(magnitude_value(f, code) - magnitude);
    const double best_difference = std::fabs(magnitude_value(f, best) - magnitude);
    if (difference < best_difference || (difference == best_difference && code % 2 == 0)) best = code;
  }
  return best;
}

/// Bits of the first float that rounds to each code or above, for codes 0 to max_code, in a row. Increasing.
inline std::vector<std::uint32_t> first_float_bits(const Format& f) {
  std::vector<std::uint32_t> first{0};
  for (int code = 1; code <= f.max_code; ++code) {
    const double midpoint = (magnitude_value(f, code - 1) + magnitude_value(f, code)) / 2;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(midpoint));
    first.push_back(code % 2 == 0 ? bits : bits + 1);
  }
  return first;
}

/// 2^(code - 127) as a double; NaN for 255.
inline double e8m0_value(int code) {
  return code == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - 127);
}

inline float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t to_bits(float x) { return std::bit_cast<std::uint32_t>(x); }

/// A small generator, the same on every platform (splitmix64).
struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// Uniform in [-1, 1).
  float uniform() { return static_cast<float>(static_cast<std::int32_t>(next() >> 32)) * 0x1p-31f; }
  int below(int n) { return static_cast<int>(next() % static_cast<std::uint64_t>(n)); }
};

}  // namespace oracle
