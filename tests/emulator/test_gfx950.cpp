// The kernels of gfx950 and gfx942, as hip/ compiles them, on the emulator.
#include <doctest/doctest.h>

#include "tests/attention/grid_instance.hpp"
#include "tests/emulator/gfx950_instances.hpp"
#include "tests/emulator/sweep.hpp"

namespace {

using namespace fp4pa;

/// The contract of the decode path, and what docs/gfx950.md says of the native one: a query is two or three E4M3 terms, and
/// probabilities of native values are two.
emulator_test::Bounds bounds(const grid::Case& c, const core::SimtConfig& i) {
  if (hip::is_native(i)) return {4e-3, 1e-3};
  return {grid::has_bf16_operands(c) ? 8e-3 : 2e-3, 1e-3};
}

}  // namespace

TEST_CASE("gfx950: the grid on the emulator") {
  CHECK(emulator_test::run_sweep({&emulator_test::kGfx950, bounds, 100, 6, 4}) > 100);
}
TEST_CASE("gfx950: columns of 4 bits") {
  CHECK(emulator_test::run_sweep({&emulator_test::kGfx950Columns4, bounds, 0, 4, 4}) > 0);
}
TEST_CASE("gfx942: the grid on the emulator") {
  CHECK(emulator_test::run_sweep({&emulator_test::kGfx942, bounds, 100, 4, 4}) > 100);
}
