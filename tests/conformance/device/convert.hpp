// The conversions of backends/sm120/convert.hpp that are instructions on a device and arithmetic on the host: all inputs, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/sm120/convert.hpp"
#include "tests/conformance/device/executor.hpp"

namespace fp4pa::conformance {

struct Converted {
  std::uint32_t e2m1, e2m1_by_f32, f16, e4m3, reciprocal;
  friend bool operator==(const Converted&, const Converted&) = default;
};

/// Input i of 65536: the halves i and 65535 - i, and every pair of codes 256 times. Halves that are NaN become 0: E2M1 has none.
FP4PA_FN Converted convert(std::uint32_t i) {
  const auto number = [](std::uint32_t half) { return (half & 0x7fffu) > 0x7c00u ? 0u : half; };
  const std::uint32_t pair = number(i) | number(65535 - i) << 16;
  // Scales: all E4M3 but 0 and NaN, without the sign.
  const std::uint32_t code = i % 126 + 1;
  return {sm120::f16_to_e2m1(pair), sm120::f16_to_e2m1_by_f32(pair), sm120::e2m1_pair_to_f16(i & 0xffu), sm120::f16_to_e4m3(pair),
          sm120::reciprocal_f16(sm80::e4m3_to_f16(code | (127 - code) << 8))};
}

__global__ void convert_all(Converted* out) {
  const auto i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = convert(i);
}

inline bool converts_as_on_host() {
  constexpr std::uint32_t kInputs = 65536;
  const DeviceBuffer device(kInputs * sizeof(Converted));
  convert_all<<<kInputs / 256, 256>>>(device.as<Converted>());
  glue::check_launch();
  std::vector<Converted> out(kInputs);
  glue::to_host(out.data(), device.as<void>(), kInputs * sizeof(Converted));
  for (std::uint32_t i = 0; i < kInputs; ++i) {
    if (!(out[i] == convert(i))) {
      std::printf("input %u\n", i);
      return false;
    }
  }
  return true;
}

}  // namespace fp4pa::conformance
