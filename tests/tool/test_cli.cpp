// The command line: every way of ending has its code and its sentence, and what should be JSON parses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/tool/check_fails.hpp"
#include "tests/tool/run_tool.hpp"
#include "tests/tool/sample.hpp"
#include "tools/fp4pa/names.hpp"

namespace {

using test::check_fails;
using test::run_tool;

}  // namespace

TEST_CASE("cli: help and version end with 0") {
  for (const char* arguments :
       {"--help", "info --help", "attend --help", "quantize --help", "bench --help", "bench decode --help",
        "bench dense --help", "bench mxfp8 --help"}) {
    const test::ToolRun run = run_tool(arguments);
    INFO(arguments);
    CHECK(run.exit_code == 0);
    CHECK(run.out.find("Usage:") != std::string::npos);
    CHECK(run.err.empty());
  }
  CHECK(run_tool("--help").out.find("Exit codes: 0 ok; 1") != std::string::npos);
  CHECK(run_tool("--help").out.find("; 6 out of memory.") != std::string::npos);
  CHECK(run_tool("--version").out.find("0.") == 0);
}

TEST_CASE("cli: help names every format that is taken") {
  for (const char* command : {"attend", "bench decode", "bench prefill", "bench append", "bench dense"}) {
    const std::string help = run_tool(std::string(command) + " --help").out;
    for (const fp4pa::KvFormat format : fp4pa::tool::kAllFormats) {
      INFO(command, ": ", fp4pa::name_of(format));
      CHECK(help.find(fp4pa::name_of(format)) != std::string::npos);
    }
  }
}

TEST_CASE("cli: bad usage ends with 2 and says what is allowed") {
  const test::Scratch scratch;
  const std::string file = scratch.file("s.safetensors");
  test::write_sample(file, test::make_sample());
  check_fails("", 2, "subcommand");
  check_fails("fly", 2, "unknown command 'fly'; allowed: info, attend, quantize, gemm, bench");
  check_fails("bench fly", 2, "unknown command 'fly'; allowed: decode, prefill, graph");
  check_fails("attend", 2, "file");
  check_fails("attend " + file + " --format mxfp5", 2, "unknown KV format 'mxfp5'; allowed: mxfp4, nvfp4");
  check_fails("attend " + file + " --format mxfp4 --scale-mode up", 2, "allowed: floor, ceil, rceil, even");
  check_fails("attend " + file + " --format mxfp4 --rotation 48", 2, "allowed: 0, 16, 32, 64, 128");
  check_fails("attend " + file + " --format mxfp4 --rotation 128", 2, "rotation");
  check_fails("attend " + file + " --softcap abc", 2, "--softcap: abc; allowed: numbers below 2^128");
  check_fails("attend " + file + " --softcap 1e60", 2, "--softcap: 1e60; allowed: numbers below 2^128");
  check_fails("attend " + file + " --softcap inf", 2, "softcap is inf");
  check_fails("attend " + file + " --window 99999999999", 2, "--window: 99999999999; allowed: -2^31 to 2^31 - 1");
  check_fails("attend " + file + " --seed x", 2, "--seed: x; allowed: 1 or more");
  check_fails("gemm --scale-layout foo", 2, "unknown scale layout 'foo'; allowed: linear, blocked_128x4, blocked");
  check_fails("attend " + file + " --format mxfp4 --v-scale-axis tokens --page-size 100", 2, "page_size is 100");
  check_fails("attend " + file + " --format mxfp4 --window 8", 2, "window_tokens is 8");
  check_fails("attend " + file + " --format mxfp4 --splits 65", 2, "kv_split_tokens is 65");
  check_fails("attend " + file + " --format mxfp4 --page-order diagonal", 2, "allowed: hnd, nhd, interleaved");
  check_fails("attend " + file + " --format mxfp4 --q-len 4", 2, "--q-len 4 exceeds the 3 queries");
  check_fails("attend " + file + " --page-size 2000", 2, "page-size");
  check_fails("attend " + file + " --causal --no-causal", 2, "causal");
  check_fails("attend " + file + " --suite --format mxfp4", 2, "suite");
  check_fails("attend " + file + " --format all --k-format bf16", 2, "--format all leaves nothing");
  check_fails("bench decode --heads 5 --kv-heads 2", 2, "--heads 5 is not a multiple of --kv-heads 2");
  check_fails("bench decode --threads 1,,2", 2, "empty entry");
  check_fails("bench dense --heads 5 --kv-heads 2", 2, "--heads 5 is not a multiple of --kv-heads 2");
  check_fails("bench dense --format fp5", 2, "unknown KV format 'fp5'; allowed: mxfp4, nvfp4");
  check_fails("bench dense --format bf16 --v-scale-axis rows", 2, "unknown V scale axis 'rows'; allowed: head_dim, tokens");
  check_fails("bench decode --page-order interleaved", 2, "unknown page order 'interleaved'; allowed: hnd, nhd");
  check_fails("bench mxfp8 --decode never", 2, "unknown decoding 'never'; allowed: auto, per_tile, once");
  check_fails("bench decode --page-size 16,x", 2, "'x' is not a positive integer");
  check_fails("bench quantize --shape 4by4", 2, "'4by4' is not ROWSxCOLS");
  check_fails("info --head-dim 40", 2, "head_dim is 40; allowed: multiples of 32 from 32 to 256");
  check_fails("attend " + file + " --out --json", 2, "--out: '--json'; allowed: a file's name, not beginning with -");
  check_fails("quantize " + file + " --tensor k --out --json", 2, "--out: '--json'; allowed: a file's name");
  check_fails("gemm --save --json", 2, "--save: '--json'; allowed: a file's name");
}

TEST_CASE("cli: what cannot be read or written ends with 3") {
  check_fails("gemm --file ''", 3, "No such file");
  if (test::run_program("test -c /dev/full").exit_code != 0) return;
  for (const char* command : {"--help", "--version", "info", "bench decode --help"}) {
    const test::ToolRun run = test::run_program("sh -c \"'" FP4PA_TOOL_PATH "' " + std::string(command) + " >/dev/full\"");
    INFO(command);
    CHECK(run.exit_code == 3);
    CHECK(run.err.find("cannot write to stdout") != std::string::npos);
  }
}

TEST_CASE("cli: a number out of its range is named beside the range") {
  check_fails("gemm --m 0", 2, "--m: 0; allowed: 1 to 2147483647");
  check_fails("gemm --m 99999999999999999999", 2, "--m: 99999999999999999999; allowed: 1 to 2147483647");
  check_fails("gemm --m 1 --n 2147483648 --k 1", 2, "--n: 2147483648; allowed: 1 to 2147483647");
  check_fails("gemm --m 1 --n 1 --k 2147483521", 2, "--k: 2147483521; allowed: 1 to 2147483520");
  check_fails("gemm --m two", 2, "--m: two; allowed: 1 to 2147483647");
  check_fails("attend file --threads -1", 2, "--threads: -1; allowed: 0 to 4096");
  check_fails("attend file --seed 0", 2, "--seed: 0; allowed: 1 or more");
  check_fails("attend file --page-size 2000", 2, "--page-size: 2000; allowed: 1 to 1024");
  check_fails("bench decode --repeats 0", 2, "--repeats: 0; allowed: 1 or more");
  check_fails("bench decode --tokens 0", 2, "--tokens: 0; allowed: 1 to 1073741824");
  check_fails("bench dense --length -1", 2, "--length: -1; allowed: 1 or more");
}

TEST_CASE("cli: an option that would have no effect is refused, with the reason") {
  const test::Scratch scratch;
  const std::string file = scratch.file("s"), packed = scratch.file("p"), weight = scratch.file("w"), out = scratch.file("o");
  test::write_sample(file, test::make_sample());
  const std::string attend = "attend " + file, quantize = "quantize " + file + " --tensor k --out " + packed,
                    dequantize = "quantize " + packed + " --tensor k --dequantize --out " + out,
                    gemm = "gemm --m 2 --file " + weight;
  REQUIRE(run_tool(quantize + " --format mxfp4").exit_code == 0);
  REQUIRE(run_tool("gemm --m 2 --n 96 --k 64 --format nvfp4 --save " + weight).exit_code == 0);

  check_fails(gemm + " --format mxfp4", 2, "--format mxfp4: the file's weight is nvfp4");
  check_fails(gemm + " --n 32", 2, "--n 32: the number of rows of the file's weight is 96");
  check_fails(gemm + " --k 32", 2, "--k 32: the number of columns of the file's weight is 64");
  check_fails(gemm + " --scale-layout blocked", 2, "the layout of the file's scales is linear");
  check_fails(gemm + " --four-over-six", 2, "--four-over-six has nothing to scale");
  CHECK(run_tool(gemm + " --format nvfp4 --n 96 --k 64 --activations a4 --four-over-six").exit_code == 0);  // all true

  check_fails(dequantize + " --format nvfp4", 2, "--format nvfp4: the file's tensor is mxfp4");
  check_fails(dequantize + " --scale-layout blocked", 2, "the layout of the file's scales is linear");
  check_fails(dequantize + " --scale-mode even", 2, "excludes");
  CHECK(run_tool(dequantize + " --format mxfp4 --dtype f16").exit_code == 0);
  check_fails(quantize + " --dtype f16", 2, "--dtype requires --dequantize");
  check_fails(quantize + " --format nvfp4 --global-scale 0", 2, "global_scale is 0; allowed: 2^-126 to 2^126");
  check_fails(quantize + " --format nvfp4 --global-scale -1", 2, "global_scale is -1; allowed: 2^-126 to 2^126");
  check_fails(quantize + " --format mxfp4 --global-scale 2", 2, "--global-scale has no part in format mxfp4; allowed with: nvfp4");

  check_fails(attend + " --format ''", 2, "unknown KV format ''; allowed: mxfp4, nvfp4");
  check_fails(attend + " --rotation 64", 2, "--rotation is chosen by the suite's variants; allowed with: --format");
  for (const std::string& command : {attend, quantize, std::string("gemm"), std::string("bench append"), std::string("bench quantize")}) {
    check_fails(command + " --format mxfp4 --four-over-six", 2, "--four-over-six has no part in format mxfp4; allowed with: nvfp4");
  }
  // Of the formats that are scaled so, those that the command has.
  for (const auto& [command, formats] : {std::pair{attend, "mxfp4, mxfp8, e8m0_per_token\n"},
                                         std::pair{std::string("bench append"), "mxfp4, mxfp8, e8m0_per_token\n"},
                                         std::pair{quantize, "mxfp4, mxfp8\n"},
                                         std::pair{std::string("bench quantize"), "mxfp4, mxfp8\n"},
                                         std::pair{std::string("gemm"), "mxfp4\n"}}) {
    check_fails(command + " --format nvfp4 --scale-mode even", 2,
                "--scale-mode has no part in format nvfp4; allowed with: " + std::string(formats));
  }
  check_fails(attend + " --k-format bf16 --v-format fp8_e4m3 --four-over-six", 2, "no part in format bf16, fp8_e4m3");
  CHECK(run_tool(attend + " --k-format bf16 --v-format nvfp4 --four-over-six --repeats 1").exit_code == 0);
}

TEST_CASE("cli: more threads than the library takes are refused, and no crash") {
  for (const char* command : {"bench decode", "bench bandwidth", "bench gemm --shape 4x64x64", "bench --suite smoke"}) {
    check_fails(std::string(command) + " --threads 100000", 2, "--threads: 100000; allowed: 1 to 4096");
  }
  for (const char* command : {"attend file", "quantize file --tensor k --out o", "gemm"}) {
    check_fails(std::string(command) + " --threads 100000", 2, "--threads: 100000; allowed: 0 to 4096");
  }
}

TEST_CASE("cli: bad files end with 3") {
  const test::Scratch scratch;
  const std::string file = scratch.file("s.safetensors");
  test::Sample sample = test::make_sample();
  test::write_sample(file, sample);
  check_fails("attend " + scratch.file("missing"), 3, "cannot open");
  check_fails("attend " + file + " --k keys", 3, "no tensor 'keys'; it holds 'q', 'k', 'v'");
  check_fails("attend " + file + " --k q", 3, "do not fit together");
  check_fails("quantize " + file + " --tensor w --out " + scratch.file("o"), 3, "no tensor 'w'");
  check_fails("quantize " + file + " --tensor k --dequantize --out " + scratch.file("o"), 3, "no metadata");
  check_fails("quantize " + file + " --tensor k --out " + scratch.file("no/folder"), 3, "cannot write");
  check_fails("bench compare " + file + " " + file, 3, "not a result file");
  {
    std::ofstream truncated(scratch.file("t"), std::ios::binary);
    truncated << test::read_text(file).substr(0, 200);
  }
  check_fails("attend " + scratch.file("t"), 3, "truncated");
  const std::vector<std::uint8_t> codes(6);
  fp4pa::safetensors::write(scratch.file("u8"), {{"q", "U8", {1, 2, 3}, std::as_bytes(std::span(codes))}}, {});
  check_fails("attend " + scratch.file("u8"), 3, "dtype U8; allowed here: F32, F16, BF16");
  for (const char* scale : {"-1", "0.1abc", "", "nan", "1e300", "1e-60"}) {
    test::write_sample(scratch.file("scale"), sample, {{"softmax_scale", scale}});
    check_fails("attend " + scratch.file("scale"), 3,
                "softmax_scale '" + std::string(scale) + "'; allowed: numbers from 2^-126 to 2^126");
  }
  test::write_sample(scratch.file("causal"), sample, {{"causal", "0"}});
  check_fails("attend " + scratch.file("causal"), 3, "metadata causal '0'; allowed: true, false");
  test::write_sample(scratch.file("dim"), test::make_sample(48));
  check_fails("attend " + scratch.file("dim"), 3, "head_dim is 48; allowed: multiples of 32 from 32 to 256");
}

TEST_CASE("cli: a back end that is not there ends with 4") {
  const test::Scratch scratch;
  const std::string file = scratch.file("s.safetensors");
  test::write_sample(file, test::make_sample());
  check_fails("attend " + file + " --backend abacus", 4, "unknown back end 'abacus'; this build has: ");
  check_fails("attend " + file, 4, "unknown back end 'abacus'", "FP4PA_FORCE_BACKEND=abacus ");
  check_fails("bench decode --backend abacus", 4, "abacus");
  check_fails("quantize " + file + " --tensor k --backend abacus --out " + scratch.file("o"), 4, "abacus");
}

TEST_CASE("cli: an instruction set that is not one is reported beside those that are, once, and the best runs") {
  const std::string best = run_tool("info --json").out;
  for (const char* name : {"AVX9", "avx2", "Unknown"}) {
    const test::ToolRun run = run_tool("info --json", "FP4PA_CPU_TARGET=" + std::string(name) + " ");
    INFO(run.err);
    CHECK(run.exit_code == 0);
    CHECK(run.out == best);
    CHECK(run.err.find("fp4pa error: FP4PA_CPU_TARGET is \"" + std::string(name) + "\"; allowed: ") == 0);
    CHECK(run.err.find(". Using the best of this CPU.\n") == run.err.find('\n') - std::strlen(". Using the best of this CPU."));
    CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
#if defined(__x86_64__)
    CHECK(run.err.find("SSSE3, SSE4, AVX2, AVX3, AVX3_DL") != std::string::npos);
#elif defined(__aarch64__)
    CHECK(run.err.find("NEON") != std::string::npos);
#endif
  }
  CHECK(run_tool("info --json", "FP4PA_CPU_TARGET= ").err.empty());
  CHECK(run_tool("info --json", "FP4PA_CPU_TARGET=SCALAR ").err.empty());
#if defined(__x86_64__)
  CHECK(run_tool("info --json", "FP4PA_CPU_TARGET=SSSE3 ").err.empty());
#endif
}

TEST_CASE("cli: FP4PA_LOG adds failures, then plans, then choices of a back end to stderr; an unknown value is reported and means error") {
  const test::Scratch scratch;
  test::write_sample(scratch.file("s"), test::make_sample());
  const std::string works = "attend " + scratch.file("s") + " --backend cpu --format bf16 --repeats 1",
                    fails = "bench append --backend cpu --format bf16 --tokens 64 --head-dim 48 --no-bandwidth";
  const std::string failure = "fp4pa error: kUnsupportedHeadDim: head_dim is 48; allowed: ", plan = "fp4pa info: plan on cpu: ",
                    choice = "fp4pa debug: back end cpu (", unknown = "fp4pa error: FP4PA_LOG is \"loud\"; allowed: off, error, info, debug. Using error.\n";
  struct Row {
    const char* value;
    bool failures, plans, choices;
  };
  for (const Row& row : {Row{"", false, false, false}, Row{"off", false, false, false}, Row{"error", true, false, false},
                         Row{"info", true, true, false}, Row{"debug", true, true, true}, Row{"loud", true, false, false}}) {
    const std::string variable = "FP4PA_LOG=" + std::string(row.value) + " ";
    const test::ToolRun good = run_tool(works, variable), bad = run_tool(fails, variable);
    INFO(variable, good.err, bad.err);
    CHECK(good.exit_code == 0);
    CHECK(bad.exit_code == 2);
    const auto has = [](const test::ToolRun& run, const std::string& words) { return run.err.find(words) != std::string::npos; };
    CHECK(has(good, plan) == row.plans);
    CHECK(has(good, choice) == row.choices);
    CHECK(has(bad, failure) == row.failures);
    CHECK(has(good, unknown) == (std::strcmp(row.value, "loud") == 0));
    if (!row.plans) CHECK(good.err == (std::strcmp(row.value, "loud") == 0 ? unknown : ""));
  }
}

TEST_CASE("cli: info is JSON with the back ends and what the formats cost") {
  const test::ToolRun run = run_tool("info --json");
  REQUIRE(run.exit_code == 0);
  const auto info = nlohmann::json::parse(run.out);
  CHECK(info.at("abi_version") == info.at("header_abi_version"));
  bool has_cpu = false;
  for (const auto& backend : info.at("backends"))
    has_cpu = has_cpu || (backend.at("name") == "cpu" && backend.at("available") == true);
  CHECK(has_cpu);
  const auto& mxfp4 = info.at("formats").at(0);
  CHECK(mxfp4.at("name") == "mxfp4");
  CHECK(mxfp4.at("data_bytes") == 64);
  CHECK(mxfp4.at("scale_bytes") == 4);
  CHECK(mxfp4.at("bits_per_element") == 4.25);
}

TEST_CASE("cli: info --kernels has a row with a reason for every kernel of the gates") {
  const test::ToolRun run = run_tool("info --kernels --json");
  REQUIRE(run.exit_code == 0);
  const nlohmann::json gates = nlohmann::json::parse(run.out);
  REQUIRE(!gates.empty());
  const std::string text = run_tool("info --kernels").out;
  for (const auto& [architecture, rows] : gates.items()) {
    CHECK(text.find(architecture) != std::string::npos);
    for (const auto& [name, row] : rows.items()) {
      INFO(architecture, ", ", name);
      CHECK(text.find(name) != std::string::npos);
      CHECK(!row.at("reason").get<std::string>().empty());
      CHECK(row.at("registers").get<int>() > 0);
    }
  }
}

TEST_CASE("cli: bench prefill counts the operations of the visible pairs") {
  const test::ToolRun run =
      run_tool("bench prefill --kv-len 64 --heads 4 --kv-heads 2 --head-dim 64 --format mxfp4 --repeats 3 --warm-caches --json -");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const nlohmann::json document = nlohmann::json::parse(run.out);
  const nlohmann::json& result = document.at("results").at(0);
  CHECK(result.at("bench") == "prefill");
  CHECK(result.at("config").at("q_len") == 64);
  const double operations = 4.0 * (64 * 65 / 2) * 64 * 4;
  const double seconds = 1e-3 * result.at("ms").at("median").get<double>();
  CHECK(result.at("tflops").get<double>() == doctest::Approx(1e-12 * operations / seconds));
}

TEST_CASE("cli: help of attend and quantize names the defaults") {
  const std::string attend = run_tool("attend --help").out, quantize = run_tool("quantize --help").out;
  const auto has = [](const std::string& help, const std::string& option, const std::string& value) {
    const auto at = help.find("\n  --" + option + " ");
    if (at == std::string::npos) return false;
    const std::string line = help.substr(at, help.find('\n', at + 1) - at) + " ";
    return line.find("=" + value + " ") != std::string::npos || line.find("[" + value + "]") != std::string::npos;  // CLI11 before 2.4, and since
  };
  CHECK(has(attend, "page-size", "64"));
  CHECK(has(attend, "repeats", "5"));
  CHECK(has(attend, "q", "q"));
  CHECK(has(attend, "o-dtype", "f32"));
  CHECK(has(quantize, "scale-mode", "floor"));
  CHECK(has(quantize, "scale-layout", "linear"));
}

TEST_CASE("cli: a file's name may be any bytes, and reports are UTF-8 all the same") {
  const test::Scratch scratch;
  const std::string file = scratch.file("caf\xe9");
  test::write_sample(file, test::make_sample());
  const test::ToolRun run = run_tool("attend " + file + " --format f16 --repeats 1 --json --out " + scratch.file("o"));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(nlohmann::json::parse(run.out).at("file") == scratch.file("caf\uFFFD"));
  CHECK(fp4pa::safetensors::File(scratch.file("o")).metadata().at("source") == scratch.file("caf\uFFFD"));
}

TEST_CASE("cli: bench decode reports what it measured") {
  const test::Scratch scratch;
  const test::ToolRun run = run_tool(
      "bench decode --batch 2 --heads 4 --kv-heads 2 --head-dim 64 --kv-len 300 --page-size 16 --format "
      "bf16,mxfp4,fp8_e4m3+nvfp4 "
      "--repeats 2 --warmup 0 --window 32 --json " +
      scratch.file("j") + " --csv " + scratch.file("c"));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto document = nlohmann::json::parse(test::read_text(scratch.file("j")));
  REQUIRE(document.at("results").size() == 3);
  const auto& mxfp4 = document.at("results").at(1);
  CHECK(mxfp4.at("config").at("format") == "mxfp4");
  // 300 tokens, 256 of which have left the window of 32 in groups of 32: (256 (32 + 2) + 44 128) 2 heads, K and V, 2
  // sequences.
  CHECK(mxfp4.at("bytes") == (256 * 34 + 44 * 128) * 2 * 2 * 2);
  CHECK(mxfp4.at("ms").at("median") > 0.0);
  CHECK(mxfp4.at("vs_bf16") > 0.0);
  CHECK(document.at("read_bandwidth").at(0).at("best_gbs") > 0.0);
  const std::string csv = test::read_text(scratch.file("c"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 4);
}

TEST_CASE("cli: bench dense and bench mxfp8 report what they measured") {
  const test::Scratch scratch;
  const std::string shape = " --batch 2 --heads 4 --kv-heads 2 --head-dim 64 --length 40 --q-len 10 --causal --repeats 2 --warmup 0 --json ";
  const test::ToolRun dense = run_tool("bench dense --format bf16,nvfp4 --smooth-k --rotation 32" + shape + scratch.file("d"));
  INFO(dense.err);
  REQUIRE(dense.exit_code == 0);
  const auto results = nlohmann::json::parse(test::read_text(scratch.file("d"))).at("results");
  REQUIRE(results.size() == 2);
  CHECK(results.at(1).at("config").at("format") == "nvfp4");
  CHECK(results.at(1).at("config").at("smooth_k") == true);
  // Q and O of 20 rows of 4 heads, K and V of 80 rows of 2, 64 elements of 2 bytes each.
  CHECK(results.at(1).at("bytes") == (20 * 4 * 2 + 80 * 2 * 2) * 64 * 2);
  // Queries at positions 30 to 39 see 31 to 40 keys.
  const double seconds = 1e-3 * results.at(1).at("ms").at("median").get<double>();
  CHECK(results.at(1).at("GFLOP_per_s").get<double>() * seconds == doctest::Approx(1e-9 * 4 * 2 * 4 * 355 * 64));

  const test::ToolRun mxfp8 = run_tool("bench mxfp8 --decode auto,once" + shape + scratch.file("m"));
  INFO(mxfp8.err);
  REQUIRE(mxfp8.exit_code == 0);
  const auto rows = nlohmann::json::parse(test::read_text(scratch.file("m"))).at("results");
  REQUIRE(rows.size() == 2);
  CHECK(rows.at(0).at("config").at("format") == "per_tile");  // 20 query rows a KV head
  CHECK(rows.at(1).at("config").at("format") == "once");
  CHECK(rows.at(0).at("bytes") == (20 * 4 + 80 * 2 * 2) * 66 + 20 * 4 * 64 * 2);
}
