// How many OpenMP threads an operation gets - what the caller asked for, but no more than there are pieces of work - and how
// they share it.
//
// Waking a thread costs microseconds, so that a decode step's few rows are better done by the thread that has them. One thread
// is the caller's, and OpenMP is not asked: its runtime allocates for a team of one, too, and ends the process where it cannot.
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

/// One of the threads that do a call's work. They need not be as many as were asked for.
struct Team {
  int thread;  // of this thread, from 0
  int size;

  /// f(i) for this thread's part of [0, items), without a gap.
  template <class F>
  void share(std::int64_t items, const F& f) const {
    const std::int64_t each = items / size;
    const std::int64_t longer = items % size;  // that many threads have one more
    const std::int64_t begin = thread * each + std::min<std::int64_t>(thread, longer);
    const std::int64_t end = begin + each + (thread < longer ? 1 : 0);
    for (std::int64_t i = begin; i < end; ++i) f(i);
  }

  /// Until all threads are here. A team of one may be a thread of the caller's own team, which is nothing to wait for.
  void barrier() const noexcept {
    if (size == 1) return;
#pragma omp barrier
  }
};

/// f(team) on each of up to `threads` threads.
template <class F>
void on_threads(int threads, const F& f) {
  if (threads == 1) {
    f(Team{0, 1});
    return;
  }
#pragma omp parallel num_threads(threads)
  f(Team{omp_get_thread_num(), omp_get_num_threads()});
}

/// f(i) for each i of [0, items), divided over the threads.
template <class F>
void for_each(int threads, std::int64_t items, const F& f) {
  on_threads(threads, [&](const Team& team) { team.share(items, f); });
}

}  // namespace fp4pa::cpu
