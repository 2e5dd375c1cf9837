// `fp4pa bench bandwidth`: the read bandwidth that every other benchmark is a share of.
#include <fmt/format.h>

#include <memory>

#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/bench_suite.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/table.hpp"

namespace fp4pa::tool {
namespace {

struct BandwidthOptions {
  std::string backend, threads = "1,2";
  int repeats = 15;
  BenchOutput output;
};

void bandwidth(const BandwidthOptions& o) {
  check_output(o.output);
  std::vector<int> all_threads = split_integers(o.threads, "--threads", 1, kMostThreads);
  const auto device = make_device(o.backend);
  if (!device->has_threads()) all_threads = {1};
  nlohmann::ordered_json document{{"device", device->name()}, {"read_bandwidth", nlohmann::ordered_json::array()}};
  Table table({"threads", "best GB/s", "median GB/s", "buffer MiB"});
  for (const int threads : all_threads) {
    const Bandwidth b = device->read_bandwidth(threads, o.repeats);
    document["read_bandwidth"].push_back({{"threads", threads},
                                          {"best_gbs", b.best_gbs},
                                          {"median_gbs", b.median_gbs},
                                          {"buffer_bytes", b.buffer_bytes},
                                          {"repeats", o.repeats}});
    table.add({std::to_string(threads), fmt::format("{:.2f}", b.best_gbs), fmt::format("{:.2f}", b.median_gbs),
               std::to_string(b.buffer_bytes >> 20)});
  }
  const std::string csv = csv_of({"threads", "best_gbs", "median_gbs", "buffer_bytes", "repeats"},
                                 document["read_bandwidth"].get<std::vector<nlohmann::ordered_json>>());
  write_files(o.output, document, csv);
  if (print_results(o.output, document, csv)) return;
  fmt::print("{}\n", device->name());
  table.print(stdout);
}

}  // namespace

void add_bench_bandwidth(Command bench) {
  auto o = std::make_shared<BandwidthOptions>();
  const Command command = bench.add_subcommand("bandwidth", "Measured read bandwidth of the device's memory");
  command.add_option("--backend,--device", o->backend, "Back end by name; see `fp4pa info`");
  command.add_option("--threads", o->threads, "CPU threads, a list").capture_default_str();
  command.add_option("--repeats", o->repeats, "Runs").check(integer_from(1)).capture_default_str();
  add_output_options(command, o->output);
  command.callback([o, bench] {
    refuse_suite_options(bench);
    bandwidth(*o);
  });
}

}  // namespace fp4pa::tool
