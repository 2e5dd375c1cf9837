// Append with V along tokens is two kernels that overlap: what follows in the stream must find both done, in a graph as well. (V's
// waits for K's before it ends. With that wait left out 20 replays on an H200 were right, too: this test would not tell.)
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tests/gpu/mirror.hpp"

namespace {

using namespace fp4pa;
using gpu_test::must;

constexpr std::int32_t kHeads = 8;
constexpr std::int32_t kDim = 128;
constexpr std::int32_t kPageSize = 64;
constexpr std::int32_t kTokens = 8192;
constexpr std::int64_t kRow = std::int64_t{kHeads} * kDim;

/// A cache, tokens for it, and where they are gathered to.
struct Pool {
  explicit Pool(KvFormat format) {
    cache.k.format = cache.v.format = format;
    cache.v.scale_axis = VScaleAxis::kTokens;
    cache.num_kv_heads = kHeads;
    cache.head_dim = kDim;
    cache.page_size = kPageSize;
    cache.num_pages = kTokens / kPageSize;
    cache.rotation = Rotation::kHadamard128;  // so that K takes longer than V
    set_dense_strides(cache, PageOrder::kHnd);
    int i = 0;
    for (KvTensorDesc* t : {&cache.k, &cache.v}) {
      arrays[i].assign(static_cast<std::size_t>(dense_data_bytes(cache, *t)), 0xff);
      t->data = arrays[i++].data();
      arrays[i].assign(static_cast<std::size_t>(dense_scale_bytes(cache, *t)), 0xff);
      t->scales = arrays[i++].data();
    }
    std::mt19937 random(7);
    for (std::vector<std::uint16_t>& x : inputs) {
      x.resize(static_cast<std::size_t>(kTokens * kRow));
      for (std::uint16_t& v : x) v = static_cast<std::uint16_t>((random() & 0x83ffu) | 0x3c00u);  // 2^-7 to 2 in magnitude
    }
    for (std::vector<std::uint16_t>& x : outputs) x.assign(static_cast<std::size_t>(kTokens * kRow), 0);
    std::vector<std::int64_t> pages(static_cast<std::size_t>(cache.num_pages));
    for (std::size_t p = 0; p < pages.size(); ++p) pages[p] = static_cast<std::int64_t>(p);
    std::shuffle(pages.begin(), pages.end(), random);
    for (std::int32_t t = 0; t < kTokens; ++t) slots.push_back(pages[static_cast<std::size_t>(t / kPageSize)] * kPageSize + t % kPageSize);
  }

  KvCacheDesc cache;
  std::vector<std::uint8_t> arrays[4];
  std::vector<std::uint16_t> inputs[2], outputs[2];
  std::vector<std::int64_t> slots;
};

/// @param at  where what lies at an address of `pool` is for the back end
template <class At>
Status append_and_gather(const api::Backend& backend, Pool& pool, const KvCacheDesc& cache, const ExecDesc& exec, At&& at) {
  const auto input = [&](int i) { return KvInput{at(pool.inputs[i].data()), DType::kBF16, kRow, kDim}; };
  const auto output = [&](int i) { return KvOutput{at(pool.outputs[i].data()), DType::kBF16, kRow, kDim}; };
  const api::SlotList slots{at(pool.slots.data()), IndexType::kInt64, kTokens};
  const Status s = backend.append(cache, input(0), input(1), slots, exec);
  return s != Status::kOk ? s : backend.gather(cache, slots, output(0), output(1), exec);
}

}  // namespace

TEST_CASE("append with V along tokens: a gather behind it in a captured graph finds all of K and V") {
  for (const KvFormat format : {KvFormat::kMxfp4, KvFormat::kNvfp4}) {
    CAPTURE(static_cast<int>(format));
    Pool expected(format);
    REQUIRE(append_and_gather(api::kCpuBackend, expected, expected.cache, {"cpu", nullptr, 0}, [](auto* p) { return p; }) == Status::kOk);

    Pool pool(format);
    gpu_test::Mirror mirror;
    for (auto& a : pool.arrays) mirror.add(a.data(), static_cast<std::int64_t>(a.size()));
    for (auto& x : pool.inputs) mirror.add(x.data(), static_cast<std::int64_t>(2 * x.size()));
    for (auto& x : pool.outputs) mirror.add(x.data(), static_cast<std::int64_t>(2 * x.size()));
    mirror.add(pool.slots.data(), static_cast<std::int64_t>(8 * pool.slots.size()));
    KvCacheDesc cache = pool.cache;
    for (KvTensorDesc* t : {&cache.k, &cache.v}) {
      t->data = mirror.device(static_cast<std::uint8_t*>(t->data));
      t->scales = mirror.device(static_cast<std::uint8_t*>(t->scales));
    }

    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    must(cudaStreamCreate(&stream), "creating a stream");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "beginning a capture");
    for (auto& a : pool.arrays) must(cudaMemsetAsync(mirror.device(a.data()), 0xff, a.size(), stream), "poisoning the cache");
    const Status status = append_and_gather(gpu_test::kBackend, pool, cache, {"cuda", stream, 0}, [&](auto* p) { return mirror.device(p); });
    must(cudaStreamEndCapture(stream, &graph), "ending a capture");
    REQUIRE(status == Status::kOk);
    must(cudaGraphInstantiate(&exec, graph, 0), "instantiating a graph");
    for (int replay = 0; replay < 20; ++replay) {
      for (auto& x : pool.outputs) must(cudaMemsetAsync(mirror.device(x.data()), 0, 2 * x.size(), stream), "clearing what is gathered");
      must(cudaGraphLaunch(exec, stream), "launching a graph");
      must(cudaStreamSynchronize(stream), "a replay");
      mirror.bring_home();
      for (int i = 0; i < 2; ++i) {
        CAPTURE(i);
        CHECK(pool.outputs[i] == expected.outputs[i]);
      }
      for (int i = 0; i < 4; ++i) CHECK(pool.arrays[i] == expected.arrays[i]);
    }
    must(cudaGraphExecDestroy(exec), "a graph");
    must(cudaGraphDestroy(graph), "a graph");
    must(cudaStreamDestroy(stream), "a stream");
  }
}
