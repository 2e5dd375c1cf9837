// The back ends that the dense tests run on, and what each is held to. tests/gpu puts its own in this file's place.
#pragma once

#include "fp4pa/types.hpp"

namespace dense_test {

struct Target {
  const char* backend;
  double o_bound;        ///< relative Frobenius error of O against the double-precision reference of the same values
  double rounded_bound;  ///< the same where the back end may round its query (E2M1 keys on SIMD)
  bool sums_alike;       ///< MXFP8 with scales of 1 adds up in the order of plain E4M3
  double score_steps;    ///< error of exactly representable scores, in units of the largest one's last place
  bool exact_weight;     ///< a single key's probability is 1 to the last bit, and V's scale moves no rounding of P
};

// What the CPU computes is f32 throughout, but for the query of E2M1 keys with AVX-512 VNNI: 16 bits, against the largest element of a group
// of 32. Their levels are powers of two wherever those hold the query best (docs/cpu.md), so that small integers are exact there, too.
inline constexpr Target kTargets[] = {{"cpu", 2e-5, 3e-4, true, 0.0, true}, {"cpu-scalar", 2e-5, 2e-5, true, 0.0, true}};

/// Whether a kernel that rounds queries and probabilities serves this, with bounds of its own. The CPU has none.
inline bool served_natively(fp4pa::KvFormat, int) { return false; }
inline constexpr double kNativeBound = 0.0;
inline constexpr double kNativeLseBound = 0.0;

}  // namespace dense_test
