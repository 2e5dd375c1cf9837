// The SIMD row kernels against core's functions, bit for bit, for every instruction set that this machine runs.
//
// The inputs are hard on purpose: random float patterns of every exponent, subnormals, infinities and NaN among
// ordinary values. Only a NaN's sign and payload may differ, where a float is the result.
#include <doctest/doctest.h>

#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/cache_rows.hpp"
#include "core/formats/hadamard.hpp"
#include "core/paging/plain_row.hpp"
#include "tests/cache/random.hpp"

using namespace fp4pa;

namespace {

/// Runs `body(rows)` once per instruction set, and says so if there was none but the scalar one.
template <class Body>
void for_each_target(const Body& body) {
  (void)cpu::fastest_rows();
  int ran = 0;
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::int64_t left = supported; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    const cpu::RowKernels& rows = cpu::fastest_rows();
    CAPTURE(std::string(hwy::TargetName(target)));
    body(rows);
    if (&rows != &cpu::kScalarRows) ++ran;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  CHECK_MESSAGE(ran > 0, "no SIMD target ran");
}

enum class Kind { kOrdinary, kAnyBits, kNearTies, kTiny };

std::vector<float> inputs(int n, Kind kind, test::Random& random) {
  std::vector<float> x(static_cast<std::size_t>(n));
  const float steps[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f, 0.0f};
  const int exponent = random.below(60) - 30;
  for (float& v : x) {
    switch (kind) {
      case Kind::kOrdinary: v = random.value(); break;
      case Kind::kAnyBits: v = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits())); break;
      case Kind::kNearTies: {
        // E2M1's ties and their neighbours, at some power of two.
        v = std::ldexp(steps[random.below(9)], exponent);
        v = std::nextafterf(v, v * static_cast<float>(random.below(3)));
        if (random.below(2) == 0) v = -v;
        break;
      }
      case Kind::kTiny: v = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()) & 0x80ffffffu); break;
    }
  }
  // One NaN in a block hides everything else: let most blocks have none.
  if (kind == Kind::kAnyBits && random.below(4) != 0) {
    for (float& v : x) v = std::isfinite(v) ? v : 1.0f;
  }
  return x;
}

bool same(float a, float b) { return std::isnan(a) ? std::isnan(b) : std::memcmp(&a, &b, 4) == 0; }
long long differences(const std::vector<float>& a, const std::vector<float>& b) {
  long long n = 0;
  for (std::size_t i = 0; i < a.size(); ++i) n += same(a[i], b[i]) ? 0 : 1;
  return n;
}

constexpr Kind kKinds[] = {Kind::kOrdinary, Kind::kAnyBits, Kind::kNearTies, Kind::kTiny};
constexpr float kGlobals[] = {1.0f, 0.037f, 3e-8f, 1e9f};
constexpr KvFormat kFormats[] = {KvFormat::kMxfp4,   KvFormat::kNvfp4, KvFormat::kE8m0PerToken,
                                 KvFormat::kFp8E4m3, KvFormat::kBf16,  KvFormat::kF16, KvFormat::kMxfp8};

struct Row {
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(512, 0xa5);
  std::vector<std::uint8_t> scales = std::vector<std::uint8_t>(256, 0xa5);
  bool operator==(const Row&) const = default;
};

}  // namespace

TEST_CASE("row kernels: encode and decode") {
  for_each_target([](const cpu::RowKernels& rows) {
    test::Random random(1);
    for (const KvFormat format : kFormats) {
      CAPTURE(std::string(name_of(format)));
      for (const int n : {16, 32, 96, 256}) {
        if (n == 16 && (format == KvFormat::kMxfp4 || format == KvFormat::kE8m0PerToken || format == KvFormat::kMxfp8)) continue;
        for (int round = 0; round < 200; ++round) {
          const std::vector<float> x = inputs(n, kKinds[round % 4], random);
          const float global = kGlobals[round / 4 % 4];
          const core::EncodeRule rule{static_cast<ScaleMode>(round % 4), static_cast<Nvfp4Scale>(round / 2 % 2)};
          Row want;
          Row got;
          core::encode_row(format, x.data(), n, global, rule, want.codes.data(), want.scales.data());
          rows.encode(format, x.data(), n, global, rule, got.codes.data(), got.scales.data());
          REQUIRE(got == want);
          std::vector<float> want_x(256, 7.0f);
          std::vector<float> got_x(256, 7.0f);
          core::decode_row(format, want.codes.data(), want.scales.data(), n, global, want_x.data());
          rows.decode(format, want.codes.data(), want.scales.data(), n, global, got_x.data());
          REQUIRE(differences(got_x, want_x) == 0);
        }
      }
    }
  });
}

TEST_CASE("row kernels: decode takes every code under every scale") {
  for_each_target([](const cpu::RowKernels& rows) {
    for (const KvFormat format : kFormats) {
      for (int scale = 0; scale < 256; ++scale) {
        std::vector<std::uint8_t> codes(512);
        for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i % 2 == 0 ? i / 2 : scale);
        const std::vector<std::uint8_t> scales(256, static_cast<std::uint8_t>(scale));
        std::vector<float> want(256);
        std::vector<float> got(256);
        core::decode_row(format, codes.data(), scales.data(), 256, 0.3f, want.data());
        rows.decode(format, codes.data(), scales.data(), 256, 0.3f, got.data());
        REQUIRE(differences(got, want) == 0);
        if (!is_fp4(format) || format == KvFormat::kE8m0PerToken) continue;
        core::decode_group_row(format, codes.data(), scales.data(), 256, 0.3f, want.data());
        rows.decode_group_row(format, codes.data(), scales.data(), 256, 0.3f, got.data());
        REQUIRE(differences(got, want) == 0);
      }
    }
  });
}

TEST_CASE("row kernels: groups along tokens") {
  for_each_target([](const cpu::RowKernels& rows) {
    test::Random random(2);
    for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
      CAPTURE(std::string(name_of(format)));
      for (int round = 0; round < 300; ++round) {
        const int n = 32 * (1 + random.below(4));
        const int tokens = 1 + random.below(format == KvFormat::kMxfp4 ? 32 : 16);
        const std::vector<float> x = inputs(tokens * n, kKinds[round % 4], random);
        const float global = kGlobals[round / 4 % 4];
        const core::EncodeRule rule{static_cast<ScaleMode>(round % 4), static_cast<Nvfp4Scale>(round / 2 % 2)};
        const core::GroupValues group{x.data(), n, tokens};
        const int stride = 80;
        std::vector<std::uint8_t> want(32 * 80, 0xa5);
        std::vector<std::uint8_t> got = want;
        std::vector<std::uint8_t> want_scales(160, 0xa5);
        std::vector<std::uint8_t> got_scales = want_scales;
        core::encode_group(format, group, n, global, rule, want.data(), stride, want_scales.data());
        rows.encode_group(format, group, n, global, rule, got.data(), stride, got_scales.data());
        REQUIRE(got_scales == want_scales);
        REQUIRE(got == want);
      }
    }
  });
}

TEST_CASE("row kernels: plain rows") {
  for_each_target([](const cpu::RowKernels& rows) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      std::vector<std::uint16_t> codes(512);
      std::vector<float> want(256);
      std::vector<float> got(256);
      for (int first = 0; first < 65536; first += 256) {
        for (int i = 0; i < 256; ++i) codes[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(first + i);
        core::load_plain_row(codes.data(), dtype, 256, want.data());
        rows.load(codes.data(), dtype, 256, got.data());
        REQUIRE(differences(got, want) == 0);
      }
    }
    test::Random random(3);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (int round = 0; round < 4000; ++round) {
        std::vector<float> x = inputs(32, kKinds[round % 4], random);
        if (round % 4 == 3) {
          // f16's own borders: subnormals and their ties, and the largest value.
          for (float& v : x) v = std::ldexp(static_cast<float>(random.below(1 << 13)), random.below(2) == 0 ? -26 : 4);
        }
        std::vector<std::uint8_t> want(128, 0xa5);
        std::vector<std::uint8_t> got = want;
        core::store_plain_row(x.data(), 32, dtype, want.data());
        rows.store(x.data(), 32, dtype, got.data());
        REQUIRE(got == want);
      }
    }
  });
}

TEST_CASE("row kernels: rotation") {
  for_each_target([](const cpu::RowKernels& rows) {
    test::Random random(4);
    for (const int block : {16, 32, 64, 128}) {
      for (int round = 0; round < 50; ++round) {
        const std::vector<float> x = inputs(256, round % 2 == 0 ? Kind::kOrdinary : Kind::kTiny, random);
        std::vector<float> want = x;
        std::vector<float> got = x;
        core::hadamard(want.data(), 256, block);
        rows.rotate(got.data(), 256, block);
        REQUIRE(differences(got, want) == 0);
      }
    }
  });
}

TEST_CASE("row kernels: MXFP8") {
  for_each_target([](const cpu::RowKernels& rows) {
    test::Random random(5);
    for (int round = 0; round < 400; ++round) {
      const std::vector<float> x = inputs(96, kKinds[round % 4], random);
      const auto mode = static_cast<ScaleMode>(round / 4 % 4);
      Row want;
      Row got;
      for (int g = 0; g < 3; ++g) {
        want.scales[static_cast<std::size_t>(g)] =
            core::encode_mxfp8(x.data() + g * 32, 32, mode, want.codes.data() + g * 32);
      }
      rows.encode_mxfp8(x.data(), 96, mode, got.codes.data(), got.scales.data());
      REQUIRE(got == want);
      std::vector<float> want_x(96);
      std::vector<float> got_x(96);
      for (int g = 0; g < 3; ++g) {
        core::decode_mxfp8(want.codes.data() + g * 32, 32, want.scales[static_cast<std::size_t>(g)],
                           want_x.data() + g * 32);
      }
      rows.decode_mxfp8(want.codes.data(), want.scales.data(), 96, got_x.data());
      REQUIRE(differences(got_x, want_x) == 0);
    }
  });
}

TEST_CASE("round_through is a write and a read") {
  test::Random random(6);
  for (const KvFormat format : {KvFormat::kFp8E4m3, KvFormat::kBf16, KvFormat::kF16}) {
    for (int round = 0; round < 100; ++round) {
      const std::vector<float> x = inputs(32, kKinds[round % 4], random);
      const float global = kGlobals[round % 4];
      Row row;
      std::vector<float> want(32);
      core::encode_row(format, x.data(), 32, global, {}, row.codes.data(), nullptr);
      core::decode_row(format, row.codes.data(), nullptr, 32, global, want.data());
      std::vector<float> got;
      for (const float v : x) got.push_back(core::round_through(format, v, global));
      REQUIRE(differences(got, want) == 0);
    }
  }
}
