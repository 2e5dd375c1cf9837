// The native instances of SM120, on the emulator.
#pragma once

#include "backends/emulator/sm120_exec.hpp"
#include "cuda/variants.hpp"
#include "tests/emulator/emulated_backend.hpp"

namespace fp4pa::emulator_test {

struct Sm120Instances {
  static constexpr int kCount = sm120::kNumInstances;
  static constexpr const core::SimtConfig& config(int i) { return sm120::kInstances[i]; }
  template <int kIndex, class Exec>
  using Shim = sm120::ShimFor<sm120::kInstances[kIndex], Exec>;
  static int select(const AttentionConfig& c) {
    const int variant = cuda::select_native(c);
    return variant < 0 ? -1 : variant - simt::kNumInstances;
  }
  static bool serves(int i, const AttentionConfig& c) { return simt::serves(config(i), c); }
  static int tile_rows(int i) { return simt::rows_of(config(i)); }
  static bool native(int) { return true; }
  static core::SharedLayout layout(int i, const AttentionConfig& c) {
    return sm120::shared_layout_of(config(i), c, config(i).warps);
  }
};

/// Instances 0 (MXFP4, K and V native), 4 (NVFP4, K native) and 6 (NVFP4, K and V native) of Sm120Instances with fewer terms, to
/// be chosen by number.
struct Sm120Terms : Sm120Instances {
  struct Row {
    int instance;
    sm120::Terms terms;
  };
  static constexpr Row kRows[] = {{0, {1, 1}}, {0, {1, 2}}, {0, {2, 1}}, {0, {2, 2}}, {0, {3, 1}}, {0, {3, 2}},
                                  {4, {1, 2}}, {4, {2, 2}}, {4, {3, 2}}, {4, {4, 2}}, {4, {5, 2}},
                                  {6, {5, 1}}, {6, {5, 2}}, {6, {5, 3}}, {6, {4, 4}}, {6, {5, 4}}};
  static constexpr int kCount = static_cast<int>(std::size(kRows));
  static constexpr const core::SimtConfig& config(int i) { return sm120::kInstances[kRows[i].instance]; }
  template <int kIndex, class Exec>
  using Shim = sm120::Shim<sm120::kInstances[kRows[kIndex].instance], Exec, kRows[kIndex].terms>;
  static int select(const AttentionConfig&) { return -1; }
  static bool serves(int i, const AttentionConfig& c) { return simt::serves(config(i), c); }
  static int tile_rows(int i) { return simt::rows_of(config(i)); }
  static core::SharedLayout layout(int i, const AttentionConfig& c) {
    return sm120::shared_layout_of(config(i), c, config(i).warps);
  }
};

extern const Emulation kSm120;
extern const Emulation kSm120Terms;

}  // namespace fp4pa::emulator_test
