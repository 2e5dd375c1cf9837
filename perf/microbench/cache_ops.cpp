// append, gather and copy of a cache: 8 heads of 128, pages of 32, 16 K tokens of bf16 in shuffled pages, so that both
// sides exceed the second-level caches. Each operation with one thread and with two.
#include <algorithm>
#include <numeric>

#include "fp4pa/cache.hpp"
#include "perf/microbench/bench_data.hpp"

namespace {

using namespace fp4pa;

constexpr std::int64_t kTokens = 16384;
constexpr int kHeads = 8;
constexpr int kHeadDim = 128;
constexpr int kPageSize = 32;
constexpr std::int64_t kElements = kTokens * kHeads * kHeadDim;

struct Cache {
  Cache(KvFormat format, VScaleAxis axis, Rotation rotation, Nvfp4Scale nvfp4) {
    desc.k.format = desc.v.format = format;
    desc.v.scale_axis = axis;
    desc.num_kv_heads = kHeads;
    desc.head_dim = kHeadDim;
    desc.page_size = kPageSize;
    desc.num_pages = kTokens / kPageSize;
    desc.rotation = rotation;
    desc.nvfp4_scale = nvfp4;
    set_dense_strides(desc, PageOrder::kHnd);
    for (KvTensorDesc* t : {&desc.k, &desc.v}) {
      const auto data_bytes = static_cast<std::size_t>(dense_data_bytes(desc, *t));
      const auto scale_bytes = static_cast<std::size_t>(dense_scale_bytes(desc, *t));
      bytes += static_cast<double>(data_bytes + scale_bytes);
      t->data = std::aligned_alloc(64, (data_bytes + 63) / 64 * 64);
      if (scale_bytes != 0) t->scales = std::aligned_alloc(64, (scale_bytes + 63) / 64 * 64);
    }
    // Pages in no order, tokens of a page in order.
    std::vector<std::int64_t> pages(static_cast<std::size_t>(desc.num_pages));
    std::iota(pages.begin(), pages.end(), 0);
    std::uint32_t state = 7;
    for (std::size_t i = pages.size(); i > 1; --i) {
      state = state * 1664525u + 1013904223u;
      std::swap(pages[i - 1], pages[(state >> 8) % i]);
    }
    for (const std::int64_t page : pages) {
      for (int row = 0; row < kPageSize; ++row) slots.push_back(page * kPageSize + row);
    }
  }
  ~Cache() {
    for (KvTensorDesc* t : {&desc.k, &desc.v}) {
      std::free(t->data);
      std::free(t->scales);
    }
  }
  Cache(const Cache&) = delete;

  KvCacheDesc desc;
  double bytes = 0;  // codes and scales of all tokens
  std::vector<std::int64_t> slots;
};

ExecDesc threads(const benchmark::State& state) {
  ExecDesc exec;
  exec.num_threads = static_cast<int>(state.range(0));
  return exec;
}

void append_rows(benchmark::State& state, KvFormat format, VScaleAxis axis, Rotation rotation, Nvfp4Scale nvfp4) {
  const Cache cache(format, axis, rotation, nvfp4);
  const std::vector<std::uint8_t> x = bench::plain_values(DType::kBF16, kElements);
  const KvInput input{x.data(), DType::kBF16, 0, 0};
  for (auto _ : state) {
    bench::require(append(cache.desc, input, input, cache.slots.data(), IndexType::kInt64, kTokens, threads(state)));
  }
  bench::count_bytes(state, 2.0 * static_cast<double>(x.size()), cache.bytes);
}

void gather_rows(benchmark::State& state, KvFormat format, VScaleAxis axis) {
  const Cache cache(format, axis, Rotation::kNone, Nvfp4Scale::kAmaxOver6);
  const std::vector<std::uint8_t> x = bench::plain_values(DType::kBF16, kElements);
  const KvInput input{x.data(), DType::kBF16, 0, 0};
  bench::require(append(cache.desc, input, input, cache.slots.data(), IndexType::kInt64, kTokens, {}));
  std::vector<std::uint16_t> k(kElements);
  std::vector<std::uint16_t> v(kElements);
  const KvOutput k_out{k.data(), DType::kBF16, 0, 0};
  const KvOutput v_out{v.data(), DType::kBF16, 0, 0};
  for (auto _ : state) {
    bench::require(gather(cache.desc, cache.slots.data(), IndexType::kInt64, kTokens, k_out, v_out, threads(state)));
  }
  bench::count_bytes(state, cache.bytes, 4.0 * kElements);
}

void copy_half(benchmark::State& state, KvFormat format) {
  const Cache cache(format, VScaleAxis::kHeadDim, Rotation::kNone, Nvfp4Scale::kAmaxOver6);
  const std::vector<std::uint8_t> x = bench::plain_values(DType::kBF16, kElements);
  const KvInput input{x.data(), DType::kBF16, 0, 0};
  bench::require(append(cache.desc, input, input, cache.slots.data(), IndexType::kInt64, kTokens, {}));
  const auto half = static_cast<std::int32_t>(cache.desc.num_pages / 2);
  std::vector<std::int32_t> src(static_cast<std::size_t>(half));
  std::iota(src.begin(), src.end(), 0);
  std::vector<std::int32_t> dst(static_cast<std::size_t>(half));
  std::iota(dst.begin(), dst.end(), half);
  for (auto _ : state) {
    bench::require(copy_pages(cache.desc, src.data(), dst.data(), half, threads(state)));
  }
  bench::count_bytes(state, cache.bytes / 2, cache.bytes / 2);
}

constexpr auto kPlain = Nvfp4Scale::kAmaxOver6;
constexpr auto kAlongHeadDim = VScaleAxis::kHeadDim;
constexpr auto kNoRotation = Rotation::kNone;

#define FP4PA_BENCH(function, name, ...) \
  BENCHMARK_CAPTURE(function, name, __VA_ARGS__)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime()

FP4PA_BENCH(append_rows, mxfp4, KvFormat::kMxfp4, kAlongHeadDim, kNoRotation, kPlain);
FP4PA_BENCH(append_rows, mxfp4_rotated, KvFormat::kMxfp4, kAlongHeadDim, Rotation::kHadamard128, kPlain);
FP4PA_BENCH(append_rows, mxfp4_v_tokens, KvFormat::kMxfp4, VScaleAxis::kTokens, kNoRotation, kPlain);
FP4PA_BENCH(append_rows, nvfp4, KvFormat::kNvfp4, kAlongHeadDim, kNoRotation, kPlain);
FP4PA_BENCH(append_rows, nvfp4_4over6, KvFormat::kNvfp4, kAlongHeadDim, kNoRotation, Nvfp4Scale::kFourOverSix);
FP4PA_BENCH(append_rows, e8m0_per_token, KvFormat::kE8m0PerToken, kAlongHeadDim, kNoRotation, kPlain);
FP4PA_BENCH(append_rows, fp8_e4m3, KvFormat::kFp8E4m3, kAlongHeadDim, kNoRotation, kPlain);
FP4PA_BENCH(append_rows, bf16, KvFormat::kBf16, kAlongHeadDim, kNoRotation, kPlain);
FP4PA_BENCH(append_rows, f16, KvFormat::kF16, kAlongHeadDim, kNoRotation, kPlain);

FP4PA_BENCH(gather_rows, mxfp4, KvFormat::kMxfp4, kAlongHeadDim);
FP4PA_BENCH(gather_rows, mxfp4_v_tokens, KvFormat::kMxfp4, VScaleAxis::kTokens);
FP4PA_BENCH(gather_rows, nvfp4, KvFormat::kNvfp4, kAlongHeadDim);
FP4PA_BENCH(gather_rows, e8m0_per_token, KvFormat::kE8m0PerToken, kAlongHeadDim);
FP4PA_BENCH(gather_rows, fp8_e4m3, KvFormat::kFp8E4m3, kAlongHeadDim);
FP4PA_BENCH(gather_rows, bf16, KvFormat::kBf16, kAlongHeadDim);
FP4PA_BENCH(gather_rows, f16, KvFormat::kF16, kAlongHeadDim);

FP4PA_BENCH(copy_half, mxfp4, KvFormat::kMxfp4);
FP4PA_BENCH(copy_half, bf16, KvFormat::kBf16);

}  // namespace
