// Weights: what the quantiser writes, element by element at the edges of tiles, and weights laid out by others.
#include <doctest/doctest.h>

#include <set>

#include "core/formats/elements.hpp"
#include "tests/gemm/problem.hpp"

using namespace fp4pa;
using namespace fp4pa::gemm_test;

namespace {

/// y = x weight^T for one row of x that picks column k: the weight's column k, decoded by the kernel.
std::vector<double> column(const Fp4Weight& w, std::int64_t k, const char* backend) {
  std::vector<float> pick(static_cast<std::size_t>(w.cols), 0.0f);
  pick[static_cast<std::size_t>(k)] = 1.0f;
  const Tensor x(DType::kF16, pick);
  Tensor out(DType::kF32, std::vector<float>(static_cast<std::size_t>(w.rows), std::nanf("")));
  LinearArgs a;
  a.weight = w;
  a.x = x.memory.data();
  a.x_dtype = DType::kF16;
  a.out = out.memory.data();
  a.out_dtype = DType::kF32;
  a.m = 1;
  const ExecDesc exec{backend};
  std::size_t bytes = 0;
  REQUIRE(fp4_linear_workspace(a, &bytes, exec) == Status::kOk);
  Memory workspace(bytes);
  a.workspace = workspace.data();
  a.workspace_bytes = bytes;
  REQUIRE_MESSAGE(fp4_linear(a, exec) == Status::kOk, last_error_detail());
  std::vector<double> y;
  for (std::size_t i = 0; i < static_cast<std::size_t>(w.rows); ++i) y.push_back(out.at(i));
  return y;
}

}  // namespace

TEST_CASE("weights: the 128x4 layout is read element by element, at all edges of its tiles") {
  // Every scale byte differs from its neighbours, so that reading a wrong one shows; all codes are 1.
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
      const std::int64_t group = group_size(format);
      for (const std::int64_t rows : {1, 31, 32, 33, 127, 128, 129, 257}) {
        for (const std::int64_t groups : {1, 3, 4, 5, 8, 9}) {
          CAPTURE(rows);
          CAPTURE(groups);
          OwnedWeight w(format, ScaleLayout::kBlocked, rows, groups * group);
          std::memset(w.codes.data(), 0x22, w.codes.bytes());
          std::memset(w.scales.data(), format == BlockFormat::kMxfp4 ? 0xff : 0x7f, w.scales.bytes());  // padding: NaN
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t g = 0; g < groups; ++g) {
              const std::int64_t number = (r * 7 + g * 3) % 97;
              w.scales.data()[reference::scale_index(ScaleLayout::kBlocked, r, g, groups)] =
                  static_cast<std::uint8_t>(format == BlockFormat::kMxfp4 ? 80 + number : 16 + number);
            }
          }
          for (std::int64_t g = 0; g < groups; ++g) {
            const std::vector<double> y = column(w.view, g * group + (g * 5) % group, backend.c_str());
            int wrong = 0;
            for (std::int64_t r = 0; r < rows; ++r) {
              const std::int64_t number = (r * 7 + g * 3) % 97;
              const double want = format == BlockFormat::kMxfp4
                                      ? std::exp2(80 + number - 127)
                                      : double{core::UE4M3::decode(static_cast<std::uint8_t>(16 + number))};
              wrong += y[static_cast<std::size_t>(r)] != want;
            }
            CHECK(wrong == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("weights: the quantiser writes the same scales in both layouts, zeros in the padding, codes of zero past K") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
      for (const std::int64_t rows : {1, 33, 130}) {
        for (const std::int64_t cols : {1, 17, 40, 128, 300}) {
          CAPTURE(rows);
          CAPTURE(cols);
          const Tensor w(DType::kF32, gaussian(static_cast<std::size_t>(2 * rows * cols), 5));
          OwnedWeight linear(format, ScaleLayout::kLinear, rows, cols, 2), blocked(format, ScaleLayout::kBlocked, rows, cols, 2);
          const ExecDesc exec{backend.c_str()};
          REQUIRE(linear.quantize(w, exec) == Status::kOk);
          REQUIRE(blocked.quantize(w, exec) == Status::kOk);
          CHECK(std::memcmp(linear.codes.data(), blocked.codes.data(), linear.codes.bytes()) == 0);
          const std::int64_t groups = (cols + group_size(format) - 1) / group_size(format);
          const std::int64_t padded = static_cast<std::int64_t>(fp4_weight_scale_bytes(format, ScaleLayout::kBlocked, rows, cols));
          for (std::int64_t b = 0; b < 2; ++b) {
            std::set<std::int64_t> used;
            for (std::int64_t r = 0; r < rows; ++r) {
              for (std::int64_t g = 0; g < groups; ++g) {
                const std::int64_t at = b * padded + reference::scale_index(ScaleLayout::kBlocked, r, g, groups);
                used.insert(at);
                CHECK(blocked.scales.data()[at] == linear.scales.data()[b * rows * groups + r * groups + g]);
              }
            }
            for (std::int64_t at = b * padded; at < (b + 1) * padded; ++at) {
              if (used.count(at) == 0) CHECK(blocked.scales.data()[at] == 0);
            }
          }
          const std::int64_t row_bytes = groups * group_size(format) / 2;
          for (std::int64_t r = 0; r < 2 * rows; ++r) {
            for (std::int64_t c = cols; c < 2 * row_bytes; ++c) {
              CHECK((linear.codes.data()[r * row_bytes + c / 2] >> (c % 2 * 4) & 15) == 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("weights: NVFP4's multiplier is amax / 2688, weight by weight; 1 where there is none") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    const std::int64_t rows = 5, cols = 50;
    std::vector<float> x = gaussian(static_cast<std::size_t>(4 * rows * cols), 9);
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows * cols); ++i) {
      x[static_cast<std::size_t>(rows * cols) + i] = 0.0f;
      x[static_cast<std::size_t>(3 * rows * cols) + i] *= 1e-3f;
    }
    x[static_cast<std::size_t>(2 * rows * cols) + 3] = INFINITY;
    x[7] = -9.0f;
    OwnedWeight w(BlockFormat::kNvfp4, ScaleLayout::kLinear, rows, cols, 4);
    const Tensor plain(DType::kF32, x);
    REQUIRE(w.quantize(plain, ExecDesc{backend.c_str()}) == Status::kOk);
    const auto amax = [&](std::size_t weight) {  // of what is finite
      float most = 0;
      for (std::size_t i = weight * rows * cols; i < (weight + 1) * rows * cols; ++i) most = std::isinf(x[i]) ? most : std::fmax(most, std::fabs(x[i]));
      return most;
    };
    float globals[4];
    std::memcpy(globals, w.globals.data(), sizeof globals);
    CHECK(globals[0] == 9.0f / 2688.0f);
    CHECK(globals[1] == 1.0f);
    CHECK(globals[2] == amax(2) / 2688.0f);
    CHECK(globals[3] == amax(3) / 2688.0f);
  }
}

TEST_CASE("weights: NVFP4's multiplier is the least normal number where amax / 2688 is smaller still") {
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    OwnedWeight w(BlockFormat::kNvfp4, ScaleLayout::kLinear, 3, 50);
    REQUIRE(w.quantize(Tensor(DType::kF32, std::vector<float>(3 * 50, 0x1p-120f)), ExecDesc{backend.c_str()}) == Status::kOk);
    float global = 0;
    std::memcpy(&global, w.globals.data(), sizeof global);
    CHECK(global == 0x1p-126f);
  }
}

TEST_CASE("weights: MXFP4 experts as gpt-oss writes them, blocks [experts, N, groups, 16] and scales [experts, N, groups]") {
  const std::int64_t experts = 3, rows = 20, groups = 3;
  constexpr float kValues[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  std::mt19937 random(3);
  Memory blocks(static_cast<std::size_t>(experts * rows * groups * 16)), scales(static_cast<std::size_t>(experts * rows * groups));
  std::vector<float> want;  // [experts, rows, 32 * groups]
  for (std::int64_t g = 0; g < experts * rows * groups; ++g) {
    const int scale = 110 + static_cast<int>(random() % 20);
    scales.data()[g] = static_cast<std::uint8_t>(scale);
    for (int i = 0; i < 16; ++i) {
      const unsigned byte = random() % 256;
      blocks.data()[g * 16 + i] = static_cast<std::uint8_t>(byte);
      want.push_back(std::ldexp(kValues[byte & 15], scale - 127));
      want.push_back(std::ldexp(kValues[byte >> 4], scale - 127));
    }
  }
  Fp4Weight w;
  w.rows = rows;
  w.cols = 32 * groups;
  w.batch = experts;
  w.codes = blocks.data();
  w.scales = scales.data();
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (std::int64_t e = 0; e < experts; ++e) {
      Fp4Weight one = w;  // an expert is a weight of its own
      one.batch = 1;
      one.codes = blocks.data() + e * rows * groups * 16;
      one.scales = scales.data() + e * rows * groups;
      for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, std::int64_t{33}, w.cols - 1}) {
        const std::vector<double> y = column(one, k, backend.c_str());
        for (std::int64_t r = 0; r < rows; ++r) {
          CHECK(y[static_cast<std::size_t>(r)] == double{want[static_cast<std::size_t>((e * rows + r) * w.cols + k)]});
        }
      }
    }
  }
}

TEST_CASE("weights: NVFP4 as ModelOpt writes it, weight [N, K/2], weight_scale [N, K/16] in E4M3, weight_scale_2") {
  const std::int64_t rows = 37, cols = 80;
  constexpr float kValues[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  std::mt19937 random(4);
  Memory weight(static_cast<std::size_t>(rows * cols / 2)), scale(static_cast<std::size_t>(rows * cols / 16));
  const float scale_2 = 0.0123f;
  for (std::size_t i = 0; i < weight.bytes(); ++i) weight.data()[i] = static_cast<std::uint8_t>(random());
  for (std::size_t i = 0; i < scale.bytes(); ++i) scale.data()[i] = static_cast<std::uint8_t>(random() % 127);
  Fp4Weight w;
  w.format = BlockFormat::kNvfp4;
  w.rows = rows;
  w.cols = cols;
  w.codes = weight.data();
  w.scales = scale.data();
  w.global_scale = scale_2;
  for (const std::string& backend : runnable_backends()) {
    CAPTURE(backend);
    for (std::int64_t k = 0; k < cols; k += 7) {
      const std::vector<double> y = column(w, k, backend.c_str());
      for (std::int64_t r = 0; r < rows; ++r) {
        const unsigned byte = weight.data()[r * cols / 2 + k / 2];
        const float value = kValues[k % 2 == 0 ? byte & 15 : byte >> 4];
        const std::uint8_t s = scale.data()[r * (cols / 16) + k / 16];
        // E4M3 by its definition: 3 bits of mantissa, bias 7.
        const double sf = s >> 3 == 0 ? std::ldexp(s, -9) : std::ldexp(8 + (s & 7), (s >> 3) - 10);
        CHECK(static_cast<float>(y[static_cast<std::size_t>(r)]) == static_cast<float>(value * sf) * scale_2);
      }
    }
  }
}

TEST_CASE("weights: memory is at most 0.29 of bf16, scales included") {
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::kBlocked}) {
      const double bytes = static_cast<double>(fp4_weight_code_bytes(format, 8192, 8192) + fp4_weight_scale_bytes(format, layout, 8192, 8192));
      CHECK(bytes / (2.0 * 8192 * 8192) <= 0.29);
    }
  }
}
