// MX blocks: scale and codes against exact arithmetic in double, and the documented edge cases one by one.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/formats/block.hpp"
#include "formats_oracle.hpp"

using namespace fp4pa::core;
using fp4pa::ScaleMode;
using oracle::from_bits;
using oracle::to_bits;

namespace {

constexpr ScaleMode kModes[] = {ScaleMode::kFloor, ScaleMode::kCeil, ScaleMode::kRceil, ScaleMode::kEven};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Nearest code to x / 2^(scale - 127), with the quotient exact in double.
int expected_code(const oracle::Format& f, int sign_bit, float x, int scale) {
  const double quotient = std::ldexp(static_cast<double>(std::fabs(x)), 127 - scale);
  return oracle::nearest_code(f, quotient) | (std::signbit(x) ? sign_bit : 0);
}

TEST_CASE("mx: one element under every scale, at and around every tie, subnormals included") {
  for (int scale = 0; scale <= 254; ++scale) {
    const auto s = static_cast<std::uint8_t>(scale);
    REQUIRE(static_cast<double>(e8m0_reciprocal(s)) * oracle::e8m0_value(scale) == 1.0);
    for (double quotient : {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0, 8.0, 0.5, 1.0, 0.0, 1e-3}) {
      const float at = static_cast<float>(quotient * oracle::e8m0_value(scale));
      for (float x : {std::nextafter(at, -kInf), at, std::nextafter(at, kInf), -at, std::nextafter(-at, -kInf)}) {
        if (!std::isfinite(x)) continue;
        CAPTURE(scale);
        CAPTURE(x);
        REQUIRE(e2m1_code(x, s) == expected_code(oracle::kE2M1, 0x8, x, scale));
        REQUIRE(e4m3_code(x, s) == expected_code(oracle::kE4M3, 0x80, x, scale));
      }
    }
    REQUIRE(e2m1_code(std::numeric_limits<float>::max(), s) ==
            expected_code(oracle::kE2M1, 0x8, std::numeric_limits<float>::max(), scale));
    REQUIRE(e2m1_code(from_bits(1), s) == expected_code(oracle::kE2M1, 0x8, from_bits(1), scale));
  }
}

TEST_CASE("mx: decoding is exact wherever the value is a float") {
  for (int scale = 0; scale <= 254; ++scale) {
    for (int code = 0; code < 16; ++code) {
      const double magnitude = oracle::magnitude_value(oracle::kE2M1, code & 7) * oracle::e8m0_value(scale);
      const float expected = static_cast<float>(code < 8 ? magnitude : -magnitude);
      CHECK(to_bits(mx_value<E2M1>(static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(scale))) ==
            to_bits(expected));
      CHECK((static_cast<double>(std::fabs(expected)) == magnitude || (scale >= 253 && std::isinf(expected))));
    }
  }
  CHECK(std::isnan(mx_value<E2M1>(0, 0xff)));
}

template <int N>
void check_random_blocks(std::uint64_t seed) {
  oracle::Random random{seed};
  for (int trial = 0; trial < 2000; ++trial) {
    float x[N];
    // Few mantissa bits half of the time, so that ties occur; magnitudes over the whole range of floats.
    const int exponent = random.below(270) - 145;
    for (float& value : x) {
      const double v = trial % 2 == 0 ? std::round(static_cast<double>(random.uniform()) * 64) / 16
                                      : static_cast<double>(random.uniform());
      value = static_cast<float>(std::ldexp(v, exponent));
    }
    float amax = 0;
    for (float value : x) amax = std::fmax(amax, std::fabs(value));
    for (ScaleMode mode : kModes) {
      std::uint8_t packed[N / 2];
      const std::uint8_t scale = encode_mxfp4(x, mode, packed);
      REQUIRE(scale == e8m0_from_amax<E2M1>(amax, mode));  // itself tested in test_scale_mode.cpp
      float decoded[N];
      decode_mxfp4(packed, scale, decoded);
      for (int i = 0; i < N; ++i) {
        const int code = i % 2 == 0 ? packed[i / 2] % 16 : packed[i / 2] / 16;
        REQUIRE(code == expected_code(oracle::kE2M1, 0x8, x[i], scale));
        const double magnitude = oracle::magnitude_value(oracle::kE2M1, code % 8) * oracle::e8m0_value(scale);
        REQUIRE(to_bits(decoded[i]) == to_bits(static_cast<float>(code < 8 ? magnitude : -magnitude)));
      }
      std::uint8_t codes[N];
      const std::uint8_t fp8_scale = encode_mxfp8(x, N, mode, codes);
      REQUIRE(fp8_scale == e8m0_from_amax<E4M3>(amax, mode));
      decode_mxfp8(codes, N, fp8_scale, decoded);
      for (int i = 0; i < N; ++i) {
        REQUIRE(codes[i] == expected_code(oracle::kE4M3, 0x80, x[i], fp8_scale));
        const double magnitude = oracle::magnitude_value(oracle::kE4M3, codes[i] % 128) * oracle::e8m0_value(fp8_scale);
        REQUIRE(to_bits(decoded[i]) == to_bits(static_cast<float>(codes[i] < 128 ? magnitude : -magnitude)));
      }
    }
  }
}

TEST_CASE("mx: random blocks of 32") { check_random_blocks<32>(23); }
TEST_CASE("mx: random blocks of 128 and of 6") {
  check_random_blocks<128>(29);
  check_random_blocks<6>(31);
}

TEST_CASE("mx: zero blocks have scale 0 and codes 0, with the sign of -0") {
  for (ScaleMode mode : kModes) {
    float x[32] = {};
    x[5] = -0.0f;
    std::uint8_t packed[16];
    CHECK(encode_mxfp4(x, mode, packed) == 0);
    for (int i = 0; i < 16; ++i) CHECK(packed[i] == (i == 2 ? 0x80 : 0x00));
    std::uint8_t codes[32];
    CHECK(encode_mxfp8(x, 32, mode, codes) == 0);
    for (int i = 0; i < 32; ++i) CHECK(codes[i] == (i == 5 ? 0x80 : 0x00));
  }
}

TEST_CASE("mx: NaN or infinity anywhere makes scale 0xFF and every code the NaN code") {
  for (ScaleMode mode : kModes) {
    for (int position : {0, 1, 17, 31}) {
      for (float bad : {kNan, -kNan, from_bits(0xff800001u), kInf, -kInf}) {
        float x[32];
        for (int i = 0; i < 32; ++i) x[i] = i % 3 == 0 ? -1.0f : (i % 3 == 1 ? 0.0f : 3e38f);
        x[position] = bad;
        std::uint8_t packed[16];
        CHECK(encode_mxfp4(x, mode, packed) == 0xff);
        for (std::uint8_t byte : packed) REQUIRE(byte == 0x77);
        std::uint8_t codes[32];
        CHECK(encode_mxfp8(x, 32, mode, codes) == 0xff);
        for (std::uint8_t code : codes) REQUIRE(code == 0x7f);
        float decoded[32];
        decode_mxfp4(packed, 0xff, decoded);
        for (float value : decoded) REQUIRE(std::isnan(value));
      }
    }
  }
}

TEST_CASE("mx: scale 0 is a subnormal float and loses nothing that E2M1 keeps") {
  // amax = 6 * 2^-127: the largest block of the smallest scale.
  const float unit = 0x1p-127f;
  float x[32] = {};
  const float values[] = {6, 4, 3, 2, 1.5f, 1, 0.5f, 0.25f, 0.75f, 5, -6, -0.25f};
  for (int i = 0; i < 12; ++i) x[i] = values[i] * unit;
  std::uint8_t packed[16];
  CHECK(encode_mxfp4(x, ScaleMode::kFloor, packed) == 0);
  const int expected[] = {7, 6, 5, 4, 3, 2, 1, 0, 2, 6, 15, 8};
  for (int i = 0; i < 12; ++i) CHECK(unpack_e2m1(packed[i / 2], i % 2) == expected[i]);
  float decoded[32];
  decode_mxfp4(packed, 0, decoded);
  for (int i = 0; i < 7; ++i) CHECK(to_bits(decoded[i]) == to_bits(x[i]));
}

TEST_CASE("mx: the largest floats") {
  float x[32] = {};
  x[0] = std::numeric_limits<float>::max();
  std::uint8_t packed[16];
  // 2^128 (1 - 2^-24): floor divides by 2^125 and saturates at 6; ceil divides by 2^126 and rounds up to 4, which is
  // 2^128.
  CHECK(encode_mxfp4(x, ScaleMode::kFloor, packed) == 252);
  CHECK(packed[0] == 0x07);
  CHECK(std::isfinite(mx_value<E2M1>(7, 252)));
  for (ScaleMode mode : {ScaleMode::kCeil, ScaleMode::kRceil, ScaleMode::kEven}) {
    CHECK(encode_mxfp4(x, mode, packed) == 253);
    CHECK(packed[0] == 0x06);
  }
  CHECK(mx_value<E2M1>(6, 253) == kInf);
}

TEST_CASE("mx: encodes in a constant expression") {
  constexpr auto result = [] {
    float x[32] = {};
    x[0] = 6.0f;
    x[1] = -2.5f;
    std::array<std::uint8_t, 17> out{};
    out[16] = encode_mxfp4(x, ScaleMode::kFloor, out.data());
    return out;
  }();
  static_assert(result[16] == 127 && result[0] == 0xc7 && result[1] == 0);
  CHECK(result[15] == 0);
}

TEST_CASE("amax: NaN wins over everything, in any place; strides are honoured") {
  CHECK(group_amax(nullptr, 0) == 0.0f);
  const float x[] = {1, kInf, -kInf, -2};
  CHECK(group_amax(x, 4) == kInf);
  CHECK(group_amax(x, 2, 3) == 2.0f);
  for (int position = 0; position < 4; ++position) {
    float y[] = {1, kInf, -kInf, -2};
    y[position] = -kNan;
    CHECK(std::isnan(group_amax(y, 4)));
  }
}

}  // namespace
