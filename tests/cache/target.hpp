// The two implementations every cache test runs: the SIMD one and core's own loops. They must write the same bytes.
#pragma once

#include <cstdint>

#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/quantize.hpp"

namespace test {

struct Target {
  const char* name;
  decltype(&fp4pa::cpu::append) append;
  decltype(&fp4pa::cpu::append_two_tier) append_two_tier;
  decltype(&fp4pa::cpu::gather) gather;
  decltype(&fp4pa::cpu::quantize) quantize;
  decltype(&fp4pa::cpu::dequantize) dequantize;
};

inline constexpr Target kTargets[] = {
    {"cpu", fp4pa::cpu::append, fp4pa::cpu::append_two_tier, fp4pa::cpu::gather, fp4pa::cpu::quantize,
     fp4pa::cpu::dequantize},
    {"cpu-scalar", fp4pa::cpu::scalar::append, fp4pa::cpu::scalar::append_two_tier, fp4pa::cpu::scalar::gather,
     fp4pa::cpu::scalar::quantize, fp4pa::cpu::scalar::dequantize},
};

/// Whether the configuration of a seed runs: a GPU's tests may leave some out.
constexpr bool is_run(std::uint64_t) { return true; }

}  // namespace test
