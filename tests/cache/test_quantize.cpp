// quantize and dequantize against the oracle: three formats, both scale layouts, all inputs, rows that fill no atom.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "core/formats/block.hpp"
#include "tests/cache/oracle.hpp"
#include "tests/cache/random.hpp"
#include "tests/cache/target.hpp"

using namespace fp4pa;

namespace {

constexpr std::uint8_t kUntouched = 0x5a;

// The 128x4 atom, counted out: atoms one after another, within them 32 rows of 4 x 4.
std::size_t atom_offset(std::int64_t row, std::int64_t group, std::int64_t groups) {
  const std::int64_t atoms_across = (groups + 3) / 4;
  const std::int64_t atom = (row / 128) * atoms_across + group / 4;
  const std::int64_t r = row % 128;
  return static_cast<std::size_t>(atom * 512 + (r % 32) * 16 + (r / 32) * 4 + group % 4);
}
std::size_t scale_bytes(ScaleLayout layout, std::int64_t rows, std::int64_t groups) {
  if (layout == ScaleLayout::kLinear) return static_cast<std::size_t>(rows * groups);
  return static_cast<std::size_t>((rows + 127) / 128 * 128 * ((groups + 3) / 4 * 4));
}

struct Tensor {
  std::vector<std::uint8_t> bytes;  // as dtype
  std::vector<float> values;        // exactly
};

Tensor make_tensor(DType dtype, std::size_t elements, test::Random& random) {
  Tensor t;
  for (std::size_t i = 0; i < elements; ++i) {
    float x = random.value();
    std::uint8_t raw[4];
    if (dtype == DType::kF32) {
      std::memcpy(raw, &x, 4);
    } else {
      const oracle::Float& half = dtype == DType::kF16 ? oracle::kF16 : oracle::kBf16;
      const auto code = static_cast<std::uint16_t>(half.nearest(x));
      x = static_cast<float>(half.value(code));
      std::memcpy(raw, &code, 2);
    }
    t.bytes.insert(t.bytes.end(), raw, raw + size_of(dtype));
    t.values.push_back(x);
  }
  return t;
}

void run_case(const QuantizeConfig& config, DType dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  if (!test::is_run(seed)) return;
  CAPTURE(std::string(name_of(config.format)));
  CAPTURE(std::string(name_of(config.scale_layout)));
  CAPTURE(std::string(name_of(dtype)));
  CAPTURE(rows);
  CAPTURE(cols);
  test::Random random(seed);
  const Tensor x = make_tensor(dtype, static_cast<std::size_t>(rows * cols), random);
  const int group = config.format == BlockFormat::kNvfp4 ? 16 : 32;
  const std::int64_t groups = cols / group;
  const bool fp8 = config.format == BlockFormat::kMxfp8;
  const std::size_t code_count = x.values.size() / (fp8 ? 1 : 2);

  // Padding scales are zero; linear ones have none.
  std::vector<std::uint8_t> want_codes(code_count, 0);
  std::vector<std::uint8_t> want_scales(scale_bytes(config.scale_layout, rows, groups), 0);
  std::vector<float> want_values(x.values.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t first = row * cols + g * group;
      const std::vector<float> values(x.values.begin() + first, x.values.begin() + first + group);
      const oracle::Group encoded = config.format == BlockFormat::kNvfp4
                                        ? oracle::nvfp4(values, config.global_scale, config.nvfp4_scale)
                                        : oracle::mx(values, fp8 ? oracle::kE4m3 : oracle::kE2m1, config.scale_mode);
      const std::size_t at = config.scale_layout == ScaleLayout::kLinear ? static_cast<std::size_t>(row * groups + g)
                                                                         : atom_offset(row, g, groups);
      want_scales[at] = static_cast<std::uint8_t>(encoded.scale);
      for (int i = 0; i < group; ++i) {
        const auto element = static_cast<std::size_t>(first + i);
        const int code = encoded.codes[static_cast<std::size_t>(i)];
        if (fp8) {
          want_codes[element] = static_cast<std::uint8_t>(code);
        } else {
          want_codes[element / 2] = static_cast<std::uint8_t>(want_codes[element / 2] | code << (element % 2 * 4));
        }
        want_values[element] = static_cast<float>(encoded.values[static_cast<std::size_t>(i)]) * config.global_scale;
      }
    }
  }

  for (const test::Target& target : test::kTargets) {
    CAPTURE(std::string(target.name));
    ExecDesc exec;
    exec.num_threads = 1 + static_cast<int>(seed % 2);
    std::vector<std::uint8_t> codes(code_count + 16, kUntouched);
    std::vector<std::uint8_t> scales(want_scales.size() + 16, kUntouched);
    REQUIRE(target.quantize(config, x.bytes.data(), dtype, rows, cols, codes.data(), scales.data(), exec) ==
            Status::kOk);
    CHECK(std::equal(want_codes.begin(), want_codes.end(), codes.begin()));
    CHECK(std::equal(want_scales.begin(), want_scales.end(), scales.begin()));
    CHECK(std::vector<std::uint8_t>(codes.end() - 16, codes.end()) == std::vector<std::uint8_t>(16, kUntouched));
    CHECK(std::vector<std::uint8_t>(scales.end() - 16, scales.end()) == std::vector<std::uint8_t>(16, kUntouched));

    const auto y_bytes = want_values.size() * static_cast<std::size_t>(size_of(dtype));
    std::vector<std::uint8_t> y(y_bytes + 16, kUntouched);
    REQUIRE(target.dequantize(config, codes.data(), scales.data(), rows, cols, y.data(), dtype, exec) == Status::kOk);
    long long wrong = 0;
    for (std::size_t i = 0; i < want_values.size(); ++i) {
      if (dtype == DType::kF32) {
        wrong += std::memcmp(y.data() + 4 * i, &want_values[i], 4) != 0;
      } else {
        const oracle::Float& half = dtype == DType::kF16 ? oracle::kF16 : oracle::kBf16;
        const auto code = static_cast<std::uint16_t>(half.nearest(want_values[i]));
        wrong += std::memcmp(y.data() + 2 * i, &code, 2) != 0;
      }
    }
    CHECK(wrong == 0);
    CHECK(std::vector<std::uint8_t>(y.end() - 16, y.end()) == std::vector<std::uint8_t>(16, kUntouched));
  }
}

}  // namespace

TEST_CASE("quantize and dequantize: formats, layouts, dtypes, shapes") {
  struct Shape {
    std::int64_t rows, cols;
  };
  // One block; less and more than an atom in either direction; more than one piece of 256 a row, and a ragged last
  // piece.
  const Shape shapes[] = {{1, 32}, {1, 1024}, {5, 96}, {33, 160}, {127, 128}, {130, 288}, {200, 544}};
  std::uint64_t seed = 1;
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4, BlockFormat::kMxfp8}) {
    for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const Shape& shape : shapes) {
          QuantizeConfig config;
          config.format = format;
          config.scale_layout = layout;
          config.scale_mode = static_cast<ScaleMode>(seed % 4);
          config.nvfp4_scale = seed % 2 == 0 ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
          if (format == BlockFormat::kNvfp4) config.global_scale = seed % 3 == 0 ? 1.0f : 0.043f;
          run_case(config, dtype, shape.rows, shape.cols, seed);
          ++seed;
        }
      }
    }
  }
}

TEST_CASE("quantize: rows of 16, which only NVFP4 allows") {
  QuantizeConfig config;
  config.format = BlockFormat::kNvfp4;
  config.global_scale = 0.01f;
  run_case(config, DType::kF32, 3, 16, 991);
  run_case(config, DType::kBF16, 7, 272, 992);
}

TEST_CASE("quantize: NaN, infinity and zero blocks are encoded as the formats say") {
  std::vector<float> x(4 * 32, 6.0f);
  x[3] = std::nanf("");
  x[32 + 9] = -INFINITY;
  for (int i = 64; i < 96; ++i) x[static_cast<std::size_t>(i)] = i % 2 == 0 ? 0.0f : -0.0f;
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4, BlockFormat::kMxfp8}) {
    CAPTURE(std::string(name_of(format)));
    QuantizeConfig config;
    config.format = format;
    const bool fp8 = format == BlockFormat::kMxfp8;
    const int group = format == BlockFormat::kNvfp4 ? 16 : 32;
    std::vector<std::uint8_t> want_codes(fp8 ? 128 : 64, 0);
    std::vector<std::uint8_t> want_scales(static_cast<std::size_t>(128 / group), 0);
    for (int g = 0; g < 128 / group; ++g) {
      const float* const values = x.data() + g * group;
      const auto at = static_cast<std::size_t>(g);
      switch (format) {
        case BlockFormat::kMxfp4:
          want_scales[at] = core::encode_e2m1_e8m0(values, 32, ScaleMode::kFloor, want_codes.data() + g * 16);
          break;
        case BlockFormat::kNvfp4:
          want_scales[at] = core::encode_nvfp4(values, 1.0f, Nvfp4Scale::kAmaxOver6, want_codes.data() + g * 8);
          break;
        case BlockFormat::kMxfp8:
          want_scales[at] = core::encode_mxfp8(values, 32, ScaleMode::kFloor, want_codes.data() + g * 32);
          break;
      }
    }
    CHECK(want_scales[0] == (format == BlockFormat::kNvfp4 ? 0x7f : 0xff));
    CHECK(want_scales[static_cast<std::size_t>(64 / group)] == 0);
    for (const test::Target& target : test::kTargets) {
      CAPTURE(std::string(target.name));
      std::vector<std::uint8_t> codes(want_codes.size());
      std::vector<std::uint8_t> scales(want_scales.size());
      REQUIRE(target.quantize(config, x.data(), DType::kF32, 1, 128, codes.data(), scales.data(), {}) == Status::kOk);
      CHECK(codes == want_codes);
      CHECK(scales == want_scales);
      std::vector<float> y(128);
      REQUIRE(target.dequantize(config, codes.data(), scales.data(), 1, 128, y.data(), DType::kF32, {}) == Status::kOk);
      CHECK(std::isnan(y[3]));
      CHECK(std::isnan(y[32 + 9]));
      CHECK(y[64] == 0.0f);
      CHECK(std::signbit(y[65]));
      CHECK(y[127] == 6.0f);
    }
  }
}
