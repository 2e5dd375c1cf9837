// SM120's native matrix products where there is no SM120: on the host by the emulator, and on a device of sm_80 or later with
// the instructions in software. Plain C++.
#pragma once

#include <cstdint>
#include <string>

#include "fp4pa/types.hpp"

namespace fp4pa::gpu_test {

struct GemmSpec {
  bool nvfp4;
  int x_tiles;  // eights of rows of X a block: 1, 2, 4, 8
  ScaleLayout layout;
  std::int32_t m, n, k, batch;
};

/// What came of running a product of random codes and scales both ways.
struct GemmBothWays {
  std::string findings;        // the emulator's
  std::int64_t results;        // f32, neither zero nor NaN, that the emulator has
  std::int64_t different;      // of all results, bits that differ
};
/// Ends the program where the runtime fails.
[[nodiscard]] GemmBothWays run_gemm(const GemmSpec& spec);

}  // namespace fp4pa::gpu_test
