// Eight E2M1 codes at a time against the codes one by one: around every tie, under every scale.
#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>
#include <utility>

#include "core/divisor.hpp"
#include "core/formats/e2m1_pairs.hpp"
#include "core/formats/e2m1_words.hpp"
#include "core/formats/formats.hpp"
#include "tests/formats/bf16_pairs.hpp"

using namespace fp4pa;

namespace {

constexpr float kTies[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 7.0f};

std::uint32_t half(float x) { return core::f32_to_f16(x); }

/// Codes of eight values that are divided by a scale already but for `factor`.
std::uint32_t codes(const float (&x)[8], float factor, bool few_bits) {
  std::uint32_t halves[4];
  for (int p = 0; p < 4; ++p) {
    const auto one = [&](float v) { return half((few_bits ? v : core::odd_bf16(v)) * factor); };
    halves[p] = one(x[p]) | one(x[p + 4]) << 16;
  }
  return core::e2m1_codes<tests::Bf16Pairs>(halves);
}

/// Eight values from `middle` on, a unit in the last of `bits` mantissa bits apart, of either sign.
void around(float middle, int bits, float (&x)[8]) {
  const std::uint32_t step = 1u << (23 - bits);
  for (int i = 0; i < 8; ++i) {
    const float v = core::float_from_bits(core::float_bits(middle) + static_cast<std::uint32_t>(i - 3) * step);
    x[i] = i % 3 == 0 ? -v : v;
  }
}

}  // namespace

TEST_CASE("E2M1 words: as MXFP4's codes around every tie and scale") {
  long long wrong = 0;
  for (int scale = 0; scale < 254; ++scale) {
    const auto e8m0 = static_cast<std::uint8_t>(scale);
    const float factor = core::e8m0_reciprocal(e8m0) * core::kE2m1HalfUnit;
    for (const float tie : kTies) {
      const float middle = tie * core::E8M0::decode(e8m0);
      if (!std::isnormal(middle) || core::float_bits(middle) < 0x01000000u) continue;
      for (const int bits : {7, 23}) {
        float x[8];
        around(middle, bits, x);
        const std::uint32_t word = codes(x, factor, bits == 7);
        for (int i = 0; i < 8; ++i) wrong += ((word >> (4 * i)) & 15u) != core::e2m1_code(x[i], e8m0);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("E2M1 rounded by an addition: every f32 under 8 that is not far below the first tie, and the ties' surroundings") {
  long long wrong = 0;
  const auto check = [&](float y) {
    const float value = core::e2m1_rounded(y * core::kE2m1HalfUnit) / core::kE2m1HalfUnit;
    const auto code = static_cast<std::uint8_t>(core::E2M1::encode(y));
    wrong += (value < 8.0f ? value : 6.0f) != core::E2M1::decode(code);
  };
  for (std::uint32_t bits = 0; bits < 0x41000000u; bits += 97) check(core::float_from_bits(bits));
  for (const float tie : kTies) {
    for (int i = -300; i <= 300; ++i) check(core::float_from_bits(core::float_bits(tie) + static_cast<std::uint32_t>(i)));
  }
  CHECK(wrong == 0);
}

TEST_CASE("E2M1 pairs: as MXFP4's codes for every bfloat16 under every scale that it can have") {
  long long wrong = 0;
  for (std::uint32_t scale = 0; scale < 254; ++scale) {
    const auto e8m0 = static_cast<std::uint8_t>(scale);
    const auto to_units = core::Bf16ToUnits::of(e8m0);
    const float limit = 8.0f * core::E8M0::decode(e8m0);
    for (std::uint32_t first = 0; first < 0x7f80u; first += 8) {
      if (!(core::bf16_to_f32(static_cast<std::uint16_t>(first + 7)) < limit)) break;
      for (const std::uint32_t signs : {0x80000000u, 0x00008000u}) {
        std::uint32_t x[4];
        std::uint32_t scaled[4];
        for (std::uint32_t p = 0; p < 4; ++p) {
          x[p] = (first + 2 * p) | (first + 2 * p + 1) << 16 | signs;
          scaled[p] = to_units.twice ? tests::Bf16Pairs::mul(x[p], core::Bf16ToUnits::kFirst) : x[p];
        }
        const std::uint32_t word = core::e2m1_codes_of_bf16<tests::Bf16Pairs>(
            scaled, {to_units.factor, to_units.factor, to_units.factor, to_units.factor});
        for (int i = 0; i < 8; ++i) {
          const float value = core::bf16_to_f32(static_cast<std::uint16_t>(x[i / 2] >> (16 * (i % 2))));
          wrong += ((word >> (4 * i)) & 15u) != core::e2m1_code(value, e8m0);
        }
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("E2M1 pairs: scales of every finite bfloat16 under every rule, and their factors, as one by one") {
  for (const ScaleMode mode : {ScaleMode::kFloor, ScaleMode::kCeil, ScaleMode::kRceil, ScaleMode::kEven}) {
    const std::uint32_t carry = core::e8m0_carry<core::E2M1>(mode);
    long long wrong = 0;
    for (std::uint32_t low = 0; low < 0x7f80u; ++low) {
      const std::uint32_t high = 0x7f7fu - low;
      const std::uint32_t scales =
          core::e8m0_of_bf16_amax<tests::Bf16Pairs>(low | high << 16 | (low % 2 == 0 ? 0x80000000u : 0x8000u), core::bf16_pair(carry >> 16));
      for (const auto& [half, scale] : {std::pair{low, scales & 0xffffu}, {high, scales >> 16}}) {
        wrong += scale != core::e8m0_with_carry<core::E2M1>(core::bf16_to_f32(static_cast<std::uint16_t>(half)), carry);
      }
    }
    CHECK(wrong == 0);
  }
  for (std::uint32_t scale = 0; scale < 254; ++scale) {
    const auto to_units = core::Bf16ToUnits::of(static_cast<std::uint8_t>(scale));
    CHECK(to_units.twice == (scale > core::Bf16ToUnits::kMostOnce));
    if (!to_units.twice) CHECK(core::Bf16ToUnits::factors_of(core::bf16_pair(scale)) == to_units.factor);
  }
}

TEST_CASE("E2M1 pairs: every E8M0 scale as bfloat16") {
  for (std::uint32_t scale = 0; scale < 256; ++scale) {
    const std::uint32_t pair = core::bf16_of_e8m0<tests::Bf16Pairs>(scale | (255 - scale) << 16);
    for (const auto& [code, half] : {std::pair{scale, pair & 0xffffu}, {255 - scale, pair >> 16}}) {
      const float value = core::bf16_to_f32(static_cast<std::uint16_t>(half));
      const float wanted = core::E8M0::decode(static_cast<std::uint8_t>(code));
      CHECK((std::isnan(wanted) ? std::isnan(value) : value == wanted));
    }
  }
}

TEST_CASE("E2M1 pairs: the largest magnitude, NaN above all; codes as bfloat16") {
  const std::uint32_t pairs[4] = {0x3f80c000u, 0x00000001u, 0xbf800000u, 0x80003fffu};
  CHECK(core::bf16_amax<tests::Bf16Pairs, 4>(pairs) == 2.0f);
  const std::uint32_t with_nan[4] = {0x3f80c000u, 0x7f800001u, 0xbf80ff81u, 0x80003fffu};
  CHECK(std::isnan(core::bf16_amax<tests::Bf16Pairs, 4>(with_nan)));
  for (std::uint32_t n = 0; n < 16; ++n) {
    for (int i = 0; i < 8; ++i) {
      std::uint32_t x[4];
      core::bf16_of_e2m1<tests::Bf16Pairs>(n << (4 * i) | 0x5u << (4 * ((i + 1) % 8)), x);
      const float value = core::bf16_to_f32(static_cast<std::uint16_t>(x[i / 2] >> (16 * (i % 2))));
      CHECK(core::float_bits(value) == core::float_bits(core::E2M1::decode(static_cast<std::uint8_t>(n))));
    }
  }
}

TEST_CASE("E2M1 words: as NVFP4's codes around every tie and scale, by a reciprocal that is a little off") {
  long long wrong = 0;
  for (int sf = 1; sf < 0x7f; ++sf) {
    const float scale = core::UE4M3::decode(static_cast<std::uint8_t>(sf));
    for (const std::uint32_t off : {0u, 2u, ~1u}) {
      const float factor = core::float_from_bits(core::float_bits(1.0f / scale) + off) * core::kE2m1HalfUnit;
      for (const float tie : kTies) {
        float x[8];
        around(tie * scale, 23, x);
        const std::uint32_t word = codes(x, factor, false);
        for (int i = 0; i < 8; ++i) {
          wrong += ((word >> (4 * i)) & 15u) != core::e2m1_code_nvfp4(x[i], static_cast<std::uint8_t>(sf), 1.0f);
        }
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("E2M1 words: halves are the values times 2^-14") {
  for (std::uint32_t n = 0; n < 16; ++n) {
    for (int i = 0; i < 8; ++i) {
      std::uint32_t halves[4];
      core::e2m1_halves(n << (4 * i) | 0x5u << (4 * ((i + 1) % 8)), halves);
      const float value = core::f16_to_f32(static_cast<std::uint16_t>(halves[i % 4] >> (i < 4 ? 0 : 16)));
      CHECK(core::float_bits(value) == core::float_bits(core::E2M1::decode(static_cast<std::uint8_t>(n)) * core::kE2m1HalfUnit));
    }
  }
}

TEST_CASE("Divisor divides") {
  long long wrong = 0;
  for (std::uint32_t d = 1; d < 3000; ++d) {
    const core::Divisor divisor = core::Divisor::of(d);
    for (const std::uint32_t q : {0u, 1u, 2u, 77u, 0x7fffffffu / d}) {
      for (const std::uint32_t n : {q * d, q * d + d - 1, q * d - 1}) {
        if (n <= 0x7fffffffu) wrong += divisor.quotient(n) != n / d;
      }
    }
  }
  for (const std::uint32_t d : {0x7fffffffu, 0x40000000u, 0x40000001u, 65537u, 1000003u}) {
    for (const std::uint32_t n : {0u, d - 1, d, 0x7fffffffu, 0x7ffffffeu}) wrong += core::Divisor::of(d).quotient(n) != n / d;
  }
  CHECK(wrong == 0);
}

TEST_CASE("blocked scale offsets in 32 bits are those in 64") {
  long long wrong = 0;
  for (std::uint32_t groups = 1; groups < 20; ++groups) {
    for (std::uint32_t row = 0; row < 400; row += 7) {
      for (std::uint32_t g = 0; g < groups; ++g) {
        wrong += static_cast<std::size_t>(core::blocked_scale_offset_32(row, g, groups)) != core::blocked_scale_offset(row, g, groups);
      }
    }
  }
  CHECK(wrong == 0);
}
