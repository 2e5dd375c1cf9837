// quantize and dequantize of a [8192, 4096] bf16 tensor (64 MiB), linear and blocked scales, with one thread and with
// two.
#include "fp4pa/quantize.hpp"
#include "perf/microbench/bench_data.hpp"

namespace {

using namespace fp4pa;

constexpr std::int64_t kRows = 8192;
constexpr std::int64_t kCols = 4096;

QuantizeConfig config_of(BlockFormat format, ScaleLayout layout) {
  QuantizeConfig config;
  config.format = format;
  config.scale_layout = layout;
  return config;
}

struct Tensors {
  explicit Tensors(const QuantizeConfig& config)
      : plain(bench::plain_values(DType::kBF16, kRows * kCols)),
        codes(quantized_code_bytes(config.format, kRows, kCols)),
        scales(quantized_scale_bytes(config.format, config.scale_layout, kRows, kCols)) {}
  std::vector<std::uint8_t> plain, codes, scales;
  [[nodiscard]] double plain_bytes() const { return static_cast<double>(plain.size()); }
  [[nodiscard]] double block_bytes() const { return static_cast<double>(codes.size() + scales.size()); }
};

void quantize_tensor(benchmark::State& state, BlockFormat format, ScaleLayout layout) {
  const QuantizeConfig config = config_of(format, layout);
  Tensors t(config);
  ExecDesc exec;
  exec.num_threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
    bench::require(quantize(config, t.plain.data(), DType::kBF16, kRows, kCols, t.codes.data(), t.scales.data(), exec));
  }
  bench::count_bytes(state, t.plain_bytes(), t.block_bytes());
}

void dequantize_tensor(benchmark::State& state, BlockFormat format, ScaleLayout layout) {
  const QuantizeConfig config = config_of(format, layout);
  Tensors t(config);
  bench::require(quantize(config, t.plain.data(), DType::kBF16, kRows, kCols, t.codes.data(), t.scales.data(), {}));
  ExecDesc exec;
  exec.num_threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
    bench::require(
        dequantize(config, t.codes.data(), t.scales.data(), kRows, kCols, t.plain.data(), DType::kBF16, exec));
  }
  bench::count_bytes(state, t.block_bytes(), t.plain_bytes());
}

#define FP4PA_BENCH(function, name, ...) \
  BENCHMARK_CAPTURE(function, name, __VA_ARGS__)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime()

FP4PA_BENCH(quantize_tensor, mxfp4, BlockFormat::kMxfp4, ScaleLayout::kLinear);
FP4PA_BENCH(quantize_tensor, mxfp4_blocked, BlockFormat::kMxfp4, ScaleLayout::kBlocked);
FP4PA_BENCH(quantize_tensor, nvfp4, BlockFormat::kNvfp4, ScaleLayout::kLinear);
FP4PA_BENCH(quantize_tensor, nvfp4_blocked, BlockFormat::kNvfp4, ScaleLayout::kBlocked);
FP4PA_BENCH(quantize_tensor, mxfp8, BlockFormat::kMxfp8, ScaleLayout::kLinear);
FP4PA_BENCH(dequantize_tensor, mxfp4, BlockFormat::kMxfp4, ScaleLayout::kLinear);
FP4PA_BENCH(dequantize_tensor, nvfp4, BlockFormat::kNvfp4, ScaleLayout::kLinear);
FP4PA_BENCH(dequantize_tensor, nvfp4_blocked, BlockFormat::kNvfp4, ScaleLayout::kBlocked);
FP4PA_BENCH(dequantize_tensor, mxfp8, BlockFormat::kMxfp8, ScaleLayout::kLinear);

}  // namespace
