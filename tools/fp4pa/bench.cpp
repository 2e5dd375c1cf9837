// `fp4pa bench`: its subcommands, the options they share, and how a time is taken.
#include "tools/fp4pa/bench.hpp"

#include <algorithm>
#include <cmath>

#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double fraction) {
    return samples[static_cast<std::size_t>(std::lround(fraction * static_cast<double>(samples.size() - 1)))];
  };
  return {samples.front(), at(0.1), at(0.5), at(0.9), static_cast<int>(samples.size())};
}

Spread measure(Device& device, const BenchOptions& options, const std::function<void()>& work) {
  std::vector<double> samples;
  for (int i = 0; i < options.warmup + options.repeats; ++i) {
    if (!options.warm_caches) device.evict_caches();
    const double seconds = device.seconds(work);
    if (i >= options.warmup) samples.push_back(seconds);
  }
  return spread_of(std::move(samples));
}

void add_bench_options(CLI::App& command, BenchOptions& o) {
  command.add_option("--backend,--device", o.backend, "Back end by name; see `fp4pa info`");
  command.add_option("--threads", o.threads, "CPU threads, a list: 1,2")->capture_default_str();
  command.add_option("--repeats", o.repeats, "Timed runs of each configuration")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--warmup", o.warmup, "Runs before them")->check(CLI::NonNegativeNumber)->capture_default_str();
  command.add_flag("--warm-caches", o.warm_caches, "Do not displace the caches between runs");
  command.add_option("--json", o.json, "Write the results to this file; - prints them instead of the table");
  command.add_option("--csv", o.csv, "Write the results to this file");
  command.add_flag("--progress", o.progress, "Report progress on stderr even when it is no terminal");
  command.footer(kExitCodeHelp);
}

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed against the machine's own memory bandwidth");
  bench->require_subcommand(1);
  add_bench_bandwidth(*bench);
  add_bench_decode(*bench);
  add_bench_prefill(*bench);
  add_bench_append(*bench);
  add_bench_quantize(*bench);
  add_bench_gemm(*bench);
  add_bench_compare(*bench);
  add_bench_dense(*bench);
  add_bench_mxfp8(*bench);
}

}  // namespace fp4pa::tool
