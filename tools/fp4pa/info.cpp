// `fp4pa info`: what this build holds, what this machine can run, and what each KV format costs.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/cpu_identity.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/info_kernels.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/paged_cache.hpp"
#include "tools/fp4pa/table.hpp"

namespace fp4pa::tool {
namespace {

struct InfoOptions {
  bool json = false;
  int head_dim = 128;
  bool kernels = false;
};

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> found(static_cast<std::size_t>(available_backends(nullptr, 0)));
  const auto count = available_backends(found.data(), static_cast<std::int32_t>(found.size()));
  found.resize(static_cast<std::size_t>(count));
  return found;
}

struct FormatCost {
  const char* name;
  std::int64_t data_bytes;
  std::int64_t scale_bytes;
  double bits_per_element;
  double ratio_to_bf16;
};

FormatCost cost_of(KvFormat format, int head_dim) {
  const auto data = kv_data_bytes(format, head_dim);
  const auto scales = kv_scale_bytes(format, VScaleAxis::kHeadDim, head_dim);
  const auto bytes = static_cast<double>(data + scales);
  return {name_of(format), data, scales, 8.0 * bytes / head_dim, bytes / (2.0 * head_dim)};
}

void print_as_json(const InfoOptions& options) {
  nlohmann::ordered_json document;
  document["version"] = version_string();
  document["abi_version"] = abi_version();
  document["header_abi_version"] = FP4PA_ABI_VERSION;
  document["cpu"] = {{"model", cpu_model()}, {"threads", std::thread::hardware_concurrency()}};
  document["backends"] = nlohmann::ordered_json::array();
  for (const BackendInfo& backend : backends()) {
    document["backends"].push_back(
        {{"name", backend.name}, {"available", backend.available}, {"detail", backend.detail}});
  }
  document["formats"] = nlohmann::ordered_json::array();
  for (const KvFormat format : kAllFormats) {
    const FormatCost cost = cost_of(format, options.head_dim);
    document["formats"].push_back({{"name", cost.name},
                                   {"head_dim", options.head_dim},
                                   {"data_bytes", cost.data_bytes},
                                   {"scale_bytes", cost.scale_bytes},
                                   {"bits_per_element", cost.bits_per_element},
                                   {"ratio_to_bf16", cost.ratio_to_bf16}});
  }
  print_json(document);
}

void print_as_text(const InfoOptions& options) {
  fmt::print("libfp4pa {}, ABI {} (headers: {})\n", version_string(), abi_version(), FP4PA_ABI_VERSION);
  fmt::print("CPU: {}, {} threads\n\n", cpu_model(), std::thread::hardware_concurrency());
  Table table({"back end", "available", "uses"});
  for (const BackendInfo& backend : backends()) {
    table.add({backend.name, backend.available ? "yes" : "no", backend.detail});
  }
  table.print(stdout);
  fmt::print("\nKV formats, for one token's K (or V) of one head of {}:\n", options.head_dim);
  Table formats({"format", "codes", "scales", "bits/element", "of bf16"});
  for (const KvFormat format : kAllFormats) {
    const FormatCost cost = cost_of(format, options.head_dim);
    formats.add({cost.name, fmt::format("{} B", cost.data_bytes), fmt::format("{} B", cost.scale_bytes),
                 fmt::format("{:.4g}", cost.bits_per_element), fmt::format("{:.1f} %", 100.0 * cost.ratio_to_bf16)});
  }
  formats.print(stdout);
}

}  // namespace

void add_info(Command app) {
  auto options = std::make_shared<InfoOptions>();
  const Command command = app.add_subcommand("info", "The build, its back ends, this machine and the KV formats");
  command.add_flag("--json", options->json, "Print JSON");
  command.add_option("--head-dim", options->head_dim, "Head size that the formats' costs are for").capture_default_str();
  command.add_flag("--kernels", options->kernels, "The GPU kernels' machine code instead: registers, spills, inner loops");
  command.callback([options] {
    if (options->kernels) return print_kernels(options->json);
    check_head_dim(options->head_dim);  // costs only for what every call takes
    options->json ? print_as_json(*options) : print_as_text(*options);
  });
}

}  // namespace fp4pa::tool
