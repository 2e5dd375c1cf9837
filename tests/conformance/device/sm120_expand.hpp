// Whether SM120's expanding matrix loads put elements where core's maps say; by a device, or in software on one.
#pragma once

#include "backends/sm120/copies.hpp"
#include "tests/conformance/device/executor.hpp"
#include "tests/conformance/probe.hpp"

namespace fp4pa::conformance {

/// @tparam Expand  the load of kMatrices, as a movement for run_movement
template <int kMatrices, class Expand>
bool expands_as_mapped() {
  const auto numbers = trace_elements(8 * kMatrices, 16, 4, 16, 32, kMatrices, 8, run_movement<Expand>);
  for (int lane = 0; lane < 32; ++lane) {
    for (int n = 0; n < 4 * kMatrices; ++n) {
      const auto x = sm120::expand_coord(lane, n / 4, n % 4);
      if (numbers[lane][n] != (x.matrix * 8 + x.row) * 16 + x.element) return false;
    }
  }
  return true;
}

/// @tparam Expand  the transposing load
template <int kMatrices, class Expand>
bool transposes_as_mapped() {
  const auto numbers = trace_elements(16 * kMatrices, 16, 4, 16, 32, 2 * kMatrices, 8, run_movement<Expand>);
  for (int lane = 0; lane < 32; ++lane) {
    for (int n = 0; n < 8 * kMatrices; ++n) {
      const auto x = sm120::expand_trans_coord(lane, n / 4, n % 4);
      if (numbers[lane][n] != (x.matrix * 16 + x.row) * 16 + x.element) return false;
    }
  }
  return true;
}

}  // namespace fp4pa::conformance
