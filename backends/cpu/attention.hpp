// Paged attention on the CPU: the plan's choice and the run, for a given table of tile operations.
#pragma once

#include "api/backend.hpp"
#include "backends/cpu/tile_ops.hpp"

namespace fp4pa::cpu {

[[nodiscard]] Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept;
[[nodiscard]] Status run(const TileOps& ops, const api::RunRequest& request) noexcept;

/// Checks what `run` reads from memory before it writes anything: indptr, lengths, page ids.
/// @errors kInvalidIndptr, kLengthExceedsTable, kBlockIdOutOfRange, kPlanMismatch
[[nodiscard]] Status check_lengths_and_tables(const api::RunRequest& request) noexcept;

}  // namespace fp4pa::cpu
