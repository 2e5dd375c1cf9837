// Running one configuration of the grid: build it, plan, run, compare with the double-precision reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4pa/attention.hpp"
#include "tests/attention/grid_case.hpp"

namespace grid {

/// DESIGN section 4, for a decode path: absolute, of every row's LSE.
inline constexpr double kContractLseError = 1e-3;

/// What came of one configuration.
struct Outcome {
  std::string failure;       ///< empty, or what went wrong other than an error that is too large
  std::string backend;       ///< that really ran
  fp4pa::AttentionConfig config;  ///< as it was planned; its pointers are gone
  double error = 0.0;        ///< relative Frobenius error of O beyond the rounding of its dtype; see excess()
  double plain_error = 0.0;  ///< relative Frobenius error of O as it is
  double lse_error = 0.0;    ///< largest absolute error of LSE
  double lse_excess =
      0.0;  ///< the same beyond what rounding the query explains, relative to max(1, |LSE|); see query_noise()
  std::int64_t rows = 0;  ///< (query token, head) rows compared
};

/// Back end "cpu" may multiply E2M1 keys with a query rounded to 16 bits; everything else is f32.
[[nodiscard]] inline bool rounds_query(const Case& c) { return fp4pa::is_fp4(c.k) && std::string(c.backend) == "cpu"; }

/// Deliberate damage, for the negative controls.
enum class Damage { kNone, kKeyByte, kValueByte, kTableEntry };

/// What a call wrote, for comparisons between runs.
struct Results {
  std::vector<double> o;           ///< rows [token, head] of head_dim elements
  std::vector<std::uint8_t> bytes;  ///< all of O's memory, gaps included
  std::vector<float> lse;
};

[[nodiscard]] Outcome run_case(const Case& c, Damage damage = Damage::kNone, Results* results = nullptr);

}  // namespace grid
