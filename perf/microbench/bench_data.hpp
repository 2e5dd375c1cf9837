// Inputs of the micro-benchmarks, and how they count bytes.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/formats/half.hpp"
#include "fp4pa/status.hpp"
#include "fp4pa/types.hpp"

namespace bench {

/// n values in [-4, 4], as `dtype`.
inline std::vector<std::uint8_t> plain_values(fp4pa::DType dtype, std::size_t n) {
  std::vector<std::uint8_t> bytes(n * static_cast<std::size_t>(fp4pa::size_of(dtype)));
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 8) * 0x1p-21f - 4.0f;
    if (dtype == fp4pa::DType::kF32) {
      reinterpret_cast<float*>(bytes.data())[i] = x;
    } else {
      reinterpret_cast<std::uint16_t*>(bytes.data())[i] =
          dtype == fp4pa::DType::kF16 ? fp4pa::core::f32_to_f16(x) : fp4pa::core::f32_to_bf16(x);
    }
  }
  return bytes;
}

/// Stops the program when an operation that is timed does not work: a fast error is no result.
inline void require(fp4pa::Status status) {
  if (status == fp4pa::Status::kOk) return;
  std::fprintf(stderr, "fp4pa_microbench: %s: %s\n", fp4pa::status_name(status), fp4pa::last_error_detail());
  std::exit(1);
}

/// Bytes read plus bytes written of one iteration, shown as GB/s (10^9).
inline void count_bytes(benchmark::State& state, double bytes_read, double bytes_written) {
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter((bytes_read + bytes_written) * iterations * 1e-9, benchmark::Counter::kIsRate);
  state.counters["MB_read"] = bytes_read * 1e-6;
  state.counters["MB_written"] = bytes_written * 1e-6;
}

}  // namespace bench
