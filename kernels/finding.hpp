// What validation on the device found, as a Status with its text.
#pragma once

#include "api/error.hpp"
#include "fp4pa/attention.hpp"
#include "kernels/run.hpp"

namespace fp4pa::FP4PA_GPU {

[[nodiscard]] inline Status status_of(const Finding& found, const AttentionConfig& c) noexcept {
  if (found.what == 0) return Status::kOk;
  const auto status = static_cast<Status>(found.what);
  switch (status) {
    case Status::kBlockIdOutOfRange:
      return api::fail(status, "a page table of sequence %d names page %lld; allowed: 0 to %lld (%lld in the recent tier)",
                       found.sequence, static_cast<long long>(found.value), static_cast<long long>(c.cache.num_pages - 1),
                       static_cast<long long>(c.recent.num_pages - 1));
    case Status::kLengthExceedsTable:
      return api::fail(status, "sequence %d has %lld keys in the page table, more than its row holds", found.sequence,
                       static_cast<long long>(found.value));
    case Status::kInvalidIndptr:
      return api::fail(status, "qo_indptr at sequence %d is %lld; it must start at 0 and not decrease", found.sequence,
                       static_cast<long long>(found.value));
    default:
      return api::fail(status,
                       "sequence %d has a length of %lld; the plan allows %d query tokens and %d keys a sequence, %d query "
                       "tokens a call",
                       found.sequence, static_cast<long long>(found.value), c.max_q_len, c.max_kv_len, c.max_q_tokens);
  }
}

}  // namespace fp4pa::FP4PA_GPU
