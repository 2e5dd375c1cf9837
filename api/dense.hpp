// What the two dense calls share: the checks of a batch, the paged plan they make, and the workspace cut into parts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api/backend.hpp"
#include "api/error.hpp"
#include "api/plan_access.hpp"
#include "api/select.hpp"
#include "api/workspace.hpp"
#include "fp4pa/dense_attention.hpp"

namespace fp4pa {

/// The one place that fills and reads the dense plans.
struct DensePlanAccess {
  template <class Plan, class Config>
  static void fill(Plan& plan, const Config& config, const AttentionPlan& attention, std::size_t workspace_bytes) {
    plan.config_ = config;
    plan.config_.backend = nullptr;  // the caller's string need not outlive the call
    plan.attention_ = attention;
    plan.workspace_bytes_ = workspace_bytes;
  }
  static void set_decode(Mxfp8AttentionPlan& plan, Mxfp8Decode decode) { plan.decode_ = decode; }
  template <class Plan>
  static const AttentionPlan& attention(const Plan& plan) {
    return plan.attention_;
  }
};

namespace api {

/// Parts of a workspace one behind the other, each on a 256-byte boundary.
class WorkspaceParts {
 public:
  /// Offset of the next part.
  [[nodiscard]] std::size_t add(std::size_t bytes) noexcept {
    const std::size_t at = total_;
    total_ += workspace_part(bytes);
    return at;
  }
  [[nodiscard]] std::size_t total() const noexcept { return total_; }

 private:
  std::size_t total_ = 0;
};

/// Where the tables of the paged call lie.
struct TableParts {
  std::size_t qo_indptr, seq_lens, kv_indptr, page_ids, slots;
  std::int32_t page_size;
  bool has_slots;

  /// @param with_slots  for keys that the library appends itself
  [[nodiscard]] static TableParts cut(WorkspaceParts& parts, const DenseLimits& limits, std::int32_t page_size,
                                      bool with_slots) noexcept;
  /// @param num_pages  of this call
  [[nodiscard]] core::DenseTables tables(void* workspace, std::int64_t num_pages) const noexcept;
};

/// At least one sequence, and sizes whose products fit.
/// @errors kInvalidSize
[[nodiscard]] Status validate_limits(const DenseLimits& limits, std::int32_t head_dim, std::int32_t num_q_heads,
                                     std::int32_t num_kv_heads) noexcept;
/// @param on_host  the indptr can be read
/// @errors kPlanMismatch, kInvalidSize, kMisalignedPointer, kInvalidIndptr
[[nodiscard]] Status validate_batch(const DenseBatch& rows, const DenseLimits& limits, bool on_host) noexcept;
[[nodiscard]] inline core::DenseLengths lengths_of(const DenseBatch& rows, const DenseLimits& limits) noexcept {
  return {rows.q_indptr, rows.kv_indptr, rows.batch, rows.q_tokens, rows.kv_tokens, limits.max_kv_len};
}

/// The paged configuration that both begin with; the cache's formats, strides and pages are the caller's to fill in.
template <class Config>
[[nodiscard]] AttentionConfig paged_config(const Config& c) noexcept {
  AttentionConfig p;
  p.cache.num_kv_heads = c.num_kv_heads;
  p.cache.head_dim = c.head_dim;
  p.num_q_heads = c.num_q_heads;
  p.o_dtype = c.o_dtype;
  p.sm_scale = c.sm_scale;
  p.causal = c.causal;
  p.max_batch = c.limits.max_batch;
  p.max_q_tokens = c.limits.max_q_tokens;
  p.max_q_len = c.limits.max_q_len;
  p.max_kv_len = c.limits.max_kv_len;
  p.table_kind = TableKind::kCsr;
  p.batch_invariant = c.batch_invariant;
  p.backend = c.backend;
  p.num_threads = c.num_threads;
  return p;
}

/// Plans the paged call on a back end that has the dense steps.
/// @errors plan's, kBackendUnavailable
[[nodiscard]] Status plan_paged(const AttentionConfig& config, AttentionPlan* plan) noexcept;

/// The paged call's arguments over `tables`.
template <class Args>
[[nodiscard]] AttentionArgs paged_args(const Args& a, const core::DenseTables& tables,
                                       std::size_t attention_bytes) noexcept {
  AttentionArgs p;
  p.o = a.o;
  p.o_token_stride = a.o_token_stride;
  p.o_head_stride = a.o_head_stride;
  p.lse = a.lse;
  p.batch = a.rows.batch;
  p.qo_indptr = tables.qo_indptr;
  p.seq_lens = tables.seq_lens;
  p.kv_indptr = tables.kv_indptr;
  p.kv_indices = tables.page_ids;
  p.workspace = a.workspace;  // the attention's part is the first
  p.workspace_bytes = attention_bytes;
  p.stream = a.stream;
  return p;
}

/// @errors kNullPointer, kMisalignedPointer, kWorkspaceTooSmall
[[nodiscard]] Status validate_workspace(const void* workspace, std::size_t bytes, std::size_t needed) noexcept;
/// What running either call begins with: the plan is one, and batch and workspace fit it.
/// @param planner  the call that makes such plans
/// @errors kPlanMismatch, and those of validate_batch and validate_workspace
template <class Plan, class Args>
[[nodiscard]] Status validate_run(const Plan& plan, const Args& args, const char* planner) noexcept {
  const Backend* const backend = backend_of(DensePlanAccess::attention(plan));
  if (backend == nullptr) return fail(Status::kPlanMismatch, "the plan is empty; call fp4pa::%s first", planner);
  FP4PA_RETURN_IF_FAILED(validate_batch(args.rows, plan.config().limits, runs_on_host(*backend)));
  if (args.rows.batch == 0 || args.rows.q_tokens == 0) return Status::kOk;
  return validate_workspace(args.workspace, args.workspace_bytes, plan.workspace_bytes());
}

}  // namespace api
}  // namespace fp4pa
