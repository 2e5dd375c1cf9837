// `fp4pa bench`: its subcommands, the options they share, and how a time is taken.
#include "tools/fp4pa/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <set>

#include "tools/fp4pa/bench_suite.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"

namespace fp4pa::tool {
namespace {

constexpr BenchKind kKinds[] = {
    {"decode", "Decode attention over a long paged cache", make_bench_decode},
    {"prefill", "Attention of a whole prompt over its paged cache", make_bench_prefill},
    {"graph", "Replays of a decode that was recorded as a graph, per call", make_bench_graph},
    {"append", "Append to a paged cache, and gather from it", make_bench_append},
    {"append_two_tier", "Append to a cache of two tiers", make_bench_two_tier},
    {"copy", "Copy pages of a cache to others", make_bench_copy},
    {"merge", "Merge attention over disjoint keys", make_bench_merge},
    {"quantize", "Quantise tensors, and dequantise them", make_bench_quantize},
    {"gemm", "Multiply activations with an FP4 weight", make_bench_gemm},
    {"dense", "Attention over contiguous Q, K and V, quantised on the way", make_bench_dense},
    {"mxfp8", "Attention over contiguous Q, K and V in MXFP8", make_bench_mxfp8},
};

void add_kind(Command bench, const BenchKind& kind) {
  struct State {
    BenchOptions common;
    std::unique_ptr<Benchmark> benchmark;
  };
  auto state = std::make_shared<State>();
  state->benchmark = kind.make();
  const Command command = bench.add_subcommand(kind.name, kind.help);
  state->benchmark->add_options(command);
  add_bench_options(command, state->common);
  command.footer(kExitCodeHelp);
  command.callback([state, command, bench] {
    refuse_suite_options(bench);
    if (const std::optional<Option> formats = command.find("--format")) {
      refuse_idle_scale_options(command, split_list(formats->text(), "--format"), state->benchmark->formats());
    }
    run_bench(
        state->common,
        [&](const std::vector<int>& threads) {
          BenchPlan plan;
          plan.steps = state->benchmark->steps(threads);
          return plan;
        },
        "");
  });
}

}  // namespace

std::span<const BenchKind> bench_kinds() { return kKinds; }

void check_rows(int batch, int rows_each) {
  constexpr int kMost = std::numeric_limits<int>::max();
  if (rows_each <= kMost / batch) return;
  throw Failure(Exit::kUsage, fmt::format("--batch {} of {} tokens each: {} rows; allowed: up to {}", batch, rows_each,
                                          std::int64_t{batch} * rows_each, kMost));
}

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double fraction) {
    return samples[static_cast<std::size_t>(std::lround(fraction * static_cast<double>(samples.size() - 1)))];
  };
  return {samples.front(), at(0.1), at(0.5), at(0.9), static_cast<int>(samples.size())};
}

Spread per_call(Spread together, double calls) {
  for (double* t : {&together.min, &together.p10, &together.median, &together.p90}) *t /= calls;
  return together;
}

Spread measure(Device& device, const BenchOptions& options, const std::function<void()>& work) {
  std::vector<double> samples;
  for (std::int64_t i = 0; i < std::int64_t{options.warmup} + options.repeats; ++i) {
    if (!options.warm_caches) device.evict_caches();
    const double seconds = device.seconds(work);
    if (i >= options.warmup) samples.push_back(seconds);
  }
  return spread_of(std::move(samples));
}

void run_bench(const BenchOptions& options, const std::function<BenchPlan(const std::vector<int>& threads)>& plan,
               const std::string& suite) {
  check_output(options.output);
  std::vector<int> threads = split_integers(options.threads, "--threads", 1, kMostThreads);
  const auto device = make_device(options.backend);
  if (!device->has_threads()) threads = {1};
  BenchPlan todo = plan(threads);
  std::set<std::string> labels;
  std::erase_if(todo.steps, [&](const BenchStep& step) { return !labels.insert(step.label).second; });
  BenchReport report(*device, options, suite);
  std::optional<Failure> first_failure;
  {
    const std::size_t bandwidths = options.no_bandwidth ? 0 : threads.size();
    Progress progress(static_cast<int>(bandwidths + todo.steps.size()), options.progress);
    for (const int t : threads) {
      if (options.no_bandwidth) break;
      progress.step("read bandwidth, threads " + std::to_string(t));
      (void)report.bandwidth(t);
    }
    for (const BenchStep& step : todo.steps) {
      progress.step(step.label);
      const auto failed = [&](Exit code, const std::string& why) {
        report.add(BenchSkip{step.label, why, true});
        if (!first_failure) first_failure.emplace(code, step.label + ": " + why);
      };
      try {
        step.work(report);
      } catch (const Failure& failure) {
        failed(failure.code(), failure.what());
      } catch (const std::bad_alloc&) {
        failed(Exit::kOutOfMemory, "out of memory");
      }
      report.write_files();  // what is there survives whatever ends the next step
    }
  }
  report.finish();
  if (first_failure) throw Failure(*first_failure);
}

void add_bench_options(Command command, BenchOptions& o) {
  command.add_option("--backend,--device", o.backend, "Back end by name; see `fp4pa info`");
  command.add_option("--threads", o.threads, "CPU threads, a list: 1,2; GPUs have none to choose").capture_default_str();
  command.add_option("--repeats", o.repeats, "Timed runs of each configuration").check(integer_from(1)).capture_default_str();
  command.add_option("--warmup", o.warmup, "Runs before them").check(integer_from(0)).capture_default_str();
  command.add_flag("--warm-caches", o.warm_caches, "Do not displace the caches between runs");
  command.add_flag("--no-bandwidth", o.no_bandwidth, "Do not measure the read bandwidth, which reads many GiB: results are no share of it");
  add_output_options(command, o.output);
  command.add_flag("--progress", o.progress, "Report progress on stderr even when it is no terminal");
}

void add_bench(Command app) {
  const Command bench = app.add_subcommand("bench", "Measure speed against the machine's own memory bandwidth");
  bench.require_subcommand(false);
  for (const BenchKind& kind : kKinds) add_kind(bench, kind);
  add_bench_bandwidth(bench);
  add_bench_compare(bench);
  add_bench_suites(bench);
}

}  // namespace fp4pa::tool
