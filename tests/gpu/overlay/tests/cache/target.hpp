// Stands in for tests/cache/target.hpp when the cache tests are compiled for the GPU: the same tests, with the mirrored
// back end as the only target.
#pragma once

#include "tests/gpu/mirror.hpp"

namespace test {

struct Target {
  const char* name;
  decltype(fp4pa::api::Backend::append) append;
  decltype(fp4pa::api::Backend::append_two_tier) append_two_tier;
  decltype(fp4pa::api::Backend::gather) gather;
  decltype(fp4pa::api::Backend::copy_pages) copy_pages;
  decltype(fp4pa::api::Backend::quantize) quantize;
  decltype(fp4pa::api::Backend::dequantize) dequantize;
  decltype(fp4pa::api::Backend::merge_states) merge_states;
};

inline const Target kTargets[] = {
    {fp4pa::gpu_test::kBackendName, fp4pa::api::kMirroredBackend.append, fp4pa::api::kMirroredBackend.append_two_tier,
     fp4pa::api::kMirroredBackend.gather, fp4pa::api::kMirroredBackend.copy_pages, fp4pa::api::kMirroredBackend.quantize,
     fp4pa::api::kMirroredBackend.dequantize, fp4pa::api::kMirroredBackend.merge_states},
};

/// Whether a configuration is among those that run, of one seed like of another.
inline bool is_run(std::uint64_t seed) {
  return (seed * 0x9e3779b97f4a7c15u >> 40) % static_cast<std::uint64_t>(fp4pa::gpu_test::share()) == 0;
}

}  // namespace test
