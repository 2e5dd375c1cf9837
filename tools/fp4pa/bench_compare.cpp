// `fp4pa bench compare`: two result files, matched by benchmark and configuration.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "tools/fp4pa/bench.hpp"
#include "tools/fp4pa/bench_suite.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/table.hpp"

namespace fp4pa::tool {
namespace {

struct CompareOptions {
  std::string before, after;
  double fail_above = 0.0;
  bool json = false;
};

using Medians = std::vector<std::pair<std::string, double>>;

/// "decode format=mxfp4 page_size=64 ..." and the median of each result.
Medians load(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Failure(Exit::kInputFile, path + ": cannot open");
  Medians medians;
  try {
    const nlohmann::json document = nlohmann::json::parse(in);  // sorts a configuration's entries, whose order means nothing
    for (const auto& result : document.at("results")) {
      std::string key = result.at("bench").get<std::string>();
      for (const auto& [name, value] : result.at("config").items()) {
        key += " " + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
      }
      const double median = result.at("ms").at("median").get<double>();
      if (!(median > 0.0))
        throw Failure(Exit::kInputFile, fmt::format("{}: median {} ms of '{}' is not positive", path, median, key));
      medians.emplace_back(key, median);
    }
  } catch (const nlohmann::json::exception& e) {
    throw Failure(Exit::kInputFile, path + ": not a result file of `fp4pa bench --json`: " + e.what());
  }
  return medians;
}

void compare(const CompareOptions& o) {
  const Medians before = load(o.before), after = load(o.after);
  nlohmann::ordered_json document{{"before", o.before}, {"after", o.after}, {"results", nlohmann::ordered_json::array()}};
  Table table({"configuration", "before ms", "after ms", "after/before"});
  double worst = 0.0;
  std::size_t matched = 0;
  for (const auto& [key, old_ms] : before) {
    for (const auto& [other, new_ms] : after) {
      if (other != key) continue;
      ++matched;
      worst = std::max(worst, new_ms / old_ms);
      table.add({key, fmt::format("{:.3f}", old_ms), fmt::format("{:.3f}", new_ms), fmt::format("{:.3f}", new_ms / old_ms)});
      document["results"].push_back(
          {{"configuration", key}, {"before_ms", old_ms}, {"after_ms", new_ms}, {"ratio", new_ms / old_ms}});
      break;
    }
  }
  if (matched == 0) throw Failure(Exit::kInputFile, "the two files have no configuration in common");
  document["unmatched"] = {{"before", before.size() - matched}, {"after", after.size() - matched}};
  if (o.json) {
    print_json(document);
  } else {
    table.print(stdout);
    if (before.size() != matched || after.size() != matched) {
      fmt::print("\n{} configurations only before, {} only after\n", before.size() - matched, after.size() - matched);
    }
  }
  if (o.fail_above > 0.0 && worst > o.fail_above) {
    throw Failure(Exit::kOutsideContract, fmt::format("slower by a factor of {:.3f}; allowed {:.3f}", worst, o.fail_above));
  }
}

}  // namespace

void add_bench_compare(CLI::App& bench) {
  auto o = std::make_shared<CompareOptions>();
  CLI::App* command = bench.add_subcommand("compare", "Compare two result files");
  command->add_option("before", o->before, "Result file (JSON)")->required();
  command->add_option("after", o->after, "Result file (JSON)")->required();
  command->add_option("--fail-above", o->fail_above, "Exit 1 when any median grew by more than this factor");
  command->add_flag("--json", o->json, "Print JSON");
  command->callback([o, &bench] {
    refuse_suite_options(bench);
    compare(*o);
  });
}

}  // namespace fp4pa::tool
