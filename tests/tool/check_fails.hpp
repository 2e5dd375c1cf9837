// A command that has to fail, with its exit code and its sentence.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/tool/run_tool.hpp"

namespace test {

/// @param arguments, environment  as run_tool's
/// @param words  that stderr has to hold
inline void check_fails(const std::string& arguments, int code, const std::string& words, const std::string& environment = "") {
  const ToolRun run = run_tool(arguments, environment);
  INFO(arguments << "\n" << run.out << run.err);
  CHECK(run.exit_code == code);
  CHECK(run.err.find(words) != std::string::npos);
}

}  // namespace test
