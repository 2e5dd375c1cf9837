// The device's half of the schedule: prefix sums over sequences of the costs that core/schedule defines, and from them where each
// worker starts and what it will leave to merge. All that is searched and divided for is here, so that the other kernels do
// without that code: it runs once, and fetching it would take them longer than running it.
#pragma once

#include "kernels/run.hpp"

namespace fp4pa::FP4PA_GPU {

[[nodiscard]] FP4PA_DEVICE inline std::int64_t shuffle_xor_64(std::int64_t value, int mask) {
  const auto bits = static_cast<std::uint64_t>(value);
  const std::uint64_t low = shuffle_xor(static_cast<std::uint32_t>(bits), mask);
  const std::uint64_t high = shuffle_xor(static_cast<std::uint32_t>(bits >> 32), mask);
  return static_cast<std::int64_t>(high << 32 | low);
}

constexpr int kScheduleThreads = 512;

/// One block. Where there are fewer sequences than threads, several threads share the row blocks of each, a run of them each: one
/// long prompt has hundreds. Else a thread sums a run of sequences. Sums go through the lanes and then from warp to warp, and
/// prefixes are written by the first thread of a sequence, or of a run. Then each thread finds in whose share a worker starts, and
/// the unit there, which is the one that the worker before may have left to merge.
FP4PA_KERNEL_OF_ONE_BLOCK(schedule, kScheduleThreads, core::WorkList list) {
  constexpr int kScanWarps = kScheduleThreads / kLanes;
  FP4PA_SHARED std::int64_t of_warp[2][kScanWarps];
  FP4PA_SHARED std::int64_t costs[kScheduleThreads + 1];
  FP4PA_SHARED std::int64_t shares[2][kScheduleThreads];  // where each thread's begins: on the line, and its first slot
  allow_dependents();
  const int thread = thread_id();
  const int parts = list.batch > 0 && list.batch < kScheduleThreads ? kScheduleThreads / list.batch : 1;
  const int run = (list.batch + kScheduleThreads - 1) / kScheduleThreads;
  const int first = thread / parts * run;
  const int begin = first < list.batch ? first : list.batch;
  const int end = begin + run < list.batch ? begin + run : list.batch;
  const auto first_block = [&](int b, int share) {
    const int blocks = core::row_blocks(list.shape(b), list.partition.tile_rows);
    return blocks <= parts ? share : share * ((blocks + parts - 1) / parts);
  };
  const auto cost_of = [&](int b, int share) {
    return core::sequence_cost(list.shape(b), list.partition, list.num_kv_heads, first_block(b, share),
                               first_block(b, share + 1));
  };

  core::SequenceCost own{0, 0};
  for (int b = begin; b < end; ++b) {
    const core::SequenceCost cost = cost_of(b, thread % parts);
    own.cost += cost.cost;
    own.slots += cost.slots;
  }
  const bool balanced = list.partition.split_tiles == 0;
  FP4PA_NO_UNROLL
  for (int which = 0; which < (balanced ? 1 : 2); ++which) {  // costs, and slots
    std::int64_t* const prefix = which == 0 ? list.partition.cost_prefix : list.partition.slot_prefix;
    std::int64_t all = which == 0 ? own.cost : own.slots;  // of a group of lanes that grows
    std::int64_t before = 0;
    FP4PA_NO_UNROLL
    for (int bit = 1; bit < kLanes; bit *= 2) {
      const std::int64_t other = shuffle_xor_64(all, bit);
      if ((thread & bit) != 0) before += other;
      all += other;
    }
    if (thread % kLanes == 0) of_warp[which][thread / kLanes] = all;
    sync_block();
    std::int64_t total = 0;
    FP4PA_UNROLL
    for (int warp = 0; warp < kScanWarps; ++warp) {
      const std::int64_t sum = of_warp[which][warp];
      if (warp < thread / kLanes) before += sum;
      total += sum;
    }
    if (thread == 0) {
      prefix[list.batch] = total;
      if (which == 0 && run <= 1) costs[list.batch] = total;
    }
    shares[which][thread] = before;
    if (thread % parts != 0) continue;
    for (int b = begin; b < end; ++b) {
      prefix[b] = before;
      if (which == 0 && run <= 1) costs[b] = before;
      if (run <= 1) break;
      const core::SequenceCost cost = cost_of(b, 0);
      before += which == 0 ? cost.cost : cost.slots;
    }
  }
  sync_block();

  core::WorkList near = list;  // searched in shared memory where the prefixes fit
  if (kFlatPointers && run <= 1) near.partition.cost_prefix = costs;
  const int workers = list.partition.num_workers;
  const std::int64_t total = near.total_cost();
  for (int worker = thread; worker <= workers; worker += kScheduleThreads) {
    core::WorkerStart start{};
    core::MergeNote note{};
    start.begin = core::worker_begin(total, workers, worker);
    start.end = core::worker_begin(total, workers, worker + 1);
    if (start.begin < total) {
      start.seq = core::sequence_of(near, start.begin);
      start.block_begin = near.partition.cost_prefix[start.seq];
      start.block_slot = balanced ? 0 : list.partition.slot_prefix[start.seq];
      if (run <= 1 && core::row_blocks(list.shape(start.seq), list.partition.tile_rows) > 1) {
        const int of_seq = start.seq * parts;
        int low = of_seq;
        int high = low + parts;  // the last that begins at or before the worker: empty ones begin where the next does
        while (high - low > 1) {
          const int middle = (low + high) / 2;
          (shares[0][middle] <= start.begin ? low : high) = middle;
        }
        start.block = first_block(start.seq, low - of_seq);
        start.block_begin = shares[0][low];
        start.block_slot = balanced ? 0 : shares[1][low];
      }
      const core::UnitCursor cursor(near, start, start.begin);
      cursor.place(start);
      if (balanced && worker > 0) {
        note = core::merge_note(near, worker - 1, core::worker_begin(total, workers, worker - 1), start.begin, cursor.unit());
      }
    }
    if (worker < workers) list.partition.starts[worker] = start;
    if (worker > 0) list.partition.notes[worker - 1] = note;
  }
}

Error launch_schedule(const core::WorkList& list, Stream stream) noexcept {
  return launch(schedule, grid(1), kScheduleThreads, 0, stream, list);
}

}  // namespace fp4pa::FP4PA_GPU
