// What the kernels of a run are told, and the launches around the attention's. Plain C++: the launching side is compiled by
// the host compiler. See cache_ops.hpp for FP4PA_GPU.
#pragma once

#include "core/attention/params.hpp"
#include "core/divisor.hpp"
#include "core/schedule/work.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::FP4PA_GPU {

/// By value to every kernel of a run.
struct AttendArgs {
  core::AttentionParams params;
  core::WorkList list;
  core::SharedLayout layout;
  core::Divisor warps;  // of a worker
};

/// Prefix sums of the schedule: costs, and under fixed splits slots; where each worker starts, and what it will leave to merge.
Error launch_schedule(const core::WorkList& list, Stream stream) noexcept;

/// What is wrong with lengths or tables, and of what.
enum class Wrong : std::int32_t {
  kNothing,
  kQoIndptr,     // does not begin at 0, or decreases
  kKvIndptr,     // likewise
  kQueryTokens,  // of a sequence
  kKeys,         // of a sequence
  kTable,        // has no room for a sequence's pages
  kPage,         // of the only or old tier, is not in the pool
  kRecentPage,
  kTotal,        // of query tokens
};
/// What validation found, in the workspace.
struct Finding {
  Wrong what;
  std::int32_t sequence;  // or entry of an indptr
  std::int64_t value;
  std::int64_t other;     // the entry before, a table's room in pages, or a page's place in the table
};
struct CheckLimits {
  std::int32_t max_q_len, max_kv_len, max_q_tokens;
  std::int64_t num_pages[2];
};
/// Checks lengths, indptr and page ids on the device; *finding is the first offence of the lowest sequence.
Error launch_check(const core::AttentionParams& params, const CheckLimits& limits, Finding* finding, Stream stream) noexcept;

}  // namespace fp4pa::FP4PA_GPU
