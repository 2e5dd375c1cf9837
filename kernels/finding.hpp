// What validation on the device found: where it lies, and the Status with its text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "api/attention_params.hpp"
#include "api/error.hpp"
#include "api/validate_attention.hpp"
#include "api/workspace.hpp"
#include "fp4pa/attention.hpp"
#include "kernels/run.hpp"

namespace fp4pa::FP4PA_GPU {

/// Bytes of workspace of a plan whose workers and tiles are chosen. What validation finds lies behind the parts that every plan has.
[[nodiscard]] inline std::size_t workspace_bytes(const AttentionConfig& c, const api::PlanChoice& choice) noexcept {
  const std::size_t parts = api::workspace_layout(c, choice.num_workers, choice.tile_rows).total;
  return c.validate_device_data ? parts + api::workspace_part(sizeof(Finding)) : parts;
}
[[nodiscard]] inline Finding* finding_in(const api::RunRequest& r) noexcept {
  const std::size_t parts = api::workspace_layout(r.config, r.choice.num_workers, r.choice.tile_rows).total;
  return reinterpret_cast<Finding*>(static_cast<std::uint8_t*>(r.args.workspace) + parts);
}

[[nodiscard]] inline CheckLimits limits_of(const AttentionConfig& c, const AttentionArgs& a) noexcept {
  const auto q_tokens = static_cast<std::int32_t>(std::min<std::int64_t>(c.max_q_tokens, api::tokens_apart(c, a)));
  return {c.max_q_len, c.max_kv_len, q_tokens, {c.cache.num_pages, c.recent.num_pages}};
}

[[nodiscard]] inline Status status_of(const Finding& found, const AttentionConfig& c) noexcept {
  const std::int32_t at = found.sequence;
  const auto value = static_cast<long long>(found.value);
  const auto other = static_cast<long long>(found.other);
  const auto page_outside = [&](const char* table, std::int64_t pages) {
    return api::fail(Status::kBlockIdOutOfRange, "%s of sequence %d names page %lld at position %lld; allowed: 0 to %lld", table, at, value,
                     other, static_cast<long long>(pages - 1));
  };
  const auto not_ascending = [&](const char* indptr) {
    if (at == 0) return api::fail(Status::kInvalidIndptr, "%s[0] is %lld; allowed: 0", indptr, value);
    return api::fail(Status::kInvalidIndptr, "%s[%d] is %lld after %lld; allowed: values that do not decrease", indptr, at, value, other);
  };
  switch (found.what) {
    case Wrong::kNothing: return Status::kOk;
    case Wrong::kQoIndptr: return not_ascending("qo_indptr");
    case Wrong::kKvIndptr: return not_ascending("kv_indptr");
    case Wrong::kQueryTokens:
      return api::fail(Status::kPlanMismatch, "sequence %d has %lld query tokens; allowed: up to the plan's max_q_len %d", at, value, c.max_q_len);
    case Wrong::kKeys:
      return api::fail(Status::kPlanMismatch, "seq_lens[%d] is %lld; allowed: 0 to the plan's max_kv_len %d", at, value, c.max_kv_len);
    case Wrong::kTable:
      return api::fail(Status::kLengthExceedsTable,
                       "sequence %d has %lld keys in the page table, which is %lld pages of %d; its row holds %lld", at, value,
                       (value + c.cache.page_size - 1) / c.cache.page_size, c.cache.page_size, other);
    case Wrong::kPage: return page_outside(c.table_kind == TableKind::kCsr ? "kv_indices" : "block_table", c.cache.num_pages);
    case Wrong::kRecentPage: return page_outside("recent_table", c.recent.num_pages);
    case Wrong::kTotal:
      if (other < c.max_q_tokens) {
        return api::fail(Status::kInvalidStrides, "rows of q or o overlap by their strides beyond %lld query tokens; qo_indptr ends at %lld; allowed: up to that "
                         "many, or all heads of a token within its token stride",
                         other, value);
      }
      return api::fail(Status::kPlanMismatch, "qo_indptr ends at %lld query tokens; allowed: up to the plan's max_q_tokens %d", value, c.max_q_tokens);
  }
  return api::fail(Status::kInternal, "validation found %d", static_cast<int>(found.what));
}

}  // namespace fp4pa::FP4PA_GPU
