// See dense.hpp.
#include "api/dense.hpp"

#include <cinttypes>
#include <utility>

#include "api/error.hpp"
#include "api/validate.hpp"

namespace fp4pa::api {
namespace {

[[nodiscard]] std::size_t bytes_of(std::int64_t count, std::size_t size) noexcept {
  return static_cast<std::size_t>(count) * size;
}

/// One of the two sides of a batch.
struct Side {
  const char* tokens_name;
  const char* indptr_name;
  std::int32_t tokens;
  const std::int32_t* indptr;
  std::int32_t max_tokens;
  std::int32_t max_len;
};

[[nodiscard]] Status validate_side(const Side& side, std::int32_t batch, bool on_host) noexcept {
  if (side.tokens < 0 || side.tokens > side.max_tokens) {
    return fail(Status::kPlanMismatch, "%s is %" PRId32 "; allowed: 0 to the plan's max_%s %" PRId32, side.tokens_name,
                side.tokens, side.tokens_name, side.max_tokens);
  }
  if (side.indptr == nullptr) {
    if (side.tokens % batch != 0) {
      return fail(Status::kInvalidSize,
                  "%s is %" PRId32 " with batch %" PRId32 " and no %s; allowed: multiples of batch", side.tokens_name,
                  side.tokens, batch, side.indptr_name);
    }
    if (side.tokens / batch > side.max_len) {
      return fail(Status::kPlanMismatch,
                  "%s is %" PRId32 ", %" PRId32 " a sequence; allowed: up to the plan's %" PRId32, side.tokens_name,
                  side.tokens, side.tokens / batch, side.max_len);
    }
    return Status::kOk;
  }
  if (const Status s = validate_pointer(side.indptr_name, side.indptr, alignof(std::int32_t)); s != Status::kOk)
    return s;
  if (!on_host) return Status::kOk;
  if (side.indptr[0] != 0) {
    return fail(Status::kInvalidIndptr, "%s[0] is %" PRId32 "; allowed: 0", side.indptr_name, side.indptr[0]);
  }
  for (std::int32_t b = 0; b < batch; ++b) {
    const std::int64_t len = std::int64_t{side.indptr[b + 1]} - side.indptr[b];
    if (len < 0) {
      return fail(Status::kInvalidIndptr, "%s[%" PRId32 "] is %" PRId32 " after %" PRId32 "; allowed: values that do not decrease",
                  side.indptr_name, b + 1, side.indptr[b + 1], side.indptr[b]);
    }
    if (len > side.max_len) {
      return fail(Status::kPlanMismatch,
                  "sequence %" PRId32 " has %" PRId64 " rows by %s; allowed: up to the plan's %" PRId32, b, len,
                  side.indptr_name, side.max_len);
    }
  }
  if (side.indptr[batch] != side.tokens) {
    return fail(Status::kInvalidIndptr, "%s ends at %" PRId32 "; allowed: %s, which is %" PRId32, side.indptr_name,
                side.indptr[batch], side.tokens_name, side.tokens);
  }
  return Status::kOk;
}

}  // namespace

TableParts TableParts::cut(WorkspaceParts& parts, const DenseLimits& limits, std::int32_t page_size,
                           bool with_slots) noexcept {
  constexpr std::size_t kIndex = sizeof(std::int32_t);
  TableParts t{};
  t.page_size = page_size;
  t.has_slots = with_slots;
  t.qo_indptr = parts.add(bytes_of(limits.max_batch + std::int64_t{1}, kIndex));
  t.seq_lens = parts.add(bytes_of(limits.max_batch, kIndex));
  t.kv_indptr = parts.add(bytes_of(limits.max_batch + std::int64_t{1}, kIndex));
  t.page_ids = parts.add(bytes_of(core::dense_pages(limits.max_kv_tokens, limits.max_batch, page_size), kIndex));
  t.slots = with_slots ? parts.add(bytes_of(limits.max_kv_tokens, sizeof(std::int64_t))) : 0;
  return t;
}

core::DenseTables TableParts::tables(void* workspace, std::int64_t num_pages) const noexcept {
  auto* const base = static_cast<std::uint8_t*>(workspace);
  const auto at = [base](std::size_t offset) { return reinterpret_cast<std::int32_t*>(base + offset); };
  return {at(qo_indptr),
          at(seq_lens),
          at(kv_indptr),
          at(page_ids),
          has_slots ? reinterpret_cast<std::int64_t*>(base + slots) : nullptr,
          page_size,
          num_pages};
}

Status validate_limits(const DenseLimits& limits, std::int32_t head_dim, std::int32_t num_q_heads,
                       std::int32_t num_kv_heads) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_head_dim(head_dim));
  for (const auto& [name, heads] : {std::pair{"num_q_heads", num_q_heads}, {"num_kv_heads", num_kv_heads}}) {
    if (heads >= 1 && heads <= 65536) continue;
    return fail(Status::kInvalidHeads, "%s is %" PRId32 "; allowed: 1 to 65536", name, heads);
  }
  if (limits.max_kv_tokens < 0 || limits.max_kv_tokens > (1 << 30)) {
    return fail(Status::kInvalidSize, "max_kv_tokens is %" PRId32 "; allowed: 0 to %d", limits.max_kv_tokens, 1 << 30);
  }
  if (limits.max_kv_len > limits.max_kv_tokens) {
    return fail(Status::kInvalidSize, "max_kv_len is %" PRId32 "; allowed: 0 to max_kv_tokens %" PRId32,
                limits.max_kv_len, limits.max_kv_tokens);
  }
  return Status::kOk;
}

Status validate_batch(const DenseBatch& rows, const DenseLimits& limits, bool on_host) noexcept {
  if (rows.batch < 0 || rows.batch > limits.max_batch) {
    return fail(Status::kPlanMismatch, "batch is %" PRId32 "; allowed: 0 to the plan's max_batch %" PRId32, rows.batch,
                limits.max_batch);
  }
  if (rows.batch == 0) {
    for (const auto& [name, tokens] : {std::pair{"q_tokens", rows.q_tokens}, {"kv_tokens", rows.kv_tokens}}) {
      if (tokens != 0) return fail(Status::kInvalidSize, "%s is %" PRId32 " with batch 0; allowed: 0", name, tokens);
    }
    return Status::kOk;
  }
  const Side q{"q_tokens", "q_indptr", rows.q_tokens, rows.q_indptr, limits.max_q_tokens, limits.max_q_len};
  FP4PA_RETURN_IF_FAILED(validate_side(q, rows.batch, on_host));
  const Side kv{"kv_tokens", "kv_indptr", rows.kv_tokens, rows.kv_indptr, limits.max_kv_tokens, limits.max_kv_len};
  return validate_side(kv, rows.batch, on_host);
}

Status plan_paged(const AttentionConfig& config, AttentionPlan* plan) noexcept {
  FP4PA_RETURN_IF_FAILED(fp4pa::plan(config, plan));
  if (backend_of(*plan)->dense != nullptr) return Status::kOk;
  return fail(Status::kBackendUnavailable, "back end '%s' has no dense attention in this build", plan->backend());
}

Status validate_workspace(const void* workspace, std::size_t bytes, std::size_t needed) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_pointer("workspace", workspace, kWorkspaceAlignment));
  if (bytes >= needed) return Status::kOk;
  return fail(Status::kWorkspaceTooSmall, "workspace_bytes is %zu; the plan needs at least %zu", bytes, needed);
}

}  // namespace fp4pa::api
