// How many warps a worker of an attention kernel has, how many workers a block has, and whether blocks share a unit: what a launch takes
// from its plan.
//
// Where warps divide the keys, a multiprocessor holds as many in a few large workers as in many small ones, all in one block. Workers are
// as large as makes units, or equal parts of them, come out even (core/schedule/even.hpp): a whole unit a worker wants nothing merged.
// Plain C++.
#pragma once

#include <algorithm>
#include <cstdint>

#include "api/attention_params.hpp"
#include "api/backend.hpp"
#include "core/schedule/even.hpp"
#include "cuda/variants.hpp"

namespace fp4pa::cuda {

struct LaunchShape {
  Launch launch;
  std::int32_t overhead_tiles;  // cost of an item beyond its tiles
  std::int32_t sharers;         // blocks that share a unit, in a cluster; 0: none do
  bool finds;                   // workers find their places from the lengths, see kernels/find_start.hpp; else by a schedule, if not shared
  bool may_be_even;             // they may find that a cut is even, see core/schedule/even.hpp
  bool whole;                   // no unit is ever cut, whatever the lengths: there is nothing to merge
};

/// Cost of an item beyond its tiles of 64 tokens, for a worker of four warps: the query's and the first pages' latencies, and merging
/// the warps.
inline constexpr std::int32_t kOverheadTiles = 10;
/// On wgmma tiles are decoded into an item while the last one is stored.
inline constexpr std::int32_t kWgmmaOverheadTiles = 6;

[[nodiscard]] inline std::int32_t overhead_tiles(int variant, int warps) {
  return decodes_ahead(variant) ? kWgmmaOverheadTiles : std::max(1, kOverheadTiles * warps / 4);
}

/// Most keys of a block's part of a unit that so many blocks share. With more, workers that fill the multiprocessors and a merge are done
/// sooner; large clusters leave some without a block: docs/cuda_log.md, "A call of a few short sequences".
[[nodiscard]] constexpr std::int32_t most_shared_keys(std::int32_t sharers) { return sharers > 2 ? 1024 : 2048; }

/// Blocks of one worker that a multiprocessor holds, by registers and shared memory.
[[nodiscard]] inline int resident_blocks(int variant, const Launch& launch, const api::PlannedDevice& d) {
  constexpr int kReserved = 1024;  // of a block, by the system
  const int warps = simt::most_warps(shape_of(variant), d.architecture);
  const int shared = (d.shared_bytes + kReserved) / (core::round_up_to(launch.layout.bytes, 1024) + kReserved);
  return std::max(1, std::min(warps / launch.warps, shared));
}

/// The same launch with all of a multiprocessor's workers in one block, where warps divide the keys.
[[nodiscard]] inline Launch in_one_block(int variant, Launch launch, const api::PlannedDevice& d) {
  if (!may_find(variant)) return launch;
  const int warps = simt::most_warps(shape_of(variant), d.architecture);
  launch.workers = std::clamp(std::min(warps / launch.warps, d.shared_bytes / launch.layout.bytes), 1, kMostWorkers);
  return launch;
}

[[nodiscard]] inline std::int64_t units_of(const AttentionConfig& c) { return std::int64_t{c.max_batch} * c.cache.num_kv_heads; }

/// How many blocks share a unit, for plans of units so few and short that each can have a cluster of its own; else 0.
[[nodiscard]] inline std::int32_t sharers_of(int variant, const AttentionConfig& c, const Launch& launch, const api::PlannedDevice& d) {
  if (!may_share(variant, d.architecture) || api::split_tiles(c) != 0 || simt::passes(shape_of(variant), c) > 1) return 0;
  // Clusters need room on neighbouring multiprocessors: a quarter of the blocks is left for what they leave over.
  const std::int64_t blocks = std::int64_t{resident_blocks(variant, launch, d)} * d.multiprocessors * 3 / 4;
  const std::int64_t units = units_of(c);
  if (units > blocks) return 0;
  std::int64_t keys = c.max_kv_len;
  if (c.sliding_window > 0) keys = std::min(keys, std::int64_t{c.sliding_window} + c.max_q_len);
  const std::int32_t least_keys = launch.warps * shape_of(variant).tile_keys;
  std::int32_t sharers = 1;
  while (sharers < core::kMostSharers && 2 * sharers * units <= blocks && sharers * least_keys < keys) sharers *= 2;
  return keys <= std::int64_t{sharers} * most_shared_keys(sharers) ? sharers : 0;
}

/// Most sequences of a line on which workers find their places themselves: a lane adds up a 32nd of them.
inline constexpr std::int32_t kMostFound = 512;

/// Whether splits of the caller's choice leave every unit of a plan whole.
[[nodiscard]] inline bool cuts_nothing(const AttentionConfig& c) {
  return api::split_tiles(c) != 0 && std::int64_t{api::split_tiles(c)} * core::kScheduleTokens >= c.max_kv_len;
}

/// Whether the kernels of a plan find their places on the line from the lengths, without a schedule: decode, where every sequence is
/// one row block, and lines that 32 bits hold whatever number of workers there will be.
/// @param warps  of a worker as its kernel was made
[[nodiscard]] inline bool finds_starts(int variant, const AttentionConfig& c, int warps, const api::PlannedDevice& d) {
  if (!may_find(variant) || simt::passes(shape_of(variant), c) > 1) return false;
  if (api::split_tiles(c) != 0 && (!cuts_nothing(c) || warps == 1)) return false;  // a worker's second warp finds its part of an even cut
  const int most = simt::most_warps(shape_of(variant), d.architecture);
  const std::int64_t workers = std::int64_t{most / std::min(warps, core::kLeastWorkerWarps)} * d.multiprocessors;
  const std::int64_t tiles = (std::int64_t{c.max_kv_len} + core::kScheduleTokens - 1) / core::kScheduleTokens;
  const std::int64_t line = (tiles + overhead_tiles(variant, most)) * units_of(c);
  return c.max_batch <= kMostFound && (line + 1) * (workers + 1) < INT32_MAX;
}

/// The even cut of a plan's units among the workers of a launch.
[[nodiscard]] inline core::EvenCut even_cut(const AttentionConfig& c, std::int64_t units, std::int32_t workers) {
  const core::EvenCut cut = core::EvenCut::of(units, workers);
  return cuts_nothing(c) ? core::EvenCut{1, cut.rounds} : cut;
}

/// The share of a device's warps that an even cut among the workers of a launch would keep busy, less what merging and further rounds cost.
[[nodiscard]] inline double even_use(int variant, const AttentionConfig& c, const Launch& launch, const api::PlannedDevice& d) {
  const std::int64_t units = units_of(c);
  const core::EvenCut cut = even_cut(c, units, launch.workers * d.multiprocessors);
  const double all = static_cast<double>(simt::most_warps(shape_of(variant), d.architecture)) * d.multiprocessors;
  const double used = static_cast<double>(units) * cut.parts * launch.warps / cut.rounds / all;
  return used - 0.03 * (cut.rounds - 1) - (cut.parts > 1 ? 0.02 + 0.0025 * cut.parts : 0.0);  // docs/cuda_log.md, "One item a block"
}

/// The launch of a plan whose cut may be even: at least two workers a multiprocessor, so that one opens an item while another computes;
/// or one, for a single sequence, which has an item a worker whatever its length.
[[nodiscard]] inline Launch even_launch(int variant, const AttentionConfig& c, const api::PlannedDevice& d) {
  const bool whole = cuts_nothing(c);
  constexpr double kWorth = 0.85;  // of the warps: below that a line is expected to be faster, and has workers as it was measured with
  const int most = simt::most_warps(shape_of(variant), d.architecture);
  Launch best = in_one_block(variant, launch_of(variant, c, d.shared_bytes), d);
  double use = whole ? 0.0 : kWorth;
  for (int warps = c.max_batch == 1 || whole ? most : most / 2; warps >= core::kLeastWorkerWarps; --warps) {
    const core::SharedLayout layout = shared_layout_of(variant, c, warps);
    if (layout.bytes > d.shared_bytes) continue;
    const Launch launch = in_one_block(variant, {warps, layout}, d);
    const double now = even_use(variant, c, launch, d);
    if (now <= use) continue;
    use = now;
    best = launch;
  }
  return best;
}

[[nodiscard]] inline LaunchShape launch_shape(int variant, const AttentionConfig& c, const api::PlannedDevice& d) {
  LaunchShape shape{launch_of(variant, c, d.shared_bytes), 0, 0, false, false, false};
  shape.sharers = sharers_of(variant, c, shape.launch, d);
  shape.finds = shape.sharers == 0 && finds_starts(variant, c, shape.launch.warps, d);
  shape.whole = shape.finds && cuts_nothing(c);
  // Instances of few warps wait for memory, and have nothing to gain.
  shape.may_be_even = shape.whole || (shape.finds && shape_of(variant).blocks > 1 && shape.launch.warps > 1);
  if (shape.sharers == 0) shape.launch = in_one_block(variant, shape.launch, d);
  // As many warps in any batch, where the order of sums has to be the same.
  if (shape.may_be_even && !c.batch_invariant) shape.launch = even_launch(variant, c, d);
  shape.overhead_tiles = overhead_tiles(variant, shape.launch.warps);
  return shape;
}

}  // namespace fp4pa::cuda
