// Every code of every element format: value, round trip, and encoding at and around every value and midpoint.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/formats/elements.hpp"
#include "formats_oracle.hpp"

using namespace fp4pa::core;
using oracle::from_bits;
using oracle::to_bits;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

static_assert(E2M1::kBits == 4 && E2M1::kEmax == 2 && E2M1::kMax == 6.0f && E2M1::kBias == 1);
static_assert(E2M3::kBits == 6 && E2M3::kEmax == 2 && E2M3::kMax == 7.5f && E2M3::kBias == 1);
static_assert(E3M2::kBits == 6 && E3M2::kEmax == 4 && E3M2::kMax == 28.0f && E3M2::kBias == 3);
static_assert(E4M3::kBits == 8 && E4M3::kEmax == 8 && E4M3::kMax == 448.0f && E4M3::kBias == 7);
static_assert(E5M2::kBits == 8 && E5M2::kEmax == 15 && E5M2::kMax == 57344.0f && E5M2::kBias == 15);
static_assert(E4M3Fnuz::kBits == 8 && E4M3Fnuz::kEmax == 7 && E4M3Fnuz::kMax == 240.0f && E4M3Fnuz::kBias == 8);
static_assert(UE4M3::kEmax == 8 && UE4M3::kMax == 448.0f && UE4M3::kBias == 7);
static_assert(E8M0::kBits == 8 && E8M0::kBias == 127 && E8M0::kMax == 0x1p127f && E8M0::kMantissaBits == 0);

// All of it is usable in constant expressions.
static_assert(E2M1::encode(5.0f) == 0x6 && E2M1::encode(-0.25f) == 0x8 && E2M1::decode(0xf) == -6.0f);
static_assert(E2M3::encode(1.0625f) == 0x08 && E2M3::decode(0x01) == 0.125f);
static_assert(E3M2::encode(26.0f) == 0x1e && E3M2::decode(0x21) == -0.0625f);
static_assert(E4M3::encode(1e9f) == 0x7e && E4M3::decode(0x01) == 0x1p-9f);
static_assert(E5M2::encode(-1e9f) == 0xfb && E5M2::decode(0x01) == 0x1p-16f);
static_assert(E4M3Fnuz::encode(-0.0f) == 0x00 && E4M3Fnuz::decode(0x01) == 0x1p-10f);
static_assert(UE4M3::encode(448.0f) == 0x7e && UE4M3::decode(0x81) == 0x1p-9f);
static_assert(E8M0::encode(3.0f) == 128 && E8M0::encode(6.0f) == 130 && E8M0::decode(0) == 0x1p-127f);

template <class Element>
void check_signed_format(const oracle::Format& f) {
  CAPTURE(f.name);
  const int sign_bit = 1 << (Element::kBits - 1);
  CHECK(Element::kExponentBits == f.exponent_bits);
  CHECK(Element::kMantissaBits == f.mantissa_bits);
  CHECK(static_cast<double>(Element::kMax) == oracle::magnitude_value(f, f.max_code));
  CHECK(std::ilogb(Element::kMax) == Element::kEmax);
  for (int code = 0; code <= f.max_code; ++code) {
    CAPTURE(code);
    const float value = static_cast<float>(oracle::magnitude_value(f, code));
    CHECK(to_bits(Element::decode(static_cast<std::uint8_t>(code))) == to_bits(value));
    CHECK(Element::encode(value) == code);
    const bool no_negative_zero = f.bias == 8 && code == 0;
    if (!no_negative_zero) {
      CHECK(to_bits(Element::decode(static_cast<std::uint8_t>(code | sign_bit))) == to_bits(-value));
    }
    CHECK(Element::encode(-value) == (no_negative_zero ? 0 : code | sign_bit));
    if (code == f.max_code) continue;

    // The midpoint to the next value, exact in float, and the floats around it.
    const float midpoint =
        static_cast<float>((oracle::magnitude_value(f, code) + oracle::magnitude_value(f, code + 1)) / 2);
    for (int offset = -2; offset <= 2; ++offset) {
      const float x = from_bits(to_bits(midpoint) + static_cast<std::uint32_t>(offset));
      const int expected = oracle::nearest_code(f, static_cast<double>(x));
      CHECK(Element::encode(x) == expected);
      CHECK(Element::encode(-x) == (f.bias == 8 && expected == 0 ? 0 : expected | sign_bit));
    }
  }
  // Saturation, from the first float above the largest value to infinity.
  for (float x : {std::nextafter(Element::kMax, kInf), 1.04f * Element::kMax, 1.5f * Element::kMax, 0x1p100f, kInf}) {
    CHECK(Element::encode(x) == f.max_code);
    CHECK(Element::encode(-x) == (f.max_code | sign_bit));
  }
  // Float subnormals.
  CHECK(Element::encode(from_bits(1)) == 0);
  CHECK(Element::encode(from_bits(0x007fffff)) == 0);
}

TEST_CASE("formats: every code of the signed formats, and every midpoint") {
  check_signed_format<E2M1>(oracle::kE2M1);
  check_signed_format<E2M3>(oracle::kE2M3);
  check_signed_format<E3M2>(oracle::kE3M2);
  check_signed_format<E4M3>(oracle::kE4M3);
  check_signed_format<E5M2>(oracle::kE5M2);
  check_signed_format<E4M3Fnuz>(oracle::kE4M3Fnuz);
}

TEST_CASE("formats: E2M1 by its table") {
  constexpr float kTable[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  for (int code = 0; code < 16; ++code) {
    CHECK(to_bits(E2M1::decode(static_cast<std::uint8_t>(code))) == to_bits(kTable[code]));
    // Bits above the format's are ignored.
    CHECK(to_bits(E2M1::decode(static_cast<std::uint8_t>(code | 0xb0))) == to_bits(kTable[code]));
  }
}

TEST_CASE("formats: NaN encodes to the documented code, whatever its sign and payload") {
  for (std::uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu}) {
    const float nan = from_bits(bits);
    CHECK(E2M1::encode(nan) == 0x07);
    CHECK(E2M3::encode(nan) == 0x1f);
    CHECK(E3M2::encode(nan) == 0x1f);
    CHECK(E4M3::encode(nan) == 0x7f);
    CHECK(E5M2::encode(nan) == 0x7f);
    CHECK(E4M3Fnuz::encode(nan) == 0x80);
    CHECK(UE4M3::encode(nan) == 0x7f);
    CHECK(E8M0::encode(nan) == 0xff);
  }
}

TEST_CASE("formats: NaN and infinity codes decode") {
  for (int code : {0x7f, 0xff}) CHECK(std::isnan(E4M3::decode(static_cast<std::uint8_t>(code))));
  for (int code : {0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff})
    CHECK(std::isnan(E5M2::decode(static_cast<std::uint8_t>(code))));
  CHECK(E5M2::decode(0x7c) == kInf);
  CHECK(E5M2::decode(0xfc) == -kInf);
  CHECK(std::isnan(E4M3Fnuz::decode(0x80)));
  CHECK(std::isnan(UE4M3::decode(0x7f)));
  CHECK(std::isnan(UE4M3::decode(0xff)));
  CHECK(std::isnan(E8M0::decode(0xff)));
}

TEST_CASE("formats: UE4M3 is E4M3 without a sign") {
  for (int code = 0; code < 0x7f; ++code) {
    const float value = static_cast<float>(oracle::magnitude_value(oracle::kE4M3, code));
    CHECK(to_bits(UE4M3::decode(static_cast<std::uint8_t>(code))) == to_bits(value));
    CHECK(to_bits(UE4M3::decode(static_cast<std::uint8_t>(code | 0x80))) == to_bits(value));
    CHECK(UE4M3::encode(value) == code);
    CHECK(UE4M3::encode(-value) == 0);
  }
  CHECK(UE4M3::encode(464.0f) == 0x7e);
  CHECK(UE4M3::encode(kInf) == 0x7e);
  CHECK(UE4M3::encode(-kInf) == 0);
  CHECK(UE4M3::encode(0x1p-10f) == 0);
  CHECK(UE4M3::encode(std::nextafter(0x1p-10f, 1.0f)) == 1);
}

TEST_CASE("formats: E8M0 is the nearest power of two, ties to the even code") {
  for (int code = 0; code <= 254; ++code) {
    CAPTURE(code);
    const float value = static_cast<float>(oracle::e8m0_value(code));
    CHECK(to_bits(E8M0::decode(static_cast<std::uint8_t>(code))) == to_bits(value));
    CHECK(E8M0::encode(value) == code);
    if (code == 254) continue;
    const float midpoint = static_cast<float>(1.5 * oracle::e8m0_value(code));
    CHECK(E8M0::encode(std::nextafter(midpoint, 0.0f)) == code);
    CHECK(E8M0::encode(midpoint) == (code % 2 == 0 ? code : code + 1));
    CHECK(E8M0::encode(std::nextafter(midpoint, kInf)) == code + 1);
  }
  CHECK(E8M0::encode(0.0f) == 0);
  CHECK(E8M0::encode(-0.0f) == 0);
  CHECK(E8M0::encode(from_bits(1)) == 0);
  CHECK(E8M0::encode(std::numeric_limits<float>::max()) == 254);
  CHECK(E8M0::encode(kInf) == 254);
  CHECK(E8M0::encode(-1.0f) == 0xff);
  CHECK(E8M0::encode(-from_bits(1)) == 0xff);
  CHECK(E8M0::encode(-kInf) == 0xff);
  CHECK(E8M0::encode(kNan) == 0xff);
}

}  // namespace
