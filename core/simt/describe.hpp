// An instance in words, for the log: which kernel serves a plan.
#pragma once

#include <cstddef>
#include <cstdio>

#include "core/simt/config.hpp"

namespace fp4pa::core {

[[nodiscard]] inline const char* name_of(KvKind k) {
  switch (k) {
    case KvKind::kMxfp4: return "mxfp4";
    case KvKind::kNvfp4: return "nvfp4";
    case KvKind::kPerToken: return "e8m0_per_token";
    case KvKind::kFp8: return "fp8_e4m3";
    case KvKind::kBf16: return "bf16";
    case KvKind::kF16: return "f16";
    case KvKind::kMxfp4Tokens: return "mxfp4 along tokens";
    case KvKind::kNvfp4Tokens: return "nvfp4 along tokens";
    case KvKind::kMxfp8: return "mxfp8";
    case KvKind::kAny:
    case KvKind::kAnyRecent: break;
  }
  return "any";
}

/// "K mxfp4, V mxfp4, head_dim 128, plain", for example, in at most 96 bytes; cut where `size` ends.
inline void describe(const SimtConfig& c, char* text, std::size_t size) noexcept {
  std::snprintf(text, size, "K %s, V %s, head_dim %s%d%s%s", name_of(c.k[0]), name_of(c.v[0]), c.exact_head_dim ? "" : "up to ",
                c.head_dim, c.exact_head_dim && c.segments > 1 ? ", recent tier" : "", c.plain ? ", plain" : "");
}

}  // namespace fp4pa::core
