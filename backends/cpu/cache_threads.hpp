// How many OpenMP threads a memory operation gets: what the caller asked for, but no more than there are pieces of
// work.
//
// Waking a thread costs microseconds, so that a decode step's few rows are better done by the thread that has them.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "fp4pa/cache.hpp"

namespace fp4pa::cpu {

/// @param items    independent pieces of work
/// @param per_thread pieces below which another thread does not pay
[[nodiscard]] inline int num_threads(const ExecDesc& exec, std::int64_t items, std::int64_t per_thread = 1) noexcept {
  const int asked = exec.num_threads > 0 ? exec.num_threads : omp_get_max_threads();
  const std::int64_t useful = (items + per_thread - 1) / per_thread;
  return static_cast<int>(std::clamp<std::int64_t>(useful, 1, asked));
}

}  // namespace fp4pa::cpu
