// Suites of benchmarks, their axes on the command line, CSV, and what happens when a step fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/tool/parse_into.hpp"
#include "tests/tool/run_tool.hpp"
#include "tools/fp4pa/bench_suite.hpp"
#include "tools/fp4pa/decode_case.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace {

using fp4pa::tool::suite_rows;
using nlohmann::ordered_json;
using test::run_tool;

/// All of a suite's results, at a size that takes no time.
ordered_json run_json(const std::string& arguments) {
  const test::ToolRun run = run_tool("bench " + arguments + " --warmup 0 --repeats 1 --warm-caches --json -");
  INFO(arguments << "\n" << run.err);
  REQUIRE(run.exit_code == 0);
  return ordered_json::parse(run.out);
}

constexpr const char* kTiny = " --batch 2 --heads 4 --kv-heads 2 --tokens 96 --page-size 16";

}  // namespace

TEST_CASE("bench: every row of every suite is a command line that its benchmark takes") {
  for (const std::string& suite : fp4pa::tool::suite_names()) {
    const auto rows = suite_rows(suite);
    CHECK(!rows.empty());
    for (const std::string& row : rows) {
      INFO(suite, ": ", row);
      const std::string name = row.substr(0, row.find(' '));
      bool known = false;
      for (const auto& kind : fp4pa::tool::bench_kinds()) {
        if (name != kind.name) continue;
        known = true;
        const auto benchmark = kind.make();
        const std::string arguments = row.substr(name.size());
        CHECK_NOTHROW(test::parse_into(*benchmark, arguments));
        CHECK(!benchmark->steps({1}).empty());
      }
      CHECK(known);
    }
  }
}

TEST_CASE("bench: the decode suite has the shapes that decoding is judged by, each in four formats and two page sizes") {
  const auto document = run_json("--suite decode --tokens 64 --batch 2");
  std::set<std::string> shapes;
  for (const auto& result : document.at("results")) {
    const auto& c = result.at("config");
    shapes.insert(c.at("format").get<std::string>() + " " + c.at("heads").dump() + "/" + c.at("kv_heads").dump() + " D" +
                  c.at("head_dim").dump() + " page " + c.at("page_size").dump() +
                  (c.value("ragged", false) ? " ragged" : ""));
  }
  for (const char* format : {"mxfp4", "nvfp4", "fp8_e4m3", "bf16"}) {
    for (const char* shape : {"64/8 D128 page 64", "64/8 D128 page 16", "32/8 D128 page 64", "32/8 D128 page 16",
                              "32/32 D128 page 64", "32/32 D128 page 16", "32/8 D128 page 64 ragged",
                              "32/8 D128 page 16 ragged", "32/8 D64 page 64", "32/8 D256 page 64"}) {
      INFO(format, " ", shape);
      CHECK(shapes.count(std::string(format) + " " + shape) == 1);
    }
  }
  // Batch and tokens, which the run above replaced.
  std::string all;
  for (const std::string& row : suite_rows("decode")) all += row + "\n";
  for (const char* row :
       {"--batch 64 --heads 64 --kv-heads 8 --tokens 8K", "--batch 32 --heads 32 --kv-heads 8 --tokens 8K",
        "--batch 128 --heads 32 --kv-heads 8 --tokens 2K", "--batch 8 --heads 64 --kv-heads 8 --tokens 32K",
        "--batch 1 --heads 32 --kv-heads 8 --tokens 128K", "--batch 16 --heads 32 --kv-heads 32 --tokens 4K",
        "--batch 64 --heads 32 --kv-heads 8 --tokens 32K --ragged"}) {
    CHECK(all.find(row) != std::string::npos);
  }
}

TEST_CASE("bench: the suite full has every row of every other suite but smoke, and so every kind of benchmark") {
  const auto full = suite_rows("full");
  std::set<std::string> kinds;
  for (const std::string& row : full) kinds.insert(row.substr(0, row.find(' ')));
  for (const auto& kind : fp4pa::tool::bench_kinds()) {
    INFO(kind.name);
    CHECK(kinds.count(kind.name) == 1);
  }
  for (const std::string& suite : fp4pa::tool::suite_names()) {
    if (suite == "smoke") continue;
    for (const std::string& row : suite_rows(suite)) {
      INFO(suite, ": ", row);
      CHECK(std::count(full.begin(), full.end(), row) == 1);
    }
  }
}

TEST_CASE("bench: axes beside --suite replace the rows' own, and equal steps are measured once") {
  const auto document = run_json("--suite variants --format mxfp8 --q-len 2" + std::string(kTiny));
  std::set<std::string> configs;
  for (const auto& result : document.at("results")) {
    CHECK(result.at("config").at("format") == "mxfp8");
    CHECK(result.at("config").at("q_len") == 2);
    CHECK(result.at("config").at("kv_len") == 96);
    CHECK(configs.insert(result.at("config").dump()).second);
  }
  CHECK(document.at("suite") == "variants");
  CHECK(configs.size() == 4);  // plain, at head_dim 64, a window of 64, rotation 128; MXFP8's V has one way to be scaled
}

TEST_CASE("bench: a suite's own failures and options nobody knows end with 2") {
  const auto fails = [](const std::string& arguments, const std::string& words) {
    const test::ToolRun run = run_tool(arguments);
    INFO(arguments << "\n" << run.out << run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find(words) != std::string::npos);
  };
  fails("bench", "bench needs a subcommand or --suite");
  fails("bench --suite all",
        "unknown suite 'all'; allowed: smoke, decode, variants, layers, prefill, graph, cache, sweep, dense, gemm, full");
  fails("bench --suite graph --shape 4x4", "--shape: no benchmark of suite graph has this option");
  fails("bench --suite decode --format mxfp5", "unknown KV format 'mxfp5'");
  fails("bench --suite decode --heads 5", "--heads 5 is not a multiple of --kv-heads 8");
  fails("bench --tokens 64 decode", "--tokens before a subcommand is for --suite alone");
  fails("bench decode --tokens 2M", "'2M' is not a positive integer");
  fails("bench decode --tokens 64 --q-len 65", "--q-len 65 exceeds --tokens 64");
  fails("bench append --slots rows", "unknown --slots 'rows'; allowed: pages, tokens");
  fails("bench append --slots tokens --v-scale-axis tokens --format mxfp4", "allowed: pages");
}

TEST_CASE("bench: a step that fails is noted, the others are measured, and the end says so") {
  const test::Scratch scratch;
  const test::ToolRun run =
      run_tool("bench decode --format mxfp4 --rotation 0,128,32 --warmup 0 --repeats 1 --warm-caches --json " +
               scratch.file("j") + kTiny + " --head-dim 64");
  CHECK(run.exit_code == 2);
  CHECK(run.err.find("rotation") != std::string::npos);
  const auto document = ordered_json::parse(test::read_text(scratch.file("j")));
  REQUIRE(document.at("results").size() == 2);
  CHECK(document.at("results").at(1).at("config").at("rotation") == 32);
  REQUIRE(document.at("skipped").size() == 1);
  CHECK(document.at("skipped").at(0).at("failed") == true);
  CHECK(document.at("skipped").at(0).at("what").get<std::string>().find("rotation 128") != std::string::npos);
}

TEST_CASE("bench: sizes that no call takes are refused before there is memory for them") {
  const auto fails = [](const std::string& arguments, int code, const std::string& words) {
    const test::ToolRun run = run_tool("bench " + arguments + " --warmup 0 --repeats 1 --warm-caches");
    INFO(arguments << "\n" << run.err);
    CHECK(run.exit_code == code);
    CHECK(run.err.find(words) != std::string::npos);
  };
  fails("append --head-dim -1", 2, "head_dim is -1; allowed: multiples of 32 from 32 to 256");
  fails("append --head-dim 1000000", 2, "head_dim is 1000000; allowed: multiples of 32 from 32 to 256");
  fails("decode --head-dim 2147483647", 2, "head_dim is 2147483647; allowed: multiples of 32 from 32 to 256");
  fails("decode --page-size 2147483647", 2, "page_size is 2147483647; allowed: 1 to 1024 tokens");
  fails("decode --heads 2147483647 --kv-heads 1", 2, "num_q_heads 2147483647");
  fails("decode --batch 2147483647", 2, "--batch: 2147483647; allowed: 1 to 1048576");
  fails("decode --tokens 2147483647", 2, "--tokens: 2147483647; allowed: 1 to 1073741824");
  fails("prefill --batch 4096 --tokens 1024K", 2, "--batch 4096 of 1048576 tokens each: 4294967296 rows; allowed: up to 2147483647");
  fails("decode --batch 8192 --tokens 1024K --page-size 64 --splits 65", 2, "kv_split_tokens is 65; allowed: 0 or a multiple of 64");
  fails("dense --batch 2147483647 --length 64", 2, "137438953408 rows; allowed: up to 2147483647");
  fails("mxfp8 --batch 2147483647 --length 1 --q-len 64", 2, "137438953408 rows; allowed: up to 2147483647");
}

TEST_CASE("bench: where memory ends, the row and the bytes are named") {
  const test::Scratch scratch;
  const auto fails = [&](const std::string& arguments, const std::string& row, const std::string& bytes) {
    const test::ToolRun run = run_tool("bench " + arguments + " --warmup 0 --repeats 1 --warm-caches --json " + scratch.file("j"));
    INFO(arguments << "\n" << run.err);
    CHECK(run.exit_code == 6);
    CHECK(run.err.find("fp4pa: " + row) == 0);
    CHECK(run.err.find(": out of memory: " + bytes + " bytes wanted in one piece") != std::string::npos);
  };
  fails("append --tokens 2147483647 --kv-heads 1024", "append and gather bf16 page 64 2147483647 tokens 1024 heads D128",
        "562949953421312");
  fails("quantize --shape 256x256,16777216x16777216 --format mxfp4", "quantize and dequantise mxfp4 16777216x16777216 f32",
        "1125899906842624");
  CHECK(ordered_json::parse(test::read_text(scratch.file("j"))).at("results").size() == 2);  // of the row that fits
}

TEST_CASE("bench: what a device cannot measure is named, and is no failure") {
  const auto document = run_json("--suite graph --backend cpu --format mxfp4");
  CHECK(document.at("results").empty());
  REQUIRE(document.at("skipped").size() == 1);
  CHECK(document.at("skipped").at(0).at("failed") == false);
}

TEST_CASE("bench: percentiles are the nearest samples, and of several calls each has its share") {
  const fp4pa::tool::Spread together = fp4pa::tool::spread_of({5, 1, 4, 2, 3, 6, 7, 8, 9, 10, 11});
  CHECK(together.min == 1.0);
  CHECK(together.p10 == 2.0);
  CHECK(together.median == 6.0);
  CHECK(together.p90 == 10.0);
  CHECK(together.repeats == 11);
  const fp4pa::tool::Spread each = fp4pa::tool::per_call(together, 4);
  CHECK(each.min == 0.25);
  CHECK(each.p10 == 0.5);
  CHECK(each.median == 1.5);
  CHECK(each.p90 == 2.5);
}

TEST_CASE("bench: bytes of ragged lengths are those of the lengths, and operations of all keys are all pairs") {
  fp4pa::tool::DecodeSpec spec;
  spec.batch = 5;
  spec.kv_len = 500;
  spec.ragged = true;
  double tokens = 0.0;
  for (const std::int32_t length : fp4pa::tool::lengths_of(spec)) {
    CHECK(length >= 1);
    CHECK(length <= 500);
    tokens += length;
  }
  const auto ragged =
      run_json("decode --ragged --batch 5 --tokens 500 --heads 2 --kv-heads 2 --head-dim 64 --page-size 16 --format mxfp4");
  CHECK(ragged.at("results").at(0).at("bytes") ==
        tokens * 2 * 2 * 34);  // 2 heads, K and V, 32 bytes of codes and 2 of scales
  CHECK(ragged.at("results").at(0).at("config").at("ragged") == true);

  const auto all =
      run_json("prefill --all-keys --tokens 64 --heads 4 --kv-heads 2 --head-dim 64 --format mxfp4").at("results").at(0);
  const double seconds = 1e-3 * all.at("ms").at("median").get<double>();
  CHECK(all.at("tflops").get<double>() == doctest::Approx(1e-12 * 4.0 * 64 * 64 * 64 * 4 / seconds));
  CHECK(all.at("config").at("causal") == false);
}

TEST_CASE("bench: a sliding window that passes 32 bits with the queries is one that every key lies in") {
  for (const char* window : {"0", "2147483647"}) {
    const auto result = run_json("decode --format mxfp4 --q-len 2 --sliding-window " + std::string(window) + kTiny).at("results").at(0);
    CHECK(result.at("bytes") == 2 * 96 * 2 * 2 * 68);  // sequences, tokens, heads, K and V, 64 bytes of codes and 4 of scales
  }
}

TEST_CASE("bench: the axis that is recorded is the one in force") {
  for (const char* kind : {"decode --tokens 64 --page-size 64", "dense --length 64"}) {
    const auto document =
        run_json(std::string(kind) + " --v-scale-axis tokens --format bf16,mxfp4 --batch 1 --heads 2 --kv-heads 2 --head-dim 64");
    std::string axes;
    for (const auto& result : document.at("results")) axes += result.at("config").at("v_scale_axis").get<std::string>() + " ";
    INFO(kind);
    CHECK(axes == "head_dim tokens ");
  }
}

TEST_CASE("bench: as many runs before the first that counts as an int holds are begun, not passed over") {
  struct Stop {};
  struct Ends final : fp4pa::tool::Device {
    int runs = 0;
    std::string name() const override { return "made up"; }
    fp4pa::tool::Buffer allocate(std::size_t) override { return {}; }
    void upload(void*, const void*, std::size_t) override {}
    void download(void*, const void*, std::size_t) override {}
    void fill(const fp4pa::tool::Buffer&, fp4pa::tool::Fill, std::uint64_t) override {}
    void evict_caches() override {}
    double seconds(const std::function<void()>&) override { return ++runs == 9 ? throw Stop() : 1.0; }
    fp4pa::tool::Bandwidth read_bandwidth(int, int) override { return {}; }
    bool has_threads() const override { return false; }
    bool has_graphs() const override { return false; }
    std::function<void()> recorded(const std::function<void(void*)>&) override { return {}; }
  } device;
  fp4pa::tool::BenchOptions options;
  options.warmup = std::numeric_limits<int>::max();
  CHECK_THROWS_AS((void)fp4pa::tool::measure(device, options, [] {}), Stop);
}

TEST_CASE("bench: the speed against bf16 is that of the same configuration") {
  const auto document = run_json("decode --format bf16,mxfp4 --q-len 1,2" + std::string(kTiny));
  REQUIRE(document.at("results").size() == 4);
  for (const auto& r : document.at("results")) {
    for (const auto& base : document.at("results")) {
      if (base.at("config").at("format") != "bf16" || base.at("config").at("q_len") != r.at("config").at("q_len")) continue;
      const double ratio = base.at("ms").at("median").get<double>() / r.at("ms").at("median").get<double>();
      CHECK(r.at("vs_bf16").get<double>() == doctest::Approx(ratio));
    }
  }
}

TEST_CASE("bench: CSV has every column that any result has, and quotes what needs it") {
  const auto document = ordered_json::parse(R"({"results": [
    {"bench": "a", "config": {"format": "x,\"y\"", "n": 1}, "ms": {"median": 2.5, "min": 2}, "gbs": 7, "none": null},
    {"bench": "b", "config": {"format": "z", "shape": "2x3"}, "ms": {"median": 3.5, "min": 3}, "gbs": 8, "tflops": 9}]})");
  CHECK(fp4pa::tool::csv_of(document) ==
        "bench,format,n,shape,ms_median,ms_min,gbs,none,tflops\n"
        "a,\"x,\"\"y\"\"\",1,,2.5,2,7,,\n"
        "b,z,,2x3,3.5,3,8,,9\n");
}

TEST_CASE("bench: without a bandwidth results are no share of one") {
  const std::string decode = "bench decode --format mxfp4 --warmup 0 --repeats 1 --warm-caches --no-bandwidth" + std::string(kTiny);
  const ordered_json printed = ordered_json::parse(run_tool(decode + " --json -").out);
  CHECK(printed.at("read_bandwidth").empty());
  REQUIRE(printed.at("results").size() == 1);
  CHECK(printed.at("results").at(0).at("bandwidth_share").is_null());
  CHECK(printed.at("results").at(0).at("gbs").get<double>() > 0.0);
  const std::string table = run_tool(decode).out;
  CHECK(table.find("read bandwidth") == std::string::npos);
  CHECK(table.find(" %") == std::string::npos);
}

TEST_CASE("bench: --json and --csv alone print, and no option becomes a file") {
  const test::Scratch scratch;
  const auto run = [&](const std::string& arguments) {
    return run_tool("bench " + arguments, "cd '" + scratch.file("") + "' && ");
  };
  const std::string decode = "decode --format mxfp4 --warmup 0 --repeats 1 --warm-caches" + std::string(kTiny);
  const std::string bandwidth = "bandwidth --threads 1 --repeats 1";
  for (const std::string& command : {decode, bandwidth}) {
    INFO(command);
    const ordered_json printed = ordered_json::parse(run(command + " --json").out);
    CHECK(printed.at("read_bandwidth").size() == 1);
    const std::string csv = run(command + " --csv -").out;
    CHECK(csv.find(command == decode ? "bench,format,page_size" : "threads,best_gbs,median_gbs,buffer_bytes,repeats\n1,") == 0);
    CHECK(std::count(csv.begin(), csv.end(), '\n') == 2);
    const test::ToolRun files = run(command + " --json a.json --csv b.csv");
    CHECK(files.out.find("GB/s") != std::string::npos);
    CHECK(ordered_json::parse(test::read_text(scratch.file("a.json"))).at("read_bandwidth").size() == 1);
    CHECK(test::read_text(scratch.file("b.csv")).substr(0, 7) == csv.substr(0, 7));

    const test::ToolRun both = run(command + " --json --csv");
    CHECK(both.exit_code == 2);
    CHECK(both.err.find("--json and --csv both print to stdout") != std::string::npos);
    for (const char* same : {"same", "./same", "no/../same"}) {
      const test::ToolRun one = run(command + " --json same --csv " + same);
      CHECK(one.exit_code == 2);
      CHECK(one.err.find("--json same and --csv " + std::string(same) + " are the same file") != std::string::npos);
    }
    const test::ToolRun option = run(command + " --json=--csv");
    CHECK(option.exit_code == 2);
    CHECK(option.err.find("--json: '--csv'; allowed: a file's name, not beginning with -; or - alone for stdout") == 0);
    const test::ToolRun unnamed = run(command + " --json ''");
    CHECK(unnamed.exit_code == 2);
    CHECK(unnamed.err.find("--json: ''; allowed: a file's name, not beginning with -; or - alone for stdout") != std::string::npos);
    CHECK(run(command + " --csv a/b").exit_code == 3);
  }
  CHECK(run("--suite smoke --json --csv").exit_code == 2);
  CHECK(!std::filesystem::exists(scratch.file("--csv")));
}

TEST_CASE("bench: every kind of result names the back end that ran") {
  std::set<std::string> kinds;
  for (const char* backend : {"cpu", "cpu-scalar"}) {
    const auto document = run_json("--suite smoke --tokens 64 --length 64 --backend " + std::string(backend));
    for (const auto& result : document.at("results")) {
      INFO(result.at("bench"));
      CHECK(result.at("config").at("backend") == backend);
      kinds.insert(result.at("bench").get<std::string>());
    }
  }
  CHECK(kinds == std::set<std::string>{"append", "append_two_tier", "copy", "decode", "dense", "dequantize", "gather", "gemm", "merge", "mxfp8", "prefill", "quantize",
                                       "quantize_weight"});
  const auto named_by_environment = run_tool("bench append --tokens 64 --format bf16 --warmup 0 --repeats 1 --warm-caches --json",
                                             "FP4PA_FORCE_BACKEND=cpu-scalar ");
  CHECK(ordered_json::parse(named_by_environment.out).at("results").at(0).at("config").at("backend") == "cpu-scalar");
}

TEST_CASE("bench: compare takes a suite's files and fails above its threshold") {
  const test::Scratch scratch;
  auto document = run_json("--suite smoke --tokens 64 --backend cpu");
  std::ofstream(scratch.file("a")) << document.dump();
  auto& last = document.at("results").back();
  last["ms"]["median"] = 3.0 * last["ms"]["median"].get<double>();
  std::ofstream(scratch.file("b")) << document.dump();
  const std::string both = scratch.file("a") + " " + scratch.file("b");
  const test::ToolRun compared = run_tool("bench compare --json " + both);
  REQUIRE(compared.exit_code == 0);
  const auto comparison = ordered_json::parse(compared.out);
  CHECK(comparison.at("results").size() == document.at("results").size());
  CHECK(comparison.at("results").back().at("ratio").get<double>() == doctest::Approx(3.0));
  CHECK(run_tool("bench compare --fail-above 3.1 " + both).exit_code == 0);
  const test::ToolRun worse = run_tool("bench compare --fail-above 2.9 " + both);
  CHECK(worse.exit_code == 1);
  CHECK(worse.err.find("allowed 2.900") != std::string::npos);
}
