// The element conversions themselves, one thread, on rows that stay in the first-level cache: what the SIMD kernels do
// and, for comparison, core's own functions.
#include <algorithm>

#include "backends/cpu/cache_rows.hpp"
#include "perf/microbench/bench_data.hpp"

namespace {

using namespace fp4pa;

constexpr int kRow = 256;

const cpu::RowKernels& kernels(bool simd) { return simd ? cpu::fastest_rows() : cpu::kScalarRows; }

double bytes_of(KvFormat format) { return is_fp4(format) ? kRow / 2 : format == KvFormat::kFp8E4m3 ? kRow : 2 * kRow; }

struct Row {
  Row() {
    const std::vector<std::uint8_t> bytes = bench::plain_values(DType::kF32, kRow);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::uint8_t*>(x));
  }
  alignas(64) float x[kRow];
  alignas(64) std::uint8_t codes[2 * kRow] = {};
  alignas(64) std::uint8_t scales[kRow] = {};
};

void encode(benchmark::State& state, KvFormat format, bool simd) {
  const cpu::RowKernels& rows = kernels(simd);
  Row row;
  for (auto _ : state) {
    rows.encode(format, row.x, kRow, 1.0f, {}, row.codes, row.scales);
    benchmark::ClobberMemory();
  }
  bench::count_bytes(state, 4.0 * kRow, bytes_of(format));
}

void decode(benchmark::State& state, KvFormat format, bool simd) {
  const cpu::RowKernels& rows = kernels(simd);
  Row row;
  rows.encode(format, row.x, kRow, 1.0f, {}, row.codes, row.scales);
  for (auto _ : state) {
    rows.decode(format, row.codes, row.scales, kRow, 1.0f, row.x);
    benchmark::ClobberMemory();
  }
  bench::count_bytes(state, bytes_of(format), 4.0 * kRow);
}

void rotate(benchmark::State& state, bool simd) {
  const cpu::RowKernels& rows = kernels(simd);
  Row row;
  for (auto _ : state) {
    rows.rotate(row.x, kRow, 128);
    benchmark::ClobberMemory();
  }
  bench::count_bytes(state, 4.0 * kRow, 4.0 * kRow);
}

BENCHMARK_CAPTURE(encode, f16, KvFormat::kF16, true);
BENCHMARK_CAPTURE(encode, f16_scalar, KvFormat::kF16, false);
BENCHMARK_CAPTURE(encode, bf16, KvFormat::kBf16, true);
BENCHMARK_CAPTURE(encode, bf16_scalar, KvFormat::kBf16, false);
BENCHMARK_CAPTURE(encode, e4m3, KvFormat::kFp8E4m3, true);
BENCHMARK_CAPTURE(encode, e4m3_scalar, KvFormat::kFp8E4m3, false);
BENCHMARK_CAPTURE(encode, e2m1_mxfp4, KvFormat::kMxfp4, true);
BENCHMARK_CAPTURE(encode, e2m1_mxfp4_scalar, KvFormat::kMxfp4, false);
BENCHMARK_CAPTURE(encode, e2m1_nvfp4, KvFormat::kNvfp4, true);
BENCHMARK_CAPTURE(encode, e2m1_nvfp4_scalar, KvFormat::kNvfp4, false);
BENCHMARK_CAPTURE(decode, f16, KvFormat::kF16, true);
BENCHMARK_CAPTURE(decode, f16_scalar, KvFormat::kF16, false);
BENCHMARK_CAPTURE(decode, bf16, KvFormat::kBf16, true);
BENCHMARK_CAPTURE(decode, bf16_scalar, KvFormat::kBf16, false);
BENCHMARK_CAPTURE(decode, e4m3, KvFormat::kFp8E4m3, true);
BENCHMARK_CAPTURE(decode, e4m3_scalar, KvFormat::kFp8E4m3, false);
BENCHMARK_CAPTURE(decode, e2m1_mxfp4, KvFormat::kMxfp4, true);
BENCHMARK_CAPTURE(decode, e2m1_mxfp4_scalar, KvFormat::kMxfp4, false);
BENCHMARK_CAPTURE(decode, e2m1_nvfp4, KvFormat::kNvfp4, true);
BENCHMARK_CAPTURE(decode, e2m1_nvfp4_scalar, KvFormat::kNvfp4, false);
BENCHMARK_CAPTURE(rotate, hadamard128, true);
BENCHMARK_CAPTURE(rotate, hadamard128_scalar, false);

}  // namespace

BENCHMARK_MAIN();
