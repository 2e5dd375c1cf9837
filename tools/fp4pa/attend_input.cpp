// See attend_input.hpp.
#include "tools/fp4pa/attend_input.hpp"

#include <cctype>
#include <cstdlib>
#include <cstring>

#include "reference/element.hpp"
#include "tools/fp4pa/exit_codes.hpp"
#include "tools/fp4pa/paged_cache.hpp"

namespace fp4pa::tool {
namespace {

/// What the library takes, less what it has another meaning for: 0, which a smaller number would become, is the default.
double scale_of(const std::string& path, const std::string& text) {
  char* end = nullptr;
  const double scale = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !(scale >= 0x1p-126 && scale <= 0x1p126)) {
    throw Failure(Exit::kInputFile, path + ": metadata softmax_scale '" + text + "'; allowed: numbers from 2^-126 to 2^126");
  }
  return scale;
}

/// Python writes "True", JSON "true".
bool causal_of(const std::string& path, const std::string& text) {
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower != "true" && lower != "false") {
    throw Failure(Exit::kInputFile, path + ": metadata causal '" + text + "'; allowed: true, false");
  }
  return lower == "true";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

InputTensor input_tensor(const safetensors::TensorView& view, const std::string& path) {
  if (view.shape.size() != 3 || view.elements() == 0) {
    throw Failure(Exit::kInputFile, path + ": tensor '" + view.name + "' has shape " + shape_text(view.shape) +
                                        "; expected [heads, tokens, head_dim], none of them 0");
  }
  return {view.data.data(), plain_dtype(view), view.shape[0], view.shape[1], view.shape[2]};
}

}  // namespace

DType plain_dtype(const safetensors::TensorView& tensor) {
  if (tensor.dtype == "F32") return DType::kF32;
  if (tensor.dtype == "F16") return DType::kF16;
  if (tensor.dtype == "BF16") return DType::kBF16;
  throw Failure(Exit::kInputFile,
                "tensor '" + tensor.name + "' has dtype " + tensor.dtype + "; allowed here: F32, F16, BF16");
}

const char* safetensors_name(DType dtype) noexcept {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : "BF16";
}

std::vector<std::byte> InputTensor::token_major(std::int64_t first, std::int64_t count) const {
  const auto row = static_cast<std::size_t>(head_dim * size_of(dtype));
  std::vector<std::byte> out(static_cast<std::size_t>(count * heads) * row);
  std::byte* to = out.data();
  for (std::int64_t t = first; t < first + count; ++t) {
    for (std::int64_t h = 0; h < heads; ++h, to += row) {
      std::memcpy(to, data + static_cast<std::size_t>(h * tokens + t) * row, row);
    }
  }
  return out;
}

double InputTensor::at(std::int64_t head, std::int64_t token, std::int64_t column) const {
  return reference::decode_plain(data, dtype, (head * tokens + token) * head_dim + column);
}

AttendInput::AttendInput(const std::string& path, const std::string& q_name, const std::string& k_name,
                         const std::string& v_name)
    : file_(path) {
  q = input_tensor(file_.at(q_name), path);
  k = input_tensor(file_.at(k_name), path);
  v = input_tensor(file_.at(v_name), path);
  const auto refuse = [&](const std::string& why) {
    throw Failure(Exit::kInputFile, path + ": q " + shape_text(file_.at(q_name).shape) + ", k " +
                                        shape_text(file_.at(k_name).shape) + " and v " +
                                        shape_text(file_.at(v_name).shape) + " do not fit together: " + why);
  };
  if (k.heads != v.heads || k.tokens != v.tokens) refuse("k and v differ in heads or tokens");
  if (q.head_dim != k.head_dim || k.head_dim != v.head_dim) refuse("head_dim differs");
  if (q.heads % k.heads != 0) refuse("query heads are not a multiple of KV heads");
  if (q.tokens > k.tokens) refuse("q has more tokens than k");
  try {
    check_head_dim(static_cast<std::int32_t>(k.head_dim));
  } catch (const Failure& e) {
    throw Failure(Exit::kInputFile, path + ": " + e.what());
  }

  const auto& metadata = file_.metadata();
  if (const auto scale = metadata.find("softmax_scale"); scale != metadata.end()) {
    softmax_scale = scale_of(path, scale->second);
  }
  if (const auto entry = metadata.find("causal"); entry != metadata.end()) causal = causal_of(path, entry->second);
}

}  // namespace fp4pa::tool
