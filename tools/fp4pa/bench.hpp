// What the benchmarks share: what one is, how a time is taken, and how results are kept, shown and written.
//
// A result is a named measurement under a configuration (a flat JSON object, which is also what `bench compare` matches
// on), the spread of its times, and the bytes that it could not have avoided moving. Everything else follows.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/fp4pa/command_line.hpp"
#include "tools/fp4pa/device.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/progress.hpp"

namespace fp4pa::tool {

/// Times in seconds over the repeats of one measurement.
struct Spread {
  double min = 0.0, p10 = 0.0, median = 0.0, p90 = 0.0;
  int repeats = 0;
};
/// Sorts the samples; percentiles are the nearest sample.
[[nodiscard]] Spread spread_of(std::vector<double> samples);
/// Of one of `calls` calls that were timed together.
[[nodiscard]] Spread per_call(Spread together, double calls);

/// Where results go besides the tables on stdout: a file each, "" for nowhere, or "-" for stdout in place of the tables.
struct BenchOutput {
  std::string json, csv;
  std::vector<Option> options;
};
void add_output_options(Command command, BenchOutput& output);
/// Files have names. JSON and CSV cannot both go to stdout, nor to one file.
void check_output(const BenchOutput& output);
void write_files(const BenchOutput& output, const nlohmann::ordered_json& document, const std::string& csv);
/// Whether one of them goes to stdout; prints it there.
[[nodiscard]] bool print_results(const BenchOutput& output, const nlohmann::ordered_json& document, const std::string& csv);

/// Options that every benchmark has.
struct BenchOptions {
  std::string backend, threads = "1";
  BenchOutput output;
  int repeats = 15, warmup = 2;
  bool warm_caches = false, no_bandwidth = false, progress = false;
  /// Of the library's calls; null for its default.
  [[nodiscard]] const char* backend_name() const { return backend.empty() ? nullptr : backend.c_str(); }
};
void add_bench_options(Command command, BenchOptions& options);

/// Runs `work` warmup + repeats times, the caches evicted before each unless the options say otherwise.
[[nodiscard]] Spread measure(Device& device, const BenchOptions& options, const std::function<void()>& work);

struct BenchResult {
  std::string bench;              ///< "decode", "append", ...
  nlohmann::ordered_json config;  ///< flat; "threads" among it where the device has a number of them
  Spread time;
  double bytes = 0.0;              ///< that must be read (or moved, as the benchmark says)
  nlohmann::ordered_json figures;  ///< what else the benchmark reports; flat
};

/// The library counts a batch's rows in 32 bits.
void check_rows(int batch, int rows_each);

/// Something that was asked for and has no result.
struct BenchSkip {
  std::string label, why;
  bool failed = false;  ///< it went wrong, as against cannot be measured on this device
};

class BenchReport {
 public:
  BenchReport(Device& device, const BenchOptions& options, std::string suite = "")
      : device_(device), options_(options), suite_(std::move(suite)) {}
  [[nodiscard]] Device& device() const noexcept { return device_; }
  [[nodiscard]] const BenchOptions& options() const noexcept { return options_; }
  /// Measures the read bandwidth with this many threads, once.
  const Bandwidth& bandwidth(int threads);
  void add(BenchResult result) { results_.push_back(std::move(result)); }
  void add(BenchSkip skip) { skipped_.push_back(std::move(skip)); }
  [[nodiscard]] const std::vector<BenchResult>& results() const noexcept { return results_; }
  [[nodiscard]] const std::vector<BenchSkip>& skipped() const noexcept { return skipped_; }
  [[nodiscard]] double gbs(const BenchResult& r) const { return r.bytes / r.time.median * 1e-9; }
  /// Of the measured read bandwidth with the result's threads; NaN where none was measured.
  [[nodiscard]] double share(const BenchResult& r) const;
  /// Writes the files asked for. May be called again when there are more results.
  void write_files() const;
  /// write_files(), and prints a table of each benchmark: what all its rows share above it, what differs as columns.
  void finish() const;

 private:
  [[nodiscard]] nlohmann::ordered_json document() const;
  void print_tables() const;
  Device& device_;
  const BenchOptions& options_;
  std::string suite_;
  std::map<int, Bandwidth> bandwidth_;
  std::vector<BenchResult> results_;
  std::vector<BenchSkip> skipped_;
};

/// Rows of results as CSV: the columns are what any of them has, in the order in which they appear; a row that lacks one
/// leaves it empty.
[[nodiscard]] std::string csv_of(const nlohmann::ordered_json& document);
[[nodiscard]] std::string csv_of(const std::vector<std::string>& columns, const std::vector<nlohmann::ordered_json>& rows);

/// One measurement to come.
struct BenchStep {
  std::string label;  ///< says everything that tells it from the others of its benchmark
  std::function<void(BenchReport&)> work;
};

/// A kind of benchmark: axes as options, and a step for each of their combinations.
class Benchmark {
 public:
  Benchmark() = default;
  Benchmark(const Benchmark&) = delete;
  Benchmark& operator=(const Benchmark&) = delete;
  virtual ~Benchmark() = default;
  virtual void add_options(Command command) = 0;
  /// All that its --format takes, as names_of lists them.
  [[nodiscard]] virtual std::string formats() const { return format_names(); }
  /// All combinations, once the options have been parsed. Steps may refer to the benchmark.
  /// @param threads  those to measure with
  /// @throws Failure for an axis that makes no sense, before anything is measured
  [[nodiscard]] virtual std::vector<BenchStep> steps(const std::vector<int>& threads) = 0;
};

struct BenchKind {
  const char* name;
  const char* help;
  std::unique_ptr<Benchmark> (*make)();
};
/// Everything that is a subcommand with axes and can stand in a suite.
[[nodiscard]] std::span<const BenchKind> bench_kinds();
std::unique_ptr<Benchmark> make_bench_decode();
std::unique_ptr<Benchmark> make_bench_prefill();
std::unique_ptr<Benchmark> make_bench_graph();
std::unique_ptr<Benchmark> make_bench_append();
std::unique_ptr<Benchmark> make_bench_two_tier();
std::unique_ptr<Benchmark> make_bench_copy();
std::unique_ptr<Benchmark> make_bench_merge();
std::unique_ptr<Benchmark> make_bench_quantize();
std::unique_ptr<Benchmark> make_bench_gemm();
std::unique_ptr<Benchmark> make_bench_dense();
std::unique_ptr<Benchmark> make_bench_mxfp8();

/// What a suite or a subcommand measures.
struct BenchPlan {
  std::vector<std::unique_ptr<Benchmark>> benchmarks;  // that the steps refer to
  std::vector<BenchStep> steps;
};
/// Measures all of it; steps with one label once. A step that fails is noted, and the others follow; the first failure is
/// thrown at the end, when everything has been written.
void run_bench(const BenchOptions& options, const std::function<BenchPlan(const std::vector<int>& threads)>& plan,
               const std::string& suite);

void add_bench_bandwidth(Command bench);
void add_bench_compare(Command bench);

}  // namespace fp4pa::tool
