#include "weights/host_weight.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "weights/json_reader.hpp"

namespace fp4pa::weights {
namespace {

using safetensors::Error;
using safetensors::File;
using safetensors::JsonScalar;
using safetensors::TensorView;
using safetensors::text_of;

std::string key_of(const std::string& name) { return "fp4pa.weight." + name; }

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
      char value[32];
      std::snprintf(value, sizeof value, "%g", static_cast<double>(v));
      throw Error(file.path().string() + ": tensor " + safetensors::shown(tensor.name) + " has " + value + "; allowed: 2^-126 to 2^126");
    }
  }
  return values;
}

/// The metadata that the library writes: an object of words and numbers. Of anything else in it nothing is kept.
class Description final : public safetensors::JsonListener {
 public:
  /// @param text  the metadata called `key`
  Description(const File& file, const std::string& key, const std::string& text) : file_(file) {
    try {
      safetensors::read_json(text, *this);
    } catch (const safetensors::JsonError&) {
      is_object_ = false;
    }
    if (!is_object_) throw Error(file.path().string() + ": metadata '" + key + "' is no JSON object");
  }

  void open(char bracket) override {
    if (level_++ == 0) is_object_ = bracket == '{';
  }
  void close(char) override { --level_; }
  void key(std::string_view name) override {
    if (level_ == 1) key_ = name;
  }
  void scalar(const JsonScalar& value) override {
    if (level_ != 1) return;
    if (const auto word = words_.find(key_); word != words_.end() && value.kind == JsonScalar::Kind::kString) word->second = value.text;
    if (const auto number = numbers_.find(key_); number != numbers_.end()) {
      number->second = value.kind == JsonScalar::Kind::kUnsigned ? static_cast<std::int64_t>(value.number) : 0;
      values_[key_] = safetensors::shown(value.text);
    }
  }

  [[nodiscard]] std::int64_t integer(const char* field) const {
    const std::int64_t number = numbers_.at(field);
    if (number < 1) {
      throw Error(file_.path().string() + ": metadata of the weight has " + field + ' ' + values_.at(field) + "; allowed: an integer of 1 to 2^63 - 1");
    }
    return number;
  }

  template <class Enum>
  [[nodiscard]] Enum choice(const char* field, std::span<const Enum> all) const {
    const std::string& word = words_.at(field);
    std::string allowed;
    for (const Enum v : all) {
      if (word == name_of(v)) return v;
      allowed += (allowed.empty() ? "" : ", ") + std::string(name_of(v));
    }
    throw Error(file_.path().string() + ": metadata of the weight has " + field + ' ' + safetensors::shown(word) + "; allowed: " + allowed);
  }

 private:
  const File& file_;
  int level_ = 0;
  bool is_object_ = false;
  std::string key_;
  std::map<std::string, std::string> words_{{"format", ""}, {"scale_layout", ""}};
  std::map<std::string, std::int64_t> numbers_{{"rows", 0}, {"cols", 0}, {"batch", 0}};
  std::map<std::string, std::string> values_{{"rows", "missing"}, {"cols", "missing"}, {"batch", "missing"}};  // of numbers_, as they stand
};

FileWeight find_own(const File& file, const std::string& name, const std::string& text) {
  const Description d(file, key_of(name), text);
  FileWeight w;
  constexpr BlockFormat kFormats[] = {BlockFormat::kMxfp4, BlockFormat::kNvfp4};
  constexpr ScaleLayout kLayouts[] = {ScaleLayout::kLinear, ScaleLayout::kBlocked};
  w.shape.format = d.choice<BlockFormat>("format", kFormats);
  w.shape.scale_layout = d.choice<ScaleLayout>("scale_layout", kLayouts);
  w.shape.rows = d.integer("rows");
  w.shape.cols = d.integer("cols");
  w.shape.batch = d.integer("batch");
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
  const std::string description = "{\"batch\":" + std::to_string(w.batch) + ",\"cols\":" + std::to_string(w.cols) + ",\"format\":\"" +
                                  name_of(w.format) + "\",\"rows\":" + std::to_string(w.rows) + ",\"scale_layout\":\"" +
                                  name_of(w.scale_layout) + "\"}";
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
  safetensors::write(path, tensors, {{key_of(name), description}});
}

namespace {

FileWeight find_any(const File& file, const std::string& name) {
  if (const auto own = file.metadata().find(key_of(name)); own != file.metadata().end()) return find_own(file, name, own->second);
  if (const TensorView* blocks = file.find(name + "_blocks")) return find_gpt_oss(file, *blocks, file.at(name + "_scales"));
  if (const TensorView* weight = file.find(name + ".weight")) return find_modelopt(file, name, *weight);
  throw Error(file.path().string() + ": no FP4 weight " + safetensors::shown(name) + " (metadata " + key_of(name) + ", tensor " + name +
              "_blocks or " + name + ".weight); it holds " + file.names());
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
