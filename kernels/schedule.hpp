// The device's half of the schedule: prefix sums over sequences of the costs that core/schedule defines, and from them where each
// worker starts and what it will leave to merge. All that is searched and divided for is here, so that the other kernels do
// without that code: it runs once, and fetching it would take them longer than running it.
#pragma once

#include "kernels/run.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kScheduleThreads = 1024;
constexpr int kSummingThreads = 512;

/// One block. Where there are fewer sequences than summing threads, several threads share the row blocks of each: one long prompt
/// has hundreds. Else a thread sums a run of sequences. The block scans the sums, and prefixes are written by the first thread of a
/// sequence, or of a run. Then half of the threads find the workers' starts, and the other half the notes.
FP4PA_KERNEL_OF_ONE_BLOCK(schedule, kScheduleThreads, core::WorkList list) {
  FP4PA_SHARED core::SequenceCost sums[kSummingThreads];
  FP4PA_SHARED std::int64_t costs[kSummingThreads + 1];
  allow_dependents();
  const int thread = thread_id();
  const bool summing = thread < kSummingThreads;
  const int parts = list.batch > 0 && list.batch < kSummingThreads ? kSummingThreads / list.batch : 1;
  const int run = (list.batch + kSummingThreads - 1) / kSummingThreads;
  const int first = thread / parts * run;
  const int begin = first < list.batch ? first : list.batch;
  const int end = begin + run < list.batch ? begin + run : list.batch;

  core::SequenceCost own{0, 0};
  if (summing) {
    for (int b = begin; b < end; ++b) {
      const core::SequenceCost cost =
          core::sequence_cost(list.shape(b), list.partition, list.num_kv_heads, thread % parts, parts);
      own.cost += cost.cost;
      own.slots += cost.slots;
    }
    sums[thread] = own;
  }
  sync_block();
  for (int distance = 1; distance < kSummingThreads; distance *= 2) {
    core::SequenceCost sum{0, 0};
    if (summing) {
      sum = sums[thread];
      if (thread >= distance) {
        sum.cost += sums[thread - distance].cost;
        sum.slots += sums[thread - distance].slots;
      }
    }
    sync_block();
    if (summing) sums[thread] = sum;
    sync_block();
  }
  if (thread == kSummingThreads - 1) {
    list.partition.cost_prefix[list.batch] = sums[thread].cost;
    list.partition.slot_prefix[list.batch] = sums[thread].slots;
    if (run <= 1) costs[list.batch] = sums[thread].cost;
  }
  if (summing && thread % parts == 0) {
    core::SequenceCost before{sums[thread].cost - own.cost, sums[thread].slots - own.slots};
    for (int b = begin; b < end; ++b) {
      list.partition.cost_prefix[b] = before.cost;
      list.partition.slot_prefix[b] = before.slots;
      if (run == 1) {
        costs[b] = before.cost;
        break;
      }
      const core::SequenceCost cost = core::sequence_cost(list.shape(b), list.partition, list.num_kv_heads);
      before.cost += cost.cost;
      before.slots += cost.slots;
    }
  }
  sync_block();

  core::WorkList near = list;  // searched in shared memory where the prefixes fit
  if (kFlatPointers && run <= 1) near.partition.cost_prefix = costs;
  const bool balanced = list.partition.split_tiles == 0;
  for (int worker = thread % kSummingThreads; worker < list.partition.num_workers; worker += kSummingThreads) {
    if (summing) {
      list.partition.starts[worker] = core::worker_start(near, worker);
    } else {
      list.partition.notes[worker] = balanced ? core::merge_note(near, worker) : core::MergeNote{};
    }
  }
}

Error launch_schedule(const core::WorkList& list, Stream stream) noexcept {
  return launch(schedule, grid(1), kScheduleThreads, 0, stream, list);
}

}  // namespace fp4pa::FP4PA_GPU
