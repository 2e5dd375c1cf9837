// Prefill on wgmma, as cuda/ compiles it, on the emulator.
#pragma once

#include "backends/emulator/sm90_exec.hpp"
#include "cuda/instances_sm90.hpp"
#include "cuda/variants.hpp"
#include "tests/emulator/emulated_backend.hpp"

namespace fp4pa::emulator_test {

struct Sm90Instances {
  static constexpr int kCount = sm90::kNumInstances;
  static constexpr const core::SimtConfig& config(int i) { return sm90::kInstances[i]; }
  template <int kIndex, class Exec>
  using Shim = sm90::PrefillShim<sm90::kInstances[kIndex], Exec>;
  static int select(const AttentionConfig& c) {
    return simt::select_among(c, kCount, [](int i) { return &sm90::kInstances[i]; });
  }
  static bool serves(int i, const AttentionConfig& c) { return simt::serves(config(i), c); }
  static int tile_rows(int i) { return simt::rows_of(config(i)); }
  static core::SharedLayout layout(int i, const AttentionConfig& c) {
    return cuda::shared_layout_of(cuda::kFirstSm90 + i, c, config(i).warps);
  }
};

extern const Emulation kSm90;

}  // namespace fp4pa::emulator_test
