// The instances of the HIP back end, on the emulator: gfx950's whole list and gfx942's part of it.
#pragma once

#include "backends/emulator/gfx950_exec.hpp"
#include "backends/gfx942/shim.hpp"
#include "backends/gfx950/shim.hpp"
#include "hip/instances.hpp"
#include "tests/emulator/emulated_backend.hpp"

namespace fp4pa::emulator_test {

struct HipInstances {
  static constexpr int kCount = hip::kNumInstances;
  static constexpr const core::SimtConfig& config(int i) { return hip::kInstances[i]; }
  static bool serves(int i, const AttentionConfig& c) { return hip::serves(config(i), c); }
  static int tile_rows(int i) { return hip::rows_of(config(i)); }
  static bool native(int i) { return hip::is_native(config(i)); }
  static core::SharedLayout layout(int i, const AttentionConfig& c) {
    return hip::shared_layout_of(config(i), c, config(i).warps);
  }
};

/// @tparam kReads  how V is turned
template <gfx950::ValueReads kReads>
struct Gfx950Instances : HipInstances {
  template <int kIndex, class Exec>
  using Shim = gfx950::Shim<hip::kInstances[kIndex], Exec, kReads>;
  static int select(const AttentionConfig& c) { return hip::select_instance(c, true); }
};
struct Gfx942Instances : HipInstances {
  template <int kIndex, class Exec>
  using Shim = gfx942::Shim<hip::kInstances[kIndex], Exec>;
  /// As a plan chooses in 64 KiB of LDS.
  static int select(const AttentionConfig& c) { return hip::select_fitting(c, false, 64 << 10); }
  static bool serves(int i, const AttentionConfig& c) { return !hip::needs_gfx950(config(i)) && HipInstances::serves(i, c); }
};

extern const Emulation kGfx950;
extern const Emulation kGfx950Columns4;  // native values alone
extern const Emulation kGfx942;

}  // namespace fp4pa::emulator_test
