// Reading a paged cache element by element, from its description alone.
//
// One element at a time, addresses straight from the sentences of fp4pa/cache.hpp: what the library's tiles, tables and
// strides have to agree with. Bytes that the description does not assign to the token are never touched, so that a
// caller may poison them.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "fp4pa/cache.hpp"
#include "reference/element.hpp"

namespace fp4pa::reference {

/// One token's row of a pool: page id and row of the page.
struct Place {
  const KvCacheDesc* cache = nullptr;
  std::int64_t page = 0;
  std::int32_t row = 0;
};

/// Elements that share a scale along head_dim; 0 for formats without scales.
[[nodiscard]] inline std::int32_t scale_group(KvFormat format, std::int32_t head_dim) {
  switch (format) {
    case KvFormat::kMxfp4:
    case KvFormat::kMxfp8:
      return 32;
    case KvFormat::kNvfp4:
      return 16;
    case KvFormat::kE8m0PerToken:
      return head_dim;
    default:
      return 0;
  }
}

/// The multiplier that every element of a head carries; reads host memory.
[[nodiscard]] inline double global_scale(const KvTensorDesc& tensor, std::int32_t head) {
  if (tensor.global_scale_ptr == nullptr) return tensor.global_scale;
  return tensor.global_scale_ptr[tensor.global_scale_per_head ? head : 0];
}

/// The scale byte that belongs to (page, row, head, column) of a tensor with scales.
[[nodiscard]] inline std::uint8_t scale_byte(const KvTensorDesc& tensor, std::int32_t head_dim, const Place& place,
                                             std::int32_t head, std::int32_t column) {
  const bool along_tokens = tensor.scale_axis == VScaleAxis::kTokens;
  const std::int32_t group = scale_group(tensor.format, head_dim);
  const std::int64_t step = along_tokens ? place.row / group : place.row;
  const std::int64_t within = along_tokens ? column : column / group;
  const auto* scales = static_cast<const std::uint8_t*>(tensor.scales);
  return scales[place.page * tensor.scale_page_stride_bytes + step * tensor.scale_token_stride_bytes +
                head * tensor.scale_head_stride_bytes + within];
}

/// Element `column` of a token's K or V, dequantised.
[[nodiscard]] inline double element(const KvTensorDesc& tensor, std::int32_t head_dim, const Place& place,
                                    std::int32_t head, std::int32_t column) {
  const auto* row = static_cast<const std::uint8_t*>(tensor.data) + place.page * tensor.page_stride_bytes +
                    place.row * tensor.token_stride_bytes + head * tensor.head_stride_bytes;
  const double multiplier = global_scale(tensor, head);
  switch (tensor.format) {
    case KvFormat::kBf16:
      return decode_plain(row, DType::kBF16, column);
    case KvFormat::kF16:
      return decode_plain(row, DType::kF16, column);
    case KvFormat::kFp8E4m3:
      return decode_e4m3(row[column]) * multiplier;
    case KvFormat::kMxfp8:
      return decode_e4m3(row[column]) * decode_e8m0(scale_byte(tensor, head_dim, place, head, column));
    default:
      break;
  }
  const unsigned code = column % 2 == 0 ? row[column / 2] & 15u : row[column / 2] >> 4;
  const std::uint8_t scale = scale_byte(tensor, head_dim, place, head, column);
  if (tensor.format == KvFormat::kNvfp4) return decode_e2m1(code) * decode_e4m3(scale & 0x7f) * multiplier;  // UE4M3 has no sign
  return decode_e2m1(code) * decode_e8m0(scale);
}

/// A token's whole row for one head.
inline void dequantize_row(const KvTensorDesc& tensor, const Place& place, std::int32_t head, std::span<double> out) {
  const std::int32_t head_dim = place.cache->head_dim;
  for (std::int32_t column = 0; column < head_dim; ++column) {
    out[static_cast<std::size_t>(column)] = element(tensor, head_dim, place, head, column);
  }
}

}  // namespace fp4pa::reference
