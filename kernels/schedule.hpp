// The device's half of the schedule: prefix sums over sequences of the costs that core/schedule defines. Items and merges are
// then found by arithmetic, by whoever needs them.
#pragma once

#include "kernels/run.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kScheduleThreads = 512;

/// One block. Where there are fewer sequences than threads, several threads share the row blocks of each: one long prompt has
/// hundreds. Else a thread sums a run of sequences. The block scans the sums, and prefixes are written by the first thread of a
/// sequence, or of a run.
FP4PA_KERNEL(schedule, kScheduleThreads, core::WorkList list) {
  FP4PA_SHARED core::SequenceCost sums[kScheduleThreads];
  allow_dependents();
  const int thread = thread_id();
  const int parts = list.batch > 0 && list.batch < kScheduleThreads ? kScheduleThreads / list.batch : 1;
  const int run = (list.batch + kScheduleThreads - 1) / kScheduleThreads;
  const int first = thread / parts * run;
  const int begin = first < list.batch ? first : list.batch;
  const int end = begin + run < list.batch ? begin + run : list.batch;

  core::SequenceCost own{0, 0};
  for (int b = begin; b < end; ++b) {
    const core::SequenceCost cost =
        core::sequence_cost(list.shape(b), list.partition, list.num_kv_heads, thread % parts, parts);
    own.cost += cost.cost;
    own.slots += cost.slots;
  }
  sums[thread] = own;
  sync_block();
  for (int distance = 1; distance < kScheduleThreads; distance *= 2) {
    core::SequenceCost sum = sums[thread];
    if (thread >= distance) {
      sum.cost += sums[thread - distance].cost;
      sum.slots += sums[thread - distance].slots;
    }
    sync_block();
    sums[thread] = sum;
    sync_block();
  }
  if (thread == kScheduleThreads - 1) {
    list.partition.cost_prefix[list.batch] = sums[thread].cost;
    list.partition.slot_prefix[list.batch] = sums[thread].slots;
  }
  if (thread % parts != 0) return;
  core::SequenceCost before{sums[thread].cost - own.cost, sums[thread].slots - own.slots};
  for (int b = begin; b < end; ++b) {
    list.partition.cost_prefix[b] = before.cost;
    list.partition.slot_prefix[b] = before.slots;
    if (run == 1) return;
    const core::SequenceCost cost = core::sequence_cost(list.shape(b), list.partition, list.num_kv_heads);
    before.cost += cost.cost;
    before.slots += cost.slots;
  }
}

Error launch_schedule(const core::WorkList& list, Stream stream) noexcept {
  return launch(schedule, grid(1), kScheduleThreads, 0, stream, list);
}

}  // namespace fp4pa::FP4PA_GPU
