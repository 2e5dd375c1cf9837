// Where the K or the V of a pool lies: the addresses of a KvTensorDesc, in the form that kernels take by value.
//
// A view is arithmetic and nothing else. It holds no arrays, so that it fits into kernel arguments; every offset is
// formed in 64 bits, because pools pass 4 GiB; and HND, NHD and interleaved pages do not exist here, they are strides.
// Scales along tokens are the one thing that is more than a stride: their row is the token's group, a shift.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "fp4pa/cache.hpp"

namespace fp4pa::core {

/// Tokens that share a scale row, as a shift: 5 (32 tokens, MXFP4) or 4 (16, NVFP4) along tokens, else 0.
[[nodiscard]] FP4PA_FN constexpr std::int32_t token_group_shift(KvFormat format, VScaleAxis axis) {
  if (axis != VScaleAxis::kTokens) return 0;
  return format == KvFormat::kMxfp4 ? 5 : format == KvFormat::kNvfp4 ? 4 : 0;
}

/// Bytes of one token's codes for one head.
[[nodiscard]] FP4PA_FN constexpr std::int32_t row_bytes(KvFormat format, std::int32_t head_dim) {
  if (is_fp4(format)) return head_dim / 2;
  return format == KvFormat::kFp8E4m3 || format == KvFormat::kMxfp8 ? head_dim : 2 * head_dim;
}

/// Bytes of one scale row: a token's groups along head_dim, or one byte per column along tokens; 0 without scales.
[[nodiscard]] FP4PA_FN constexpr std::int32_t scale_row_bytes(KvFormat format, VScaleAxis axis, std::int32_t head_dim) {
  if (!has_scales(format)) return 0;
  if (format == KvFormat::kE8m0PerToken) return 1;
  if (axis == VScaleAxis::kTokens) return head_dim;
  return format == KvFormat::kNvfp4 ? head_dim / 16 : head_dim / 32;
}

struct TensorView {
  std::uint8_t* data;
  std::int64_t page_stride;  // bytes, as all strides here
  std::int64_t token_stride;
  std::int64_t head_stride;

  std::uint8_t* scales;  // null without scales
  std::int64_t scale_page_stride;
  std::int64_t scale_token_stride;  // along tokens: from one group's row to the next
  std::int64_t scale_head_stride;

  const float* global_ptr;  // read on the device that runs; null: global_value
  float global_value;
  std::int32_t global_per_head;  // 0 or 1, a multiplier of the head

  KvFormat format;
  std::int32_t scale_shift;  // token >> scale_shift is the scale row; see token_group_shift

  [[nodiscard]] FP4PA_FN bool scale_along_tokens() const { return scale_shift != 0; }
  [[nodiscard]] FP4PA_FN std::int32_t token_group() const { return 1 << scale_shift; }

  [[nodiscard]] FP4PA_FN std::int64_t row_offset(std::int64_t page, std::int32_t token, std::int32_t head) const {
    return page * page_stride + token * token_stride + head * head_stride;
  }
  [[nodiscard]] FP4PA_FN std::int64_t scale_row_offset(std::int64_t page, std::int32_t token, std::int32_t head) const {
    return scale_group_offset(page, token >> scale_shift, head);
  }
  /// @param group  the row of the scales in its page
  [[nodiscard]] FP4PA_FN std::int64_t scale_group_offset(std::int64_t page, std::int32_t group, std::int32_t head) const {
    return page * scale_page_stride + group * scale_token_stride + head * scale_head_stride;
  }

  /// First byte of the codes of (page, token, head).
  [[nodiscard]] FP4PA_FN const std::uint8_t* row(std::int64_t page, std::int32_t token, std::int32_t head) const {
    return data + row_offset(page, token, head);
  }
  /// First byte of the scales that hold for (page, token, head). Not to be called for formats without scales.
  [[nodiscard]] FP4PA_FN const std::uint8_t* scale_row(std::int64_t page, std::int32_t token, std::int32_t head) const {
    return scales + scale_row_offset(page, token, head);
  }
  [[nodiscard]] FP4PA_FN std::uint8_t* mutable_row(std::int64_t page, std::int32_t token, std::int32_t head) const {
    return data + row_offset(page, token, head);
  }
  [[nodiscard]] FP4PA_FN std::uint8_t* mutable_scale_row(std::int64_t page, std::int32_t token,
                                                         std::int32_t head) const {
    return scales + scale_row_offset(page, token, head);
  }

  /// Decode multiplier of a head's codes; 1 for the formats that have none.
  [[nodiscard]] FP4PA_FN float global(std::int32_t head) const {
    return global_ptr != nullptr ? global_ptr[head * global_per_head] : global_value;
  }
};

[[nodiscard]] FP4PA_FN TensorView make_view(const KvTensorDesc& desc) {
  TensorView view{};
  view.data = static_cast<std::uint8_t*>(desc.data);
  view.page_stride = desc.page_stride_bytes;
  view.token_stride = desc.token_stride_bytes;
  view.head_stride = desc.head_stride_bytes;
  view.scales = static_cast<std::uint8_t*>(desc.scales);
  view.scale_page_stride = desc.scale_page_stride_bytes;
  view.scale_token_stride = desc.scale_token_stride_bytes;
  view.scale_head_stride = desc.scale_head_stride_bytes;
  view.global_ptr = desc.global_scale_ptr;
  view.global_value = desc.global_scale;
  view.global_per_head = desc.global_scale_per_head ? 1 : 0;
  view.format = desc.format;
  view.scale_shift = token_group_shift(desc.format, desc.scale_axis);
  return view;
}

}  // namespace fp4pa::core
