#include "weights/host_weight.hpp"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

namespace fp4pa::weights {
namespace {

using nlohmann::json;
using safetensors::Error;
using safetensors::File;
using safetensors::TensorView;

std::string key_of(const std::string& name) { return "fp4pa.weight." + name; }

const TensorView* find(const File& file, const std::string& name) {
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::string text_of(const std::vector<std::int64_t>& shape) { return json(shape).dump(); }

[[noreturn]] void refuse(const File& file, const TensorView& tensor, const std::string& allowed) {
  throw Error(file.path().string() + ": tensor " + safetensors::shown(tensor.name) + " is " + tensor.dtype + " " + text_of(tensor.shape) +
              "; allowed: " + allowed);
}

/// A tensor of bytes with exactly this shape.
std::span<const std::byte> bytes_of(const File& file, const TensorView& tensor, const std::vector<std::int64_t>& shape,
                                    const char* also = "U8") {
  if ((tensor.dtype != "U8" && tensor.dtype != also) || tensor.shape != shape) {
    refuse(file, tensor, (std::string(also) == "U8" ? "" : std::string(also) + " or ") + "U8 " + text_of(shape));
  }
  return tensor.data;
}

/// `count` decode multipliers, each of which the library takes.
std::vector<float> multipliers_of(const File& file, const TensorView& tensor, std::int64_t count) {
  if (tensor.dtype != "F32" || tensor.elements() != count) refuse(file, tensor, "F32 with " + std::to_string(count) + " elements");
  std::vector<float> values(static_cast<std::size_t>(count));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  for (const float v : values) {
    if (!std::isfinite(v) || v < 0x1p-126f || v > 0x1p126f) {
      throw Error(file.path().string() + ": tensor " + safetensors::shown(tensor.name) + " has " + std::to_string(v) + "; allowed: 2^-126 to 2^126");
    }
  }
  return values;
}

std::int64_t integer(const File& file, const json& description, const char* field) {
  const auto found = description.find(field);
  if (found == description.end() || !found->is_number_integer() || found->get<std::int64_t>() < 1) {
    throw Error(file.path().string() + ": metadata of the weight has no positive integer '" + field + "'");
  }
  return found->get<std::int64_t>();
}

template <class Enum>
Enum choice(const File& file, const json& description, const char* field, std::span<const Enum> all) {
  const auto found = description.find(field);
  const std::string word = found != description.end() && found->is_string() ? found->get<std::string>() : "";
  std::string allowed;
  for (const Enum v : all) {
    if (word == name_of(v)) return v;
    allowed += (allowed.empty() ? "" : ", ") + std::string(name_of(v));
  }
  throw Error(file.path().string() + ": metadata of the weight has " + field + " '" + word + "'; allowed: " + allowed);
}

FileWeight find_own(const File& file, const std::string& name, const std::string& text) {
  const json d = json::parse(text, nullptr, false);
  if (!d.is_object()) throw Error(file.path().string() + ": metadata '" + key_of(name) + "' is no JSON object");
  FileWeight w;
  constexpr BlockFormat kFormats[] = {BlockFormat::kMxfp4, BlockFormat::kNvfp4};
  constexpr ScaleLayout kLayouts[] = {ScaleLayout::kLinear, ScaleLayout::kBlocked};
  w.shape.format = choice<BlockFormat>(file, d, "format", kFormats);
  w.shape.scale_layout = choice<ScaleLayout>(file, d, "scale_layout", kLayouts);
  w.shape.rows = integer(file, d, "rows");
  w.shape.cols = integer(file, d, "cols");
  w.shape.batch = integer(file, d, "batch");
  const Fp4Weight& s = w.shape;
  const auto codes = static_cast<std::int64_t>(fp4_weight_code_bytes(s.format, s.rows, s.cols, s.batch));
  const auto scales = static_cast<std::int64_t>(fp4_weight_scale_bytes(s.format, s.scale_layout, s.rows, s.cols, s.batch));
  if (codes == 0) throw Error(file.path().string() + ": metadata '" + key_of(name) + "' describes a weight that no memory holds");
  w.codes = bytes_of(file, file.at(name + ".codes"), {s.batch, s.rows, codes / s.batch / s.rows});
  w.scales = bytes_of(file, file.at(name + ".scales"), {s.batch, scales / s.batch});
  if (s.format == BlockFormat::kNvfp4) w.global_scales = multipliers_of(file, file.at(name + ".global_scales"), s.batch);
  return w;
}

FileWeight find_gpt_oss(const File& file, const TensorView& blocks, const TensorView& scales) {
  const std::vector<std::int64_t>& shape = blocks.shape;
  if ((shape.size() != 3 && shape.size() != 4) || shape.back() != 16 || blocks.elements() == 0) {
    refuse(file, blocks, "U8 [(experts,) rows, groups, 16]");
  }
  FileWeight w;
  w.shape.batch = shape.size() == 4 ? shape[0] : 1;
  w.shape.rows = shape[shape.size() - 3];
  w.shape.cols = 32 * shape[shape.size() - 2];
  w.codes = bytes_of(file, blocks, shape);
  w.scales = bytes_of(file, scales, {shape.begin(), shape.end() - 1});
  return w;
}

FileWeight find_modelopt(const File& file, const std::string& name, const TensorView& weight) {
  if (weight.shape.size() != 2 || weight.elements() == 0 || weight.shape[1] % 8 != 0) refuse(file, weight, "U8 [rows, cols / 2], cols a multiple of 16");
  FileWeight w;
  w.shape.format = BlockFormat::kNvfp4;
  w.shape.rows = weight.shape[0];
  w.shape.cols = 2 * weight.shape[1];
  w.codes = bytes_of(file, weight, weight.shape);
  w.scales = bytes_of(file, file.at(name + ".weight_scale"), {w.shape.rows, w.shape.cols / 16}, "F8_E4M3");
  w.global_scales = multipliers_of(file, file.at(name + ".weight_scale_2"), 1);
  return w;
}

}  // namespace

Fp4Weight HostWeight::view() const noexcept {
  Fp4Weight w = shape;
  w.codes = codes.data();
  w.scales = scales.data();
  w.global_scale_ptr = global_scales.empty() ? nullptr : global_scales.data();
  return w;
}

void save_weight(const std::filesystem::path& path, const std::string& name, const Fp4Weight& w) {
  const json description{{"format", name_of(w.format)}, {"scale_layout", name_of(w.scale_layout)}, {"rows", w.rows}, {"cols", w.cols}, {"batch", w.batch}};
  const std::span codes(static_cast<const std::byte*>(w.codes), fp4_weight_code_bytes(w.format, w.rows, w.cols, w.batch));
  const std::span scales(static_cast<const std::byte*>(w.scales), fp4_weight_scale_bytes(w.format, w.scale_layout, w.rows, w.cols, w.batch));
  const auto of_each = [&](std::span<const std::byte> bytes) { return static_cast<std::int64_t>(bytes.size()) / w.batch; };
  std::vector<safetensors::TensorToWrite> tensors{{name + ".codes", "U8", {w.batch, w.rows, of_each(codes) / w.rows}, codes},
                                                  {name + ".scales", "U8", {w.batch, of_each(scales)}, scales}};
  const std::vector<float> one_for_all(static_cast<std::size_t>(w.batch), w.global_scale);
  if (w.format == BlockFormat::kNvfp4) {
    const std::span globals(w.global_scale_ptr != nullptr ? w.global_scale_ptr : one_for_all.data(), one_for_all.size());
    tensors.push_back({name + ".global_scales", "F32", {w.batch}, std::as_bytes(globals)});
  }
  safetensors::write(path, tensors, {{key_of(name), description.dump()}});
}

namespace {

FileWeight find_any(const File& file, const std::string& name) {
  if (const auto own = file.metadata().find(key_of(name)); own != file.metadata().end()) return find_own(file, name, own->second);
  if (const TensorView* blocks = find(file, name + "_blocks")) return find_gpt_oss(file, *blocks, file.at(name + "_scales"));
  if (const TensorView* weight = find(file, name + ".weight")) return find_modelopt(file, name, *weight);
  std::string existing;
  for (const TensorView& tensor : file.tensors()) existing += (existing.empty() ? "" : ", ") + safetensors::shown(tensor.name);
  throw Error(file.path().string() + ": no FP4 weight " + safetensors::shown(name) + " (metadata " + key_of(name) + ", tensor " + name +
              "_blocks or " + name + ".weight); it holds " + (existing.empty() ? "none" : existing));
}

}  // namespace

FileWeight find_weight(const File& file, const std::string& name) {
  FileWeight w = find_any(file, name);
  const Fp4Weight& s = w.shape;
  // Whoever loads it has asked these two how much memory it takes; they say 0 of what the library does not take.
  if (fp4_weight_code_bytes(s.format, s.rows, s.cols, s.batch) != w.codes.size() ||
      fp4_weight_scale_bytes(s.format, s.scale_layout, s.rows, s.cols, s.batch) != w.scales.size()) {
    throw Error(file.path().string() + ": weight " + safetensors::shown(name) + " has batch " + std::to_string(s.batch) + ", " +
                std::to_string(s.rows) + " rows and " + std::to_string(s.cols) +
                " columns; allowed: batch to 65535, rows below 2^31, columns to 2^31 - 128, and what fits the address space");
  }
  return w;
}

HostWeight load_weight(const File& file, const std::string& name) {
  FileWeight found = find_weight(file, name);
  HostWeight w;
  w.shape = found.shape;
  w.codes.assign(found.codes.begin(), found.codes.end());
  w.scales.assign(found.scales.begin(), found.scales.end());
  w.global_scales = std::move(found.global_scales);
  return w;
}

}  // namespace fp4pa::weights
