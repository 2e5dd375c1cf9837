// Merging where one thread does a worker's share of it: the divided units that begin on the worker, row by row. The CPU's, and a
// host's that stands in for a device.
#pragma once

#include <cstdint>

#include "core/attention/merge_partials.hpp"
#include "core/attention/row_map.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::core {

inline void merge_items(const AttentionParams& p, const WorkList& list, std::int32_t worker) {
  for_each_merge(list, worker, [&](const MergeJob& job) {
    const RowMap rows(p, {job.unit.seq, job.unit.block, job.unit.kv_head, job.unit.tiles, -1});
    float row[256];  // the largest head_dim
    for (std::int32_t r = 0; r < rows.num_rows; ++r) {
      const SoftmaxState keys = merged_state(p, list, job, r);
      SoftmaxState state = keys;
      if (p.sinks != nullptr) state = state.with_sink(p.sinks[rows.head(r)] * kLog2E);
      merged_output(p, list, job, r, keys.max, 0, p.head_dim, 1, row);
      const float scale = rescale(keys.max, state.max) * state.normaliser();
      for (std::int32_t d = 0; d < p.head_dim; ++d) row[d] *= scale;
      const std::int64_t at = rows.token(r) * p.o.token_stride + rows.head(r) * p.o.head_stride;
      store_plain_row(row, p.head_dim, p.o.dtype, element_address(p.o.data, p.o.dtype, at));
      if (p.lse != nullptr) p.lse[rows.token(r) * p.num_q_heads + rows.head(r)] = state.lse();
    }
  });
}

}  // namespace fp4pa::core
