// Scripts of perf/ that people run: what they say of the recorded results, and of a step that there is not.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/tool/run_tool.hpp"

namespace {

const std::string kPerf = FP4PA_TESTS_SOURCE_DIR "/../perf/";

test::ToolRun run_script(const std::string& command, const std::string& environment = "") {
  return test::run_program("PYTHONDONTWRITEBYTECODE=1 " + environment + kPerf + command);
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("perf: table.py tells rows apart, fills in cuDNN and shows the digits that a verdict is about") {
  if (test::run_program("python3 --version").exit_code != 0) {
    MESSAGE("left out: python3 is not installed");
    return;
  }
  const test::ToolRun run =
      run_script("table.py " + kPerf + "results/h200-suite-2026-11-25-2.json " + kPerf + "results/h200-suite-peers-2026-11-25-2.json");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(has(run.out, "| append mxfp4, pages scattered, 64K tokens, of the bandwidth | 89.3 % |"));
  CHECK(has(run.out, "| append mxfp4, tokens scattered, 64K tokens, of the bandwidth | 72.5 % |"));
  CHECK(has(run.out, "506.1 us, 93 % | 611.9 us | 4.00 | 3.08 |"));  // head_dim 256
  CHECK(has(run.out, "| mxfp4 b64 64/8 8K, speed against cuDNN | 3.198 | at least 3.2 | missed |"));
  CHECK(has(run.out, "| mxfp4 b32 32/8 8K, speed against cuDNN | 3.08 | at least 3.2 | missed |"));
}

TEST_CASE("perf: scripts with a shebang can be run") {
  for (const auto& entry : std::filesystem::directory_iterator(kPerf)) {
    if (!entry.is_regular_file() || test::read_text(entry.path()).substr(0, 2) != "#!") continue;
    INFO(entry.path().string());
    CHECK((entry.status().permissions() & std::filesystem::perms::owner_exec) != std::filesystem::perms::none);
  }
}

TEST_CASE("perf: gpu_check.sh knows its steps before it makes anything, and its help is its header") {
  const test::Scratch scratch;
  const std::string build = "BUILD='" + scratch.file("build") + "' ";
  const test::ToolRun help = run_script("gpu_check.sh --help", build);
  CHECK(help.exit_code == 0);
  CHECK(has(help.out, "Builds, tests and measures a GPU back end"));
  for (const char* variable : {"RUNTIME=hip", "SHARE=1", "TEST_SECONDS=600", "SM120_SECONDS=200", "SANITIZE_SECONDS=300", "SANITIZE_GRID=12"}) {
    CHECK(has(help.out, variable));
  }
  CHECK(!has(help.out, "set -u"));
  const test::ToolRun step = run_script("gpu_check.sh build tset", build);
  CHECK(step.exit_code == 2);
  CHECK(has(step.out, "unknown step tset; allowed with RUNTIME=cuda: build test sanitize bench gemm"));
  const test::ToolRun hip = run_script("gpu_check.sh build sanitize", build + "RUNTIME=hip ");
  CHECK(hip.exit_code == 2);
  CHECK(has(hip.out, "unknown step sanitize; allowed with RUNTIME=hip: build test bench gemm"));
  CHECK(!std::filesystem::exists(scratch.file("build")));
}
