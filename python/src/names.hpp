// Choices are strings in Python, as on the command line: "mxfp4", "bf16", "tokens". Here they become the library's enumerations.
#pragma once

#include <nanobind/nanobind.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "fp4pa/attention.hpp"
#include "fp4pa/cache.hpp"
#include "fp4pa/dense_attention.hpp"
#include "fp4pa/gemm.hpp"
#include "fp4pa/quantize.hpp"
#include "fp4pa/types.hpp"
#include "python/src/error.hpp"

namespace fp4pa::python {

[[nodiscard]] constexpr const char* name_of(PageOrder v) noexcept { return v == PageOrder::kHnd ? "hnd" : "nhd"; }
[[nodiscard]] constexpr const char* name_of(TableKind v) noexcept { return v == TableKind::kBlockTable ? "block_table" : "csr"; }

/// The one of `all` that is called `name`. `what` is the argument, for the ValueError that lists their names.
template <class Enum>
[[nodiscard]] Enum parse(std::string_view name, const char* what, std::initializer_list<Enum> all) {
  for (const Enum value : all) {
    if (name == name_of(value)) return value;
  }
  std::string allowed;
  for (const Enum value : all) allowed += (allowed.empty() ? "\"" : ", \"") + std::string(name_of(value)) + "\"";
  refuse(std::string(what) + " is \"" + std::string(name) + "\"", allowed);
}

[[nodiscard]] inline DType dtype(std::string_view name, const char* what) {
  return parse(name, what, {DType::kF32, DType::kF16, DType::kBF16});
}
[[nodiscard]] inline KvFormat kv_format(std::string_view name, const char* what) {
  return parse(name, what,
               {KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kE8m0PerToken, KvFormat::kFp8E4m3, KvFormat::kBf16, KvFormat::kF16,
                KvFormat::kMxfp8});
}
[[nodiscard]] inline VScaleAxis scale_axis(std::string_view name, const char* what) {
  return parse(name, what, {VScaleAxis::kHeadDim, VScaleAxis::kTokens});
}
[[nodiscard]] inline ScaleMode scale_mode(std::string_view name) {
  return parse(name, "scale_mode", {ScaleMode::kFloor, ScaleMode::kCeil, ScaleMode::kRceil, ScaleMode::kEven});
}
[[nodiscard]] inline Nvfp4Scale nvfp4_scale(std::string_view name) {
  return parse(name, "nvfp4_scale", {Nvfp4Scale::kAmaxOver6, Nvfp4Scale::kFourOverSix});
}
[[nodiscard]] inline ScaleLayout scale_layout(std::string_view name) {
  return parse(name, "scale_layout", {ScaleLayout::kLinear, ScaleLayout::kBlocked});
}
[[nodiscard]] inline MatrixPath matrix_path(std::string_view name) {
  return parse(name, "matrix_path", {MatrixPath::kAuto, MatrixPath::kNative, MatrixPath::kDecode});
}
[[nodiscard]] inline PageOrder page_order(std::string_view name) {
  return parse(name, "order", {PageOrder::kHnd, PageOrder::kNhd});
}
[[nodiscard]] inline TableKind table_kind(std::string_view name) {
  return parse(name, "table_kind", {TableKind::kBlockTable, TableKind::kCsr});
}
[[nodiscard]] inline BlockFormat block_format(std::string_view name) {
  return parse(name, "format", {BlockFormat::kMxfp4, BlockFormat::kNvfp4, BlockFormat::kMxfp8});
}
/// Of weights, and of both operands of matmul.
[[nodiscard]] inline BlockFormat fp4_format(std::string_view name) {
  return parse(name, "format", {BlockFormat::kMxfp4, BlockFormat::kNvfp4});
}
[[nodiscard]] inline ActivationForm activation_form(std::string_view name) {
  return parse(name, "activations", {ActivationForm::k16Bit, ActivationForm::kFp4});
}
[[nodiscard]] inline Mxfp8Decode mxfp8_decode(std::string_view name) {
  return parse(name, "decode", {Mxfp8Decode::kAuto, Mxfp8Decode::kPerTile, Mxfp8Decode::kOnce});
}
/// The choices of quantize and quantize_weight.
[[nodiscard]] inline QuantizeConfig quantize_config(BlockFormat format, std::string_view layout, std::string_view mode,
                                                    std::string_view nvfp4, float global_scale) {
  QuantizeConfig config;
  config.format = format;
  config.scale_layout = scale_layout(layout);
  config.scale_mode = scale_mode(mode);
  config.nvfp4_scale = nvfp4_scale(nvfp4);
  config.global_scale = global_scale;
  return config;
}

}  // namespace fp4pa::python
