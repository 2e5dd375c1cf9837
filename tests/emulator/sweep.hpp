// The configuration grid on an emulated back end: against the double-precision reference and the CPU back end, with no
// finding, and the same bits in every order of lanes, warps and blocks.
#pragma once

#include "core/simt/config.hpp"
#include "tests/attention/grid_case.hpp"
#include "tests/emulator/emulated_backend.hpp"

namespace fp4pa::emulator_test {

/// Largest relative Frobenius error of O (beyond the rounding of its dtype), and largest error of LSE (absolute, or relative
/// to max(1, |LSE|) where the logits are large), that a configuration may have on an instance.
struct Bounds {
  double o, lse;
};

struct Sweep {
  const Emulation* emulation;
  Bounds (*bounds)(const grid::Case&, const core::SimtConfig&);
  int drawn;         ///< configurations of the grid as it is drawn; those that no instance serves are passed over
  int per_instance;  ///< configurations bent to the shapes of every instance
  int orders_every;  ///< every how many configurations the other orders are run too
  int warps = 0;     ///< of a block, see Setup
};

/// Checks and prints; to be called from a test case. FP4PA_EMULATOR_EFFORT multiplies the numbers of configurations.
/// @return how many configurations ran
int run_sweep(const Sweep& sweep);

}  // namespace fp4pa::emulator_test
