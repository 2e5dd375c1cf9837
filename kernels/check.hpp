// Validation on the device, for those who ask for it: the same questions that the CPU back end asks of every run.
#pragma once

#include "core/attention/params.hpp"
#include "kernels/run.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kCheckThreads = 256;

struct CheckArgs {
  core::AttentionParams params;
  CheckLimits limits;
  Finding* finding;
};

FP4PA_DEVICE inline void report(Finding* best, Wrong what, std::int32_t seq, std::int64_t value, std::int64_t other = 0) {
  if (best->what == Wrong::kNothing) *best = {what, seq, value, other};
}

FP4PA_DEVICE inline void check_segment(const core::AttentionParams& p, const CheckLimits& limits, int s, std::int32_t seq,
                              std::int32_t first_key, std::int32_t last_key, Finding* best) {
  if (last_key <= first_key) return;
  const core::Segment& segment = p.segments[s];
  const std::int32_t pages = (last_key - 1) / segment.page_size + 1;
  if (segment.table.ring_pages == 0 && pages > segment.table.capacity(seq)) {
    return report(best, Wrong::kTable, seq, last_key, segment.table.capacity(seq));
  }
  for (std::int32_t page = first_key / segment.page_size; page < pages; ++page) {
    const std::int32_t id = segment.table.page(seq, page);
    if (id >= 0 && id < limits.num_pages[s]) continue;
    const std::int32_t ring = segment.table.ring_pages;
    return report(best, s == 0 ? Wrong::kPage : Wrong::kRecentPage, seq, id, ring != 0 ? page % ring : page);
  }
}

FP4PA_DEVICE inline void check_sequence(const core::AttentionParams& p, const CheckLimits& limits, std::int32_t seq, Finding* best) {
  const std::int64_t q_len = std::int64_t{p.qo_indptr[seq + 1]} - p.qo_indptr[seq];
  const std::int32_t kv_len = p.seq_lens[seq];
  const std::int32_t* const kv_indptr = p.segments[0].table.indptr;
  if (q_len < 0) return report(best, Wrong::kQoIndptr, seq + 1, p.qo_indptr[seq + 1], p.qo_indptr[seq]);
  if (q_len > limits.max_q_len) return report(best, Wrong::kQueryTokens, seq, q_len);
  if (kv_len < 0 || kv_len > limits.max_kv_len) return report(best, Wrong::kKeys, seq, kv_len);
  if (kv_indptr != nullptr && kv_indptr[seq + 1] < kv_indptr[seq]) {  // from 0 on, none is negative that does not decrease
    return report(best, Wrong::kKvIndptr, seq + 1, kv_indptr[seq + 1], kv_indptr[seq]);
  }
  if (q_len == 0 || (kv_indptr != nullptr && kv_indptr[seq] < 0)) return;
  const std::int64_t first = std::int64_t{kv_len} - q_len + 1 - p.sliding_window;
  const std::int32_t first_key = p.sliding_window > 0 && first > 0 ? static_cast<std::int32_t>(first) : 0;
  const std::int32_t border = core::first_segment_tokens(p, kv_len);
  check_segment(p, limits, 0, seq, first_key, border, best);
  if (p.num_segments == 2) check_segment(p, limits, 1, seq, first_key > border ? first_key : border, kv_len, best);
}

FP4PA_KERNEL(check_lengths_and_tables, kCheckThreads, CheckArgs args) {
  FP4PA_SHARED Finding best[kCheckThreads];
  const core::AttentionParams& p = args.params;
  const int thread = thread_id();
  best[thread] = {};
  if (thread == 0) {
    const std::int32_t* const kv_indptr = p.segments[0].table.indptr;
    if (p.qo_indptr[0] != 0) report(&best[0], Wrong::kQoIndptr, 0, p.qo_indptr[0]);
    if (kv_indptr != nullptr && kv_indptr[0] != 0) report(&best[0], Wrong::kKvIndptr, 0, kv_indptr[0]);
  }
  for (std::int32_t seq = thread; seq < p.batch; seq += kCheckThreads) check_sequence(p, args.limits, seq, &best[thread]);
  sync_block();
  if (thread != 0) return;
  Finding first{};
  for (const Finding& f : best) {
    if (f.what != Wrong::kNothing && (first.what == Wrong::kNothing || f.sequence < first.sequence)) first = f;
  }
  const std::int32_t q_tokens = p.qo_indptr[p.batch];
  if (q_tokens > args.limits.max_q_tokens) report(&first, Wrong::kTotal, p.batch, q_tokens, args.limits.max_q_tokens);
  *args.finding = first;
}

Error launch_check(const core::AttentionParams& params, const CheckLimits& limits, Finding* finding, Stream stream) noexcept {
  return launch(check_lengths_and_tables, grid(1), kCheckThreads, 0, stream, CheckArgs{params, limits, finding});
}

}  // namespace fp4pa::FP4PA_GPU
