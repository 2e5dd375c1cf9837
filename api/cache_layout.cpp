// Sizes and strides of the layouts that the library offers to fill in: dense arrays and interleaved pages, HND and NHD.
//
// These are helpers, not modes: what they write into a description is all that any reader sees. Fields that no cache has give sizes of 0,
// never a wrapped number; validate() says what is wrong.
#include <algorithm>
#include <cstdint>

#include "api/saturating.hpp"
#include "api/validate.hpp"
#include "fp4pa/cache.hpp"

namespace fp4pa {
namespace {

using api::round_up;
using api::saturating_add;
using api::saturating_mul;

constexpr std::int64_t kPartAlignment = 16;

/// Strides of one page's rows, and the bytes of all of them.
struct PageStrides {
  std::int64_t page, token, head;
};

[[nodiscard]] PageStrides strides_of(PageOrder order, std::int64_t heads, std::int64_t tokens,
                                     std::int64_t row_bytes) noexcept {
  const std::int64_t page = saturating_mul(saturating_mul(heads, tokens), row_bytes);
  if (order == PageOrder::kNhd) return {page, saturating_mul(heads, row_bytes), row_bytes};
  return {page, row_bytes, saturating_mul(tokens, row_bytes)};
}

/// Rows of scales that a page has for one head.
[[nodiscard]] std::int64_t scale_rows(const KvCacheDesc& cache, const KvTensorDesc& tensor) noexcept {
  const std::int64_t group = kv_token_group(tensor.format, tensor.scale_axis);
  return (std::max<std::int64_t>(cache.page_size, 0) + group - 1) / group;
}

[[nodiscard]] PageStrides data_strides(const KvCacheDesc& cache, const KvTensorDesc& tensor, PageOrder order) noexcept {
  return strides_of(order, std::max(cache.num_kv_heads, 0), std::max(cache.page_size, 0),
                    kv_data_bytes(tensor.format, cache.head_dim));
}

[[nodiscard]] PageStrides scale_strides(const KvCacheDesc& cache, const KvTensorDesc& tensor,
                                        PageOrder order) noexcept {
  return strides_of(order, std::max(cache.num_kv_heads, 0), scale_rows(cache, tensor),
                    kv_scale_bytes(tensor.format, tensor.scale_axis, cache.head_dim));
}

/// 0 for sizes that no cache has, and for more bytes than there are.
[[nodiscard]] std::int64_t bytes_of_pages(const KvCacheDesc& cache, std::int64_t page_bytes) noexcept {
  if (api::validate_cache_shape(cache) != Status::kOk) return 0;
  const std::int64_t bytes = saturating_mul(cache.num_pages, page_bytes);
  return bytes > api::kMostBytes ? 0 : bytes;
}

void set_data_strides(KvTensorDesc& tensor, const PageStrides& strides) noexcept {
  tensor.page_stride_bytes = strides.page;
  tensor.token_stride_bytes = strides.token;
  tensor.head_stride_bytes = strides.head;
}

void set_scale_strides(KvTensorDesc& tensor, const PageStrides& strides) noexcept {
  tensor.scale_page_stride_bytes = strides.page;
  tensor.scale_token_stride_bytes = strides.token;
  tensor.scale_head_stride_bytes = strides.head;
}

}  // namespace

std::int64_t kv_data_bytes(KvFormat format, std::int32_t head_dim) noexcept {
  const std::int64_t columns = std::max(head_dim, 0);
  switch (format) {
    case KvFormat::kMxfp4:
    case KvFormat::kNvfp4:
    case KvFormat::kE8m0PerToken: return columns / 2;
    case KvFormat::kFp8E4m3:
    case KvFormat::kMxfp8: return columns;
    case KvFormat::kBf16:
    case KvFormat::kF16: return 2 * columns;
  }
  return 0;
}

std::int64_t kv_scale_bytes(KvFormat format, VScaleAxis axis, std::int32_t head_dim) noexcept {
  const std::int64_t columns = std::max(head_dim, 0);
  const bool along_tokens = axis == VScaleAxis::kTokens;
  switch (format) {
    case KvFormat::kMxfp4: return along_tokens ? columns : columns / 32;
    case KvFormat::kNvfp4: return along_tokens ? columns : columns / 16;
    case KvFormat::kE8m0PerToken: return 1;
    case KvFormat::kMxfp8: return columns / 32;
    case KvFormat::kFp8E4m3:
    case KvFormat::kBf16:
    case KvFormat::kF16: return 0;
  }
  return 0;
}

std::int32_t kv_token_group(KvFormat format, VScaleAxis axis) noexcept {
  if (axis != VScaleAxis::kTokens) return 1;
  if (format == KvFormat::kMxfp4) return 32;
  return format == KvFormat::kNvfp4 ? 16 : 1;
}

void set_dense_strides(KvCacheDesc& cache, PageOrder order) noexcept {
  for (KvTensorDesc* tensor : {&cache.k, &cache.v}) {
    set_data_strides(*tensor, data_strides(cache, *tensor, order));
    set_scale_strides(*tensor, scale_strides(cache, *tensor, order));
  }
}

std::int64_t dense_data_bytes(const KvCacheDesc& cache, const KvTensorDesc& tensor) noexcept {
  return bytes_of_pages(cache, data_strides(cache, tensor, PageOrder::kHnd).page);
}

std::int64_t dense_scale_bytes(const KvCacheDesc& cache, const KvTensorDesc& tensor) noexcept {
  return bytes_of_pages(cache, scale_strides(cache, tensor, PageOrder::kHnd).page);
}

std::int64_t set_interleaved_pages(KvCacheDesc& cache, PageOrder order, void* base) noexcept {
  if (api::validate_cache_shape(cache) != Status::kOk || api::validate_page_base(base) != Status::kOk) return 0;
  // With a null base only the strides are set, so that the size of a page can be asked for before there is memory.
  const auto part = [base](std::int64_t offset) {  // of memory that validate() has yet to look at: an address, not a pointer's arithmetic
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(base) + static_cast<std::uintptr_t>(offset));
  };
  std::int64_t offset = 0;
  for (KvTensorDesc* tensor : {&cache.k, &cache.v}) {
    const PageStrides data = data_strides(cache, *tensor, order);
    const PageStrides scales = scale_strides(cache, *tensor, order);
    set_data_strides(*tensor, data);
    set_scale_strides(*tensor, scales);
    if (base != nullptr) tensor->data = part(offset);
    offset = round_up(saturating_add(offset, data.page), kPartAlignment);
    if (base != nullptr) tensor->scales = scales.page == 0 ? nullptr : part(offset);
    offset = round_up(saturating_add(offset, scales.page), kPartAlignment);
  }
  for (KvTensorDesc* tensor : {&cache.k, &cache.v}) {
    tensor->page_stride_bytes = offset;
    if (tensor->scale_page_stride_bytes != 0) tensor->scale_page_stride_bytes = offset;
  }
  return offset;
}

std::int32_t old_tier_pages(const TwoTierDesc& cache, std::int32_t length) noexcept {
  if (cache.window_tokens < 0 || cache.group_tokens < 1 || cache.old_tier.page_size < 1) return 0;
  const std::int64_t tokens = quantised_tokens(length, cache.window_tokens, cache.group_tokens);
  return static_cast<std::int32_t>((tokens + cache.old_tier.page_size - 1) / cache.old_tier.page_size);
}

}  // namespace fp4pa
