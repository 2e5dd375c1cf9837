// f16 and bf16: every 16-bit pattern, and the roundings against definitions in double.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/formats/half.hpp"
#include "formats_oracle.hpp"

using namespace fp4pa::core;
using oracle::from_bits;
using oracle::to_bits;

namespace {

static_assert(f32_to_f16(1.0f) == 0x3c00 && f32_to_f16(65520.0f) == 0x7c00 && f32_to_f16(0x1p-24f) == 0x0001);
static_assert(f16_to_f32(0x7bff) == 65504.0f && f16_to_f32(0x8001) == -0x1p-24f);
static_assert(f32_to_bf16(1.00390625f) == 0x3f80 && f32_to_bf16(1.01171875f) == 0x3f82 && bf16_to_f32(0xc000) == -2.0f);

TEST_CASE("half: every f16 decodes to its value and encodes back") {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const int magnitude = static_cast<int>(code & 0x7fff);
    const float value = f16_to_f32(half);
    if (magnitude > 0x7c00) {
      REQUIRE(std::isnan(value));
      // Sign and payload survive; encoding makes it quiet.
      REQUIRE((to_bits(value) & 0x807fffffu) == ((code & 0x8000u) << 16 | (code & 0x3ffu) << 13));
      REQUIRE(f32_to_f16(value) == (code | 0x0200u));
      continue;
    }
    const double expected = magnitude == 0x7c00 ? std::numeric_limits<double>::infinity()
                                                : oracle::magnitude_value(oracle::kF16, magnitude);
    REQUIRE(to_bits(value) == to_bits(static_cast<float>((code & 0x8000u) != 0 ? -expected : expected)));
    REQUIRE(f32_to_f16(value) == half);
  }
}

#ifdef __FLT16_MAX__
TEST_CASE("half: f16 agrees with the compiler's _Float16") {
  oracle::Random random{7};
  for (int i = 0; i < 2'000'000; ++i) {
    // Half of them near the f16 range, where the interesting roundings are.
    std::uint32_t bits = static_cast<std::uint32_t>(random.next());
    if (i % 2 == 0) bits = (bits & 0x807fffffu) | static_cast<std::uint32_t>(100 + random.below(45)) << 23;
    const float x = from_bits(bits);
    if (std::isnan(x)) continue;
    REQUIRE(f32_to_f16(x) == std::bit_cast<std::uint16_t>(static_cast<_Float16>(x)));
  }
}
#endif

TEST_CASE("half: NaN stays NaN, quiet, with its sign") {
  for (std::uint32_t payload : {0x000001u, 0x000fffu, 0x001000u, 0x00ffffu, 0x400000u, 0x5a5a5au, 0x7fffffu}) {
    for (std::uint32_t sign : {0u, 0x80000000u}) {
      const float nan = from_bits(sign | 0x7f800000u | payload);
      CHECK(f32_to_f16(nan) == (sign >> 16 | 0x7e00u | payload >> 13));
      CHECK(f32_to_bf16(nan) == (sign >> 16 | 0x7fc0u | payload >> 16));
    }
  }
}

TEST_CASE("half: every bf16 decodes to its value; roundings to it at and around every midpoint") {
  for (std::uint32_t code = 0; code < 0x8000; ++code) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(code));
    REQUIRE(to_bits(value) == code << 16);
    if (code >= 0x7f80) continue;  // infinity and NaN
    // bf16 is a truncated float: the next one is 2^16 float steps away, and above the largest comes infinity.
    const std::uint32_t even = code % 2 == 0 ? code : code + 1;
    for (std::uint32_t sign : {0u, 0x80000000u}) {
      const std::uint32_t base = code << 16 | sign;
      const std::uint32_t half_sign = sign >> 16;
      REQUIRE(f32_to_bf16(from_bits(base)) == (code | half_sign));
      REQUIRE(f32_to_bf16(from_bits(base + 0x7fff)) == (code | half_sign));
      REQUIRE(f32_to_bf16(from_bits(base + 0x8000)) == (even | half_sign));
      REQUIRE(f32_to_bf16(from_bits(base + 0x8001)) == ((code + 1) | half_sign));
      REQUIRE(f32_to_bf16(from_bits(base + 0xffff)) == ((code + 1) | half_sign));
    }
  }
  CHECK(f32_to_bf16(std::numeric_limits<float>::infinity()) == 0x7f80);
  CHECK(f32_to_bf16(-std::numeric_limits<float>::infinity()) == 0xff80);
}

}  // namespace
