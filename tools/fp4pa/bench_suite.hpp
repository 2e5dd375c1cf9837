// Named suites of benchmarks: `fp4pa bench --suite NAME`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/fp4pa/bench.hpp"

namespace fp4pa::tool {

/// The suites' names, in the order in which help lists them.
[[nodiscard]] std::vector<std::string> suite_names();

/// The rows of suite `name`: each the command line of a subcommand of `fp4pa bench`.
/// @throws Failure for a name that there is not, with those that there are
[[nodiscard]] std::vector<std::string> suite_rows(const std::string& name);

/// --suite, and every axis of every benchmark as an option that replaces the rows' own.
void add_bench_suites(Command bench);

/// A subcommand was given: options of the suites in front of it would be ignored, so they are refused.
void refuse_suite_options(Command bench);

}  // namespace fp4pa::tool
