// The plain read that the machine's bandwidth is measured with: every 64-bit word added up, nothing written.
//
// Many independent sums keep the loads in flight. Wider vectors than the compiler's default make no difference to
// memory, but the function is built for AVX2 and AVX-512 as well where that is possible, so that nobody has to take
// this on trust. Software prefetches from 0.5 to 8 KiB ahead were tried and gained nothing.
#include <omp.h>

#include <cstdint>

#include "tools/fp4pa/device_cpu.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
// ifunc resolvers run before a sanitizer's runtime is ready, hence not there.
#define FP4PA_TOOL_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FP4PA_TOOL_CLONES
#endif

namespace fp4pa::tool {
namespace {

FP4PA_TOOL_CLONES
std::uint64_t sum_part(const std::uint64_t* words, std::size_t count) {
  constexpr std::size_t kLanes = 64;  // 512 bytes a step
  std::uint64_t lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) lanes[j] += words[i + j];
  }
  std::uint64_t sum = 0;
  for (std::uint64_t lane : lanes) sum += lane;
  for (; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace

std::uint64_t sum_words(const void* data, std::size_t bytes, int threads) {
  const auto* words = static_cast<const std::uint64_t*>(data);
  const std::size_t count = bytes / sizeof(std::uint64_t);
  std::uint64_t total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
  {
    const auto parts = static_cast<std::size_t>(omp_get_num_threads());
    const auto part = static_cast<std::size_t>(omp_get_thread_num());
    const std::size_t begin = count * part / parts, end = count * (part + 1) / parts;
    total += sum_part(words + begin, end - begin);
  }
  return total;
}

}  // namespace fp4pa::tool
