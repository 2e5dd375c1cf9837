// Encoding of all 2^32 floats, in every format.
//
// A format's magnitudes form one interval of floats per code (thresholds in formats_oracle.hpp), so that the expected
// code is constant over long runs of bit patterns, and the loop does nothing but encode and compare.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "formats_oracle.hpp"

using namespace fp4pa::core;
using oracle::from_bits;

namespace {

/// A run of consecutive bit patterns that must all encode to one code.
struct Run {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint32_t code;
};

constexpr std::uint64_t kInfEnd = 0x7f800001u;  // one past infinity
constexpr std::uint64_t kSign = 0x80000000u;
constexpr std::uint64_t kAll = std::uint64_t{1} << 32;

/// Runs of a signed format that saturates, infinity included; NaN of either sign gives nan_code.
std::vector<Run> runs_of(const oracle::Format& f, std::uint32_t sign_bit, std::uint32_t nan_code) {
  const std::vector<std::uint32_t> first = oracle::first_float_bits(f);
  std::vector<Run> runs;
  for (std::uint64_t sign : {std::uint64_t{0}, kSign}) {
    for (std::size_t code = 0; code < first.size(); ++code) {
      const std::uint64_t end = code + 1 < first.size() ? first[code + 1] : kInfEnd;
      const auto c = static_cast<std::uint32_t>(code);
      runs.push_back({sign + first[code], sign + end, sign != 0 ? c | sign_bit : c});
    }
    runs.push_back({sign + kInfEnd, sign + kSign, nan_code});
  }
  return runs;
}

/// Encodes every pattern of every run; returns the number of wrong codes, and of patterns visited.
template <class Encode>
std::uint64_t count_wrong(const std::vector<Run>& runs, std::uint64_t& visited, Encode encode) {
  std::vector<Run> pieces;  // of at most 2^20 patterns, so that threads share the work evenly
  for (const Run& run : runs) {
    for (std::uint64_t begin = run.begin; begin < run.end; begin += 1u << 20) {
      pieces.push_back({begin, std::min(run.end, begin + (1u << 20)), run.code});
    }
  }
  std::uint64_t wrong = 0;
  std::uint64_t seen = 0;
#pragma omp parallel for schedule(dynamic, 16) reduction(+ : wrong, seen)
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto begin = static_cast<std::uint32_t>(pieces[i].begin);
    const auto count = static_cast<std::uint32_t>(pieces[i].end - pieces[i].begin);
    const std::uint32_t expected = pieces[i].code;
    std::uint32_t wrong_here = 0;
#pragma omp simd reduction(+ : wrong_here)
    for (std::uint32_t offset = 0; offset < count; ++offset) {
      const std::uint32_t code = encode(from_bits(begin + offset));
      wrong_here += code != expected ? 1u : 0u;
    }
    wrong += wrong_here;
    seen += count;
  }
  visited = seen;
  return wrong;
}

template <class Encode>
void check_all_floats(const std::vector<Run>& runs, Encode encode) {
  std::uint64_t visited = 0;
  CHECK(count_wrong(runs, visited, encode) == 0);
  CHECK(visited == kAll);
}

}  // namespace

TEST_SUITE_BEGIN("slow");

TEST_CASE("formats exhaustive: E2M1") {
  check_all_floats(runs_of(oracle::kE2M1, 0x8, 0x7), [](float x) { return E2M1::encode(x); });
}

TEST_CASE("formats exhaustive: E2M3") {
  check_all_floats(runs_of(oracle::kE2M3, 0x20, 0x1f), [](float x) { return E2M3::encode(x); });
}

TEST_CASE("formats exhaustive: E3M2") {
  check_all_floats(runs_of(oracle::kE3M2, 0x20, 0x1f), [](float x) { return E3M2::encode(x); });
}

TEST_CASE("formats exhaustive: E4M3") {
  check_all_floats(runs_of(oracle::kE4M3, 0x80, 0x7f), [](float x) { return E4M3::encode(x); });
}

TEST_CASE("formats exhaustive: E5M2") {
  check_all_floats(runs_of(oracle::kE5M2, 0x80, 0x7f), [](float x) { return E5M2::encode(x); });
}

TEST_CASE("formats exhaustive: E4M3Fnuz") {
  std::vector<Run> runs = runs_of(oracle::kE4M3Fnuz, 0x80, 0x80);
  for (Run& run : runs) {
    if (run.begin == kSign) run.code = 0;  // there is no -0
  }
  check_all_floats(runs, [](float x) { return E4M3Fnuz::encode(x); });
}

TEST_CASE("formats exhaustive: UE4M3") {
  std::vector<Run> runs = runs_of(oracle::kE4M3, 0x80, 0x7f);
  for (Run& run : runs) {
    if (run.begin >= kSign && run.end <= kSign + kInfEnd) run.code = 0;  // negative
  }
  check_all_floats(runs, [](float x) { return UE4M3::encode(x); });
}

TEST_CASE("formats exhaustive: E8M0") {
  std::vector<Run> runs;
  std::uint64_t begin = 0;
  for (std::uint32_t code = 0; code <= 254; ++code) {
    // The midpoint to the next power of two belongs to the even code.
    const float midpoint = static_cast<float>(1.5 * oracle::e8m0_value(static_cast<int>(code)));
    const std::uint64_t at = oracle::to_bits(midpoint);
    const std::uint64_t end = code == 254 ? kInfEnd : (code % 2 == 0 ? at + 1 : at);
    runs.push_back({begin, end, code});
    begin = end;
  }
  runs.push_back({kInfEnd, kSign, 255});
  runs.push_back({kSign, kSign + 1, 0});
  runs.push_back({kSign + 1, kAll, 255});
  check_all_floats(runs, [](float x) { return E8M0::encode(x); });
}

TEST_CASE("formats exhaustive: f16") {
  // As the other formats, but 65520 and above overflow to infinity, and NaN has a payload (test_half.cpp).
  std::vector<Run> runs = runs_of(oracle::kF16, 0x8000, 0);
  std::vector<Run> finite;
  const std::uint64_t overflow = oracle::to_bits(65520.0f);
  for (const Run& run : runs) {
    if (run.begin % kSign == kInfEnd) continue;
    if (run.end % kSign == kInfEnd) {
      const std::uint64_t sign = run.begin & kSign;
      finite.push_back({run.begin, sign + overflow, run.code});
      finite.push_back({sign + overflow, run.end, run.code + 1});
    } else {
      finite.push_back(run);
    }
  }
  std::uint64_t visited = 0;
  CHECK(count_wrong(finite, visited, [](float x) { return f32_to_f16(x); }) == 0);
  CHECK(visited == 2 * kInfEnd);
}

TEST_SUITE_END();
