// Runs the fp4pa executable of this build, or another program, as a user would, and keeps what it said.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "tests/tool/scratch.hpp"

namespace test {

struct ToolRun {
  int exit_code = -1;  ///< 128 + signal when it was killed
  std::string out, err;
};

[[nodiscard]] inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// @param typed  into a shell
[[nodiscard]] inline ToolRun run_program(const std::string& typed) {
  const Scratch scratch;
  const std::string command = typed + " >'" + scratch.file("out") + "' 2>'" + scratch.file("err") + "' </dev/null";
  const int status = std::system(command.c_str());
  if (status == -1) throw std::runtime_error("cannot run: " + command);
  ToolRun run;
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  run.out = read_text(scratch.file("out"));
  run.err = read_text(scratch.file("err"));
  return run;
}

/// @param arguments  as typed into a shell
/// @param environment  "NAME=value " in front of the command, or nothing
[[nodiscard]] inline ToolRun run_tool(const std::string& arguments, const std::string& environment = "") {
  return run_program(environment + "'" FP4PA_TOOL_PATH "' " + arguments);
}

}  // namespace test
