// Benchmarks whose run is a round of calls, recorded as a graph where there are graphs: layers of decoding, products.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/tool/parse_into.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/device_cpu.hpp"
#include "tools/fp4pa/options.hpp"

namespace {

/// A device whose runs take a second, with the host's memory; what is recorded is made at once.
struct Graphs final : fp4pa::tool::Device {
  std::unique_ptr<Device> host = fp4pa::tool::make_cpu_device();
  std::vector<std::size_t> allocated;
  int recordings = 0, evictions = 0;
  std::string name() const override { return "made up"; }
  fp4pa::tool::Buffer allocate(std::size_t bytes) override { return allocated.push_back(bytes), host->allocate(bytes); }
  void upload(void* to, const void* from, std::size_t bytes) override { host->upload(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { host->download(to, from, bytes); }
  void fill(const fp4pa::tool::Buffer& b, fp4pa::tool::Fill pattern, std::uint64_t seed) override { host->fill(b, pattern, seed); }
  void evict_caches() override { ++evictions; }
  double seconds(const std::function<void()>& work) override { return work(), 1.0; }
  fp4pa::tool::Bandwidth read_bandwidth(int, int) override { return {}; }
  bool has_threads() const override { return false; }
  bool has_graphs() const override { return true; }
  std::function<void()> recorded(const std::function<void(void*)>& work) override {
    ++recordings;
    work(nullptr);
    return [] {};
  }
  [[nodiscard]] auto buffers_of(std::size_t bytes) const { return std::count(allocated.begin(), allocated.end(), bytes); }
};

/// The only result of a benchmark's command line, of three runs.
fp4pa::tool::BenchResult measured(std::unique_ptr<fp4pa::tool::Benchmark> benchmark, const std::string& arguments, Graphs& device,
                                  bool warm = false) {
  fp4pa::tool::BenchOptions options;
  options.backend = "cpu";
  options.repeats = 3;
  options.warmup = 0;
  options.warm_caches = warm;
  test::parse_into(*benchmark, arguments);
  fp4pa::tool::BenchReport report(device, options);
  for (const auto& step : benchmark->steps({1})) step.work(report);
  REQUIRE(report.results().size() == 1);
  return report.results().front();
}

}  // namespace

TEST_CASE("bench decode: layers are calls of one run, each on a cache of its own, and a row is one of them") {
  const auto decode = [](Graphs& device, const std::string& more) {
    const std::string shape = "--batch 2 --heads 4 --kv-heads 2 --head-dim 64 --tokens 96 --page-size 16 --format mxfp4";
    return measured(fp4pa::tool::make_bench_decode(), shape + more, device);
  };
  constexpr std::size_t kCodes = 12 * 16 * 2 * 32;  // of K or V: 12 pages of 16 tokens, 2 heads, 32 bytes
  Graphs one, three;
  const auto alone = decode(one, "");
  CHECK(one.recordings == 0);
  CHECK(one.buffers_of(kCodes) == 2);
  CHECK(alone.time.median == 1.0);
  CHECK(!alone.config.contains("layers"));
  const auto layer = decode(three, " --layers 3");
  CHECK(three.recordings == 1);
  CHECK(three.evictions == 3);
  CHECK(three.buffers_of(kCodes) == 6);
  CHECK(layer.time.median == doctest::Approx(1.0 / 3));
  CHECK(layer.config.at("layers") == 3);
  CHECK(layer.bytes == alone.bytes);
}

TEST_CASE("bench gemm: where there are graphs a run is a round of calls on weights of their own, and a row is one of them") {
  const auto gemm = [](Graphs& device, bool is_warm) {
    return measured(fp4pa::tool::make_bench_gemm(), "--shape 1x64x96 --format nvfp4 --activations a4", device, is_warm);
  };
  // 64 rows of 48 bytes of codes and 6 of scales, each weight on a boundary of 256 bytes: 3072 and 512.
  Graphs device, warm;
  const auto result = gemm(device, false);
  CHECK(device.recordings == 1);
  CHECK(device.evictions == 3);
  CHECK(device.buffers_of(64 * 3072) != 0);
  CHECK(device.buffers_of(64 * 512) != 0);
  CHECK(result.figures.at("calls") == 64);
  CHECK(result.time.median == doctest::Approx(1.0 / 64));
  CHECK(result.bytes == 64 * (48 + 6) + 2 * (96 + 64));
  CHECK(!result.config.contains("threads"));

  CHECK(gemm(warm, true).figures.at("calls") == 64);
  CHECK(warm.evictions == 0);
  CHECK(warm.buffers_of(3072) != 0);
  CHECK(warm.buffers_of(64 * 3072) == 0);
}
