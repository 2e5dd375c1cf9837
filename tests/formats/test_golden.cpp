// core/formats against ml_dtypes and torchao, bit for bit, through files made by tests/golden/make_golden.py.
//
// Where our rule is deliberately another one (docs/formats.md, "Where other libraries differ"), the test names the
// class of inputs and asserts both sides: what they produce and what we do. Each class must occur in the files.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/formats/formats.hpp"
#include "formats_oracle.hpp"

using namespace fp4pa::core;
using fp4pa::Nvfp4Scale;
using fp4pa::ScaleMode;
using nlohmann::json;
using oracle::from_bits;
using oracle::to_bits;

namespace {

json load(const char* name) {
#ifdef FP4PA_TESTS_SOURCE_DIR
  const std::filesystem::path folder = std::filesystem::path(FP4PA_TESTS_SOURCE_DIR) / "golden";
#else
  const std::filesystem::path folder = std::filesystem::path(__FILE__).parent_path() / ".." / "golden";
#endif
  std::ifstream file(folder / name);
  REQUIRE_MESSAGE(file.good(), "cannot open ", (folder / name).string());
  json content = json::parse(file);
  MESSAGE(std::string(name), ": ", content["versions"].dump());
  return content;
}

/// Big-endian numbers of `digits` hex digits each.
std::vector<std::uint32_t> from_hex(const std::string& text, std::size_t digits) {
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = 0; i + digits <= text.size(); i += digits) {
    numbers.push_back(static_cast<std::uint32_t>(std::stoul(text.substr(i, digits), nullptr, 16)));
  }
  return numbers;
}

std::vector<float> floats(const json& text) {
  std::vector<float> values;
  for (std::uint32_t bits : from_hex(text.get<std::string>(), 8)) values.push_back(from_bits(bits));
  return values;
}

std::vector<std::uint32_t> bytes(const json& text) { return from_hex(text.get<std::string>(), 2); }

/// How often each documented difference occurred.
using Counts = std::map<std::string, int>;

std::uint32_t sign_of(float x, std::uint32_t bit) { return std::signbit(x) ? bit : 0; }

template <class Element>
void check_values(const json& golden, const char* name) {
  const std::vector<float> values = floats(golden["values"][name]);
  REQUIRE(values.size() == std::size_t{1} << Element::kBits);
  for (std::size_t code = 0; code < values.size(); ++code) {
    const float ours = Element::decode(static_cast<std::uint8_t>(code));
    CAPTURE(name);
    CAPTURE(code);
    if (std::isnan(values[code])) {
      CHECK(std::isnan(ours));
    } else {
      CHECK(to_bits(ours) == to_bits(values[code]));
    }
  }
}

/// @param nan_theirs, nan_ours  codes of NaN by our and by their rule, given its sign
/// @param overflow              first magnitude that they do not saturate, and the code that they give it; 0 for none
template <class Element, class NanTheirs>
void check_codes(const json& golden, const char* name, std::uint32_t nan_ours, NanTheirs nan_theirs, float overflow,
                 std::uint32_t overflow_theirs, bool overflow_signed, Counts& counts) {
  const std::vector<float> x = floats(golden["x"]);
  const std::vector<std::uint32_t> theirs = bytes(golden["codes"][name]);
  REQUIRE(theirs.size() == x.size());
  REQUIRE(x.size() > 3000);
  constexpr std::uint32_t kSign = 1u << (Element::kBits - 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t ours = Element::encode(x[i]);
    CAPTURE(name);
    CAPTURE(x[i]);
    if (std::isnan(x[i])) {
      CHECK(ours == nan_ours);
      CHECK(theirs[i] == nan_theirs(std::signbit(x[i])));
      ++counts["nan"];
    } else if (overflow > 0 && std::fabs(x[i]) >= overflow) {
      CHECK(ours == (Element::encode(Element::kMax) | sign_of(x[i], kSign)));
      CHECK(theirs[i] == (overflow_theirs | (overflow_signed ? sign_of(x[i], kSign) : 0)));
      ++counts["overflow"];
    } else {
      CHECK(ours == theirs[i]);
      ++counts["same"];
    }
  }
}

TEST_CASE("golden: ml_dtypes element formats") {
  const json golden = load("elements.json");
  check_values<E2M1>(golden, "float4_e2m1fn");
  check_values<E2M3>(golden, "float6_e2m3fn");
  check_values<E3M2>(golden, "float6_e3m2fn");
  check_values<E4M3>(golden, "float8_e4m3fn");
  check_values<E4M3Fnuz>(golden, "float8_e4m3fnuz");
  check_values<E5M2>(golden, "float8_e5m2");
  check_values<E8M0>(golden, "float8_e8m0fnu");

  // The formats without NaN: theirs is zero with the sign inverted, ours is +max. Both saturate.
  Counts counts;
  check_codes<E2M1>(
      golden, "float4_e2m1fn", 0x07, [](bool minus) { return minus ? 0x00u : 0x08u; }, 0, 0, false, counts);
  check_codes<E2M3>(
      golden, "float6_e2m3fn", 0x1f, [](bool minus) { return minus ? 0x00u : 0x20u; }, 0, 0, false, counts);
  check_codes<E3M2>(
      golden, "float6_e3m2fn", 0x1f, [](bool minus) { return minus ? 0x00u : 0x20u; }, 0, 0, false, counts);
  CHECK(counts["nan"] > 0);
  CHECK(counts["same"] > 3 * 3000);

  // The FP8 formats: they do not saturate, and keep the sign of NaN.
  Counts fp8;
  const float above_464 = std::nextafter(464.0f, 500.0f);  // 464 itself ties to 448
  check_codes<E4M3>(
      golden, "float8_e4m3fn", 0x7f, [](bool minus) { return minus ? 0xffu : 0x7fu; }, above_464, 0x7f, true, fp8);
  check_codes<E4M3Fnuz>(
      golden, "float8_e4m3fnuz", 0x80, [](bool) { return 0x80u; }, 248.0f, 0x80, false, fp8);
  check_codes<E5M2>(
      golden, "float8_e5m2", 0x7f, [](bool minus) { return minus ? 0xfeu : 0x7eu; }, 61440.0f, 0x7c, true, fp8);
  CHECK(fp8["nan"] > 0);
  CHECK(fp8["overflow"] > 0);
}

TEST_CASE("golden: ml_dtypes E8M0") {
  const json golden = load("elements.json");
  const std::vector<float> x = floats(golden["x"]);
  const std::vector<std::uint32_t> theirs = bytes(golden["codes"]["float8_e8m0fnu"]);
  Counts counts;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t ours = E8M0::encode(x[i]);
    CAPTURE(x[i]);
    if (x[i] == 0.0f) {
      CHECK(theirs[i] == 0xff);
      CHECK(ours == 0);
      ++counts["zero"];
    } else if (x[i] >= 0x1.8p127f) {
      CHECK(theirs[i] == 0xff);
      CHECK(ours == 254);
      ++counts["overflow"];
    } else if (x[i] > 0x1p-127f && x[i] <= 0x1.8p-127f) {
      CHECK(theirs[i] == 1);  // they round every subnormal above 2^-127 up to 2^-126
      CHECK(ours == 0);
      ++counts["subnormal"];
    } else if (x[i] == 1.5 * oracle::e8m0_value(static_cast<int>(ours)) && ours % 2 == 0) {
      CHECK(theirs[i] == ours + 1);  // they round every tie up, we round it to the even code
      ++counts["tie"];
    } else {
      CHECK(ours == theirs[i]);
      ++counts["same"];
    }
  }
  CHECK(counts["tie"] > 0);
  CHECK(counts["subnormal"] > 0);
  CHECK(counts["zero"] == 2);
  CHECK(counts["overflow"] > 0);
  CHECK(counts["same"] > 3000);
}

TEST_CASE("golden: bf16 (ml_dtypes) and f16 (numpy)") {
  const json golden = load("elements.json");
  const std::vector<float> x = floats(golden["x"]);
  const auto swap = [](std::uint32_t little) { return (little >> 8) | ((little & 0xff) << 8); };
  const std::vector<std::uint32_t> bf16 = from_hex(golden["codes"]["bfloat16"].get<std::string>(), 4);
  const std::vector<std::uint32_t> f16 = from_hex(golden["codes"]["float16"].get<std::string>(), 4);
  REQUIRE(bf16.size() == x.size());
  REQUIRE(f16.size() == x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i]);
    if (std::isnan(x[i])) {  // payloads are nobody's promise; sign and quietness are ours
      CHECK((f32_to_bf16(x[i]) & 0xffc0u) == (0x7fc0u | sign_of(x[i], 0x8000)));
      CHECK((f32_to_f16(x[i]) & 0xfe00u) == (0x7e00u | sign_of(x[i], 0x8000)));
      CHECK((swap(bf16[i]) & 0x7fffu) > 0x7f80u);
      CHECK((swap(f16[i]) & 0x7fffu) > 0x7c00u);
    } else {
      CHECK(f32_to_bf16(x[i]) == swap(bf16[i]));
      CHECK(f32_to_f16(x[i]) == swap(f16[i]));
    }
  }
}

// --- torchao ---------------------------------------------------------------------------------------------------------

ScaleMode mode_of(const std::string& name) {
  for (ScaleMode mode : {ScaleMode::kFloor, ScaleMode::kCeil, ScaleMode::kRceil, ScaleMode::kEven}) {
    if (name == fp4pa::name_of(mode)) return mode;
  }
  FAIL("unknown mode ", name);
  return ScaleMode::kFloor;
}

/// torchao's codes of one block, unpacked.
std::vector<std::uint32_t> block_codes(const std::vector<std::uint32_t>& all, std::size_t block, std::size_t size,
                                       bool packed) {
  std::vector<std::uint32_t> codes;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t at = block * size + i;
    codes.push_back(packed ? (all[at / 2] >> (4 * (at % 2))) & 0xf : all[at]);
  }
  return codes;
}

template <class Element>
void check_mx(const json& golden, const json& result, Counts& counts) {
  const ScaleMode mode = mode_of(result["mode"].get<std::string>());
  const std::vector<float> x = floats(golden["x"]);
  const std::vector<std::uint32_t> scales = bytes(result["scales"]);
  const std::vector<std::uint32_t> codes = bytes(result["codes"]);
  const std::uint32_t nan_code = Element::encode(from_bits(kFloatNanBits));
  REQUIRE(x.size() == 32 * scales.size());
  for (std::size_t block = 0; block < scales.size(); ++block) {
    const float* values = x.data() + 32 * block;
    const std::uint32_t theirs = scales[block];
    const std::vector<std::uint32_t> their_codes = block_codes(codes, block, 32, Element::kBits == 4);
    const std::string kind = golden["kinds"][block].get<std::string>();
    const float amax = group_amax(values, 32);
    CAPTURE(kind);
    CAPTURE(amax);
    CAPTURE(static_cast<int>(mode));

    std::vector<std::uint32_t> our_codes(32);
    std::uint32_t ours = 0;
    if constexpr (Element::kBits == 4) {
      std::uint8_t packed[16];
      ours = encode_e2m1_e8m0(values, 32, mode, packed);
      for (std::size_t i = 0; i < 32; ++i) our_codes[i] = unpack_e2m1(packed[i / 2], static_cast<int>(i % 2));
    } else {
      std::uint8_t unpacked[32];
      ours = encode_mxfp8(values, 32, mode, unpacked);
      for (std::size_t i = 0; i < 32; ++i) our_codes[i] = unpacked[i];
    }

    if (std::isnan(amax)) {  // same scale; their codes are what falls out, ours are NaN
      CHECK(kind == "nan");
      CHECK(theirs == 0xff);
      CHECK(ours == 0xff);
      CHECK(our_codes == std::vector<std::uint32_t>(32, nan_code));
      if (Element::kBits == 4) CHECK(their_codes != our_codes);
      ++counts["nan"];
      continue;
    }
    if (std::isinf(amax)) {  // they take infinity for 2^128 (254 under rceil); we give NaN
      CHECK(kind == "inf");
      CHECK(theirs == (mode == ScaleMode::kRceil ? 254u : 255u - static_cast<std::uint32_t>(Element::kEmax)));
      CHECK(ours == 0xff);
      CHECK(our_codes == std::vector<std::uint32_t>(32, nan_code));
      ++counts["inf"];
      continue;
    }
    if (theirs != ours) {
      // rceil through a rounded quotient and a rounded logarithm: an amax just above max * 2^k seems to be equal to it.
      REQUIRE(mode == ScaleMode::kRceil);
      CHECK(theirs + 1 == ours);
      const double quotient = static_cast<double>(amax) /
                              (static_cast<double>(Element::kMax) * oracle::e8m0_value(static_cast<int>(theirs)));
      CHECK(quotient > 1.0);
      CHECK(quotient < 1.0 + 0x1p-16);
      for (std::size_t i = 0; i < 32; ++i) {  // under their scale we would give their codes
        CHECK(mx_code<Element>(values[i], static_cast<std::uint8_t>(theirs)) == their_codes[i]);
      }
      ++counts["rceil_log2"];
      continue;
    }
    if (ours == 0 && amax != 0.0f) {
      // Scale 2^-127: they divide by 2^-126 (1 under rceil), we by 2^-127, as the scale byte says.
      const float reciprocal = mode == ScaleMode::kRceil ? 1.0f : 0x1p126f;
      for (std::size_t i = 0; i < 32; ++i) CHECK(Element::encode(values[i] * reciprocal) == their_codes[i]);
      if (their_codes != our_codes) ++counts["scale_0"];
      continue;
    }
    CHECK(our_codes == their_codes);
    ++counts["same"];
  }
}

TEST_CASE("golden: torchao to_mx, every mode, E2M1 and E4M3") {
  const json golden = load("mx.json");
  Counts counts;
  std::size_t results = 0;
  for (const json& result : golden["results"]) {
    ++results;
    if (result["element"] == "e2m1") {
      check_mx<E2M1>(golden, result, counts);
    } else {
      check_mx<E4M3>(golden, result, counts);
    }
  }
  CHECK(results == 8);
  CHECK(counts["same"] > 800);
  CHECK(counts["nan"] == 16);
  CHECK(counts["inf"] == 16);
  CHECK(counts["scale_0"] > 0);
  CHECK(counts["rceil_log2"] > 0);
  for (const auto& [name, count] : counts) MESSAGE("mx ", name, ": ", count);
}

TEST_CASE("golden: torchao nvfp4_quantize") {
  const json golden = load("nvfp4.json");
  Counts counts;
  for (const json& result : golden["results"]) {
    const float global = floats(result["global"])[0];
    const bool exact_global = (to_bits(global) & 0x7fffffu) == 0;  // a power of two
    const std::vector<float> x = floats(result["x"]);
    const std::vector<std::uint32_t> scales = bytes(result["scales"]);
    const std::vector<std::uint32_t> codes = bytes(result["codes"]);
    for (std::size_t group = 0; group < scales.size(); ++group) {
      const float* values = x.data() + 16 * group;
      const std::vector<std::uint32_t> their_codes = block_codes(codes, group, 16, true);
      const std::uint32_t theirs = scales[group];
      const float amax = group_amax(values, 16);
      std::uint8_t packed[8];
      const std::uint32_t ours = encode_nvfp4(values, global, Nvfp4Scale::kAmaxOver6, packed);
      CAPTURE(global);
      CAPTURE(amax);

      if (std::isnan(amax) || std::isinf(amax)) {
        CHECK(theirs == (std::isnan(amax) ? 0x7fu : 0x7eu));
        CHECK(ours == 0x7f);
        for (std::uint8_t byte : packed) CHECK(byte == 0x77);
        ++counts[std::isnan(amax) ? "nan" : "inf"];
        continue;
      }
      if (ours < 0x08) {  // they keep sf at the smallest normal value, 2^-6; we let it be subnormal or zero
        CHECK(theirs == 0x08);
        ++counts["sf_clamp"];
      } else {
        CHECK(ours == theirs);
        ++counts["sf_same"];
      }
      // Codes under their scale: equal, or neighbours at a tie of x / (sf * global), which their reciprocal blurs.
      const double step =
          static_cast<double>(UE4M3::decode(static_cast<std::uint8_t>(theirs))) * static_cast<double>(global);
      for (std::size_t i = 0; i < 16; ++i) {
        const std::uint32_t code = e2m1_code_nvfp4(values[i], static_cast<std::uint8_t>(theirs), global);
        if (ours == theirs) CHECK(code == unpack_e2m1(packed[i / 2], static_cast<int>(i % 2)));
        if (code == their_codes[i]) {
          ++counts["code_same"];
          continue;
        }
        CAPTURE(values[i]);
        CHECK((code & 8) == (their_codes[i] & 8));
        CHECK(std::abs(static_cast<int>(code) - static_cast<int>(their_codes[i])) == 1);
        const double tie = (oracle::magnitude_value(oracle::kE2M1, static_cast<int>(code & 7)) +
                            oracle::magnitude_value(oracle::kE2M1, static_cast<int>(their_codes[i] & 7))) /
                           2;
        const double quotient = std::fabs(static_cast<double>(values[i])) / step;
        CHECK(std::fabs(quotient / tie - 1) < 0x1p-21);
        if (exact_global && quotient == tie) CHECK(code % 2 == 0);  // a true tie: ours is the even one
        ++counts["code_tie"];
      }
    }
  }
  for (const char* name : {"nan", "inf", "sf_clamp", "code_tie"}) {
    CAPTURE(name);
    CHECK(counts[name] > 0);
  }
  CHECK(counts["sf_same"] > 250);
  CHECK(counts["code_same"] > 5000);
  CHECK(counts["code_tie"] < 100);
  for (const auto& [name, count] : counts) MESSAGE("nvfp4 ", name, ": ", count);
}

TEST_CASE("golden: torchao to_blocked") {
  const json golden = load("blocked.json");
  std::size_t shapes = 0;
  for (const json& shape : golden["shapes"]) {
    ++shapes;
    const int rows = shape["rows"].get<int>();
    const int groups = shape["groups"].get<int>();
    const std::vector<int> theirs = shape["blocked"].get<std::vector<int>>();
    REQUIRE(theirs.size() == blocked_scale_size(rows, groups));
    std::vector<int> ours(theirs.size(), 0);
    for (int row = 0; row < rows; ++row) {
      for (int group = 0; group < groups; ++group)
        ours[blocked_scale_offset(row, group, groups)] = row * groups + group + 1;
    }
    CHECK(ours == theirs);
  }
  CHECK(shapes == 5);
}

}  // namespace
