// quantize and dequantize: sizes, and every refusal with its sentence. What they compute is tested with the formats.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "fp4pa/quantize.hpp"
#include "tests/api/small_cache.hpp"

using namespace fp4pa;
using test::Bytes;

namespace {

const ExecDesc kOnCpu{"cpu", nullptr, 0};
constexpr std::int64_t kRows = 3, kCols = 64;

struct Call {
  std::vector<float> x = std::vector<float>(kRows * kCols, 1.0f);
  Bytes codes{kRows * kCols};
  Bytes scales{128 * 4};
  QuantizeConfig config;
  DType dtype = DType::kF32;
  std::int64_t rows = kRows, cols = kCols;
  const void* input = x.data();

  Status operator()() {
    return quantize(config, input, dtype, rows, cols, codes.data(), scales.data(), kOnCpu);
  }
};

}  // namespace

TEST_CASE("quantize: every format and layout is accepted") {
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4, BlockFormat::kMxfp8}) {
    for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
      Call call;
      call.config.format = format;
      call.config.scale_layout = layout;
      INFO(last_error_detail());
      CHECK(call() == Status::kOk);
    }
  }
}

TEST_CASE("quantize: refusals write nothing") {
  Call call;
  SUBCASE("null") {
    call.input = nullptr;
    FP4PA_CHECK_REFUSED(call(), Status::kNullPointer, "x is null");
  }
  SUBCASE("misaligned") {
    call.input = reinterpret_cast<const char*>(call.x.data()) + 1;
    FP4PA_CHECK_REFUSED(call(), Status::kMisalignedPointer, "x is 0x", "multiples of 4");
  }
  SUBCASE("cols") {
    for (const std::int64_t bad : {0, -32, 48}) {
      call.cols = bad;
      FP4PA_CHECK_REFUSED(call(), Status::kInvalidSize, "cols is ", std::to_string(bad).c_str(),
                          "positive multiples of 32");
    }
    call.config.format = BlockFormat::kNvfp4;
    call.cols = 24;
    FP4PA_CHECK_REFUSED(call(), Status::kInvalidSize, "cols is 24", "nvfp4", "positive multiples of 16");
  }
  SUBCASE("rows") {
    call.rows = -1;
    FP4PA_CHECK_REFUSED(call(), Status::kInvalidSize, "rows is -1", "0 or more");
    call.rows = std::numeric_limits<std::int64_t>::max() / 64;
    FP4PA_CHECK_REFUSED(call(), Status::kInvalidSize, "rows is ", "address space");
  }
  SUBCASE("enums") {
    call.config.format = static_cast<BlockFormat>(3);
    FP4PA_CHECK_REFUSED(call(), Status::kUnsupportedFormat, "format is 3", "mxfp8");
    call.config = {};
    call.config.scale_layout = static_cast<ScaleLayout>(2);
    FP4PA_CHECK_REFUSED(call(), Status::kUnsupportedFormat, "scale_layout is 2", "blocked_128x4");
    call.config = {};
    call.config.scale_mode = static_cast<ScaleMode>(-1);
    FP4PA_CHECK_REFUSED(call(), Status::kUnsupportedFormat, "scale_mode is -1", "even");
    call.config = {};
    call.config.nvfp4_scale = static_cast<Nvfp4Scale>(2);
    FP4PA_CHECK_REFUSED(call(), Status::kUnsupportedFormat, "nvfp4_scale is 2", "four_over_six");
    call.config = {};
    call.dtype = static_cast<DType>(4);
    FP4PA_CHECK_REFUSED(call(), Status::kUnsupportedFormat, "dtype is 4", "bf16");
  }
  SUBCASE("global scale") {
    call.config.global_scale = 2.0f;
    FP4PA_CHECK_REFUSED(call(), Status::kInvalidGlobalScale, "global_scale is 2", "mxfp4: 1");
    call.config.format = BlockFormat::kNvfp4;
    for (const float bad : {0.0f, -1.0f, std::nanf(""), INFINITY, 1e-38f, 2e38f}) {
      call.config.global_scale = bad;
      FP4PA_CHECK_REFUSED(call(), Status::kInvalidGlobalScale, "global_scale is ", "2^-126 to 2^126");
    }
  }
  CHECK(call.codes.untouched());
  CHECK(call.scales.untouched());
}

TEST_CASE("quantize: sizes") {
  CHECK(quantized_code_bytes(BlockFormat::kMxfp4, 3, 64) == 96);
  CHECK(quantized_code_bytes(BlockFormat::kMxfp8, 3, 64) == 192);
  CHECK(quantized_scale_bytes(BlockFormat::kMxfp4, ScaleLayout::kLinear, 3, 64) == 6);
  CHECK(quantized_scale_bytes(BlockFormat::kNvfp4, ScaleLayout::kLinear, 3, 64) == 12);
  CHECK(quantized_scale_bytes(BlockFormat::kMxfp4, ScaleLayout::kBlocked, 3, 64) == 128 * 4);
  CHECK(quantized_scale_bytes(BlockFormat::kNvfp4, ScaleLayout::kBlocked, 129, 80) == 256 * 8);
  CHECK(quantized_code_bytes(BlockFormat::kMxfp4, 3, 48) == 0);
  CHECK(quantized_code_bytes(static_cast<BlockFormat>(9), 3, 64) == 0);
  CHECK(quantized_scale_bytes(BlockFormat::kMxfp4, static_cast<ScaleLayout>(9), 3, 64) == 0);
  CHECK(quantized_code_bytes(BlockFormat::kMxfp8, std::numeric_limits<std::int64_t>::max(), 64) == 0);
}

TEST_CASE("dequantize shares the checks") {
  Bytes y(kRows * kCols * 4);
  std::vector<std::uint8_t> codes(kRows * kCols / 2), scales(kRows * kCols / 32, 127);
  FP4PA_CHECK_REFUSED(dequantize({}, nullptr, scales.data(), kRows, kCols, y.data(), DType::kF32, kOnCpu),
                      Status::kNullPointer, "codes is null");
  FP4PA_CHECK_REFUSED(dequantize({}, codes.data(), nullptr, kRows, kCols, y.data(), DType::kF32, kOnCpu),
                      Status::kNullPointer, "scales is null");
  FP4PA_CHECK_REFUSED(dequantize({}, codes.data(), scales.data(), kRows, kCols, nullptr, DType::kF32, kOnCpu),
                      Status::kNullPointer, "y is null");
  CHECK(y.untouched());
}
