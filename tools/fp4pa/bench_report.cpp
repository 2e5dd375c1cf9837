// The table, JSON and CSV of a benchmark's results.
#include <fmt/format.h>

#include <fstream>
#include <thread>

#include "fp4pa/backends.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/table.hpp"

namespace fp4pa::tool {
namespace {

std::string cell(const nlohmann::ordered_json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "-";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number_float()) return fmt::format("{:.3g}", found->get<double>());
  return found->dump();
}

}  // namespace

const Bandwidth& BenchReport::bandwidth(int threads) {
  const auto found = bandwidth_.find(threads);
  if (found != bandwidth_.end()) return found->second;
  return bandwidth_.emplace(threads, device_.read_bandwidth(threads, std::max(5, options_.repeats))).first->second;
}

double BenchReport::share(const BenchResult& r) const {
  return gbs(r) / bandwidth_.at(r.config.at("threads").get<int>()).best_gbs;
}

nlohmann::ordered_json BenchReport::document() const {
  nlohmann::ordered_json out;
  out["tool"] = "fp4pa bench";
  out["version"] = version_string();
  out["device"] = device_.name();
  out["hardware_threads"] = std::thread::hardware_concurrency();
  out["caches"] = options_.warm_caches ? "warm" : "evicted before each run";
  out["read_bandwidth"] = nlohmann::ordered_json::array();
  for (const auto& [threads, b] : bandwidth_) {
    out["read_bandwidth"].push_back({{"threads", threads},
                                     {"best_gbs", b.best_gbs},
                                     {"median_gbs", b.median_gbs},
                                     {"buffer_bytes", b.buffer_bytes}});
  }
  out["results"] = nlohmann::ordered_json::array();
  for (const BenchResult& r : results_) {
    nlohmann::ordered_json one{{"bench", r.bench}, {"config", r.config}};
    one["ms"] = {{"median", 1e3 * r.time.median},
                 {"min", 1e3 * r.time.min},
                 {"p10", 1e3 * r.time.p10},
                 {"p90", 1e3 * r.time.p90},
                 {"repeats", r.time.repeats}};
    one["bytes"] = r.bytes;
    one["gbs"] = gbs(r);
    one["bandwidth_share"] = share(r);
    one.update(r.figures);
    out["results"].push_back(std::move(one));
  }
  return out;
}

void BenchReport::write_csv() const {
  std::ofstream out(options_.csv);
  std::string header = "bench";
  for (const auto& [key, value] : results_.front().config.items()) header += "," + key;
  header += ",ms_median,ms_min,ms_p10,ms_p90,bytes,gbs,bandwidth_share";
  for (const auto& [key, value] : results_.front().figures.items()) header += "," + key;
  out << header << '\n';
  for (const BenchResult& r : results_) {
    out << r.bench;
    for (const auto& [key, value] : r.config.items())
      out << ',' << (value.is_string() ? value.get<std::string>() : value.dump());
    out << fmt::format(",{},{},{},{},{},{},{}", 1e3 * r.time.median, 1e3 * r.time.min, 1e3 * r.time.p10,
                       1e3 * r.time.p90, r.bytes, gbs(r), share(r));
    for (const auto& [key, value] : r.figures.items()) out << ',' << (value.is_null() ? "" : value.dump());
    out << '\n';
  }
  out.close();
  if (!out) throw Failure(Exit::kInputFile, options_.csv + ": cannot write");
}

void BenchReport::finish(const std::vector<std::string>& config_columns,
                         const std::vector<std::string>& figure_columns) const {
  if (!options_.json.empty() && options_.json != "-") write_json(options_.json, document());
  if (!options_.csv.empty()) write_csv();
  if (options_.json == "-") return print_json(document());

  fmt::print("{}\n", device_.name());
  for (const auto& [threads, b] : bandwidth_) {
    fmt::print("read bandwidth, {} thread{}: best {:.1f} GB/s, median {:.1f} (buffer {} MiB)\n", threads,
               threads == 1 ? "" : "s", b.best_gbs, b.median_gbs, b.buffer_bytes >> 20);
  }
  fmt::print("caches {}\n\n", options_.warm_caches ? "warm" : "evicted before each run");
  std::vector<std::string> header = config_columns;
  for (const char* name : {"ms", "min", "p10", "p90", "GB/s", "of bandwidth"}) header.emplace_back(name);
  header.insert(header.end(), figure_columns.begin(), figure_columns.end());
  Table table(header);
  for (const BenchResult& r : results_) {
    std::vector<std::string> row;
    for (const std::string& column : config_columns) row.push_back(cell(r.config, column));
    for (const double t : {r.time.median, r.time.min, r.time.p10, r.time.p90})
      row.push_back(fmt::format("{:.3f}", 1e3 * t));
    row.push_back(fmt::format("{:.2f}", gbs(r)));
    row.push_back(fmt::format("{:.1f} %", 100.0 * share(r)));
    for (const std::string& column : figure_columns) row.push_back(cell(r.figures, column));
    table.add(std::move(row));
  }
  table.print(stdout);
}

}  // namespace fp4pa::tool
