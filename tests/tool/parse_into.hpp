// A benchmark with the options of a command line.
#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tools/fp4pa/bench.hpp"

namespace test {

/// @param arguments  words between blanks
inline void parse_into(fp4pa::tool::Benchmark& benchmark, const std::string& arguments) {
  fp4pa::tool::CommandLine line;
  benchmark.add_options(line.root());
  std::istringstream words(arguments);
  line.parse({std::istream_iterator<std::string>(words), {}});
}

}  // namespace test
