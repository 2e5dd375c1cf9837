// The conversions of backends/sm80/convert.hpp that no instruction does, on every pair of codes, and the order of codes of
// backends/sm90/code_order.hpp.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>

#include "backends/sm80/convert.hpp"
#include "backends/sm90/code_order.hpp"

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

TEST_CASE("e2m1_to_f16 and e2m1_to_bf16: every pair of codes, in every place") {
  int wrong = 0;
  for (std::uint32_t codes = 0; codes < 0x100; ++codes) {
    for (int place = 0; place < 4; ++place) {
      for (const std::uint32_t others : {0u, 0x5a5a5a5au, 0xffffffffu}) {
        const std::uint32_t word = codes << (8 * place) | (others & ~(0xffu << (8 * place)));
        std::uint32_t f[4], bf[4];
        fp4pa::sm80::e2m1_to_f16(word, f);
        fp4pa::sm80::e2m1_to_bf16(word, bf);
        for (int n = 2 * place; n < 2 * place + 2; ++n) {
          const float want = fp4pa::core::E2M1::decode(static_cast<std::uint8_t>(codes >> (4 * (n % 2)) & 0xfu));
          const int shift = n / 4 * 16;
          const auto as_f16 = static_cast<std::uint16_t>(f[n % 4] >> shift), as_bf16 = static_cast<std::uint16_t>(bf[n % 4] >> shift);
          for (const float got : {std::ldexp(fp4pa::core::f16_to_f32(as_f16), -fp4pa::sm80::kE2m1F16Log2),
                                  std::ldexp(fp4pa::core::bf16_to_f32(as_bf16), 126)}) {
            wrong += got != want || std::signbit(got) != std::signbit(want);
          }
        }
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("arrange_codes: a lane decodes its two columns of each word") {
  using fp4pa::core::E2M1;
  const auto value = [](std::uint32_t half, bool bf16) {
    const auto bits = static_cast<std::uint16_t>(half);
    return bf16 ? std::ldexp(fp4pa::core::bf16_to_f32(bits), 126) : std::ldexp(fp4pa::core::f16_to_f32(bits), -fp4pa::sm80::kE2m1F16Log2);
  };
  std::mt19937 random(1);
  int wrong = 0;
  for (int round = 0; round < 100; ++round) {
    std::uint32_t words[4];
    for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
    const auto code = [&](int column) { return words[column / 8] >> (column % 8 * 4) & 15u; };
    std::uint32_t lanes[4];
    fp4pa::sm90::arrange_codes(words, lanes);
    for (int lane = 0; lane < 4; ++lane) {
      std::uint32_t decoded[2][4];
      fp4pa::sm80::e2m1_to_f16(lanes[lane], decoded[0]);
      fp4pa::sm80::e2m1_to_bf16(lanes[lane], decoded[1]);
      for (int i = 0; i < 16; ++i) {
        const int type = i / 8, word = i / 2 % 4, half = i % 2;
        const float want = E2M1::decode(static_cast<std::uint8_t>(code(8 * word + 2 * lane + half)));
        const float got = value(decoded[type][word] >> (16 * half), type == 1);
        wrong += got != want || std::signbit(got) != std::signbit(want);
      }
    }
  }
  CHECK(wrong == 0);
}
