// The host as a device: mapped memory on huge pages where the kernel grants them, steady_clock, OpenMP.
//
// Huge pages are asked for in the caches and in the buffer that the bandwidth is measured with alike, so that the share
// of the one in the other is not a matter of TLB misses.
#include "tools/fp4pa/device_cpu.hpp"

#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "tools/fp4pa/cpu_identity.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {
namespace {

/// Larger than the last-level cache of anything that runs this (server parts report up to some 400 MiB).
constexpr std::size_t kBandwidthBytes = std::size_t{1} << 30;
constexpr std::size_t kEvictBytes = std::size_t{512} << 20;

std::size_t machine_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// splitmix64 of a counter: a stateless generator, so that any thread can fill any part.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// Eight random bytes shaped into the pattern: which bits stay random, and which are set.
struct Shape {
  std::uint64_t keep;
  std::uint64_t set;
  std::uint64_t add;
};

constexpr Shape shape_of(Fill pattern) {
  switch (pattern) {
    case Fill::kBytes:
      return {~std::uint64_t{0}, 0, 0};
    case Fill::kE8m0Scales:
      return {0x0303030303030303u, 0, 0x7D7D7D7D7D7D7D7Du};
    case Fill::kE4m3Scales:
      return {0x0F0F0F0F0F0F0F0Fu, 0x3030303030303030u, 0};
    case Fill::kE4m3:
      return {0xBFBFBFBFBFBFBFBFu, 0, 0};
    case Fill::kBf16:
      return {0x80FF80FF80FF80FFu, 0x3F003F003F003F00u, 0};
    case Fill::kF16:
      return {0x87FF87FF87FF87FFu, 0x3800380038003800u, 0};
    case Fill::kF32:
      return {0x80FFFFFF80FFFFFFu, 0x3F0000003F000000u, 0};
  }
  return {0, 0, 0};
}

class CpuDevice final : public Device {
 public:
  std::string name() const override { return cpu_model(); }

  Buffer allocate(std::size_t bytes) override {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    if (size > machine_bytes()) throw out_of_memory(bytes);  // a kernel that promises it would kill whoever fills it
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw out_of_memory(bytes);
    (void)::madvise(data, size, MADV_HUGEPAGE);  // a wish; refusal costs only speed
    return Buffer(data, bytes, [data, size] { ::munmap(data, size); });
  }
  void upload(void* to, const void* from_host, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from_host, bytes);
  }
  void download(void* to_host, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to_host, from, bytes);
  }

  void fill(const Buffer& buffer, Fill pattern, std::uint64_t seed) override {
    const Shape shape = shape_of(pattern);
    const auto words = static_cast<std::int64_t>(buffer.bytes() / 8);
    auto* data = buffer.as<unsigned char>();
    const auto word_at = [&](std::int64_t i) {
      return ((mix(seed + static_cast<std::uint64_t>(i)) & shape.keep) | shape.set) + shape.add;
    };
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < words; ++i) {
      const std::uint64_t word = word_at(i);
      std::memcpy(data + i * 8, &word, 8);
    }
    const std::uint64_t last = word_at(words);
    std::memcpy(data + words * 8, &last, buffer.bytes() % 8);
  }

  void evict_caches() override {
    if (evict_.bytes() == 0) {
      evict_ = allocate(kEvictBytes);
      fill(evict_, Fill::kBytes, 1);
    }
    sink_ = sink_ + sum_words(evict_.data(), evict_.bytes(), omp_get_max_threads());
  }

  double seconds(const std::function<void()>& work) override {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  Bandwidth read_bandwidth(int threads, int repeats) override {
    const Buffer buffer = allocate(kBandwidthBytes);
    touch(buffer, threads);
    std::vector<double> gbs;
    for (int i = 0; i < repeats; ++i) {
      const double time = seconds([&] { sink_ = sink_ + sum_words(buffer.data(), buffer.bytes(), threads); });
      gbs.push_back(static_cast<double>(buffer.bytes()) / time * 1e-9);
    }
    std::sort(gbs.begin(), gbs.end());
    return {gbs.back(), gbs[gbs.size() / 2], buffer.bytes()};
  }

  bool has_threads() const override { return true; }
  bool has_graphs() const override { return false; }
  std::function<void()> recorded(const std::function<void(void*)>&) override { return {}; }

 private:
  /// Each thread writes the part it will read, so that on a machine with several memories the pages lie beside it.
  static void touch(const Buffer& buffer, int threads) {
#pragma omp parallel num_threads(threads)
    {
      const auto parts = static_cast<std::size_t>(omp_get_num_threads());
      const auto part = static_cast<std::size_t>(omp_get_thread_num());
      const std::size_t begin = buffer.bytes() * part / parts, end = buffer.bytes() * (part + 1) / parts;
      std::memset(buffer.as<char>() + begin, 1, end - begin);
    }
  }

  Buffer evict_;
  volatile std::uint64_t sink_ = 0;  // what the sums go to, so that they are not optimised away
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace fp4pa::tool
