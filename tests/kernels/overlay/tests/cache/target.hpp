// Stands in for tests/cache/target.hpp: the same tests, on the GPU back ends' kernels run by the host.
#pragma once

#include "tests/kernels/on_host.hpp"

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

inline Target target_of(const fp4pa::api::Backend& b) {
  return {b.name, b.append, b.append_two_tier, b.gather, b.copy_pages, b.quantize, b.dequantize, b.merge_states};
}
inline const Target kTargets[] = {target_of(fp4pa::kernels_test::kLanes32.backend),
                                  target_of(fp4pa::kernels_test::kLanes64.backend)};

/// Whether the configuration of a seed runs.
constexpr bool is_run(std::uint64_t) { return true; }

}  // namespace test
