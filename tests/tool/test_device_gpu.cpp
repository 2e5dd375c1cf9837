// What CUDA and HIP devices share, over a runtime that this file makes up on the host: memory is malloc's, and a clock that
// ticks once for every byte that a "kernel" reads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tools/fp4pa/device_cpu.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace {

enum fakeError_t { fakeSuccess, fakeErrorMemoryAllocation, fakeErrorUnknown };
enum fakeCopy { fakeMemcpyHostToDevice, fakeMemcpyDeviceToHost, fakeMemcpyDeviceToDevice };
struct fakeProperties {
  const char* name = "a made-up card";
  int multiProcessorCount = 3;
  std::size_t totalGlobalMem = std::size_t{4} << 20;
};
struct fakeEvent {
  double ms = 0.0;
};
using fakeEvent_t = fakeEvent*;

double clock_ms = 0.0;
std::size_t live_allocations = 0, largest_copy_from_host = 0;
std::vector<int> blocks_of_reads;
fakeError_t last_error = fakeSuccess;

const char* fakeGetErrorString(fakeError_t) { return "a made-up error"; }
fakeError_t fakeGetLastError() { return std::exchange(last_error, fakeSuccess); }
fakeError_t fakeGetDevice(int* device) { return *device = 0, fakeSuccess; }
fakeError_t fakeGetDeviceProperties(fakeProperties* properties, int) { return *properties = {}, fakeSuccess; }
fakeError_t fakeMalloc(void** data, std::size_t bytes) {
  if (bytes > std::size_t{1} << 40) return fakeErrorUnknown;
  if (bytes > std::size_t{1} << 30) return last_error = fakeErrorMemoryAllocation;
  ++live_allocations;
  *data = std::malloc(bytes);
  return fakeSuccess;
}
fakeError_t fakeFree(void* data) { return std::free(data), --live_allocations, fakeSuccess; }
fakeError_t fakeMemcpy(void* to, const void* from, std::size_t bytes, fakeCopy kind) {
  if (kind == fakeMemcpyHostToDevice) largest_copy_from_host = std::max(largest_copy_from_host, bytes);
  return std::memcpy(to, from, bytes), fakeSuccess;
}
fakeError_t fakeMemset(void* data, int value, std::size_t bytes) { return std::memset(data, value, bytes), fakeSuccess; }
fakeError_t fakeEventCreate(fakeEvent_t* event) { return *event = new fakeEvent, fakeSuccess; }
fakeError_t fakeEventDestroy(fakeEvent_t event) { return delete event, fakeSuccess; }
fakeError_t fakeEventRecord(fakeEvent_t event, std::nullptr_t) { return event->ms = clock_ms, fakeSuccess; }
fakeError_t fakeEventSynchronize(fakeEvent_t) { return fakeSuccess; }
fakeError_t fakeEventElapsedTime(float* ms, fakeEvent_t begin, fakeEvent_t end) {
  return *ms = static_cast<float>(end->ms - begin->ms), fakeSuccess;
}

}  // namespace

namespace fp4pa::tool {
namespace {

namespace perf {
fakeError_t launch_read(const void*, std::int64_t bytes, void*, int blocks, std::nullptr_t) {
  blocks_of_reads.push_back(blocks);
  clock_ms += 1e-6 * static_cast<double>(bytes);  // 1 GB/s
  return fakeSuccess;
}
}  // namespace perf

#define RUNTIME(name) fake##name
#define RUNTIME_PROPERTIES fakeProperties
#include "tools/fp4pa/device_gpu.inc"

}  // namespace

TEST_CASE(
    "gpu device: a buffer of any size is filled with a pattern's bytes, of which the host sends no more than a stretch") {
  GpuDevice device;
  const auto host = make_cpu_device();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, 3 * kPatternBytes + 5}) {
    const Buffer buffer = device.allocate(bytes);
    largest_copy_from_host = 0;
    device.fill(buffer, Fill::kBf16, 9);
    CHECK(largest_copy_from_host == std::min(bytes, kPatternBytes));
    const Buffer expected = host->allocate(std::min(bytes, kPatternBytes));
    host->fill(expected, Fill::kBf16, 9);
    std::vector<unsigned char> got(bytes);
    device.download(got.data(), buffer.data(), bytes);
    bool same = true;
    for (std::size_t i = 0; i < bytes; ++i) same = same && got[i] == expected.as<unsigned char>()[i % kPatternBytes];
    CHECK(same);
  }
}

TEST_CASE("gpu device: times are the clock's between events, and bandwidth is bytes over them") {
  GpuDevice device;
  CHECK(device.name() == "a made-up card");
  CHECK(device.seconds([] { clock_ms += 250.0; }) == doctest::Approx(0.25));
  blocks_of_reads.clear();
  const Bandwidth b = device.read_bandwidth(1, 5);
  CHECK(b.buffer_bytes == std::size_t{1} << 20);  // a quarter of the card's memory
  CHECK(b.best_gbs == doctest::Approx(1.0));
  CHECK(b.median_gbs == doctest::Approx(1.0));
  CHECK(blocks_of_reads.size() == 3 * 6);  // three sizes of grid, a run to warm up and five
  CHECK(*std::max_element(blocks_of_reads.begin(), blocks_of_reads.end()) == 16 * 3);
  CHECK(!device.has_threads());
  CHECK(!device.has_graphs());
  CHECK(!device.recorded([](void*) {}));
}

TEST_CASE("gpu device: what displaces the caches runs outside of the time") {
  GpuDevice device;
  const double before = clock_ms;
  device.evict_caches();
  CHECK(clock_ms - before == doctest::Approx(1e-6 * static_cast<double>(kEvictBytes)));
  CHECK(device.seconds([] { clock_ms += 1.0; }) == doctest::Approx(1e-3));
}

TEST_CASE("gpu device: memory is given back, and an error names what was being done") {
  const std::size_t live = live_allocations;
  {
    GpuDevice device;
    const Buffer buffer = device.allocate(100);
    CHECK(live_allocations == live + 2);  // this one, and where reads may write
    CHECK_THROWS_WITH_AS((void)device.allocate(std::size_t{2} << 40), "allocating device memory: a made-up error", Failure);
    CHECK_THROWS_WITH_AS((void)device.allocate(std::size_t{2} << 30), "out of memory: 2147483648 bytes wanted in one piece",
                         Failure);
    CHECK(last_error == fakeSuccess);  // the next launch looks at it
  }
  CHECK(live_allocations == live);
}

}  // namespace fp4pa::tool
