// See variant.hpp.
#include "tools/fp4pa/variant.hpp"

#include <initializer_list>

namespace fp4pa::tool {
namespace {

std::string format_label(KvFormat format, const Variant& variant) {
  std::string label = name_of(format);
  if (format == KvFormat::kNvfp4 && variant.nvfp4_scale == Nvfp4Scale::kFourOverSix) label += " 4/6";
  const bool has_mode = format == KvFormat::kMxfp4 || format == KvFormat::kE8m0PerToken || format == KvFormat::kMxfp8;
  if (has_mode) label += std::string(" ") + name_of(variant.scale_mode);
  return label;
}

/// The largest rotation that divides head_dim.
Rotation widest_rotation(std::int32_t head_dim) {
  for (const int block : {128, 64, 32}) {
    if (head_dim % block == 0) return static_cast<Rotation>(block);
  }
  return Rotation::kHadamard16;
}

}  // namespace

std::string label_of(const Variant& variant) {
  std::string label = variant.k == variant.v
                          ? format_label(variant.k, variant)
                          : "K " + format_label(variant.k, variant) + ", V " + format_label(variant.v, variant);
  if (variant.rotation != Rotation::kNone) label += ", H" + std::to_string(static_cast<int>(variant.rotation));
  if (variant.v_axis == VScaleAxis::kTokens) label += ", V along tokens";
  if (variant.window != 0) label += ", window " + std::to_string(variant.window);
  return label;
}

std::vector<Variant> suite(std::int32_t head_dim, std::int32_t page_size, std::int32_t window) {
  const Rotation rotation = widest_rotation(head_dim);
  using F = KvFormat;
  std::vector<Variant> rows;
  const auto add = [&](F k, F v, Rotation r, Nvfp4Scale n, std::int32_t w, VScaleAxis axis = VScaleAxis::kHeadDim,
                       ScaleMode mode = ScaleMode::kEven) {
    if (axis == VScaleAxis::kTokens && page_size % kSuiteTokenGroup != 0) return;
    rows.push_back({k, v, axis, r, mode, n, w});
  };
  const auto plain = Rotation::kNone;
  const auto six = Nvfp4Scale::kAmaxOver6, four = Nvfp4Scale::kFourOverSix;
  const auto tokens = VScaleAxis::kTokens;

  for (const F format : {F::kBf16, F::kF16, F::kFp8E4m3}) add(format, format, plain, six, 0);
  add(F::kMxfp4, F::kMxfp4, plain, six, 0, VScaleAxis::kHeadDim, ScaleMode::kFloor);
  for (const std::int32_t w : {0, window}) {
    add(F::kMxfp4, F::kMxfp4, plain, six, w);
    add(F::kMxfp4, F::kMxfp4, rotation, six, w);
    add(F::kMxfp4, F::kMxfp4, rotation, six, w, tokens);
    add(F::kE8m0PerToken, F::kE8m0PerToken, plain, six, w);
    add(F::kE8m0PerToken, F::kE8m0PerToken, rotation, six, w);
    add(F::kNvfp4, F::kNvfp4, plain, six, w);
    add(F::kNvfp4, F::kNvfp4, plain, four, w);
    add(F::kNvfp4, F::kNvfp4, rotation, four, w);
    add(F::kNvfp4, F::kNvfp4, rotation, four, w, tokens);
    add(F::kFp8E4m3, F::kNvfp4, plain, four, w);
  }
  add(F::kFp8E4m3, F::kFp8E4m3, plain, six, window);
  return rows;
}

}  // namespace fp4pa::tool
