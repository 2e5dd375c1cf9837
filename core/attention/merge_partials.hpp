// Merging the partial states of one row: the weights first, then the outputs, in the order of the keys.
//
// The order of the sum is fixed by the schedule, so the result is bit-identical from run to run.
#pragma once

#include <cstdint>

#include "core/attention/params.hpp"
#include "core/attention/softmax_state.hpp"
#include "core/macros.hpp"
#include "core/schedule/work.hpp"

namespace fp4pa::core {

/// State of row `row` over all parts of a job, sink not included.
[[nodiscard]] FP4PA_FN SoftmaxState merged_state(const AttentionParams& p, const WorkList& list, const MergeJob& job,
                                                 std::int32_t row) {
  SoftmaxState state;
  for (std::int32_t i = 0; i < job.count; ++i) {
    const std::int64_t slot = merge_slot(list, job, i);
    if (slot < 0) continue;
    const float* part = p.partial_state + 2 * (slot * p.partition.tile_rows + row);
    state = SoftmaxState::merge(state, {part[0], part[1]});
  }
  return state;
}

/// Adds up elements [first, last) of a row's unnormalised output relative to the maximum `max`, with a stride between the
/// elements that one thread handles: out[i] is element first + i * stride.
FP4PA_FN void merged_output(const AttentionParams& p, const WorkList& list, const MergeJob& job, std::int32_t row,
                            float max, std::int32_t first, std::int32_t count, std::int32_t stride, float* out) {
  for (std::int32_t i = 0; i < count; ++i) out[i] = 0.0f;
  for (std::int32_t part = 0; part < job.count; ++part) {
    const std::int64_t slot = merge_slot(list, job, part);
    if (slot < 0) continue;
    const std::int64_t at = slot * p.partition.tile_rows + row;
    const float weight = rescale(p.partial_state[2 * at], max);
    const float* output = p.partial_output + at * p.head_dim + first;
    for (std::int32_t i = 0; i < count; ++i) out[i] += weight * output[i * stride];
  }
}

}  // namespace fp4pa::core
