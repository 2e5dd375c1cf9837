// A device that no kernel of this build has code for is no back end, and whoever names none gets the next: a program of its own, for
// the driver is told once, before it begins, to run neither machine code of the build nor what it would make of PTX.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "fp4pa/fp4pa.hpp"

namespace {

/// @return  the exit status
int check() {
  using namespace fp4pa;
  BackendInfo infos[8];
  const std::int32_t count = available_backends(infos, static_cast<std::int32_t>(std::size(infos)));
  const BackendInfo* cuda = nullptr;
  const BackendInfo* first = nullptr;
  for (std::int32_t i = 0; i < count; ++i) {
    if (std::strcmp(infos[i].name, "cuda") == 0) cuda = &infos[i];
    if (infos[i].available && first == nullptr) first = &infos[i];
  }
  if (cuda == nullptr || first == nullptr) return std::puts("FAILED: no cuda, or no other back end"), 1;
  std::printf("cuda: %s\nfirst available: %s\n", cuda->detail, first->name);
  if (cuda->available) return std::puts("FAILED: cuda is available without code"), 1;
  if (std::strstr(cuda->detail, "no kernel of this build") == nullptr) return std::puts("FAILED: it does not say why"), 1;

  // A plan that would be one but for the device; it looks at addresses, not at what is there.
  alignas(256) static unsigned char pool[1 << 16];
  AttentionConfig config;
  config.cache.k.format = config.cache.v.format = KvFormat::kMxfp4;
  config.cache.num_kv_heads = 1;
  config.cache.head_dim = 128;
  config.cache.page_size = 16;
  config.cache.num_pages = 1;
  set_interleaved_pages(config.cache, PageOrder::kHnd, pool);
  config.num_q_heads = 1;
  config.max_batch = config.max_q_tokens = config.max_q_len = config.max_kv_len = 1;
  AttentionPlan plan;
  config.backend = "cpu";
  if (fp4pa::plan(config, &plan) != Status::kOk) return std::printf("FAILED: the CPU plans it not: %s\n", last_error_detail()), 1;
  config.backend = "cuda";
  if (fp4pa::plan(config, &plan) != Status::kBackendUnavailable) return std::puts("FAILED: a plan for it is not refused"), 1;
  return std::puts("as it should be"), 0;
}

}  // namespace

int main() {
  setenv("CUDA_FORCE_PTX_JIT", "1", 1);
  setenv("CUDA_DISABLE_PTX_JIT", "1", 1);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("no device"), 77;
  return check();
}
