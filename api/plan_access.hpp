// A plan run on memory that comes with the call: what the dense calls make of a paged plan.
#pragma once

#include "api/backend.hpp"

namespace fp4pa::api {

/// Stands for memory that comes with the call where a description is validated before it; aligned as a workspace is.
[[nodiscard]] void* memory_to_come() noexcept;

/// Null for an empty plan.
[[nodiscard]] const Backend* backend_of(const AttentionPlan& plan) noexcept;

/// Whether the plan's keys enter the matrix core as they lie in the cache.
[[nodiscard]] bool is_native(const AttentionPlan& plan) noexcept;
/// Whether warps that do nothing else decode the plan's tiles.
[[nodiscard]] bool decodes_aside(const AttentionPlan& plan) noexcept;

/// Checks a run of `plan` over `cache` in the place of its own: same shape, other memory.
/// @param q_tokens  of the call
[[nodiscard]] Status validate_run(const AttentionPlan& plan, const KvCacheDesc& cache, const AttentionArgs& args,
                                  std::int64_t q_tokens) noexcept;
/// @pre validate_run passed
/// @param q_scales  of a Q in E4M3 codes, for plans that decode MXFP8 aside; none: Q is as the plan says
[[nodiscard]] Status run_on(const AttentionPlan& plan, const KvCacheDesc& cache, const AttentionArgs& args,
                            const core::QueryScales& q_scales = {}) noexcept;

}  // namespace fp4pa::api
