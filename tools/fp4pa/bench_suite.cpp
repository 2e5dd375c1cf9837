// See bench_suite.hpp. A suite is a list of command lines, so that any row of it can be run alone by typing it.
#include "tools/fp4pa/bench_suite.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {
namespace {

struct Suite {
  const char* name;
  const char* help;
  std::vector<std::string> rows;    ///< of its own
  std::vector<std::string> others;  ///< suites that it holds
};

const std::vector<Suite>& suites() {
  static const std::string kFormats = " --format mxfp4,nvfp4,fp8_e4m3,bf16";
  static const std::string kPages = " --page-size 64,16";
  static const std::string kFp4 = " --format mxfp4,nvfp4 --page-size 64";
  // batch, query and KV heads, tokens: the shapes that decoding is judged by.
  static const std::vector<std::string> kShapes = {
      "--batch 64 --heads 64 --kv-heads 8 --tokens 8K",  "--batch 32 --heads 32 --kv-heads 8 --tokens 8K",
      "--batch 128 --heads 32 --kv-heads 8 --tokens 2K", "--batch 8 --heads 64 --kv-heads 8 --tokens 32K",
      "--batch 1 --heads 32 --kv-heads 8 --tokens 128K", "--batch 16 --heads 32 --kv-heads 32 --tokens 4K"};
  static const std::string kDense = "dense --batch 4 --heads 32 --kv-heads 32 --length 2048";
  static const std::string kMiddle = "decode --batch 32 --heads 32 --kv-heads 8 --tokens 8K";
  static const auto kEachShape = [](const std::string& more) {
    std::vector<std::string> rows;
    for (const std::string& shape : kShapes) rows.push_back("decode " + shape + more);
    return rows;
  };
  static const auto kJoined = [](std::vector<std::string> rows, const std::vector<std::string>& more) {
    rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  };
  static const std::vector<Suite> kSuites = {
      {"smoke",
       "every benchmark once, small: a few seconds",
       {"decode --batch 2 --heads 4 --kv-heads 2 --head-dim 64 --tokens 1K --format mxfp4,nvfp4,fp8_e4m3,bf16 --page-size "
        "64",
        "decode --batch 4 --heads 4 --kv-heads 2 --head-dim 64 --tokens 1K --ragged --format mxfp4 --page-size 16",
        "decode --batch 2 --heads 4 --kv-heads 2 --head-dim 64 --tokens 1K --format mxfp4 --page-size 64 --window 64 "
        "--q-len 1,4",
        "decode --batch 2 --heads 4 --kv-heads 2 --head-dim 64 --tokens 1K --format mxfp4 --page-size 64 --same-lengths",
        "decode --batch 2 --heads 4 --kv-heads 2 --head-dim 64 --tokens 1K --format mxfp4 --page-size 64 --window 64 --layers 3",
        "prefill --batch 1 --heads 4 --kv-heads 2 --head-dim 64 --tokens 256 --format mxfp4,bf16",
        "graph --heads 4 --kv-heads 2 --head-dim 64 --tokens 1K --format mxfp4",
        "append --tokens 1K --kv-heads 2 --format mxfp4,bf16",
        "append --tokens 1K --kv-heads 2 --format mxfp4 --slots tokens",
        "append_two_tier --batch 2 --length 95 --kv-heads 2 --format mxfp4",
        "copy --pages 16 --kv-heads 2 --format mxfp4", "merge --rows 64",
        "quantize --shape 256x256 --format mxfp4,nvfp4,mxfp8", "quantize --weights --shape 256x256 --format nvfp4", "gemm --shape 1x256x256 --format mxfp4 --activations a16",
        "dense --heads 2 --kv-heads 2 --length 128 --format mxfp4",
        "mxfp8 --heads 2 --kv-heads 2 --length 128 --decode once"},
       {}},
      {"decode",
       "decoding in the shapes it is judged by, mxfp4, nvfp4, fp8_e4m3 and bf16, pages of 64 and 16, ragged lengths, head_dim 64 and 256",
       kJoined(kEachShape(kFormats + kPages),
               {"decode --batch 64 --heads 32 --kv-heads 8 --tokens 32K --ragged" + kFormats + kPages,
                kMiddle + " --head-dim 64,256" + kFormats + " --page-size 64"}),
       {}},
      {"variants",
       "what a recent window, rotation, V along tokens and several query tokens cost",
       kJoined(
           kJoined(kEachShape(kFp4 + " --q-len 1,4,8"), kEachShape(" --format fp8_e4m3,bf16 --page-size 64 --q-len 4,8")),
           {"decode --batch 64 --heads 64 --kv-heads 8 --tokens 8K --head-dim 64 --page-size 64 --q-len 1,4" + kFormats,
            kMiddle + " --window 0,64" + kFp4, "decode --batch 8 --heads 64 --kv-heads 8 --tokens 32K --window 0,64" + kFp4,
            kMiddle + " --rotation 0,128" + kFp4, kMiddle + " --v-scale-axis head_dim,tokens" + kFp4}),
       {}},
      {"layers",
       "decoding as the layers of a model do: calls one behind the other, each on a cache of its own, with the schedule of the first",
       kJoined(kEachShape(kFormats + " --page-size 64 --layers 8"),
               {"decode --batch 64 --heads 32 --kv-heads 8 --tokens 32K --ragged --page-size 64 --layers 8" + kFormats,
                kMiddle + " --head-dim 64 --page-size 64 --layers 8" + kFormats}),
       {}},
      {"prefill",
       "whole prompts, causal and with all keys",
       {"prefill --batch 1 --heads 32 --kv-heads 8 --tokens 8K --format mxfp4,nvfp4,mxfp8,fp8_e4m3,bf16",
        "prefill --batch 1 --heads 32 --kv-heads 8 --tokens 8K --format mxfp4,nvfp4,mxfp8,fp8_e4m3,bf16 --all-keys",
        "prefill --batch 4 --heads 32 --kv-heads 32 --tokens 2K --format mxfp4,nvfp4,mxfp8,fp8_e4m3,bf16",
        "prefill --batch 4 --heads 32 --kv-heads 32 --tokens 2K --format mxfp4,nvfp4,mxfp8,fp8_e4m3,bf16 --all-keys"},
       {}},
      {"graph",
       "a recorded decode of one sequence of 1 K tokens (CUDA)",
       {"graph --heads 32 --kv-heads 8 --tokens 1K --format mxfp4,nvfp4,fp8_e4m3,bf16"},
       {}},
      {"cache",
       "append and gather of 64 K tokens, appends over two tiers, copies of pages, merging, quantise and dequantise of tensors",
       {"append --tokens 64K --kv-heads 8 --format mxfp4,nvfp4,fp8_e4m3,bf16 --rotation 0,128 --slots pages",
        "append --tokens 64K --kv-heads 8 --format mxfp4,nvfp4,fp8_e4m3,bf16 --slots tokens",
        "append --tokens 64K --kv-heads 8 --format mxfp4,nvfp4 --v-scale-axis tokens --slots pages",
        "append_two_tier --batch 64 --length 8K,8191 --format mxfp4,nvfp4 --v-scale-axis head_dim,tokens",
        "append_two_tier --batch 8 --length 0 --tokens 4K --format mxfp4,nvfp4 --v-scale-axis head_dim,tokens",
        "copy --pages 4K --kv-heads 8 --format mxfp4,nvfp4,bf16",
        "merge --rows 256K --dtype f32,bf16",
        "quantize --shape 32768x8192 --format mxfp4,nvfp4,mxfp8 --dtype f32,bf16",
        "quantize --weights --shape 8192x28672 --format mxfp4,nvfp4 --dtype bf16",
        "quantize --shape 32768x8192 --format mxfp4,nvfp4 --dtype bf16 --scale-layout blocked",
        "quantize --shape 1024x1024,2048x2048,4096x8192,8192x4096 --format mxfp4 --dtype f32"},
       {}},
      {"sweep",
       "decoding over context lengths and over batches, for plots",
       {"decode --batch 8 --heads 32 --kv-heads 8 --tokens 1K,2K,4K,8K,16K,32K,64K,128K --page-size 64" + kFormats,
        "decode --batch 1,2,4,8,16,32,64,128 --heads 32 --kv-heads 8 --tokens 8K --page-size 64" + kFormats},
       {}},
      {"dense",
       "attention without a cache, in bf16, quantised on the way and in MXFP8",
       {kDense + " --format bf16,mxfp4,nvfp4,mxfp8", kDense + " --format bf16,mxfp4,nvfp4,mxfp8 --causal",
        kDense + " --format mxfp4,nvfp4 --smooth-k", kDense + " --format mxfp4,nvfp4 --smooth-k --causal",
        "mxfp8 --batch 4 --heads 32 --kv-heads 32 --length 2048 --decode per_tile,once",
        "mxfp8 --batch 4 --heads 32 --kv-heads 32 --length 2048 --decode per_tile,once --causal"},
       {}},
      {"gemm",
       "products of a 16-bit X with an FP4 weight",
       {"gemm --shape 1x8192x8192,4x8192x8192,16x8192x8192,64x8192x8192,256x2880x2880,2048x2880x7680 --dtype f16,bf16"},
       {}},
      {"full",
       "all of the above but smoke",
       {},
       {"decode", "variants", "layers", "prefill", "graph", "cache", "sweep", "dense", "gemm"}},
  };
  return kSuites;
}

const Suite& find_suite(const std::string& name) {
  for (const Suite& suite : suites()) {
    if (suite.name == name) return suite;
  }
  throw Failure(Exit::kUsage, fmt::format("--suite: unknown suite '{}'; allowed: {}", name, fmt::join(suite_names(), ", ")));
}

/// An option that replaces the rows' own: its name, and what was typed for it.
struct Override {
  std::string name;
  Option option;
  bool used = false;

  [[nodiscard]] std::string argument() const {
    return option.is_flag() ? name : name + "=" + option.text();
  }
};

struct SuiteState {
  std::string suite;
  BenchOptions common;
  std::vector<Override> overrides;
};

const BenchKind& kind_named(const std::string& name) {
  const auto kinds = bench_kinds();
  return *std::find_if(kinds.begin(), kinds.end(), [&](const BenchKind& k) { return name == k.name; });
}

/// A row with the overrides that its benchmark knows, parsed.
std::unique_ptr<Benchmark> parse_row(const std::string& row, std::vector<Override>& overrides) {
  std::istringstream words(row);
  std::string word;
  words >> word;
  const BenchKind& kind = kind_named(word);
  std::unique_ptr<Benchmark> benchmark = kind.make();
  CommandLine line(kind.help, kind.name);
  line.take_last();
  benchmark->add_options(line.root());
  std::vector<std::string> arguments;
  while (words >> word) arguments.push_back(word);
  for (Override& o : overrides) {
    if (o.option.count() == 0 || !line.root().find(o.name)) continue;
    o.used = true;
    arguments.push_back(o.argument());
  }
  line.parse(std::move(arguments));
  return benchmark;
}

void run_suite(SuiteState& state) {
  run_bench(
      state.common,
      [&](const std::vector<int>& threads) {
        BenchPlan plan;
        for (const std::string& row : suite_rows(state.suite)) {
          plan.benchmarks.push_back(parse_row(row, state.overrides));
          std::vector<BenchStep> steps = plan.benchmarks.back()->steps(threads);
          std::move(steps.begin(), steps.end(), std::back_inserter(plan.steps));
        }
        for (const Override& o : state.overrides) {
          if (o.option.count() == 0 || o.used) continue;
          throw Failure(Exit::kUsage, fmt::format("{}: no benchmark of suite {} has this option", o.name, state.suite));
        }
        return plan;
      },
      state.suite);
}

}  // namespace

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const Suite& suite : suites()) names.emplace_back(suite.name);
  return names;
}

std::vector<std::string> suite_rows(const std::string& name) {
  const Suite& suite = find_suite(name);
  std::vector<std::string> rows = suite.rows;
  for (const std::string& other : suite.others) {
    const std::vector<std::string> more = suite_rows(other);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

void add_bench_suites(Command bench) {
  auto state = std::make_shared<SuiteState>();
  std::string help = "Named suite; the subcommands' axes given beside it replace its own:";
  for (const Suite& suite : suites()) help += fmt::format("\n{}: {}", suite.name, suite.help);
  bench.add_option("--suite", state->suite, help);
  add_bench_options(bench, state->common);
  for (const BenchKind& kind : bench_kinds()) {
    const CommandLine axes;
    kind.make()->add_options(axes.root());
    for (const Option axis : axes.root().options()) {
      for (const std::string& name : axis.long_names()) {
        if (name == "help" || bench.find("--" + name)) continue;
        const Option option = axis.is_flag() ? bench.add_flag("--" + name) : bench.add_option("--" + name);
        state->overrides.push_back({"--" + name, option.hidden()});  // they stand in the subcommands' help
      }
    }
  }
  bench.footer(kExitCodeHelp);
  bench.callback([state, bench] {
    if (bench.has_subcommand()) return;
    if (state->suite.empty()) throw Failure(Exit::kUsage, "bench needs a subcommand or --suite; see `fp4pa bench --help`");
    run_suite(*state);
  });
}

void refuse_suite_options(Command bench) {
  for (const Option option : bench.options()) {
    if (option.count() == 0) continue;
    throw Failure(Exit::kUsage, fmt::format("--{} before a subcommand is for --suite alone; put it behind the subcommand",
                                            option.long_names().front()));
  }
}

}  // namespace fp4pa::tool
