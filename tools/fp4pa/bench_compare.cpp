// `fp4pa bench compare`: two result files, matched by benchmark and configuration.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <optional>

#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/bench_suite.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/table.hpp"

namespace fp4pa::tool {
namespace {

using Json = nlohmann::json;  // sorts a configuration's entries, whose order means nothing

struct CompareOptions {
  std::string before, after;
  std::optional<double> fail_above;
  bool json = false;
};

/// A result: "decode backend=cpu format=mxfp4 ..." as `key`, and the same without the back end, which stands beside it.
struct Measured {
  std::string key, without_backend, backend;
  double median = 0.0;
};

/// What a file says of all its results.
struct Results {
  std::string device, caches;
  std::vector<Measured> medians;
  std::vector<std::string> failed;  ///< steps that went wrong, by label, with the reason
};

/// A result's configuration has its values at a depth of 4.
constexpr int kMostDepth = 16;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Failure(Exit::kInputFile, path + ": not a result file of `fp4pa bench --json`: " + why);
}

/// The entry of an object, which must be of this type.
const Json& entry(const std::string& path, const std::string& where, const Json& object, const char* key,
                  bool (Json::*is_type)() const noexcept, const char* type) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(path, fmt::format("{} has no '{}'", where, key));
  if (!((*found).*is_type)()) refuse(path, fmt::format("'{}' of {} is not {}", key, where, type));
  return *found;
}

/// A row of the files that a program of its own wrote for products on GPUs before `bench gemm` had graphs
/// (perf/results/h200-gemm-*.json), and its peers' rows, in today's names; any other row as it is.
Json in_todays_names(Json row) {
  const auto has_texts = [&](std::initializer_list<const char*> keys) {
    return std::all_of(keys.begin(), keys.end(), [&](const char* key) { return row.contains(key) && row[key].is_string(); });
  };
  if (!row.is_object() || row.contains("bench") || !row.contains("us") || !row["us"].is_number()) return row;
  Json config;
  if (has_texts({"format", "form", "x", "shape"})) {
    config = {{"format", row["format"]}, {"activations", row["form"]}, {"dtype", row["x"]}, {"scale_layout", "linear"}};
  } else if (has_texts({"peer", "dtype", "shape"})) {
    config = {{"format", row["dtype"]}, {"dtype", row["dtype"]}, {"backend", row["peer"]}};
  } else {
    return row;
  }
  config["shape"] = row["shape"];
  return {{"bench", "gemm"}, {"config", std::move(config)}, {"ms", {{"median", 1e-3 * row["us"].get<double>()}}}};
}

std::string text_or_unknown(const Json& document, const char* key) {
  const auto found = document.find(key);
  return found != document.end() && found->is_string() ? found->get<std::string>() : "unknown";
}

/// Copies and texts of a document are made by recursion: it must not nest without end.
Json parse(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw Failure(Exit::kInputFile, path + ": is a folder, not a file");
  std::ifstream in(path);
  if (!in) throw Failure(Exit::kInputFile, path + ": cannot open");
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostDepth) refuse(path, fmt::format("it nests deeper than {} levels", kMostDepth));
    return true;
  };
  return Json::parse(in, watch, false);
}

std::string config_value(const std::string& path, const std::string& where, const std::string& name, const Json& value) {
  if (value.is_structured()) {
    refuse(path, fmt::format("'{}' in 'config' of {} is an {}; allowed: texts, numbers, booleans and null", name, where,
                             value.type_name()));
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Rows that were asked for and went wrong stand apart from the results.
std::vector<std::string> failed_steps(const Json& document) {
  std::vector<std::string> failed;
  const auto skipped = document.find("skipped");
  if (skipped == document.end() || !skipped->is_array()) return failed;
  for (const Json& step : *skipped) {
    const auto has = [&](const char* key, bool (Json::*is_type)() const noexcept) {
      return step.is_object() && step.contains(key) && (step[key].*is_type)();
    };
    if (!has("failed", &Json::is_boolean) || !step["failed"].get<bool>()) continue;
    if (has("what", &Json::is_string) && has("why", &Json::is_string)) {
      failed.push_back(step["what"].get<std::string>() + ": " + step["why"].get<std::string>());
    }
  }
  return failed;
}

Measured measured(const std::string& path, const std::string& where, const Json& result) {
  Measured m;
  m.key = m.without_backend = entry(path, where, result, "bench", &Json::is_string, "a text").get<std::string>();
  for (const auto& [name, value] : entry(path, where, result, "config", &Json::is_object, "an object").items()) {
    const std::string text = config_value(path, where, name, value), part = " " + name + "=" + text;
    m.key += part;
    if (name == "backend") {
      m.backend = text;
    } else {
      m.without_backend += part;
    }
  }
  const Json& ms = entry(path, where, result, "ms", &Json::is_object, "an object");
  m.median = entry(path, "'ms' of " + where, ms, "median", &Json::is_number, "a number").get<double>();
  if (!(m.median > 0.0)) {
    throw Failure(Exit::kInputFile, fmt::format("{}: median {} ms of '{}' is not positive", path, m.median, m.key));
  }
  return m;
}

Results load(const std::string& path) {
  const Json document = parse(path);
  if (!document.is_object()) refuse(path, document.is_discarded() ? "it is no JSON" : "it is no JSON object");
  Results loaded{text_or_unknown(document, "device"), text_or_unknown(document, "caches"), {}, failed_steps(document)};
  for (const Json& row : entry(path, "the file", document, "results", &Json::is_array, "a list")) {
    const Json result = in_todays_names(row);
    const std::string where = fmt::format("result {}", loaded.medians.size() + 1);
    loaded.medians.push_back(measured(path, where, result));
  }
  return loaded;
}

/// For each result before, the one after of the same configuration, or null; a configuration that stands twice is matched with two.
/// Older records of some benchmarks name no back end: what equals them but for that is taken for theirs, where nothing equals them fully.
std::vector<const Measured*> matches(const Results& before, const Results& after) {
  std::vector<const Measured*> found(before.medians.size());
  std::vector<bool> used(after.medians.size());
  const auto match_where = [&](const auto& equal) {
    for (std::size_t b = 0; b < found.size(); ++b) {
      for (std::size_t a = 0; a < used.size() && found[b] == nullptr; ++a) {
        if (used[a] || !equal(before.medians[b], after.medians[a])) continue;
        used[a] = true;
        found[b] = &after.medians[a];
      }
    }
  };
  match_where([](const Measured& b, const Measured& a) { return a.key == b.key; });
  match_where([](const Measured& b, const Measured& a) {
    return (a.backend.empty() || b.backend.empty()) && a.without_backend == b.without_backend;
  });
  return found;
}

/// Times of different devices, or of warm and of cold caches, are compared if that is wanted, but not without a word.
void warn_if_different(const char* what, const std::string& before, const std::string& after) {
  if (before != after) fmt::print(stderr, "fp4pa: warning: the files' {} differ: {}; {}\n", what, before, after);
}

void compare(const CompareOptions& o) {
  if (o.fail_above && !(std::isfinite(*o.fail_above) && *o.fail_above > 0.0)) {
    throw Failure(Exit::kUsage, fmt::format("--fail-above: {}; allowed: finite numbers above 0", *o.fail_above));
  }
  const Results before = load(o.before), after = load(o.after);
  nlohmann::ordered_json document{{"before", o.before},
                                  {"after", o.after},
                                  {"device", {{"before", before.device}, {"after", after.device}}},
                                  {"caches", {{"before", before.caches}, {"after", after.caches}}},
                                  {"results", nlohmann::ordered_json::array()}};
  Table table({"configuration", "before ms", "after ms", "after/before"});
  double worst = 0.0;
  std::string slowest;
  std::vector<std::string> missing;
  const std::vector<const Measured*> found = matches(before, after);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string& key = before.medians[i].key;
    if (found[i] == nullptr) {
      missing.push_back(key);
      continue;
    }
    const double old_ms = before.medians[i].median, new_ms = found[i]->median, ratio = new_ms / old_ms;
    if (ratio > worst) {
      worst = ratio;
      slowest = key;
    }
    table.add({key, fmt::format("{:.4f}", old_ms), fmt::format("{:.4f}", new_ms), fmt::format("{:.3f}", ratio)});
    document["results"].push_back({{"configuration", key}, {"before_ms", old_ms}, {"after_ms", new_ms}, {"ratio", ratio}});
  }
  const std::size_t matched = before.medians.size() - missing.size();
  if (matched == 0) throw Failure(Exit::kInputFile, "the two files have no configuration in common");
  const std::size_t only_after = after.medians.size() - matched;
  document["unmatched"] = {{"before", missing.size()}, {"after", only_after}};
  document["missing"] = missing;
  document["failed"] = after.failed;
  warn_if_different("devices", before.device, after.device);
  warn_if_different("caches", before.caches, after.caches);
  if (o.json) {
    print_json(document);
  } else {
    fmt::print("before: {}, caches {}\nafter:  {}, caches {}\n\n", before.device, before.caches, after.device, after.caches);
    table.print(stdout);
    if (!missing.empty() || only_after != 0) {
      fmt::print("\n{} configurations only before, {} only after\n", missing.size(), only_after);
    }
    for (const std::string& key : missing) fmt::print("missing after: {}\n", key);
    for (const std::string& step : after.failed) fmt::print("FAILED after: {}\n", step);
  }
  if (!o.fail_above) return;
  if (worst > *o.fail_above) {
    throw Failure(Exit::kOutsideContract,
                  fmt::format("{}: slower by a factor of {:.3f}; allowed {:.3f}", slowest, worst, *o.fail_above));
  }
  if (!missing.empty()) {
    throw Failure(Exit::kOutsideContract, fmt::format("{}: missing after; {} of {} configurations are", missing.front(),
                                                      missing.size(), before.medians.size()));
  }
}

}  // namespace

void add_bench_compare(Command bench) {
  auto o = std::make_shared<CompareOptions>();
  const Command command = bench.add_subcommand("compare", "Compare two result files");
  command.add_option("before", o->before, "Result file (JSON)").required();
  command.add_option("after", o->after, "Result file (JSON)").required();
  command.add_option("--fail-above", o->fail_above,
                      "Exit 1 when any median grew by more than this factor, or a configuration is missing after");
  command.add_flag("--json", o->json, "Print JSON");
  command.callback([o, bench] {
    refuse_suite_options(bench);
    compare(*o);
  });
}

}  // namespace fp4pa::tool
