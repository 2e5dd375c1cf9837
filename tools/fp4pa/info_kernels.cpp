#include "tools/fp4pa/info_kernels.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/table.hpp"

namespace fp4pa::tool {
namespace {

using nlohmann::ordered_json;

/// "48 HMMA.16816.F32, 4 HMMA.16816.F32.BF16"; a dash for none.
std::string counts(const ordered_json& of) {
  std::string text;
  for (const auto& [name, count] : of.items()) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count.dump(), name);
  return text.empty() ? "-" : text;
}

std::string number(const ordered_json& value) { return value.is_null() ? "-" : value.dump(); }

std::string shared_bytes(const ordered_json& row) {
  const auto fixed = row.at("static_shared").get<int>();
  const ordered_json& dynamic = row.at("dynamic_shared");
  return dynamic.is_null() ? fmt::format("{} +?", fixed) : fmt::format("{}", fixed + dynamic.get<int>());
}

}  // namespace

void print_kernels(bool json) {
  const ordered_json gates = ordered_json::parse(kIsaGates);
  if (json) return print_json(gates);
  fmt::print("The kernels' machine code as the gates of this version have it (perf/isa_gates.json).\n"
             "loop: instructions of the inner loop, rarely taken ways through it counted as well; others: of them per matrix\n"
             "instruction; shared B and warps (resident on a multiprocessor or compute unit): of the launch that a row is made for;\n"
             "+?: and dynamic shared memory, not counted.\n");
  for (const auto& [architecture, rows] : gates.items()) {
    Table table({architecture, "threads", "registers", "spills", "local B", "shared B", "warps", "loop", "others",
                 "matrix instructions of the inner loop", "its loads from global memory"});
    for (const auto& [name, row] : rows.items()) {
      table.add({name, number(row.value("launch_threads", row.at("threads"))), number(row.at("registers")), number(row.at("spill")),
                 number(row.at("local_bytes")), shared_bytes(row), number(row.at("occupancy_warps")),
                 number(row.at("loop_instructions")), number(row.at("others_per_matrix")), counts(row.at("matrix")),
                 counts(row.at("loop_loads"))});
    }
    fmt::print("\n");
    table.print(stdout);
    for (const auto& [name, row] : rows.items()) fmt::print("  {}: {}\n", name, row.at("reason").get<std::string>());
  }
}

}  // namespace fp4pa::tool
