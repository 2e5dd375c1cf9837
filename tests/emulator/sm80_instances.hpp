// The instances of the CUDA back end, on the emulator.
#pragma once

#include "backends/emulator/sm80_exec.hpp"
#include "backends/sm80/shims.hpp"
#include "cuda/instances.hpp"
#include "tests/emulator/emulated_backend.hpp"

namespace fp4pa::emulator_test {

struct Sm80Instances {
  static constexpr int kCount = simt::kNumInstances;
  static constexpr const core::SimtConfig& config(int i) { return simt::kInstances[i]; }
  template <int kIndex, class Exec>
  using Shim = sm80::ShimFor<simt::kInstances[kIndex], Exec>;
  static int select(const AttentionConfig& c) { return simt::select_instance(c); }
  static bool serves(int i, const AttentionConfig& c) { return simt::serves(config(i), c); }
  static int tile_rows(int i) { return simt::rows_of(config(i)); }
  static core::SharedLayout layout(int i, const AttentionConfig& c) {
    return simt::shared_layout_of(config(i), c, warps_of(config(i)));
  }
};

extern const Emulation kSm80;

}  // namespace fp4pa::emulator_test
