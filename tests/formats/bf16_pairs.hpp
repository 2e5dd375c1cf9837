// What core/formats/e2m1_pairs.hpp asks of a device, on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/formats/half.hpp"

namespace fp4pa::tests {

/// Each result is rounded once, as the instructions of bfloat16 pairs do: sums of two products of pairs are exact in f64.
struct Bf16Pairs {
  static std::uint32_t mul(std::uint32_t a, std::uint32_t b) {
    return each([](double x, double y, double) { return x * y; }, a, b, 0);
  }
  static std::uint32_t sub(std::uint32_t a, std::uint32_t b) {
    return each([](double x, double y, double) { return x - y; }, a, b, 0);
  }
  static std::uint32_t fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    return each([](double x, double y, double z) { return x * y + z; }, a, b, c);
  }
  static std::uint32_t max_magnitude(std::uint32_t a, std::uint32_t b) { return of_magnitudes(a, b, true); }
  static std::uint32_t min_magnitude(std::uint32_t a, std::uint32_t b) { return of_magnitudes(a, b, false); }
  static std::uint32_t max_halves(std::uint32_t a, std::uint32_t b) {
    return std::max(a & 0xffffu, b & 0xffffu) | std::max(a >> 16, b >> 16) << 16;
  }
  static std::uint32_t select(std::uint32_t mask, std::uint32_t a, std::uint32_t b) { return (a & mask) | (b & ~mask); }
  static std::uint32_t bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
    std::uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t byte = (selectors >> (4 * i)) & 7u;
      out |= ((byte < 4 ? a >> (8 * byte) : b >> (8 * (byte - 4))) & 0xffu) << (8 * i);
    }
    return out;
  }

 private:
  static double value(std::uint32_t half) { return core::bf16_to_f32(static_cast<std::uint16_t>(half)); }
  static std::uint32_t rounded(double x) {
    if (x == 0.0 || !std::isfinite(x)) return core::f32_to_bf16(static_cast<float>(x));
    const int last = std::max(std::ilogb(x) - 7, -133);
    return core::f32_to_bf16(static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(x, -last)), last)));
  }
  template <class F>
  static std::uint32_t each(const F& f, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    return rounded(f(value(a & 0xffffu), value(b & 0xffffu), value(c & 0xffffu))) |
           rounded(f(value(a >> 16), value(b >> 16), value(c >> 16))) << 16;
  }
  static std::uint32_t of_magnitudes(std::uint32_t a, std::uint32_t b, bool larger) {
    std::uint32_t out = (a ^ b) & 0x80008000u;
    for (const int shift : {0, 16}) {
      const std::uint32_t x = (a >> shift) & 0x7fffu;
      const std::uint32_t y = (b >> shift) & 0x7fffu;
      out |= (x > 0x7f80u || y > 0x7f80u ? 0x7fffu : (x > y) == larger ? x : y) << shift;
    }
    return out;
  }
};

}  // namespace fp4pa::tests
