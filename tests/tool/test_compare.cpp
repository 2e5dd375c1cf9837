// `fp4pa bench compare`: which results of two files are of one configuration, and how the verdicts end.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/tool/check_fails.hpp"
#include "tests/tool/run_tool.hpp"

namespace {

using test::check_fails;
using test::run_tool;

/// Text of a result file of `bench` with one configuration.
std::string bench_file(double median) {
  return R"({"results":[{"bench":"decode","config":{"format":"mxfp4","threads":1},"ms":{"median":)" +
         std::to_string(median) + "}}]}";
}

}  // namespace

TEST_CASE("compare: matches configurations and judges them") {
  const test::Scratch scratch;
  std::ofstream(scratch.file("a")) << bench_file(2.0);
  std::ofstream(scratch.file("b")) << bench_file(3.0);
  std::ofstream(scratch.file("zero")) << bench_file(0.0);
  std::ofstream(scratch.file("none")) << R"({"results":[]})";
  const std::string both = scratch.file("a") + " " + scratch.file("b");
  const test::ToolRun run = run_tool("bench compare --json " + both);
  REQUIRE(run.exit_code == 0);
  CHECK(nlohmann::json::parse(run.out).at("results").at(0).at("ratio") == doctest::Approx(1.5));
  CHECK(run_tool("bench compare --fail-above 1.6 " + both).exit_code == 0);
  check_fails("bench compare --fail-above 1.4 " + both, 1, "slower by a factor of 1.500; allowed 1.400");
  check_fails("bench compare " + scratch.file("a") + " " + scratch.file("none"), 3, "no configuration in common");
  check_fails("bench compare " + scratch.file("a") + " " + scratch.file("zero"), 3, "is not positive");
}

TEST_CASE("compare: says which configuration is slowest, and what the files do not share") {
  const test::Scratch scratch;
  const auto file = [&](const std::string& name, const std::string& head, const std::string& results) {
    std::ofstream(scratch.file(name)) << "{" << head << R"("results":[)" << results << "]}";
    return scratch.file(name);
  };
  const auto row = [](const char* format, const char* median) {
    return std::string(R"({"bench":"decode","config":{"format":")") + format + R"("},"ms":{"median":)" + median + "}}";
  };
  const std::string a = file("a", R"("device":"one","caches":"warm",)", row("bf16", "2") + "," + row("mxfp4", "2")),
                    b = file("b", R"("device":"two","caches":"cold",)", row("bf16", "3") + "," + row("mxfp4", "8")),
                    twice = file("twice", R"("device":"one","caches":"warm",)",
                                 row("bf16", "2") + "," + row("bf16", "4") + "," + row("bf16", "6"));
  check_fails("bench compare --fail-above 1.2 " + a + " " + b, 1,
              "fp4pa: decode format=mxfp4: slower by a factor of 4.000; allowed 1.200");
  CHECK(run_tool("bench compare --fail-above 4 " + a + " " + b).exit_code == 0);
  for (const char* none : {"-1", "0", "nan", "inf"}) {
    check_fails("bench compare --fail-above=" + std::string(none) + " " + a + " " + b, 2,
                "--fail-above: " + std::string(none) + "; allowed: finite numbers above 0");
  }

  const test::ToolRun different = run_tool("bench compare " + a + " " + b);
  CHECK(different.exit_code == 0);
  CHECK(different.err.find("devices differ: one; two") != std::string::npos);
  CHECK(different.err.find("caches differ: warm; cold") != std::string::npos);
  CHECK(different.out.find("before: one, caches warm\nafter:  two, caches cold\n") == 0);
  CHECK(run_tool("bench compare " + a + " " + twice).err.empty());

  // Rows that stand twice are matched one with one.
  const auto unmatched = [](const std::string& files) {
    const auto document = nlohmann::json::parse(run_tool("bench compare --json " + files).out);
    CHECK(document.at("device").at("before") == "one");
    return document.at("unmatched").dump() + " of " + std::to_string(document.at("results").size());
  };
  CHECK(unmatched(twice + " " + a) == R"({"after":1,"before":2} of 1)");
  CHECK(unmatched(a + " " + twice) == R"({"after":2,"before":1} of 1)");
  CHECK(unmatched(twice + " " + twice) == R"({"after":0,"before":0} of 3)");
}

TEST_CASE("compare: tells back ends apart, and takes a record that names none for any") {
  const test::Scratch scratch;
  const auto row = [](const std::string& config, const char* median) {
    return R"({"bench":"gather","config":{)" + config + R"(},"ms":{"median":)" + median + "}}";
  };
  const auto file = [&](const std::string& name, const std::string& results) {
    std::ofstream(scratch.file(name)) << R"({"results":[)" << results << "]}";
    return scratch.file(name);
  };
  const std::string format = R"("format":"bf16")", cpu = format + R"(,"backend":"cpu")", scalar = R"("backend":"cpu-scalar",)" + format;
  const std::string old = file("old", row(format, "1")), one = file("one", row(cpu, "2")), other = file("other", row(scalar, "4")),
                    both = file("both", row(scalar, "4") + "," + row(cpu, "2")), mixed = file("mixed", row(format, "1") + "," + row(cpu, "2"));
  check_fails("bench compare " + one + " " + other, 3, "no configuration in common");
  const auto ratios = [](const std::string& files) {
    const auto document = nlohmann::json::parse(run_tool("bench compare --json " + files).out);
    std::string text;
    for (const auto& result : document.at("results")) text += result.at("configuration").get<std::string>() + " " + result.at("ratio").dump() + "; ";
    return text + std::to_string(document.at("missing").size()) + " missing";
  };
  CHECK(ratios(old + " " + one) == "gather format=bf16 2.0; 0 missing");
  CHECK(ratios(other + " " + old) == "gather backend=cpu-scalar format=bf16 0.25; 0 missing");
  CHECK(ratios(one + " " + both) == "gather backend=cpu format=bf16 1.0; 0 missing");
  // What equals another fully is its match, whatever stands before it.
  CHECK(ratios(mixed + " " + both) == "gather format=bf16 4.0; gather backend=cpu format=bf16 1.0; 0 missing");
  // Of everything else a record must have as much.
  check_fails("bench compare " + old + " " + file("more", row(format + R"(,"threads":1)", "1")), 3, "no configuration in common");
}

TEST_CASE("compare: names what is missing or failed after, and --fail-above counts it") {
  const test::Scratch scratch;
  const std::string one = R"({"bench":"decode","config":{"format":"bf16"},"ms":{"median":2}})",
                    two = R"({"bench":"decode","config":{"format":"mxfp4"},"ms":{"median":2}})";
  const std::string both = scratch.file("both"), rest = scratch.file("rest");
  std::ofstream(both) << R"({"results":[)" + one + "," + two + "]}";
  std::ofstream(rest) << R"({"results":[)" + one + R"(],"skipped":[{"what":"decode mxfp4","why":"out of memory","failed":true},)" +
                             R"({"what":"graph","why":"no graphs","failed":false}]})";
  const test::ToolRun run = run_tool("bench compare " + both + " " + rest);
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("missing after: decode format=mxfp4\nFAILED after: decode mxfp4: out of memory\n") != std::string::npos);
  CHECK(run.out.find("no graphs") == std::string::npos);
  const auto document = nlohmann::json::parse(run_tool("bench compare --json " + both + " " + rest).out);
  CHECK(document.at("missing").dump() == R"(["decode format=mxfp4"])");
  CHECK(document.at("failed").dump() == R"(["decode mxfp4: out of memory"])");
  check_fails("bench compare --fail-above 2 " + both + " " + rest, 1,
              "fp4pa: decode format=mxfp4: missing after; 1 of 2 configurations are\n");
  CHECK(run_tool("bench compare --fail-above 2 " + rest + " " + both).exit_code == 0);
}

TEST_CASE("compare: reads products from before `bench gemm` took GPUs, and their peers") {
  const test::Scratch scratch;
  const std::string results = FP4PA_TESTS_SOURCE_DIR "/../perf/results/";
  std::ofstream(scratch.file("now")) << R"({"results":[
    {"bench":"gemm","config":{"format":"mxfp4","activations":"a4","shape":"1x8192x8192","scale_layout":"linear","dtype":"bf16"},
     "ms":{"median":0.041998}},
    {"bench":"gemm","config":{"format":"bf16","shape":"1x8192x8192","dtype":"bf16","backend":"cublas"},"ms":{"median":0.0700479}}]})";
  for (const char* file : {"h200-gemm-2026-11-26.json", "h200-gemm-peers-2026-11-26.json"}) {
    const test::ToolRun run = run_tool("bench compare --json " + results + file + " " + scratch.file("now"));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const auto comparison = nlohmann::json::parse(run.out);
    REQUIRE(comparison.at("results").size() == 1);
    CHECK(comparison.at("results").at(0).at("ratio").get<double>() == doctest::Approx(2.0).epsilon(1e-4));
  }
  const std::string all = results + "h200-gemm-2026-11-25-3.json " + results + "h200-gemm-2026-11-26.json";
  CHECK(nlohmann::json::parse(run_tool("bench compare --json " + all).out).at("results").size() == 128);
}

TEST_CASE("compare: says in words what a file lacks") {
  const test::Scratch scratch;
  const auto lacks = [&](const std::string& text, const std::string& words) {
    std::ofstream(scratch.file("f")) << text;
    check_fails("bench compare " + scratch.file("f") + " " + scratch.file("f"), 3,
                scratch.file("f") + ": not a result file of `fp4pa bench --json`: " + words + "\n");
  };
  lacks("no JSON", "it is no JSON");
  lacks("[]", "it is no JSON object");
  lacks("{}", "the file has no 'results'");
  lacks(R"({"results":{}})", "'results' of the file is not a list");
  lacks(R"({"results":[7]})", "result 1 has no 'bench'");
  lacks(R"({"results":[{"bench":"decode"}]})", "result 1 has no 'config'");
  lacks(R"({"results":[{"bench":"decode","config":{},"ms":{}}]})", "'ms' of result 1 has no 'median'");
  lacks(R"({"results":[{"bench":"decode","config":{},"ms":{"median":"2"}}]})", "'median' of 'ms' of result 1 is not a number");
  lacks(R"({"results":[{"bench":"decode","config":{"x":[1]},"ms":{"median":2}}]})",
        "'x' in 'config' of result 1 is an array; allowed: texts, numbers, booleans and null");
  // Deep nesting must not cost the stack, wherever it is.
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  lacks(R"({"results":[{"bench":"decode","config":{"x":)" + deep + R"(},"ms":{"median":2}}]})", "it nests deeper than 16 levels");
  lacks(R"({"results":[],"more":)" + deep + "}", "it nests deeper than 16 levels");
  check_fails("bench compare " + scratch.file("") + " " + scratch.file("f"), 3, scratch.file("") + ": is a folder, not a file");
}

TEST_CASE("compare: a file's name may be any bytes, and the report is UTF-8 all the same") {
  const test::Scratch scratch;
  const std::string file = scratch.file("b\xff");
  std::ofstream(file) << bench_file(2);
  const test::ToolRun run = run_tool("bench compare --json " + file + " " + file);
  CHECK(run.exit_code == 0);
  CHECK(nlohmann::json::parse(run.out).at("after") == scratch.file("b\uFFFD"));
}
