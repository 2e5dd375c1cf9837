// From the public configuration and arguments to what the kernels are told, the same for every back end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api/backend.hpp"
#include "core/attention/params.hpp"
#include "core/schedule/work.hpp"

namespace fp4pa::api {

/// Where the parts of a call's workspace lie, in bytes from its start; each on a 256-byte boundary.
struct WorkspaceLayout {
  std::size_t cost_prefix;
  std::size_t slot_prefix;
  std::size_t starts;
  std::size_t notes;
  std::size_t partial_state;
  std::size_t partial_output;
  std::size_t total;
};

/// Keys of a fixed split: the one asked for, or the default of batch_invariant; 0 means balanced.
[[nodiscard]] std::int32_t split_tiles(const AttentionConfig& config) noexcept;

/// Layout for a partition over `num_workers` workers with blocks of `tile_rows` packed rows.
[[nodiscard]] WorkspaceLayout workspace_layout(const AttentionConfig& config, std::int32_t num_workers,
                                               std::int32_t tile_rows) noexcept;

/// The kernels' parameters of one call.
[[nodiscard]] core::AttentionParams make_params(const RunRequest& request) noexcept;

/// The schedule's view of them.
[[nodiscard]] core::WorkList work_list(const core::AttentionParams& params) noexcept;

}  // namespace fp4pa::api
