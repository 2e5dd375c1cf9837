// A CUDA device: its memory, events as its clock, everything on the default stream.
//
// A run is timed between events. What displaces the caches before it is enqueued first and takes longer than enqueueing the run
// does, so that the host's part of a call is not in the time.
#include "tools/fp4pa/device_cuda.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <vector>

#include "perf/gpu_bandwidth.hpp"
#include "tools/fp4pa/device_cpu.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {
namespace {

constexpr std::size_t kBandwidthBytes = std::size_t{4} << 30;
constexpr std::size_t kEvictBytes = std::size_t{512} << 20;  // several times the second-level cache of any card
constexpr std::size_t kPatternBytes = std::size_t{64} << 20;

void must(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Failure(Exit::kInternal, std::string(what) + ": " + cudaGetErrorString(error));
}

class Event {
 public:
  Event() { must(cudaEventCreate(&event_), "creating an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { (void)cudaEventDestroy(event_); }
  void record() { must(cudaEventRecord(event_), "recording an event"); }
  [[nodiscard]] double seconds_since(const Event& begin) {
    must(cudaEventSynchronize(event_), "waiting for a run");
    float ms = 0.0f;
    must(cudaEventElapsedTime(&ms, begin.event_, event_), "reading an event");
    return 1e-3 * static_cast<double>(ms);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  CudaDevice() {
    cudaDeviceProp properties{};
    int device = 0;
    must(cudaGetDevice(&device), "the current device");
    must(cudaGetDeviceProperties(&properties, device), "the device's properties");
    name_ = properties.name;
    multiprocessors_ = properties.multiProcessorCount;
    sink_ = allocate(16);
  }

  std::string name() const override { return name_; }

  Buffer allocate(std::size_t bytes) override {
    void* data = nullptr;
    must(cudaMalloc(&data, std::max<std::size_t>(bytes, 1)), "allocating device memory");
    return Buffer(data, bytes, [data] { (void)cudaFree(data); });
  }
  void upload(void* to, const void* from_host, std::size_t bytes) override {
    if (bytes != 0) must(cudaMemcpy(to, from_host, bytes, cudaMemcpyHostToDevice), "copying to the device");
  }
  void download(void* to_host, const void* from, std::size_t bytes) override {
    if (bytes != 0) must(cudaMemcpy(to_host, from, bytes, cudaMemcpyDeviceToHost), "copying from the device");
  }

  /// A stretch made on the host, over and over.
  void fill(const Buffer& buffer, Fill pattern, std::uint64_t seed) override {
    const auto host = make_cpu_device();
    const Buffer stretch = host->allocate(std::min(buffer.bytes(), kPatternBytes));
    host->fill(stretch, pattern, seed);
    for (std::size_t at = 0; at < buffer.bytes(); at += stretch.bytes()) {
      upload(buffer.as<char>() + at, stretch.data(), std::min(stretch.bytes(), buffer.bytes() - at));
    }
  }

  void evict_caches() override {
    if (evict_.bytes() == 0) {
      evict_ = allocate(kEvictBytes);
      must(cudaMemset(evict_.data(), 1, evict_.bytes()), "filling device memory");
    }
    read(evict_, 8);
  }

  double seconds(const std::function<void()>& work) override {
    Event begin, end;
    begin.record();
    work();
    end.record();
    return end.seconds_since(begin);
  }

  Bandwidth read_bandwidth(int, int repeats) override {
    std::size_t free_bytes = 0, all = 0;
    must(cudaMemGetInfo(&free_bytes, &all), "asking for free device memory");
    const Buffer buffer = allocate(std::min(kBandwidthBytes, free_bytes / 2 / 256 * 256));
    must(cudaMemset(buffer.data(), 1, buffer.bytes()), "filling device memory");
    Bandwidth best;
    best.buffer_bytes = buffer.bytes();
    for (const int per_multiprocessor : {4, 8, 16}) {
      (void)seconds([&] { read(buffer, per_multiprocessor); });
      std::vector<double> gbs;
      for (int i = 0; i < repeats; ++i) {
        gbs.push_back(static_cast<double>(buffer.bytes()) / seconds([&] { read(buffer, per_multiprocessor); }) * 1e-9);
      }
      std::sort(gbs.begin(), gbs.end());
      best.best_gbs = std::max(best.best_gbs, gbs.back());
      best.median_gbs = std::max(best.median_gbs, gbs[gbs.size() / 2]);
    }
    return best;
  }

 private:
  void read(const Buffer& buffer, int per_multiprocessor) {
    must(perf::launch_read(buffer.data(), static_cast<std::int64_t>(buffer.bytes()), sink_.data(),
                           per_multiprocessor * multiprocessors_, nullptr),
         "reading device memory");
  }

  std::string name_;
  int multiprocessors_ = 0;
  Buffer sink_, evict_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device() { return std::make_unique<CudaDevice>(); }

}  // namespace fp4pa::tool
