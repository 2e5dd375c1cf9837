// Products one behind the other on a stream, each of what the one before gave, with settled weights: kernels of sm_90 overlap then, and
// with up to two rows of X blocks of two products share a multiprocessor. Bit for bit what the same calls give that are waited for one by
// one.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tests/gpu/direct/calls.hpp"

namespace {

using namespace fp4pa;
using namespace fp4pa::direct_test;

constexpr int kCalls = 16;

/// A weight of elements of some 2^-6, which leaves sums of a few thousand products as large as X.
class Weight {
 public:
  Weight(BlockFormat format, std::int64_t rows, std::int64_t cols, std::uint32_t seed)
      : codes_(fp4_weight_code_bytes(format, rows, cols)),
        scales_(fp4_weight_scale_bytes(format, ScaleLayout::kLinear, rows, cols)),
        globals_(1) {
    std::vector<std::uint16_t> values = bf16_values(static_cast<std::size_t>(rows * cols), seed);
    for (std::uint16_t& v : values) v = static_cast<std::uint16_t>(v - (6u << 7));
    const Buffer<std::uint16_t> w(values);
    QuantizeConfig c;
    c.format = format;
    must_succeed(fp4_quantize_weight(c, w.data(), DType::kBF16, rows, cols, 1, codes_.data(), scales_.data(),
                                     format == BlockFormat::kNvfp4 ? globals_.data() : nullptr, &view, {"cuda", nullptr, 0}),
                 "quantising a weight");
    must(cudaDeviceSynchronize(), "quantising a weight");
  }
  Fp4Weight view;

 private:
  Buffer<std::uint8_t> codes_, scales_;
  Buffer<float> globals_;
};

/// 2^-3 to 2 in magnitude.
std::vector<std::uint16_t> f16_values(std::size_t count, std::uint32_t seed) {
  std::vector<std::uint16_t> values = bf16_values(count, seed);
  for (std::uint16_t& v : values) v = static_cast<std::uint16_t>((v & 0x8000u) | 0x3000u | (v & 0x01ffu) << 3);
  return values;
}

/// What the last of the calls gives.
/// @param alone  each is waited for
std::vector<std::uint8_t> run(const std::array<Weight, 2>& weights, const std::vector<std::uint16_t>& x, DType type, std::int64_t m,
                              bool alone) {
  const auto most = static_cast<std::size_t>(m * std::max(weights[0].view.cols, weights[1].view.cols));
  const std::array<Buffer<std::uint16_t>, 2> between{Buffer<std::uint16_t>(most), Buffer<std::uint16_t>(most)};
  must(cudaMemcpy(between[0].data(), x.data(), x.size() * 2, cudaMemcpyHostToDevice), "writing X");
  const OwnStream stream;
  LinearArgs args;
  args.x_dtype = args.out_dtype = type;
  args.m = m;
  args.weight_settled = true;
  Buffer<std::uint8_t> workspace;
  for (const Weight& w : weights) {
    args.weight = w.view;
    std::size_t bytes = 0;
    must_succeed(fp4_linear_workspace(args, &bytes, {"cuda", nullptr, 0}), "asking for a workspace");
    if (bytes > workspace.size()) workspace = Buffer<std::uint8_t>(bytes);
  }
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.size();
  for (int i = 0; i < kCalls; ++i) {
    args.weight = weights[i % 2].view;
    args.x = between[i % 2].data();
    args.out = between[(i + 1) % 2].data();
    REQUIRE(fp4_linear(args, {"cuda", stream.get(), 0}) == Status::kOk);
    if (alone) stream.wait();
  }
  stream.wait();
  std::vector<std::uint8_t> result;
  between[kCalls % 2].append_to(result);
  result.resize(static_cast<std::size_t>(m * weights[1].view.rows) * 2);
  return result;
}

void check(const std::array<Weight, 2>& weights, DType type) {
  for (const std::int64_t m : {1, 2, 3, 8, 16, 40}) {
    CAPTURE(m);
    const auto count = static_cast<std::size_t>(m * weights[0].view.cols);
    const std::vector<std::uint16_t> x = type == DType::kF16 ? f16_values(count, 5) : bf16_values(count, 5);
    const std::vector<std::uint8_t> alone = run(weights, x, type, m, true);
    int finite = 0;  // and not zero
    for (std::size_t i = 0; i < alone.size(); i += 2) {
      const unsigned bits = alone[i] | static_cast<unsigned>(alone[i + 1]) << 8;
      const unsigned infinite = type == DType::kF16 ? 0x7c00 : 0x7f80;
      finite += (bits & infinite) != infinite && (bits & 0x7fff) != 0;
    }
    CHECK(finite > static_cast<int>(alone.size() / 2 * 9 / 10));
    for (int turn = 0; turn < 5; ++turn) CHECK(run(weights, x, type, m, false) == alone);
  }
}

void check(std::int64_t rows, std::int64_t cols) {
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    CAPTURE(std::string(name_of(format)));
    const std::array<Weight, 2> weights{Weight(format, rows, cols, 1), Weight(format, cols, rows, 2)};
    for (const DType type : {DType::kF16, DType::kBF16}) {
      CAPTURE(std::string(name_of(type)));
      check(weights, type);
    }
  }
}

}  // namespace

TEST_CASE("products in a row: K divided by two blocks") { check(4096, 4096); }
TEST_CASE("products in a row: blocks with all of K, and K divided by more") { check(8192, 2048); }
TEST_CASE("products in a row: ragged") { check(4000, 3000); }
