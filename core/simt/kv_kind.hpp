// A KV tensor's format and scale axis as one compile-time word, or "any": decided tile by tile at run time.
//
// The instances that people serve with name their kinds; one instance with kAny serves every other combination, at the
// price of a switch per tile. The code between is the same.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/paging/tensor_view.hpp"

namespace fp4pa::core {

enum class KvKind : std::int32_t {
  kMxfp4,        // scales along head_dim, as for K always
  kNvfp4,
  kPerToken,
  kFp8,
  kBf16,
  kF16,
  kMxfp4Tokens,  // V scaled along tokens
  kNvfp4Tokens,
  kAny,
  kAnyRecent,    // any of those that a recent tier may have
  kMxfp8,
};

[[nodiscard]] FP4PA_FN constexpr bool is_any(KvKind k) { return k == KvKind::kAny || k == KvKind::kAnyRecent; }

[[nodiscard]] FP4PA_FN constexpr KvKind kv_kind(KvFormat format, bool along_tokens) {
  switch (format) {
    case KvFormat::kMxfp4: return along_tokens ? KvKind::kMxfp4Tokens : KvKind::kMxfp4;
    case KvFormat::kNvfp4: return along_tokens ? KvKind::kNvfp4Tokens : KvKind::kNvfp4;
    case KvFormat::kE8m0PerToken: return KvKind::kPerToken;
    case KvFormat::kFp8E4m3: return KvKind::kFp8;
    case KvFormat::kBf16: return KvKind::kBf16;
    case KvFormat::kMxfp8: return KvKind::kMxfp8;
    default: return KvKind::kF16;
  }
}
[[nodiscard]] FP4PA_FN KvKind kv_kind(const TensorView& view) { return kv_kind(view.format, view.scale_along_tokens()); }

[[nodiscard]] FP4PA_FN constexpr bool along_tokens(KvKind k) {
  return k == KvKind::kMxfp4Tokens || k == KvKind::kNvfp4Tokens;
}
/// A view's scale_shift, a constant where the kind is one.
[[nodiscard]] FP4PA_FN constexpr std::int32_t scale_shift(KvKind k) {
  return k == KvKind::kMxfp4Tokens ? token_group_shift(KvFormat::kMxfp4, VScaleAxis::kTokens)
       : k == KvKind::kNvfp4Tokens ? token_group_shift(KvFormat::kNvfp4, VScaleAxis::kTokens)
                                   : 0;
}
[[nodiscard]] FP4PA_FN constexpr bool is_fp4(KvKind k) {
  return k == KvKind::kMxfp4 || k == KvKind::kNvfp4 || k == KvKind::kPerToken || along_tokens(k);
}
[[nodiscard]] FP4PA_FN constexpr bool is_e4m3(KvKind k) { return k == KvKind::kFp8 || k == KvKind::kMxfp8; }
/// Elements in 16 bits of a row.
[[nodiscard]] FP4PA_FN constexpr int per_halfword(KvKind k) { return is_fp4(k) ? 4 : is_e4m3(k) ? 2 : 1; }
[[nodiscard]] FP4PA_FN constexpr int code_bytes(KvKind k, int head_dim) { return 2 * head_dim / per_halfword(k); }

/// Bytes of scales that one key brings along head_dim; 0 along tokens and without scales.
[[nodiscard]] FP4PA_FN constexpr int key_scale_bytes(KvKind k, int head_dim) {
  switch (k) {
    case KvKind::kMxfp4:
    case KvKind::kMxfp8: return head_dim / 32;
    case KvKind::kNvfp4: return head_dim / 16;
    case KvKind::kPerToken: return 1;
    default: return 0;
  }
}

template <KvKind kKind>
using KindConstant = std::integral_constant<KvKind, kKind>;

/// Calls f(KindConstant<k>) for the kind at hand: kKind if it is fixed, else `kind`.
template <KvKind kKind, class F>
FP4PA_FN void with_key_kind(KvKind kind, F&& f) {
  if constexpr (!is_any(kKind)) {
    f(KindConstant<kKind>());
  } else if constexpr (kKind == KvKind::kAnyRecent) {
    switch (kind) {
      case KvKind::kFp8: f(KindConstant<KvKind::kFp8>()); break;
      case KvKind::kBf16: f(KindConstant<KvKind::kBf16>()); break;
      default: f(KindConstant<KvKind::kF16>()); break;
    }
  } else {
    switch (kind) {
      case KvKind::kMxfp4: f(KindConstant<KvKind::kMxfp4>()); break;
      case KvKind::kNvfp4: f(KindConstant<KvKind::kNvfp4>()); break;
      case KvKind::kPerToken: f(KindConstant<KvKind::kPerToken>()); break;
      case KvKind::kMxfp8: f(KindConstant<KvKind::kMxfp8>()); break;
      default: with_key_kind<KvKind::kAnyRecent>(kind, f); break;
    }
  }
}
template <KvKind kKind, class F>
FP4PA_FN void with_value_kind(KvKind kind, F&& f) {
  if constexpr (kKind != KvKind::kAny) {
    with_key_kind<kKind>(kind, f);
  } else {
    switch (kind) {
      case KvKind::kMxfp4Tokens: f(KindConstant<KvKind::kMxfp4Tokens>()); break;
      case KvKind::kNvfp4Tokens: f(KindConstant<KvKind::kNvfp4Tokens>()); break;
      default: with_key_kind<KvKind::kAny>(kind, f); break;
    }
  }
}

}  // namespace fp4pa::core
