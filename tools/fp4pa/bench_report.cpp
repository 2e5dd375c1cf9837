// The tables, JSON and CSV of benchmarks' results.
#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>
#include <thread>

#include "fp4pa/backends.hpp"
#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/table.hpp"

namespace fp4pa::tool {
namespace {

using Json = nlohmann::ordered_json;

std::string cell(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "-";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number_float()) return fmt::format("{:.3g}", found->get<double>());
  return found->dump();
}

int threads_of(const BenchResult& r) { return r.config.value("threads", 1); }

/// A configuration without what a bf16 cache has not.
Json without_format(const Json& config) {
  Json rest = config;
  for (const char* key : {"format", "v_scale_axis"}) rest.erase(key);
  return rest;
}

/// The bf16 result that differs in its format alone, or null.
const BenchResult* bf16_sibling(const std::vector<BenchResult>& results, const BenchResult& r) {
  if (!r.config.contains("format")) return nullptr;
  const Json rest = without_format(r.config);
  for (const BenchResult& other : results) {
    if (other.bench == r.bench && other.config.value("format", "") == "bf16" && without_format(other.config) == rest)
      return &other;
  }
  return nullptr;
}

/// What else a result reports, the speed against bf16 among it where that was measured.
Json figures_of(const std::vector<BenchResult>& results, const BenchResult& r) {
  Json figures = r.figures;
  if (const BenchResult* base = bf16_sibling(results, r)) figures["vs_bf16"] = base->time.median / r.time.median;
  return figures;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

/// Appends the keys of `object` that are not there yet.
void collect_keys(const Json& object, std::vector<std::string>& keys) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  for (std::size_t i = 0; (i = text.find('"', i)) != std::string::npos; i += 2) text.insert(i, 1, '"');
  return '"' + text + '"';
}

}  // namespace

const Bandwidth& BenchReport::bandwidth(int threads) {
  const auto found = bandwidth_.find(threads);
  if (found != bandwidth_.end()) return found->second;
  return bandwidth_.emplace(threads, device_.read_bandwidth(threads, std::max(5, options_.repeats))).first->second;
}

double BenchReport::share(const BenchResult& r) const {
  const auto found = bandwidth_.find(threads_of(r));
  const double best = found == bandwidth_.end() ? 0.0 : found->second.best_gbs;
  return best > 0.0 ? gbs(r) / best : std::numeric_limits<double>::quiet_NaN();
}

Json BenchReport::document() const {
  Json out;
  out["tool"] = "fp4pa bench";
  out["version"] = version_string();
  if (!suite_.empty()) out["suite"] = suite_;
  out["date"] = today();
  out["device"] = device_.name();
  if (device_.has_threads()) out["hardware_threads"] = std::thread::hardware_concurrency();
  out["caches"] = options_.warm_caches ? "warm" : "evicted before each run";
  out["read_bandwidth"] = Json::array();
  for (const auto& [threads, b] : bandwidth_) {
    Json one{{"best_gbs", b.best_gbs}, {"median_gbs", b.median_gbs}, {"buffer_bytes", b.buffer_bytes}};
    if (device_.has_threads()) one["threads"] = threads;
    out["read_bandwidth"].push_back(std::move(one));
  }
  out["results"] = Json::array();
  for (const BenchResult& r : results_) {
    Json one{{"bench", r.bench}, {"config", r.config}};
    one["ms"] = {{"median", 1e3 * r.time.median},
                 {"min", 1e3 * r.time.min},
                 {"p10", 1e3 * r.time.p10},
                 {"p90", 1e3 * r.time.p90},
                 {"repeats", r.time.repeats}};
    one["bytes"] = r.bytes;
    one["gbs"] = gbs(r);
    one["bandwidth_share"] = std::isnan(share(r)) ? Json() : Json(share(r));
    one.update(figures_of(results_, r));
    out["results"].push_back(std::move(one));
  }
  if (!skipped_.empty()) out["skipped"] = Json::array();
  for (const BenchSkip& s : skipped_) out["skipped"].push_back({{"what", s.label}, {"why", s.why}, {"failed", s.failed}});
  return out;
}

std::string csv_of(const std::vector<std::string>& columns, const std::vector<Json>& rows) {
  std::string text;
  for (const std::string& column : columns) text += (text.empty() ? "" : ",") + column;
  for (const Json& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const auto found = row.find(columns[c]);
      line += (c == 0 ? "" : ",") + (found == row.end() ? std::string() : csv_cell(*found));
    }
    text += '\n' + line;
  }
  return text + '\n';
}

std::string csv_of(const Json& document) {
  std::vector<Json> rows;
  std::vector<std::string> columns;
  // Configurations first, so that a column that only later benchmarks have does not stand behind the measurements.
  for (const Json& result : document.at("results")) {
    Json row{{"bench", result.at("bench")}};
    row.update(result.at("config"));
    collect_keys(row, columns);
    rows.push_back(std::move(row));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& result = document.at("results").at(i);
    Json measured;
    for (const auto& [key, value] : result.at("ms").items()) measured["ms_" + key] = value;
    for (const auto& [key, value] : result.items()) {
      if (key != "bench" && key != "config" && key != "ms") measured[key] = value;
    }
    collect_keys(measured, columns);
    rows[i].update(measured);
  }
  return csv_of(columns, rows);
}

void add_output_options(Command command, BenchOutput& output) {
  const auto add = [&](const char* name, std::string& file, const char* help) {
    // The file is optional: what follows may be the next option.
    output.options.push_back(command.add_option(name, file, help).value_if_none("-", "[FILE]").check(output_file(true)));
  };
  add("--json", output.json,
      "Print the results as JSON in place of the tables; with a FILE, write them there (- is stdout; no other name begins with -)");
  add("--csv", output.csv, "The same as CSV");
}

void check_output(const BenchOutput& output) {
  for (const Option option : output.options) {  // CLI11 asks no check about an empty text where none is needed
    if (option.count() == 0 || !option.text().empty()) continue;
    throw Failure(Exit::kUsage, fmt::format("--{}: {}", option.long_names().front(), output_file(true).error("")));
  }
  if (output.json.empty() || output.csv.empty()) return;
  if (output.json == "-" && output.csv == "-") {
    throw Failure(Exit::kUsage, "--json and --csv both print to stdout; give one of them a file");
  }
  if (output.json == "-" || output.csv == "-") return;
  // "a" and "./a" are one file before there is one; a link and what it names are when there is.
  const auto full = [](const std::string& file) { return std::filesystem::absolute(file).lexically_normal(); };
  std::error_code ignored;
  if (full(output.json) != full(output.csv) && !std::filesystem::equivalent(output.json, output.csv, ignored)) return;
  throw Failure(Exit::kUsage, fmt::format("--json {} and --csv {} are the same file; give each one of its own", output.json, output.csv));
}

void write_files(const BenchOutput& output, const Json& document, const std::string& csv) {
  if (!output.json.empty() && output.json != "-") write_json(output.json, document);
  if (!output.csv.empty() && output.csv != "-") write_text(output.csv, csv);
}

bool print_results(const BenchOutput& output, const Json& document, const std::string& csv) {
  if (output.json == "-") print_json(document);
  if (output.csv == "-") fmt::print("{}", csv);
  return output.json == "-" || output.csv == "-";
}

void BenchReport::write_files() const {
  const Json all = document();
  tool::write_files(options_.output, all, csv_of(all));
}

void BenchReport::print_tables() const {
  std::vector<std::string> benches;
  for (const BenchResult& r : results_) {
    if (std::find(benches.begin(), benches.end(), r.bench) == benches.end()) benches.push_back(r.bench);
  }
  for (const std::string& bench : benches) {
    std::vector<const BenchResult*> rows;
    std::vector<Json> figures;
    std::vector<std::string> keys, figure_keys;
    for (const BenchResult& r : results_) {
      if (r.bench != bench) continue;
      rows.push_back(&r);
      figures.push_back(figures_of(results_, r));
      collect_keys(r.config, keys);
      collect_keys(figures.back(), figure_keys);
    }
    std::string shared;
    std::vector<std::string> header;
    for (const std::string& key : keys) {
      const std::string first = cell(rows.front()->config, key);
      const bool same =
          std::all_of(rows.begin(), rows.end(), [&](const BenchResult* r) { return cell(r->config, key) == first; });
      if (same && key != "format") {
        shared += " " + key + " " + first + ",";
      } else {
        header.push_back(key);
      }
    }
    if (!shared.empty()) shared.back() = '\n';
    fmt::print("\n{}:{}", bench, shared.empty() ? "\n" : shared);
    const std::size_t config_columns = header.size();
    for (const char* name : {"ms", "min", "p10", "p90", "GB/s", "of bandwidth"}) header.emplace_back(name);
    header.insert(header.end(), figure_keys.begin(), figure_keys.end());
    Table table(header);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const BenchResult& r = *rows[i];
      std::vector<std::string> row;
      for (std::size_t c = 0; c < config_columns; ++c) row.push_back(cell(r.config, header[c]));
      for (const double t : {r.time.median, r.time.min, r.time.p10, r.time.p90})
        row.push_back(fmt::format("{:.4f}", 1e3 * t));
      row.push_back(fmt::format("{:.2f}", gbs(r)));
      row.push_back(std::isnan(share(r)) ? "-" : fmt::format("{:.1f} %", 100.0 * share(r)));
      for (const std::string& key : figure_keys) row.push_back(cell(figures[i], key));
      table.add(std::move(row));
    }
    table.print(stdout);
  }
}

void BenchReport::finish() const {
  const Json all = document();
  tool::write_files(options_.output, all, csv_of(all));
  if (print_results(options_.output, all, csv_of(all))) return;

  fmt::print("{}\n", device_.name());
  for (const auto& [threads, b] : bandwidth_) {
    const std::string with = device_.has_threads() ? fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s") : "";
    fmt::print("read bandwidth{}: best {:.1f} GB/s, median {:.1f} (buffer {} MiB)\n", with, b.best_gbs, b.median_gbs,
               b.buffer_bytes >> 20);
  }
  fmt::print("caches {}\n", options_.warm_caches ? "warm" : "evicted before each run");
  print_tables();
  if (!skipped_.empty()) fmt::print("\nnot measured:\n");
  for (const BenchSkip& s : skipped_) fmt::print("{}{}: {}\n", s.failed ? "FAILED " : "", s.label, s.why);
}

}  // namespace fp4pa::tool
