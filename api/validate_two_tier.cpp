// validate(TwoTierDesc): both tiers, and what has to agree between them.
#include <cinttypes>

#include "api/error.hpp"
#include "api/saturating.hpp"
#include "api/validate.hpp"
#include "fp4pa/cache.hpp"

namespace fp4pa {
namespace {

using api::fail;

[[nodiscard]] Status validate_tier(const char* tier, const KvCacheDesc& cache) noexcept {
  const Status s = validate(cache);
  return s == Status::kOk ? s : fail(s, "%s: %s", tier, last_error_detail());
}

[[nodiscard]] Status validate_recent_format(const char* name, KvFormat format) noexcept {
  if (!has_scales(format)) return Status::kOk;
  return fail(Status::kUnsupportedFormat, "recent.%s.format is %s; allowed: bf16, f16, fp8_e4m3", name,
              name_of(format));
}

[[nodiscard]] Status validate_agreement(const KvCacheDesc& old_tier, const KvCacheDesc& recent) noexcept {
  if (recent.num_kv_heads != old_tier.num_kv_heads) {
    return fail(Status::kInvalidSize, "recent.num_kv_heads is %" PRId32 "; allowed: %" PRId32 ", as in old_tier",
                recent.num_kv_heads, old_tier.num_kv_heads);
  }
  if (recent.head_dim != old_tier.head_dim) {
    return fail(Status::kInvalidSize, "recent.head_dim is %" PRId32 "; allowed: %" PRId32 ", as in old_tier",
                recent.head_dim, old_tier.head_dim);
  }
  if (recent.rotation != old_tier.rotation) {
    return fail(Status::kUnsupportedFormat, "recent.rotation is %d; allowed: %d, as in old_tier",
                static_cast<int>(recent.rotation), static_cast<int>(old_tier.rotation));
  }
  return Status::kOk;
}

[[nodiscard]] Status validate_window(const TwoTierDesc& cache) noexcept {
  if (cache.window_tokens < 16 || cache.window_tokens > 256) {
    return fail(Status::kInvalidSize, "window_tokens is %" PRId32 "; allowed: 16 to 256", cache.window_tokens);
  }
  const std::int32_t v_group = kv_token_group(cache.old_tier.v.format, cache.old_tier.v.scale_axis);
  if (cache.group_tokens < 1 || cache.group_tokens % v_group != 0) {
    return fail(Status::kInvalidSize, "group_tokens is %" PRId32 "; allowed: positive multiples of %" PRId32
                ", the tokens that share a scale of V",
                cache.group_tokens, v_group);
  }
  const std::int32_t page = cache.old_tier.page_size;
  if (page % cache.group_tokens != 0 && cache.group_tokens % page != 0) {
    return fail(Status::kInvalidSize,
                "group_tokens is %" PRId32 "; allowed: divisors and multiples of old_tier.page_size, %" PRId32,
                cache.group_tokens, page);
  }
  const std::int64_t needed = std::int64_t{cache.window_tokens} + cache.group_tokens;
  const std::int64_t held = api::saturating_mul(cache.ring_pages, cache.recent.page_size);
  if (cache.ring_pages < 1 || held < needed) {
    return fail(Status::kInvalidSize,
                "ring_pages is %" PRId32 "; allowed: at least %" PRId64
                ", so that pages of %" PRId32 " hold window_tokens + group_tokens = %" PRId64,
                cache.ring_pages, (needed + cache.recent.page_size - 1) / cache.recent.page_size,
                cache.recent.page_size, needed);
  }
  return Status::kOk;
}

}  // namespace

Status validate(const TwoTierDesc& cache) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_tier("old_tier", cache.old_tier));
  FP4PA_RETURN_IF_FAILED(validate_tier("recent", cache.recent));
  FP4PA_RETURN_IF_FAILED(validate_recent_format("k", cache.recent.k.format));
  FP4PA_RETURN_IF_FAILED(validate_recent_format("v", cache.recent.v.format));
  FP4PA_RETURN_IF_FAILED(validate_agreement(cache.old_tier, cache.recent));
  FP4PA_RETURN_IF_FAILED(validate_window(cache));
  return api::validate_tiers_apart(cache.old_tier, cache.recent);
}

}  // namespace fp4pa
