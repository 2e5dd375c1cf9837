// What the tests of whole calls check a scene against, and the questions they ask of its outputs.
//
// Bounds: an FP4 product of the vector back end may round its query to 16 bits against the row's largest element, so it
// is held to kFp4Bound; everything else, and the scalar back end, to kPlainBound. Both are far inside the contract
// (2e-3 for O, 1e-3 for LSE).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/attention/scene.hpp"

namespace scene {

inline constexpr double kFp4Bound = 3e-4, kFp4LseBound = 5e-4;
inline constexpr double kPlainBound = 2e-5, kPlainLseBound = 2e-5;

/// Runs the scene on both CPU back ends and compares each with the reference.
inline void check_close(Scene& s) {
  for (const char* backend : {"cpu", "cpu-scalar"}) {
    s.config.backend = backend;
    s.reset_outputs();
    const fp4pa::Status status = s.run();
    INFO(std::string(backend), ": ", std::string(fp4pa::last_error_detail()));
    REQUIRE(status == fp4pa::Status::kOk);
    const bool rounded_query = fp4pa::is_fp4(s.spec.k) && std::string(backend) == "cpu";
    const Scene::Error error = s.error();
    CHECK(error.o <= (rounded_query ? kFp4Bound : kPlainBound));
    CHECK(error.lse <= (rounded_query ? kFp4LseBound : kPlainLseBound));
  }
  s.config.backend = "cpu";
}

inline bool row_is_nan(Scene& s, std::int32_t token, std::int32_t head) {
  const std::vector<double> row = s.o_row(token, head);
  return std::any_of(row.begin(), row.end(), [](double x) { return std::isnan(x); });
}
inline bool row_is_zero(Scene& s, std::int32_t token, std::int32_t head) {
  const std::vector<double> row = s.o_row(token, head);
  return std::all_of(row.begin(), row.end(), [](double x) { return x == 0.0; });
}

}  // namespace scene
