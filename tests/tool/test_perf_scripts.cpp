// Scripts of perf/ that people run, and ./run: what they say of the recorded results, and of a step that there is not.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/tool/run_tool.hpp"
#include "tests/tool/sample.hpp"
#include "tools/fp4pa/bench_suite.hpp"

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
  CHECK(has(run.out, "| append bf16, rotation over none | 1.098 | at most 1.1 | reached |"));
  CHECK(has(run.out, "506.1 us, 93 % | 611.9 us | 4.00 | 3.08 |"));  // head_dim 256
  CHECK(has(run.out, "| mxfp4 b64 64/8 8K, speed against cuDNN | 3.198 | at least 3.2 | missed |"));
  CHECK(has(run.out, "| mxfp4 b32 32/8 8K, speed against cuDNN | 3.08 | at least 3.2 | missed |"));
}

TEST_CASE("perf: table.py has products and attention without a cache, of files before and after they were in suites") {
  if (test::run_program("python3 --version").exit_code != 0) {
    MESSAGE("left out: python3 is not installed");
    return;
  }
  const test::Scratch scratch;
  const std::string before = kPerf + "results/h200-gemm-2026-11-26.json ", peers = kPerf + "results/h200-gemm-peers-2026-11-26.json ";
  const test::ToolRun run = run_script("table.py " + before + peers + kPerf + "results/h200-dense-2026-11-26.json");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(has(run.out, "| 1x8192x8192 | 12.2 us (2.86) | 13.3 us (2.63) | 13.0 us (2.70) | 13.8 us (2.53) | 39.1 us | 35.0 us |"));
  CHECK(has(run.out, "| W4A16 mxfp4 1x8192x8192, X f16, of the bandwidth | 63.6 % | at least 75 % | missed |"));
  CHECK(has(run.out, "| W4A16 mxfp4 2048x2880x7680, X bf16, speed against cuBLAS bf16 | 0.831 | at least 0.8 | reached |"));
  CHECK(has(run.out, "| contiguous | b4 32/32 2K | causal | mxfp4, cuda | 0.48 ms | 286 TFLOP/s |"));
  CHECK(has(run.out, "| contiguous | b4 32/32 2K | all keys | nvfp4, K smoothed, cuda | 1.09 ms |"));
  CHECK(has(run.out, "| contiguous | b4 32/32 2K | causal | mxfp8, decoded per_tile, cuda | 0.45 ms |"));

  // The same program's files today.
  const std::string file = scratch.file("bench.json");
  const test::ToolRun bench = test::run_tool("bench --suite gemm --shape 1x64x64 --repeats 1 --warmup 0 --warm-caches --json " + file);
  REQUIRE(bench.exit_code == 0);
  const test::ToolRun now = run_script("table.py " + file);
  CHECK(has(now.out, "| W4A16, MxNxK | mxfp4, X f16 | mxfp4, X bf16 | nvfp4, X f16 | nvfp4, X bf16 |"));
  CHECK(has(now.out, "| W4A4, MxNxK |"));
}

TEST_CASE("perf: peers.py times cuBLAS on the suite's products, one call of a round, and table.py sets ours against it") {
  if (test::run_program("python3 --version").exit_code != 0) {
    MESSAGE("left out: python3 is not installed");
    return;
  }
  const test::Scratch scratch;
  const std::string row = fp4pa::tool::suite_rows("gemm").front();
  const std::string shapes = row.substr(row.find("--shape ") + 8, row.find(" --dtype") - row.find("--shape ") - 8);
  CHECK(has(run_script("peers.py --help", "COLUMNS=400 ").out, "(default: " + shapes + ")"));
  CHECK(has(run_script("peers.py --only gem").err, "--only gem: allowed are decode, prefill, quantize, gemm"));
  CHECK(has(run_script("peers.py --shape 3x0x4").err, "'3x0x4' is not MxNxK with all three at least 1"));

  // A PyTorch whose products take a nanosecond for a KiB of their weight, and whose sums, which displace the caches, take a second.
  const std::string file = scratch.file("peers.json");
  const test::ToolRun run = run_script("peers.py --only decode,gemm --shape 1x8192x8192,256x2880x2880 --repeats 3 --json " + file,
                                       "PYTHONPATH=" FP4PA_TESTS_SOURCE_DIR "/tool/fake_torch ");
  INFO(run.out, run.err);
  REQUIRE(run.exit_code == 0);
  const auto document = nlohmann::json::parse(test::read_text(file));
  CHECK(!document.at("skipped").empty());  // it has no attention
  REQUIRE(document.at("results").size() == 4);
  const auto& first = document.at("results").at(0);
  CHECK(first.at("config").dump() == R"({"backend":"cublas","dtype":"bf16","format":"bf16","shape":"1x8192x8192"})");
  CHECK(first.at("ms").at("median").get<double>() == doctest::Approx(1e-6 * (8192.0 * 8192 * 2 / 1024)));
  const test::ToolRun table = run_script("table.py " + kPerf + "results/h200-gemm-2026-11-26.json " + file);
  CHECK(has(table.out, "| 1x8192x8192 | 12.2 us (10.70) |"));
}

TEST_CASE("perf: plot.py takes a full suite's plain decodes for bars, not those of its layers") {
  if (test::run_program("python3 --version").exit_code != 0) {
    MESSAGE("left out: python3 is not installed");
    return;
  }
  const auto recorded = [](const char* file) { return nlohmann::json::parse(test::read_text(kPerf + "results/" + file)); };
  auto full = recorded("h200-suite-2026-11-26.json");
  const auto layers = recorded("h200-layers-2026-11-23.json");
  for (const auto& row : layers.at("results")) full["results"].push_back(row);
  const test::Scratch scratch;
  std::ofstream(scratch.file("full.json")) << full.dump();
  const test::ToolRun run = test::run_program(
      "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" + kPerf + " python3 -c \"import plot; rows = plot.load_shapes(['" +
      scratch.file("full.json") + "'])[0]; print(len(rows), len({r[:2] for r in rows}))\"");
  INFO(run.err);
  CHECK(run.out == "40 40\n");  // ten shapes in four formats
}

TEST_CASE("perf: plot.py takes the rows that it can draw, and says so when there are none") {
  if (test::run_program("python3 --version").exit_code != 0) {
    MESSAGE("left out: python3 is not installed");
    return;
  }
  const test::Scratch scratch;
  const auto shapes = [&](const std::string& file) {
    return test::run_program("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" + kPerf + " python3 -c \"import plot; print(plot.load_shapes(['" + file +
                             "'])[0])\"");
  };
  const auto shapes_of = [&](const std::string& text) {
    std::ofstream(scratch.file("f")) << text;
    return shapes(scratch.file("f"));
  };
  for (const char* file : {"h200-gemm-2026-11-26.json", "h200-gemm-peers-2026-11-26.json", "h200-prefill-2026-11-20-2.json"}) {
    INFO(file);
    CHECK(shapes(kPerf + "results/" + file).out == "[]\n");
  }
  CHECK(shapes_of(R"({"results":[{"shape":"a","format":"bf16","us":2},{"shape":"a","format":"bf16","share":0.5,"us":2}]})").out ==
        "[('a', 'bf16', 0.5, 2)]\n");
  CHECK(shapes_of(R"({"results":[{"bench":"decode","config":{"format":"bf16"},"ms":{"median":1},"bandwidth_share":0.5}]})").out == "[]\n");
  for (const char* none : {"[]", R"({"results":[1]})", R"({"results":3})"}) {
    const test::ToolRun run = shapes_of(none);
    INFO(run.err);
    CHECK(run.exit_code == 1);
    CHECK(has(run.err, scratch.file("f") + ": not a result file"));
  }
}

TEST_CASE("perf: peers.py goes on behind a peer that fails in a way of its own") {
  if (test::run_program("python3 --version").exit_code != 0) {
    MESSAGE("left out: python3 is not installed");
    return;
  }
  const test::Scratch scratch;
  std::ofstream(scratch.file("flashinfer.py")) << "class Error(Exception):\n    pass\n\n\n"
                                                  "def BatchDecodeWithPagedKVCacheWrapper(*arguments):\n    raise Error('no such kernel')\n";
  const test::ToolRun run = run_script("peers.py --only decode --json " + scratch.file("j"),
                                       "PYTHONPATH=" FP4PA_TESTS_SOURCE_DIR "/tool/fake_torch:" + scratch.file("") + " ");
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(has(run.out, "flashinfer   skipped: no such kernel"));
}

TEST_CASE("perf: collect_deps.sh says what it did not find") {
  const test::Scratch scratch;
  const std::string include = scratch.file("include/");
  for (const char* header : {"doctest/doctest.h", "hwy/highway.h", "CLI/CLI.hpp", "nlohmann/json.hpp", "fmt/format.h"}) {
    std::filesystem::create_directories(std::filesystem::path(include + header).parent_path());
    std::ofstream(include + header) << "//\n";
  }
  const test::ToolRun run =
      run_script("collect_deps.sh " + scratch.file("deps"), "INCLUDE=" + include + " LIBRARY=" + scratch.file("none") + " ");
  CHECK(run.exit_code == 1);
  CHECK(run.out == "collect_deps: neither libhwy.a nor libhwy.so.1 was found in " + scratch.file("none") + "\n");
}

TEST_CASE("run: files are those of the folder that it is called from") {
  const test::Scratch scratch;
  namespace fs = std::filesystem;
  fs::create_directories(scratch.file("tree/build/cpu/bin"));
  fs::create_directories(scratch.file("fake"));
  fs::create_directories(scratch.file("here"));
  fs::copy_file(FP4PA_TESTS_SOURCE_DIR "/../run", scratch.file("tree/run"));
  fs::create_symlink(FP4PA_TOOL_PATH, scratch.file("tree/build/cpu/bin/fp4pa"));
  test::write_sample(scratch.file("here/sample"), test::make_sample());
  // Nothing is left to build, and nothing is installed.
  const auto fake = [&](const char* name, const char* text) {
    std::ofstream(scratch.file("fake/") + name) << "#!/bin/sh\n" << text;
    fs::permissions(scratch.file("fake/") + name, fs::perms::owner_all);
  };
  fake("cmake", "echo 'cmake version 3.25 no work to do'\n");
  for (const char* name : {"apt-get", "sudo"}) fake(name, "exit 1\n");
  const test::ToolRun run = test::run_program("cd " + scratch.file("here") + " && PATH=" + scratch.file("fake") +
                                              ":$PATH ../tree/run attend sample --format bf16 --repeats 1 --out out");
  if (run.exit_code == 3 && has(run.out, "please install")) {
    MESSAGE("left out: what ./run looks for is not all where it looks");
    return;
  }
  INFO(run.out, run.err);
  CHECK(run.exit_code == 0);
  CHECK(fs::exists(scratch.file("here/out")));
}

TEST_CASE("perf: executed.py says what a build lacks") {
  if (test::run_program("python3 --version").exit_code != 0) {
    MESSAGE("left out: python3 is not installed");
    return;
  }
  const test::Scratch scratch;
  const test::ToolRun run = run_script("executed.py check " + scratch.file("nowhere"));
  CHECK(run.exit_code == 1);
  CHECK(has(run.err, "executed: " + scratch.file("nowhere/tests/isa/libfp4pa_isa_runtime.so") + " is missing; build the target fp4pa_isa_runtime"));
}

TEST_CASE("perf: docs/time_model.md has the tables that time_model.py prints") {
  if (test::run_program("python3 --version").exit_code != 0) {
    MESSAGE("left out: python3 is not installed");
    return;
  }
  const test::ToolRun run = run_script("time_model.py");
  REQUIRE(run.exit_code == 0);
  CHECK(!has(run.out, "not in perf/isa_gates.json"));
  const std::string page = test::read_text(kPerf + "../docs/time_model.md");
  std::istringstream lines(run.out);
  std::string table;
  int there = 0, products_missing = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("|")) {
      table += line + "\n";
      continue;
    }
    const bool products = table.starts_with("| product |");
    INFO(table);
    if (products && !has(page, table)) {
      ++products_missing;
    } else {
      CHECK(has(page, table));
      there += table.empty() ? 0 : 1;
    }
    table.clear();
  }
  CHECK(there == 8);
  CHECK(products_missing == 2);  // of two of SM120's three cards the page says in words what differs
}

TEST_CASE("perf: scripts with a shebang can be run") {
  for (const auto& entry : std::filesystem::directory_iterator(kPerf)) {
    if (!entry.is_regular_file() || test::read_text(entry.path()).substr(0, 2) != "#!") continue;
    INFO(entry.path().string());
    CHECK((entry.status().permissions() & std::filesystem::perms::owner_exec) != std::filesystem::perms::none);
  }
}

TEST_CASE("perf: every program of tests/ for a device is named by a CMake file, and gpu_check.sh builds and runs every test") {
  const std::filesystem::path tests = FP4PA_TESTS_SOURCE_DIR;
  std::string cmake;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(tests)) {
    const std::string name = entry.path().filename().string();
    if (name == "CMakeLists.txt" || entry.path().extension() == ".cmake") cmake += test::read_text(entry.path());
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(tests)) {
    if (entry.path().extension() != ".cu" && entry.path().extension() != ".hip") continue;
    INFO(entry.path().string());
    CHECK(has(cmake, entry.path().filename().string()));
  }
  const std::string gpu = test::read_text(tests / "gpu/CMakeLists.txt"), script = test::read_text(kPerf + "gpu_check.sh");
  const std::string command = "add_executable(fp4pa_";
  int programs = 0;
  for (std::size_t at = gpu.find(command); at != std::string::npos; at = gpu.find(command, at + 1), ++programs) {
    const std::size_t begin = at + command.size() - 6;
    const std::string program = gpu.substr(begin, gpu.find_first_of(" \n", begin) - begin);
    INFO(program);
    const std::size_t first = script.find(program);  // built
    CHECK(first != std::string::npos);
    CHECK(script.find(program, first + 1) != std::string::npos);  // and run
  }
  CHECK(programs == 5);
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
  CHECK(has(step.out, "unknown step tset; allowed with RUNTIME=cuda: build test python sanitize bench gemm"));
  const test::ToolRun hip = run_script("gpu_check.sh build sanitize", build + "RUNTIME=hip ");
  CHECK(hip.exit_code == 2);
  CHECK(has(hip.out, "unknown step sanitize; allowed with RUNTIME=hip: build test python bench gemm"));
  CHECK(!std::filesystem::exists(scratch.file("build")));
}
