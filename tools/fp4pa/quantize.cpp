// `fp4pa quantize`: a tensor of a safetensors file to packed codes and scales, or back.
//
// The packed file holds NAME.codes and NAME.scales (U8) and, in the metadata under "fp4pa.quantized.NAME", a JSON
// object with everything that reading them back needs.
#include "fp4pa/quantize.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "reference/element.hpp"
#include "reference/metrics.hpp"
#include "tools/fp4pa/attend_input.hpp"
#include "tools/fp4pa/commands.hpp"
#include "tools/fp4pa/device.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/global_scale.hpp"
#include "tools/fp4pa/names.hpp"
#include "tools/fp4pa/options.hpp"
#include "tools/fp4pa/progress.hpp"

namespace fp4pa::tool {
namespace {

struct QuantizeOptions {
  std::string file, tensor, out, format = "mxfp4", scale_layout = "linear", scale_mode = "floor", dtype = "f32",
                                 backend;
  bool four_over_six = false, dequantize = false, json = false, progress = false;
  std::optional<float> global_scale;  // none: amax/2688
  int threads = 0;
};

std::string metadata_key(const std::string& tensor) { return "fp4pa.quantized." + tensor; }

/// A tensor as rows of its last dimension.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

Matrix matrix_of(const std::vector<std::int64_t>& shape, const std::string& name) {
  if (shape.empty() || shape.back() == 0)
    throw Failure(Exit::kInputFile, "tensor '" + name + "' has no last dimension to group");
  Matrix m{1, shape.back()};
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) m.rows *= shape[i];
  if (m.rows == 0) throw Failure(Exit::kInputFile, "tensor '" + name + "' has no elements");
  return m;
}

void report(const QuantizeOptions& o, const nlohmann::ordered_json& facts) {
  if (o.json) return print_json(facts);
  for (const auto& [key, value] : facts.items()) {
    fmt::print("{:<18} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

/// The aligned copy of a view that the library may read.
std::vector<std::byte> copy_of(const safetensors::TensorView& view) { return {view.data.begin(), view.data.end()}; }

float amax_over_2688(const std::vector<std::byte>& data, DType dtype, std::int64_t count) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = larger_finite(largest, reference::decode_plain(data.data(), dtype, i));
  }
  return default_global_scale(largest);
}

void quantize_tensor(Command command, const QuantizeOptions& o) {
  Progress progress(4, o.progress);
  progress.step("read " + o.file);
  const safetensors::File file(o.file);
  const safetensors::TensorView& view = file.at(o.tensor);
  const DType dtype = plain_dtype(view);
  const Matrix m = matrix_of(view.shape, o.tensor);
  const std::vector<std::byte> x = copy_of(view);

  QuantizeConfig config;
  config.format = parse_name<BlockFormat>(o.format, kAllBlockFormats, "block format");
  config.scale_layout = parse_scale_layout(o.scale_layout);
  config.scale_mode = parse_name<ScaleMode>(o.scale_mode, kAllScaleModes, "scale mode");
  config.nvfp4_scale = o.four_over_six ? Nvfp4Scale::kFourOverSix : Nvfp4Scale::kAmaxOver6;
  if (config.format == BlockFormat::kNvfp4) {
    config.global_scale = o.global_scale ? *o.global_scale : amax_over_2688(x, dtype, m.rows * m.cols);
  } else if (o.global_scale) {
    throw Failure(Exit::kUsage, "--global-scale has no part in format " + o.format + "; allowed with: nvfp4");
  }
  refuse_idle_scale_options(command, {o.format}, names_of<BlockFormat>(kAllBlockFormats));
  progress.step("quantise " + o.tensor);
  const auto device = make_device(o.backend);
  const ExecDesc exec{o.backend.empty() ? nullptr : o.backend.c_str(), nullptr, o.threads};
  const Buffer plain = uploaded(*device, x);
  const Buffer packed = device->allocate(quantized_code_bytes(config.format, m.rows, m.cols));
  const Buffer their_scales = device->allocate(quantized_scale_bytes(config.format, config.scale_layout, m.rows, m.cols));
  check(quantize(config, plain.data(), dtype, m.rows, m.cols, packed.data(), their_scales.data(), exec), "quantize");
  progress.step("compare");
  const Buffer unpacked = device->allocate(static_cast<std::size_t>(m.rows * m.cols) * sizeof(float));
  check(dequantize(config, packed.data(), their_scales.data(), m.rows, m.cols, unpacked.data(), DType::kF32, exec), "dequantize");
  const auto codes = downloaded<std::byte>(*device, packed), scales = downloaded<std::byte>(*device, their_scales);
  const auto back = downloaded<float>(*device, unpacked);
  reference::Difference difference;
  for (std::size_t i = 0; i < back.size(); ++i) {
    difference.add(back[i], reference::decode_plain(x.data(), dtype, static_cast<std::int64_t>(i)));
  }

  const nlohmann::ordered_json description{{"format", name_of(config.format)},
                                           {"scale_layout", name_of(config.scale_layout)},
                                           {"scale_mode", name_of(config.scale_mode)},
                                           {"nvfp4_scale", name_of(config.nvfp4_scale)},
                                           {"global_scale", config.global_scale},
                                           {"shape", view.shape},
                                           {"dtype", view.dtype}};
  const auto code_count = static_cast<std::int64_t>(codes.size()),
             scale_count = static_cast<std::int64_t>(scales.size());
  progress.step("write " + o.out);
  safetensors::write(o.out,
                     {{o.tensor + ".codes", "U8", {m.rows, code_count / m.rows}, codes},
                      {o.tensor + ".scales", "U8", {scale_count}, scales}},
                     {{metadata_key(o.tensor), description.dump()}});
  progress.end();
  nlohmann::ordered_json facts{{"tensor", o.tensor}};
  facts.update(description);
  facts["code_bytes"] = codes.size();
  facts["scale_bytes"] = scales.size();
  facts["bits_per_element"] =
      8.0 * static_cast<double>(codes.size() + scales.size()) / static_cast<double>(back.size());
  facts["relative_error"] = difference.relative();
  facts["cosine"] = difference.cosine();
  facts["max_abs_error"] = difference.max_abs();
  facts["out"] = o.out;
  report(o, facts);
}

/// The description that quantize_tensor wrote, as text; every way of being wrong is a bad input file.
const std::string& description_of(const safetensors::File& file, const std::string& tensor) {
  const auto found = file.metadata().find(metadata_key(tensor));
  if (found == file.metadata().end()) {
    throw Failure(Exit::kInputFile, file.path().string() + ": no metadata '" + metadata_key(tensor) +
                                        "'; the file was not written by `fp4pa quantize --tensor " + tensor + "`");
  }
  return found->second;
}

void check_bytes(const safetensors::TensorView& view, std::size_t expected) {
  if (view.dtype == "U8" && view.data.size() == expected) return;
  throw Failure(Exit::kInputFile, fmt::format("tensor '{}' is {} of {} bytes; its description asks for U8 of {}", view.name, view.dtype,
                                              view.data.size(), expected));
}

/// The described shape, with a size that can be computed with.
std::vector<std::int64_t> shape_of(const nlohmann::json& description) {
  for (const nlohmann::json& extent : description.at("shape")) {
    if (extent.is_number_integer()) continue;
    // Only a number is shown: anything else may nest as deep as it likes.
    throw Failure(Exit::kInputFile, "the description's shape has " + (extent.is_number() ? extent.dump() : extent.type_name()) +
                                        "; allowed: integers");
  }
  const auto shape = description.at("shape").get<std::vector<std::int64_t>>();
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent <= 0 || __builtin_mul_overflow(count, extent, &count) || count > (std::int64_t{1} << 48)) {
      throw Failure(Exit::kInputFile, "the description's shape " + description.at("shape").dump() +
                                          "; allowed: positive extents, 2^48 elements at most");
    }
  }
  return shape;
}

float global_scale_of(const nlohmann::json& description, BlockFormat format) {
  const nlohmann::json& given = description.at("global_scale");
  if (!given.is_number()) {
    throw Failure(Exit::kInputFile, std::string("the description's global_scale is a ") + given.type_name() + "; allowed: a number");
  }
  const auto scale = given.get<double>();
  const bool has_scale = format == BlockFormat::kNvfp4;
  if (has_scale ? scale >= kLeastGlobalScale && scale <= kMostGlobalScale : scale == 1.0) return static_cast<float>(scale);
  throw Failure(Exit::kInputFile, fmt::format("the description's global_scale is {}; allowed with format {}: {}", scale,
                                              name_of(format), has_scale ? "2^-126 to 2^126" : "1"));
}

void dequantize_tensor(Command command, const QuantizeOptions& o) {
  Progress progress(3, o.progress);
  progress.step("read " + o.file);
  const safetensors::File file(o.file);
  QuantizeConfig config;
  std::vector<std::int64_t> shape;
  const std::string& text = description_of(file, o.tensor);
  try {
    const nlohmann::json description = nlohmann::json::parse(text);
    config.format =
        parse_name<BlockFormat>(description.at("format").get<std::string>(), kAllBlockFormats, "block format");
    config.scale_layout = parse_scale_layout(description.at("scale_layout").get<std::string>());
    config.global_scale = global_scale_of(description, config.format);
    shape = shape_of(description);
  } catch (const nlohmann::json::exception& e) {
    throw Failure(Exit::kInputFile, o.file + ": metadata '" + metadata_key(o.tensor) + "': " + e.what());
  } catch (const Failure& e) {
    throw Failure(Exit::kInputFile, o.file + ": metadata '" + metadata_key(o.tensor) + "': " + e.what());
  }
  refuse_contradiction(command, "--format", o.format, "the file's tensor", name_of(config.format));
  refuse_contradiction(command, "--scale-layout", name_of(parse_scale_layout(o.scale_layout)),
                       "the layout of the file's scales", name_of(config.scale_layout));
  const Matrix m = matrix_of(shape, o.tensor);
  const std::vector<std::byte> codes = copy_of(file.at(o.tensor + ".codes")),
                               scales = copy_of(file.at(o.tensor + ".scales"));
  check_bytes(file.at(o.tensor + ".codes"), quantized_code_bytes(config.format, m.rows, m.cols));
  check_bytes(file.at(o.tensor + ".scales"), quantized_scale_bytes(config.format, config.scale_layout, m.rows, m.cols));

  const DType dtype = parse_name<DType>(o.dtype, kAllDTypes, "dtype");
  progress.step("dequantise " + o.tensor);
  const auto device = make_device(o.backend);
  const ExecDesc exec{o.backend.empty() ? nullptr : o.backend.c_str(), nullptr, o.threads};
  const Buffer packed = uploaded(*device, codes), their_scales = uploaded(*device, scales);
  const Buffer plain = device->allocate(static_cast<std::size_t>(m.rows * m.cols * size_of(dtype)));
  check(dequantize(config, packed.data(), their_scales.data(), m.rows, m.cols, plain.data(), dtype, exec), "dequantize");
  const auto y = downloaded<std::byte>(*device, plain);
  progress.step("write " + o.out);
  safetensors::write(o.out, {{o.tensor, safetensors_name(dtype), shape, y}}, {});
  progress.end();
  report(o, {{"tensor", o.tensor},
             {"format", name_of(config.format)},
             {"dtype", name_of(dtype)},
             {"shape", shape},
             {"out", o.out}});
}

}  // namespace

void add_quantize(Command app) {
  auto o = std::make_shared<QuantizeOptions>();
  const Command command =
      app.add_subcommand("quantize", "Quantise a tensor of a safetensors file to codes and scales, or back");
  command.add_option("file", o->file, "safetensors file").required();
  command.add_option("--tensor", o->tensor, "Name of the tensor (F32, F16 or BF16); groups run along its last dimension").required();
  command.add_option("--out", o->out, "safetensors file to write").required().check(output_file());
  command.add_option("--format", o->format, "One of " + names_of<BlockFormat>(kAllBlockFormats)).capture_default_str();
  command.add_option("--scale-layout", o->scale_layout, "linear, or blocked (128x4 atoms)").capture_default_str();
  const Option dequantize =
      command.add_flag("--dequantize", o->dequantize, "The other way: read NAME.codes and NAME.scales, write NAME");
  command.add_option("--scale-mode", o->scale_mode, "floor, ceil, rceil or even (MXFP4, MXFP8)").excludes(dequantize).capture_default_str();
  command.add_flag("--four-over-six", o->four_over_six, "NVFP4: amax/6 or amax/4, whichever errs less")
      .excludes(dequantize);
  command.add_option("--global-scale", o->global_scale, "NVFP4 decode multiplier; default amax/2688").excludes(dequantize);
  command.add_option("--dtype", o->dtype, "With --dequantize: f32, f16 or bf16").needs(dequantize).capture_default_str();
  command.add_option("--backend", o->backend, "Back end by name; see `fp4pa info`");
  command.add_option("--threads", o->threads, "CPU threads; 0 = OpenMP's choice (the default)").check(thread_count());
  command.add_flag("--json", o->json, "Print JSON");
  command.add_flag("--progress", o->progress, "Report progress on stderr even when it is no terminal");
  command.footer(kExitCodeHelp);
  command.callback([o, command] { o->dequantize ? dequantize_tensor(command, *o) : quantize_tensor(command, *o); });
}

}  // namespace fp4pa::tool
