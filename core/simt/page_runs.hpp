// Runs: a full tile of a cache whose pages hold a power of two of tokens, at least 16, falls into runs of 16 keys that lie in one
// page each, so that a thread finds the addresses of its copies from a few page ids.
#pragma once

#include <cstdint>

#include "core/paging/tensor_view.hpp"
#include "core/simt/kv_kind.hpp"

namespace fp4pa::core {

inline constexpr int kRunKeys = 16;

/// Whether all scale rows of a tensor begin on multiples of their length, or of four bytes where they are longer. Of rows of two
/// bytes a copy takes the four that are aligned; which half of them it wanted must not depend on the page.
[[nodiscard]] FP4PA_FN bool scales_are_aligned(const TensorView& view, int bytes) {
  if (bytes == 2 && view.scale_page_stride % 4 != 0) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(view.scales);
  const std::uintptr_t unit = bytes == 0 ? 1 : bytes <= 2 ? static_cast<std::uintptr_t>(bytes) : 4;
  return bytes % static_cast<int>(unit) == 0 &&
         ((address | view.scale_page_stride | view.scale_token_stride | view.scale_head_stride) & (unit - 1)) == 0;
}

/// Whether a tensor's rows can be found by runs: strides of pages and tokens of less than 2^32 bytes, scales in whole loads.
[[nodiscard]] FP4PA_FN bool fits_runs(const TensorView& t, KvKind kind, int head_dim) {
  const bool narrow = ((t.page_stride | t.token_stride * kRunKeys | t.scale_page_stride | t.scale_token_stride) >> 32) == 0;
  return narrow && scales_are_aligned(t, along_tokens(kind) ? 4 : key_scale_bytes(kind, head_dim));
}
/// Whether a row of K is as far from its pool's beginning as the same row of V, codes and scales along head_dim.
[[nodiscard]] FP4PA_FN bool lie_alike(const TensorView& k, const TensorView& v, bool same_scales) {
  return k.page_stride == v.page_stride && k.token_stride == v.token_stride &&
         (!same_scales || (k.scale_page_stride == v.scale_page_stride && k.scale_token_stride == v.scale_token_stride));
}
[[nodiscard]] FP4PA_FN constexpr bool fits_runs(std::int32_t page_size) {
  return page_size >= kRunKeys && (page_size & (page_size - 1)) == 0;
}

}  // namespace fp4pa::core
