// The conversions of backends/gfx942/convert.hpp that no instruction does, as the host computes them.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "backends/gfx942/convert.hpp"

namespace {

using namespace fp4pa;

float bf16(std::uint32_t bits) { return core::bf16_to_f32(static_cast<std::uint16_t>(bits)); }

}  // namespace

TEST_CASE("gfx942, e2m1_to_bf16 and e2m1_to_f16: every pair of codes, in every place") {
  int wrong = 0;
  for (std::uint32_t codes = 0; codes < 0x100; ++codes) {
    for (int place = 0; place < 4; ++place) {
      const std::uint32_t word = codes << (8 * place) | (0x5a5a5a5au & ~(0xffu << (8 * place)));
      std::uint32_t bf[4], f[4];
      gfx942::e2m1_to_bf16(word, bf);
      gfx942::e2m1_to_f16(word, f);
      for (int n = 2 * place; n < 2 * place + 2; ++n) {
        const float want = core::E2M1::decode(static_cast<std::uint8_t>(codes >> (4 * (n % 2)) & 0xfu));
        const int shift = n / 4 * 16;
        const float as_bf16 = bf16(bf[n % 4] >> shift);
        const float as_f16 = core::f16_to_f32(static_cast<std::uint16_t>(f[n % 4] >> shift));
        wrong += as_bf16 != want || as_f16 != want || std::signbit(as_bf16) != std::signbit(want);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("gfx942, scale_bf16: every scale of probabilities up to 2^90") {
  constexpr std::uint32_t kMost = (90 + 127) << 7;
  for (const std::uint32_t top : {91u, 157u, 255u, 284u}) {  // 91 and 284: of a tile of the smallest scales, and of the largest
    CAPTURE(top);
    int wrong = 0;
    for (std::uint32_t byte = 0; byte <= 255 && byte <= top; ++byte) {
      for (std::uint32_t p = 0; p <= kMost; p = p < 0x100 ? p + 1 : p + 37) {
        // Beside it the least and the most that the other half may be.
        const std::uint32_t low = gfx942::scale_bf16(p, byte, (top << 7) * 0x10001u);
        const std::uint32_t high = gfx942::scale_bf16(p << 16 | kMost, byte << 16 | (top < 255 ? top : 255), (top << 7) * 0x10001u) >> 16;
        const double want = std::ldexp(double{bf16(p)}, static_cast<int>(byte) - static_cast<int>(top));
        const bool right = p == 0 ? low == 0 : want >= 0x1p-126 ? double{bf16(low)} == want : low <= 0x7f;
        wrong += !right || high != low;
      }
    }
    CHECK(wrong == 0);
  }
}
