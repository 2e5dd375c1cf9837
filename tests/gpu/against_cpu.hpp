// A configuration of the grid on the CPU back end, beside what the back end under test made of it.
//
// Both are held to the double-precision reference, so that nothing new can be asked of their difference than the sum of both
// contracts:
//   O    within bounds_of() of the reference's norm here and within cpu_bounds() there, and each rounded to O's dtype on top of
//   that; LSE  the same, of max(1, |LSE|).
// What the comparison adds is another witness, which shares no code with the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/metrics.hpp"
#include "tests/attention/grid_run.hpp"
#include "tests/gpu/bounds.hpp"

namespace fp4pa::gpu_test {

/// What the CPU back end is held to on the grid (tests/attention/grid.cpp). Met at worst on the configurations of test_grid.cpp:
/// with a rounded query 8.7e-5 and 3.8e-4, else 1.6e-6 and 2.3e-6.
[[nodiscard]] inline Bounds cpu_bounds(const grid::Case& c) {
  return grid::rounds_query(c) ? Bounds{2e-4, grid::kContractLseError} : Bounds{1e-5, 2e-5};
}

struct CpuDistance {
  std::string failure;    ///< of the CPU back end's run
  double o, o_bound;      ///< relative Frobenius distance
  double lse, lse_bound;  ///< of max(1, |LSE|)
};

[[nodiscard]] inline CpuDistance against_cpu(grid::Case c, const grid::Results& results, const Bounds& bounds) {
  c.backend = "cpu";
  c.matrix_path = MatrixPath::kAuto;
  grid::Results cpu;
  CpuDistance d{grid::run_case(c, grid::Damage::kNone, &cpu).failure, 0.0, 0.0, 0.0, 0.0};
  if (d.failure.empty() && (cpu.o.size() != results.o.size() || cpu.lse.size() != results.lse.size())) d.failure = "other sizes";
  if (!d.failure.empty()) return d;

  reference::Difference o;
  for (std::size_t i = 0; i < cpu.o.size(); ++i) o.add(results.o[i], cpu.o[i]);
  d.o = o.relative();
  const Bounds own = cpu_bounds(c);
  const double rounding = c.o_dtype == DType::kF32 ? 0x1p-24 : c.o_dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
  // Of the CPU's norm, which may be less than the reference's.
  d.o_bound = (bounds.o + own.o + 2 * rounding) / (1.0 - own.o - rounding);

  for (std::size_t i = 0; i < cpu.lse.size(); ++i) {
    const double size = std::isfinite(cpu.lse[i]) ? std::max(1.0, std::abs(double{cpu.lse[i]})) : 1.0;
    d.lse = std::max(d.lse, reference::lse_difference(results.lse[i], cpu.lse[i]) / size);
  }
  d.lse_bound = (bounds.lse + own.lse) * (1.0 + own.lse);  // sizes are the CPU's, which may be less than the reference's
  return d;
}

}  // namespace fp4pa::gpu_test
