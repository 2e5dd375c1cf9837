// NVFP4 groups. The codes against exact comparisons in double; the scale and the four-over-six choice against exact
// rational arithmetic.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/formats/block.hpp"
#include "formats_oracle.hpp"

using namespace fp4pa::core;
using fp4pa::Nvfp4Scale;
using oracle::from_bits;
using oracle::to_bits;

namespace {

constexpr Nvfp4Scale kChoices[] = {Nvfp4Scale::kAmaxOver6, Nvfp4Scale::kFourOverSix};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double sf_value(int code) { return oracle::magnitude_value(oracle::kE4M3, code); }

/// Nearest E2M1 magnitude to t / sf by comparing t with every tie point times sf, all exact in double.
int expected_magnitude(double t, double sf) {
  if (sf == 0) return 0;
  int code = 0;
  for (int next = 1; next <= 7; ++next) {
    const double tie =
        (oracle::magnitude_value(oracle::kE2M1, next - 1) + oracle::magnitude_value(oracle::kE2M1, next)) / 2;
    if (t > tie * sf || (t == tie * sf && next % 2 == 0)) code = next;
  }
  return code;
}

/// Nearest E4M3 magnitude to t / divisor, likewise.
int expected_sf(double t, double divisor) {
  int code = 0;
  for (int next = 1; next <= 0x7e; ++next) {
    const double tie = (sf_value(next - 1) + sf_value(next)) / 2;
    if (t > tie * divisor || (t == tie * divisor && next % 2 == 0)) code = next;
  }
  return code;
}

TEST_CASE("nvfp4: codes under every scale, at and around every tie") {
  for (int sf = 0; sf < 0x7f; ++sf) {
    for (double tie : {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0, 0.5, 1.0, 0.1}) {
      const float at = static_cast<float>(tie * sf_value(sf));  // exact but for 0.1
      for (int offset = -3; offset <= 3; ++offset) {
        if (at == 0.0f && offset < 0) continue;
        const float t = from_bits(to_bits(at) + static_cast<std::uint32_t>(offset));
        CAPTURE(sf);
        CAPTURE(t);
        const int expected = expected_magnitude(static_cast<double>(t), sf_value(sf));
        REQUIRE(e2m1_code_nvfp4(t, static_cast<std::uint8_t>(sf), 1.0f) == expected);
        REQUIRE(e2m1_code_nvfp4(-t, static_cast<std::uint8_t>(sf), 1.0f) == (expected | 8));
        REQUIRE(e2m1_code_nvfp4(t, static_cast<std::uint8_t>(sf | 0x80), 1.0f) == expected);  // sign of sf ignored
        // A power of two as global scale changes nothing.
        REQUIRE(e2m1_code_nvfp4(std::ldexp(t, -40), static_cast<std::uint8_t>(sf), 0x1p-40f) == expected);
      }
    }
  }
}

TEST_CASE("nvfp4: codes of random values under every scale") {
  oracle::Random random{37};
  for (int sf = 1; sf < 0x7f; ++sf) {
    for (int trial = 0; trial < 20'000; ++trial) {
      const float t = std::fabs(random.uniform()) * 8.0f * static_cast<float>(sf_value(sf));
      REQUIRE(e2m1_code_nvfp4(t, static_cast<std::uint8_t>(sf), 1.0f) ==
              expected_magnitude(static_cast<double>(t), sf_value(sf)));
    }
  }
}

TEST_CASE("nvfp4: amax / 6 and amax / 4 round to the nearest E4M3, ties to even") {
  const auto check = [](float t) {
    const Nvfp4Candidates candidates = nvfp4_candidates(t, 1.0f, Nvfp4Scale::kFourOverSix);
    CAPTURE(t);
    REQUIRE(candidates.six == expected_sf(static_cast<double>(t), 6));
    REQUIRE(candidates.four == expected_sf(static_cast<double>(t), 4));
  };
  for (int code = 0; code < 0x7e; ++code) {
    const double tie = (sf_value(code) + sf_value(code + 1)) / 2;
    for (double divisor : {6.0, 4.0}) {
      for (double at : {tie, sf_value(code)}) {
        const std::uint32_t bits = to_bits(static_cast<float>(at * divisor));
        for (int offset = bits < 3 ? 0 : -3; offset <= 3; ++offset)
          check(from_bits(bits + static_cast<std::uint32_t>(offset)));
      }
    }
  }
  oracle::Random random{41};
  for (int i = 0; i < 20'000; ++i) check(std::ldexp(std::fabs(random.uniform()), random.below(30) - 15));
  check(std::numeric_limits<float>::max());
  check(from_bits(1));
}

/// Squared error of a group under one scale, in units of the global scale; exact but for the last sums (53 bits).
double squared_error(const std::vector<float>& t, double sf) {
  double sum = 0;
  for (float value : t) {
    const double decoded =
        oracle::magnitude_value(oracle::kE2M1, expected_magnitude(static_cast<double>(value), sf)) * sf;
    sum += (static_cast<double>(value) - decoded) * (static_cast<double>(value) - decoded);
  }
  return sum;
}

TEST_CASE("nvfp4: four-over-six takes the smaller squared error, amax / 6 when equal") {
  oracle::Random random{43};
  int took_four = 0, took_six = 0, too_close = 0;
  for (int trial = 0; trial < 40'000; ++trial) {
    const int exponent = random.below(20) - 9;  // reaches subnormal and saturated scales
    float x[16];
    std::vector<float> t;
    for (float& value : x) {
      const double v = trial % 2 == 0 ? std::round(static_cast<double>(random.uniform()) * 16) / 16
                                      : static_cast<double>(random.uniform());
      value = static_cast<float>(std::ldexp(v, exponent));
      t.push_back(std::fabs(value));
    }
    double amax = 0;
    for (float value : t) amax = std::fmax(amax, static_cast<double>(value));
    const int six = expected_sf(amax, 6), four = expected_sf(amax, 4);
    REQUIRE(nvfp4_scale(x, 16, 1.0f, Nvfp4Scale::kAmaxOver6) == six);
    const int chosen = nvfp4_scale(x, 16, 1.0f, Nvfp4Scale::kFourOverSix);
    const double error_six = squared_error(t, sf_value(six)), error_four = squared_error(t, sf_value(four));
    CAPTURE(error_six);
    CAPTURE(error_four);
    if (six == four || error_six == error_four) {
      REQUIRE(chosen == six);
    } else if (std::fabs(error_six - error_four) < 1e-5 * (error_six + error_four)) {
      ++too_close;  // below the documented resolution of the comparison
      REQUIRE((chosen == six || chosen == four));
    } else {
      REQUIRE(chosen == (error_four < error_six ? four : six));
      ++(chosen == four ? took_four : took_six);
    }
  }
  CHECK(took_four > 5000);
  CHECK(took_six > 5000);
  CHECK(too_close < 40);
}

TEST_CASE("nvfp4: four-over-six on groups made for either") {
  // Multiples of 6 * sf, all E2M1 values: amax / 6 is exact, and stays although amax / 4 is exact for the rest.
  const float exact_six[16] = {6, 3, 2, 1, 1.5f, 0.5f};
  CHECK(nvfp4_scale(exact_six, 16, 1.0f, Nvfp4Scale::kFourOverSix) == UE4M3::encode(1.0f));
  // 4, 3, ...: amax / 4 = 1 is exact.
  const float exact_four[16] = {4, 3, 2, 1, 1.5f, 0.5f};
  CHECK(nvfp4_scale(exact_four, 16, 1.0f, Nvfp4Scale::kFourOverSix) == UE4M3::encode(1.0f));
  CHECK(nvfp4_scale(exact_four, 16, 1.0f, Nvfp4Scale::kAmaxOver6) == UE4M3::encode(4.0f / 6.0f));
  // 12 and 0 alone: both are exact, and equal errors keep amax / 6.
  const float both[16] = {12, -12};
  CHECK(nvfp4_scale(both, 16, 1.0f, Nvfp4Scale::kFourOverSix) == UE4M3::encode(2.0f));
}

TEST_CASE("nvfp4: the error is the same in any order and for columns") {
  oracle::Random random{47};
  for (int trial = 0; trial < 2000; ++trial) {
    float matrix[16][5];
    for (auto& row : matrix) {
      for (float& value : row) value = random.uniform();
    }
    for (int column = 0; column < 5; ++column) {
      float x[16];
      for (int i = 0; i < 16; ++i) x[i] = matrix[15 - i][column];
      REQUIRE(nvfp4_scale(&matrix[0][column], 16, 0.01f, Nvfp4Scale::kFourOverSix, 5) ==
              nvfp4_scale(x, 16, 0.01f, Nvfp4Scale::kFourOverSix));
    }
  }
}

TEST_CASE("nvfp4: whole groups encode and decode") {
  oracle::Random random{53};
  for (float global : {1.0f, 0x1p-60f, 0.01f, 1.0f / 2688.0f, 3e20f}) {
    for (Nvfp4Scale choice : kChoices) {
      for (int trial = 0; trial < 500; ++trial) {
        float x[16];
        for (float& value : x) value = random.uniform() * 40.0f * global;
        std::uint8_t packed[8];
        const std::uint8_t sf = encode_nvfp4(x, global, choice, packed);
        REQUIRE(sf == nvfp4_scale(x, 16, global, choice));
        float decoded[16];
        decode_nvfp4(packed, sf, global, decoded);
        for (int i = 0; i < 16; ++i) {
          const int code = i % 2 == 0 ? packed[i / 2] % 16 : packed[i / 2] / 16;
          // The float operations of the definition, kept apart so that nothing is fused.
          volatile float reciprocal = 1.0f / global;
          volatile float t = std::fabs(x[i]) * reciprocal;
          REQUIRE(code == (expected_magnitude(static_cast<double>(t), sf_value(sf)) | (std::signbit(x[i]) ? 8 : 0)));
          const double magnitude = oracle::magnitude_value(oracle::kE2M1, code % 8) * sf_value(sf);
          const float expected =
              static_cast<float>(magnitude * static_cast<double>(global));  // 30 bits: exact, then rounds
          REQUIRE(to_bits(decoded[i]) == to_bits(code < 8 ? expected : -expected));
        }
      }
    }
  }
}

TEST_CASE("nvfp4: zero, vanishing, saturated and NaN groups") {
  std::uint8_t packed[8];
  for (Nvfp4Scale choice : kChoices) {
    float x[16] = {};
    x[3] = -0.0f;
    CHECK(encode_nvfp4(x, 1.0f, choice, packed) == 0);
    for (int i = 0; i < 8; ++i) CHECK(packed[i] == (i == 1 ? 0x80 : 0x00));

    // amax / 6 = 2^-10 is half of the smallest scale and ties to 0; the next float does not.
    float small[16] = {6.0f * 0x1p-10f, -6.0f * 0x1p-10f};
    const bool four =
        choice == Nvfp4Scale::kFourOverSix;  // amax / 4 = 1.5 * 2^-10 rounds to 2^-9, and is better than 0
    CHECK(encode_nvfp4(small, 1.0f, choice, packed) == (four ? 1 : 0));
    CHECK(packed[0] == (four ? 0xd5 : 0x80));  // 3 * 2^-9 is amax
    small[0] = std::nextafter(small[0], 1.0f);
    CHECK(encode_nvfp4(small, 1.0f, choice, packed) == 1);

    float big[16] = {1e30f, -1e30f, 3000.0f, 448.0f};
    CHECK(encode_nvfp4(big, 1.0f, choice, packed) == 0x7e);
    CHECK(packed[0] == 0xf7);
    CHECK(packed[1] == 0x27);
    // A product that overflows before it is clamped.
    float huge[16] = {3e38f, -3e38f};
    CHECK(encode_nvfp4(huge, 0x1p-100f, choice, packed) == 0x7e);
    CHECK(packed[0] == 0xf7);

    for (float bad : {kNan, -kNan, kInf, -kInf}) {
      float y[16] = {1, -2, 0, 3e38f};
      y[9] = bad;
      CHECK(encode_nvfp4(y, 1.0f, choice, packed) == 0x7f);
      for (std::uint8_t byte : packed) CHECK(byte == 0x77);
      float decoded[16];
      decode_nvfp4(packed, 0x7f, 1.0f, decoded);
      for (float value : decoded) CHECK(std::isnan(value));
    }
  }
  CHECK(e2m1_code_nvfp4(-kNan, 0x38, 1.0f) == 0x7);
  CHECK(e2m1_code_nvfp4(-kInf, 0x38, 1.0f) == 0xf);
}

TEST_CASE("nvfp4: the ends of the global scale's range") {
  for (float global : {0x1p-126f, 0x1p126f}) {
    float x[16] = {};
    for (int i = 0; i < 8; ++i)
      x[i] = static_cast<float>(std::ldexp(oracle::magnitude_value(oracle::kE2M1, i), std::ilogb(global) - 2));
    std::uint8_t packed[8];
    CHECK(encode_nvfp4(x, global, Nvfp4Scale::kAmaxOver6, packed) == UE4M3::encode(0.25f));
    for (int i = 0; i < 8; ++i) CHECK(unpack_e2m1(packed[i / 2], i % 2) == i);
  }
}

TEST_CASE("nvfp4: encodes in a constant expression") {
  constexpr auto result = [] {
    const float x[16] = {6, -5, 2.5f};
    std::array<std::uint8_t, 9> out{};
    out[8] = encode_nvfp4(x, 1.0f, Nvfp4Scale::kFourOverSix, out.data());
    return out;
  }();
  // amax / 6 = 1 would leave errors 1 and 0.5 (5 and 2.5 are ties); amax / 4 = 1.5 leaves 0.5 and 0.25.
  static_assert(result[8] == 0x3c && result[0] == 0xd6 && result[1] == 0x03);
  CHECK(result[7] == 0);
}

}  // namespace
