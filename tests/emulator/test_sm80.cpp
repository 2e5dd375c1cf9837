// The kernels of sm_80 to sm_100, as cuda/ compiles them, on the emulator.
#include <doctest/doctest.h>

#include "tests/attention/grid_instance.hpp"
#include "tests/emulator/sm80_instances.hpp"
#include "tests/emulator/sweep.hpp"

namespace {

using namespace fp4pa;

/// The contract of the decode path: an operand is f16, or bf16 where it must be. The LSE owes nothing to the values.
emulator_test::Bounds bounds(const grid::Case& c, const core::SimtConfig&) {
  return {grid::has_bf16_operands(c) ? 8e-3 : 2e-3, 1e-3};
}

}  // namespace

TEST_CASE("sm_80: the grid on the emulator") {
  CHECK(emulator_test::run_sweep({&emulator_test::kSm80, bounds, 400, 6, 4}) > 400);
}

TEST_CASE("sm_80: workers of as many warps as a launch may give them") {
  // cuda/launch_shape.hpp takes up to half of a multiprocessor's warps or all of them, and as few as shared memory leaves room for.
  for (const int warps : {1, 2, 3, 5, 8, 16}) {
    CAPTURE(warps);
    CHECK(emulator_test::run_sweep({&emulator_test::kSm80, bounds, 10, 1, 3, warps}) >= fp4pa::simt::kNumInstances);
  }
}
