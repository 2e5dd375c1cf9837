// `fp4pa gemm`: a product of Gaussian matrices with the weight in FP4, beside the product of the unquantised ones.
#include "fp4pa/gemm.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <vector>

#include "core/formats/half.hpp"
#include "reference/gemm.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/device.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/product_error.hpp"
#include "tools/fp4pa/progress.hpp"
#include "weights/host_weight.hpp"

namespace fp4pa::tool {
namespace {

using weights::HostWeight;
using weights::load_weight;
using weights::save_weight;

constexpr ActivationForm kAllForms[] = {ActivationForm::k16Bit, ActivationForm::kFp4};
constexpr std::int64_t kMostRows = 0x7fffffff, kMostColumns = (std::int64_t{1} << 31) - 128;  // that fp4_linear takes
constexpr double kMostProducts = 4e9;  // of the double reference, a few seconds

struct GemmOptions {
  std::int64_t m = 16, n = 1024, k = 1024;
  std::string format = "nvfp4", activations = "a16", scale_layout = "linear", scale_mode = "floor", backend, file, weight = "weight", save;
  bool four_over_six = false, json = false, progress = false;
  int threads = 0;
  unsigned seed = 1;
};

/// x in bf16, and as doubles.
struct Activations {
  std::vector<std::uint16_t> bits;
  reference::Matrix values;
};

Activations gaussian(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Activations a{{}, {rows, cols, {}}};
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    a.bits.push_back(core::f32_to_bf16(normal(random)));
    a.values.at.push_back(core::bf16_to_f32(a.bits.back()));
  }
  return a;
}

/// A weight in a device's memory.
struct DeviceWeight {
  DeviceWeight(Device& device, const HostWeight& h)
      : codes(uploaded(device, h.codes)), scales(uploaded(device, h.scales)), global_scales(uploaded(device, h.global_scales)), view(h.shape) {
    view.codes = codes.data();
    view.scales = scales.data();
    view.global_scale_ptr = h.global_scales.empty() ? nullptr : global_scales.as<float>();
  }
  Buffer codes, scales, global_scales;
  Fp4Weight view;
};

QuantizeConfig quantize_config(const GemmOptions& o) {
  QuantizeConfig config;
  config.format = parse_name<BlockFormat>(o.format, kWeightFormats, "format");
  config.scale_layout = parse_scale_layout(o.scale_layout);
  config.scale_mode = parse_name<ScaleMode>(o.scale_mode, kAllScaleModes, "scale mode");
  config.nvfp4_scale = o.four_over_six ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
  return config;
}

HostWeight quantised(Device& device, const GemmOptions& o, const QuantizeConfig& config, const Activations& w, const ExecDesc& exec) {
  const bool has_global = config.format == BlockFormat::kNvfp4;
  const Buffer values = uploaded(device, w.bits);
  const Buffer codes = device.allocate(fp4_weight_code_bytes(config.format, o.n, o.k));
  const Buffer scales = device.allocate(fp4_weight_scale_bytes(config.format, config.scale_layout, o.n, o.k));
  const Buffer global_scales = device.allocate(has_global ? sizeof(float) : 0);
  HostWeight h;
  check(fp4_quantize_weight(config, values.data(), DType::kBF16, o.n, o.k, 1, codes.data(), scales.data(),
                            has_global ? global_scales.as<float>() : nullptr, &h.shape, exec),
        "fp4_quantize_weight");
  h.codes = downloaded<std::byte>(device, codes);
  h.scales = downloaded<std::byte>(device, scales);
  h.global_scales = downloaded<float>(device, global_scales);
  h.shape.codes = h.shape.scales = nullptr;
  h.shape.global_scale_ptr = nullptr;
  return h;
}

/// What was typed of a weight that a file already says.
void check_against_file(Command command, const GemmOptions& o, const Fp4Weight& weight) {
  const auto check_one = [&](const char* option, const std::string& typed, const char* whose, const std::string& is) {
    refuse_contradiction(command, option, typed, whose, is);
  };
  check_one("--format", o.format, "the file's weight", name_of(weight.format));
  check_one("--scale-layout", name_of(parse_scale_layout(o.scale_layout)), "the layout of the file's scales",
            name_of(weight.scale_layout));
  check_one("--n", std::to_string(o.n), "the number of rows of the file's weight", std::to_string(weight.rows));
  check_one("--k", std::to_string(o.k), "the number of columns of the file's weight", std::to_string(weight.cols));
  for (const char* option : {"--scale-mode", "--four-over-six"}) {
    if (!command.given(option) || o.activations == name_of(ActivationForm::kFp4)) continue;
    throw Failure(Exit::kUsage, std::string(option) + " has nothing to scale: the file's weight is quantised, and activations " +
                                    o.activations + " are not");
  }
}

void run(Command command, GemmOptions o) {
  // All names and sizes before anything is made, or written.
  const QuantizeConfig config = quantize_config(o);
  const auto form = parse_name<ActivationForm>(o.activations, kAllForms, "activations");
  const auto device = make_device(o.backend);
  const ExecDesc exec{o.backend.empty() ? nullptr : o.backend.c_str(), nullptr, o.threads};
  Progress progress(3, o.progress);
  progress.step(command.given("--file") ? "read " + o.file : "quantise a weight");
  std::optional<Activations> original;  // of the weight; a file has none
  HostWeight weight;
  if (command.given("--file")) {
    const safetensors::File file(o.file);
    weight = load_weight(file, o.weight);
    if (weight.shape.batch != 1) {
      throw Failure(Exit::kUsage, "weight '" + o.weight + "' is a batch of " + std::to_string(weight.shape.batch) + "; allowed: one weight");
    }
    check_against_file(command, o, weight.shape);
    o.format = name_of(weight.shape.format);
    o.n = weight.shape.rows;
    o.k = weight.shape.cols;
  }
  refuse_idle_scale_options(command, {o.format}, names_of<BlockFormat>(kWeightFormats));
  if (static_cast<double>(o.m) * static_cast<double>(o.n) * static_cast<double>(o.k) > kMostProducts) {
    throw Failure(Exit::kUsage, fmt::format("--m {} --n {} --k {}: the reference takes at most 4e9 products", o.m, o.n, o.k));
  }
  const Activations x = gaussian(o.m, o.k, o.seed);
  if (!command.given("--file")) {
    original = gaussian(o.n, o.k, o.seed + 1);
    weight = quantised(*device, o, config, *original, exec);
  }
  if (!o.save.empty()) save_weight(o.save, o.weight, weight.view());

  progress.step("multiply");
  const DeviceWeight on_device(*device, weight);
  const Buffer activations = uploaded(*device, x.bits);
  const Buffer product = device->allocate(static_cast<std::size_t>(o.m * o.n) * sizeof(float));
  LinearArgs a;
  a.weight = on_device.view;
  a.x = activations.data();
  a.x_dtype = DType::kBF16;
  a.out = product.data();
  a.out_dtype = DType::kF32;
  a.m = o.m;
  a.activations = form;
  a.scale_mode = config.scale_mode;
  a.nvfp4_scale = config.nvfp4_scale;
  check(fp4_linear_workspace(a, &a.workspace_bytes, exec), "fp4_linear_workspace");
  const Buffer workspace = device->allocate(a.workspace_bytes);
  a.workspace = workspace.data();
  const auto call = [&] { check(fp4_linear(a, exec), "fp4_linear"); };
  (void)device->seconds(call);  // the first one loads kernels and starts threads
  const double seconds = device->seconds(call);

  const std::vector<float> out = downloaded<float>(*device, product);

  progress.step("compare");
  const reference::Matrix wanted = original ? original->values : reference::decode(weight.view());
  const ProductError error = product_error(x.values, wanted, out);
  const std::size_t bytes = weight.codes.size() + weight.scales.size() + 4 * weight.global_scales.size();
  const double bf16_bytes = 2.0 * static_cast<double>(o.n * o.k);
  const nlohmann::ordered_json facts{{"shape", fmt::format("{}x{}x{}", o.m, o.n, o.k)},
                                     {"format", name_of(weight.shape.format)},
                                     {"activations", name_of(a.activations)},
                                     {"backend", backend_in_use(o.backend)},
                                     {"against", original ? "the product of the unquantised matrices" : "x times the file's weight, decoded"},
                                     {"correlation", error.correlation},
                                     {"relative_error", error.relative},
                                     {"weight_bytes", bytes},
                                     {"of_bf16", static_cast<double>(bytes) / bf16_bytes},
                                     {"ms", 1e3 * seconds}};
  progress.end();
  if (o.json) return print_json(facts);
  for (const auto& [key, value] : facts.items()) {
    fmt::print("{:<16} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

}  // namespace

void add_gemm(Command app) {
  auto o = std::make_shared<GemmOptions>();
  const Command command = app.add_subcommand("gemm", "Multiply Gaussian matrices with the weight in FP4, and compare");
  command.add_option("--m", o->m, "Rows of x").check(integer_from<std::int64_t>(1, kMostRows)).capture_default_str();
  command.add_option("--n", o->n, "Rows of the weight").check(integer_from<std::int64_t>(1, kMostRows)).capture_default_str();
  command.add_option("--k", o->k, "Columns of both").check(integer_from<std::int64_t>(1, kMostColumns)).capture_default_str();
  command.add_option("--format", o->format, "One of " + names_of<BlockFormat>(kWeightFormats)).capture_default_str();
  command.add_option("--activations", o->activations, "a16 (bf16) or a4 (quantised too)").capture_default_str();
  command.add_option("--scale-layout", o->scale_layout, "linear or blocked").capture_default_str();
  command.add_option("--scale-mode", o->scale_mode, "floor, ceil, rceil or even (MXFP4)").capture_default_str();
  command.add_flag("--four-over-six", o->four_over_six, "NVFP4: amax/6 or amax/4, whichever errs less");
  command.add_option("--file", o->file, "Take the weight from this safetensors file (its own, gpt-oss's or ModelOpt's form)");
  command.add_option("--weight", o->weight, "The weight's name in --file and --save").capture_default_str();
  command.add_option("--save", o->save, "Write the quantised weight to this file").check(output_file());
  command.add_option("--backend", o->backend, "Back end by name; see `fp4pa info`");
  command.add_option("--threads", o->threads, "CPU threads; 0 is OpenMP's choice").check(thread_count());
  command.add_option("--seed", o->seed, "Of the random matrices").capture_default_str();
  command.add_flag("--json", o->json, "Print JSON");
  command.add_flag("--progress", o->progress, "Report progress on stderr even when it is no terminal");
  command.footer(kExitCodeHelp);
  command.callback([o, command] { run(command, *o); });
}

}  // namespace fp4pa::tool
