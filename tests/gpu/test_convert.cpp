// The conversions of backends/sm80/convert.hpp that no instruction does, on every pair of codes.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "backends/sm80/convert.hpp"

TEST_CASE("e4m3_to_bf16: every pair of codes, NaN included") {
  const auto value = [](std::uint32_t code) { return fp4pa::core::E4M3::decode(static_cast<std::uint8_t>(code)); };
  int wrong = 0;
  for (std::uint32_t pair = 0; pair < 0x10000; ++pair) {
    for (const int word : {0, 1}) {
      std::uint32_t out[2];
      fp4pa::sm80::e4m3_to_bf16(pair << (16 * word) | 0x7fa5u << (16 - 16 * word), out);
      for (const int half : {0, 1}) {
        const float want = value((pair >> (8 * half)) & 0xffu);
        const float got = std::ldexp(fp4pa::core::bf16_to_f32(static_cast<std::uint16_t>(out[word] >> (16 * half))),
                                     -fp4pa::sm80::kE4m3Bf16Log2);
        wrong += std::isnan(want) ? !std::isnan(got) : got != want || std::signbit(got) != std::signbit(want);
      }
    }
  }
  CHECK(wrong == 0);
}
