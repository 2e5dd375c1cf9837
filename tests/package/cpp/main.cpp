// A C++ program that lays out a cache, appends a token, gathers it, and is told what is wrong with a bad description.
#include <fp4pa/fp4pa.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

int main() {
  if (fp4pa::abi_version() != FP4PA_ABI_VERSION) return 1;
  // The memory is the host's: with no back end named, a library with CUDA or HIP would take the GPU.
  fp4pa::ExecDesc cpu;
  cpu.backend = "cpu";
  fp4pa::KvCacheDesc cache;
  cache.num_kv_heads = 1;
  cache.head_dim = 32;
  cache.page_size = 4;
  cache.num_pages = 2;
  const std::int64_t page_bytes = fp4pa::set_interleaved_pages(cache, fp4pa::PageOrder::kHnd, nullptr);
  alignas(16) static std::uint8_t pool[4096];
  if (page_bytes * cache.num_pages > static_cast<std::int64_t>(sizeof pool)) return 2;
  fp4pa::set_interleaved_pages(cache, fp4pa::PageOrder::kHnd, pool);

  std::vector<float> x(32, 1.5f), y(32);
  const std::int32_t slot = 6;
  const fp4pa::KvInput in{x.data(), fp4pa::DType::kF32, 0, 0};
  if (fp4pa::append(cache, in, in, &slot, fp4pa::IndexType::kInt32, 1, cpu) != fp4pa::Status::kOk) {
    std::fprintf(stderr, "%s\n", fp4pa::last_error_detail());
    return 3;
  }
  const fp4pa::KvOutput out{y.data(), fp4pa::DType::kF32, 0, 0};
  if (fp4pa::gather(cache, &slot, fp4pa::IndexType::kInt32, 1, out, {}, cpu) != fp4pa::Status::kOk) return 4;
  if (x != y) return 5;
  cache.head_dim = 48;
  if (fp4pa::validate(cache) != fp4pa::Status::kUnsupportedHeadDim) return 6;
  if (std::string(fp4pa::last_error_detail()).find("48") == std::string::npos) return 7;
  fp4pa::AttentionPlan plan;
  if (fp4pa::plan({}, &plan) == fp4pa::Status::kOk) return 8;
  std::printf("C++ consumer: fp4pa %s\n", fp4pa::version_string());
  return 0;
}
