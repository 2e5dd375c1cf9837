// What a run reads from memory, checked before anything is written. The CPU can afford it: one pass over the page ids that
// the call will follow anyway.
#include "api/error.hpp"
#include "api/validate.hpp"
#include "api/validate_attention.hpp"
#include "backends/cpu/attention.hpp"

#include <algorithm>
#include <cinttypes>

namespace fp4pa::cpu {
namespace {

using api::fail;

/// Page ids of logical pages [first, last) of one sequence.
Status check_pages(const char* table, const std::int32_t* row, std::int32_t seq, std::int64_t first, std::int64_t last,
                   std::int32_t ring_pages, std::int64_t num_pages) {
  for (std::int64_t page = first; page < last; ++page) {
    const std::int64_t position = ring_pages != 0 ? page % ring_pages : page;
    const std::int32_t id = row[position];
    if (id < 0 || id >= num_pages) {
      return fail(Status::kBlockIdOutOfRange, "%s of sequence %d names page %d at position %" PRId64 "; allowed: 0 to %" PRId64,
                  table, seq, id, position, num_pages - 1);
    }
  }
  return Status::kOk;
}

Status check_sequence(const AttentionConfig& c, const AttentionArgs& a, std::int32_t b) {
  const std::int64_t q_len = std::int64_t{a.qo_indptr[b + 1]} - a.qo_indptr[b];
  const std::int32_t kv_len = a.seq_lens[b];
  if (q_len < 0) {
    return fail(Status::kInvalidIndptr, "qo_indptr[%d] is %d after %d; allowed: values that do not decrease", b + 1, a.qo_indptr[b + 1],
                a.qo_indptr[b]);
  }
  if (q_len > c.max_q_len) {
    return fail(Status::kPlanMismatch, "sequence %d has %" PRId64 " query tokens; allowed: up to the plan's max_q_len %d", b, q_len,
                c.max_q_len);
  }
  if (kv_len < 0 || kv_len > c.max_kv_len) {
    return fail(Status::kPlanMismatch, "seq_lens[%d] is %d; allowed: 0 to the plan's max_kv_len %d", b, kv_len, c.max_kv_len);
  }
  if (q_len == 0) return Status::kOk;

  const std::int32_t old_tokens =
      c.two_tier ? quantised_tokens(kv_len, c.window_tokens, c.group_tokens) : kv_len;
  const std::int64_t pages = (std::int64_t{old_tokens} + c.cache.page_size - 1) / c.cache.page_size;
  const bool csr = c.table_kind == TableKind::kCsr;
  if (csr && a.kv_indptr == nullptr) return Status::kOk;  // in a call without a key alone
  if (csr && (a.kv_indptr[b] < 0 || a.kv_indptr[b + 1] < a.kv_indptr[b])) {
    return fail(Status::kInvalidIndptr, "kv_indptr[%d..%d] is %d, %d; allowed: values from 0 on that do not decrease", b, b + 1,
                a.kv_indptr[b], a.kv_indptr[b + 1]);
  }
  const std::int64_t capacity = csr ? std::int64_t{a.kv_indptr[b + 1]} - a.kv_indptr[b] : a.table_stride;
  if (pages > capacity) {
    return fail(Status::kLengthExceedsTable,
                "sequence %d has %d keys in the page table, which is %" PRId64 " pages of %d; its row holds %" PRId64, b,
                old_tokens, pages, c.cache.page_size, capacity);
  }
  if (kv_len == 0) return Status::kOk;  // without a key, tables are not looked at and may be null
  // Pages wholly before every query's window are never read, so they may already be gone.
  const std::int32_t first_query = kv_len - static_cast<std::int32_t>(q_len);
  const std::int32_t first_key =
      c.sliding_window > 0 ? static_cast<std::int32_t>(std::max<std::int64_t>(0, std::int64_t{first_query} + 1 - c.sliding_window)) : 0;
  const std::int32_t* row = csr ? a.kv_indices + a.kv_indptr[b] : a.block_table + b * a.table_stride;
  if (const Status s = check_pages(csr ? "kv_indices" : "block_table", row, b, first_key / c.cache.page_size, pages, 0,
                                   c.cache.num_pages);
      s != Status::kOk || !c.two_tier) {
    return s;
  }
  const std::int64_t recent_first = std::max(old_tokens, first_key) / c.recent.page_size;
  const std::int64_t recent_last = (std::int64_t{kv_len} + c.recent.page_size - 1) / c.recent.page_size;
  return check_pages("recent_table", a.recent_table + std::int64_t{b} * c.ring_pages, b, recent_first, recent_last,
                     c.ring_pages, c.recent.num_pages);
}

}  // namespace

Status check_lengths_and_tables(const api::RunRequest& request) noexcept {
  const AttentionConfig& c = request.config;
  const AttentionArgs& a = request.args;
  if (a.qo_indptr[0] != 0) {
    return fail(Status::kInvalidIndptr, "qo_indptr[0] is %d; allowed: 0", a.qo_indptr[0]);
  }
  FP4PA_RETURN_IF_FAILED(api::validate_host_global_scales(c.cache));
  if (c.two_tier) {
    FP4PA_RETURN_IF_FAILED(api::validate_host_global_scales(c.recent));
  }
  if (c.table_kind == TableKind::kCsr && a.kv_indptr != nullptr && a.kv_indptr[0] != 0) {
    return fail(Status::kInvalidIndptr, "kv_indptr[0] is %d; allowed: 0", a.kv_indptr[0]);
  }
  for (std::int32_t b = 0; b < a.batch; ++b) {
    FP4PA_RETURN_IF_FAILED(check_sequence(c, a, b));
  }
  if (a.qo_indptr[a.batch] > c.max_q_tokens) {
    return fail(Status::kPlanMismatch, "qo_indptr ends at %d query tokens; allowed: up to the plan's max_q_tokens %d",
                a.qo_indptr[a.batch], c.max_q_tokens);
  }
  return api::validate_tokens(c, a, a.qo_indptr[a.batch]);
}

}  // namespace fp4pa::cpu
