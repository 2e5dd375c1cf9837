// SM120's native kernels as a back end of the library, on a machine without SM120: in this program plans and runs of back end
// "cuda" go to them, on the host's memory.
#pragma once

#include "backends/emulator/findings.hpp"

namespace fp4pa::gpu_test {

/// How calls are run from now on.
struct Sm120Setup {
  enum class Where { kEmulator, kDevice } where = Where::kEmulator;
  int instance = 0;             // of sm120::kInstances; a plan that it does not serve is refused
  emulator::Findings findings;  // of the emulator
};
extern Sm120Setup sm120_setup;

}  // namespace fp4pa::gpu_test
