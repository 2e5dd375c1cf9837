// What the benchmarks share: how a time is taken, and how results are kept, shown and written.
//
// A result is a named measurement under a configuration (a flat JSON object, which is also what `bench compare` matches
// on), the spread of its times, and the bytes that it could not have avoided moving. Everything else follows.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/fp4pa/device.hpp"
#include "tools/fp4pa/progress.hpp"

namespace fp4pa::tool {

/// Times in seconds over the repeats of one measurement.
struct Spread {
  double min = 0.0, p10 = 0.0, median = 0.0, p90 = 0.0;
  int repeats = 0;
};
/// Sorts the samples; percentiles are the nearest sample.
[[nodiscard]] Spread spread_of(std::vector<double> samples);

/// Options that every benchmark has.
struct BenchOptions {
  std::string backend, threads = "1", json, csv;
  int repeats = 15, warmup = 2;
  bool warm_caches = false, progress = false;
};
void add_bench_options(CLI::App& command, BenchOptions& options);

/// Runs `work` warmup + repeats times, the caches evicted before each unless the options say otherwise.
[[nodiscard]] Spread measure(Device& device, const BenchOptions& options, const std::function<void()>& work);

struct BenchResult {
  std::string bench;              ///< "decode", "append", ...
  nlohmann::ordered_json config;  ///< flat; "threads" among it
  Spread time;
  double bytes = 0.0;              ///< that must be read (or moved, as the benchmark says)
  nlohmann::ordered_json figures;  ///< what else the benchmark reports; flat
};

class BenchReport {
 public:
  BenchReport(Device& device, const BenchOptions& options) : device_(device), options_(options) {}
  /// Measures the read bandwidth with this many threads, once.
  const Bandwidth& bandwidth(int threads);
  void add(BenchResult result) { results_.push_back(std::move(result)); }
  [[nodiscard]] std::vector<BenchResult>& results() noexcept { return results_; }
  [[nodiscard]] double gbs(const BenchResult& r) const { return r.bytes / r.time.median * 1e-9; }
  /// Of the measured read bandwidth with the result's threads.
  [[nodiscard]] double share(const BenchResult& r) const;
  /// Prints the table, with the named entries of config and figures as columns, and writes the files asked for.
  void finish(const std::vector<std::string>& config_columns, const std::vector<std::string>& figure_columns) const;

 private:
  [[nodiscard]] nlohmann::ordered_json document() const;
  void write_csv() const;
  Device& device_;
  const BenchOptions& options_;
  std::map<int, Bandwidth> bandwidth_;
  std::vector<BenchResult> results_;
};

void add_bench_bandwidth(CLI::App& bench);
void add_bench_decode(CLI::App& bench);
void add_bench_prefill(CLI::App& bench);
void add_bench_append(CLI::App& bench);
void add_bench_quantize(CLI::App& bench);
void add_bench_gemm(CLI::App& bench);
void add_bench_compare(CLI::App& bench);
void add_bench_dense(CLI::App& bench);
void add_bench_mxfp8(CLI::App& bench);

}  // namespace fp4pa::tool
