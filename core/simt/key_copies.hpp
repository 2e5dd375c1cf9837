// The short way of a stream of keys where nothing passes through registers: a warp of a plain instance that has tiles of its
// own copies scales and page ids as it copies codes (kCopiesAll). The page ids of a tile come with the one that was in its slot
// before.
//
//   release of tile n:
//     page ids of tile m = n + stages, which came with tile n  -> addresses of its rows
//     codes and scales of tile m, page ids of tile m + stages  -> asynchronous copies
//   wait for tile n+1:
//     its scales, in place                                     -> the products' form
//
// A GPU knows that a load has come by one of a few counters, which loads share: with one from global memory under way from tile
// to tile, a load from shared memory was waited for as long as that one.
#pragma once

#include "core/simt/key_stream.hpp"

namespace fp4pa::core {

/// The first tiles of a warp that copies scales and page ids.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::copy_first_tiles() {
  exec_.each_lane([&](Lane lane) {
    const int chunk = lane.id * kRunPitch + Shim::swizzle(lane.id, 0, kRunPitch);
    row_[lane] = kept<E>(static_cast<std::uint32_t>(chunk * kChunkBytes));
    if constexpr (kVWords > 0) value_place_[lane] = kept<E>(ScaleForm::value_place(kVKind, kConfig.head_dim, lane.id));
  });
  static_assert(kAllRuns && kStages * kRuns <= E::kLanes && E::kLanes * 4 <= kPageIdBytes);
  exec_.each_lane([&](Lane lane) {
    if (lane.id >= kStages * kRuns) return;
    const std::int32_t key = begin_of(index_ + lane.id / kRuns * step()) + lane.id % kRuns * kRunKeys;
    const auto id = exec_.template load_global<std::int32_t>(page_id(key));
    exec_.template store_shared<std::int32_t>(lane, page_id_offset(slot_offset(lane.id / kRuns), lane.id % kRuns), id);
  });
  team_barrier();
  FP4PA_NO_UNROLL
  for (int s = 0; s < kStages; ++s) {
    const std::int32_t index = index_ + s * step();
    if (empty(index)) {
      exec_.copy_commit();
    } else {
      copy_tile<false>(index, slot_offset(s));
    }
  }
}

/// Brings a tile to the current one's slot.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::refill(std::int32_t index) {
  if (empty(index)) {
    exec_.copy_commit();  // groups are counted by tile
  } else if (is_full(index)) {
    copy_tile<true>(index, slot_at_);
  } else {
    copy_tile<false>(index, slot_at_);
  }
}

/// All that comes from global memory for such a warp's tile.
/// @tparam kFull  as of stage_runs
template <class Shim, std::int32_t S>
template <bool kFull>
FP4PA_FN void KeyStreamOf<Shim, S>::copy_tile(std::int32_t index, std::uint32_t slot) {
  const std::int32_t begin = begin_of(index);
  PerLane<Pages> pages;
  exec_.each_lane([&](Lane lane) {
    static_assert(kRuns % 2 == 0);
    FP4PA_UNROLL
    for (int j = 0; j < kRuns; j += 2) {
      const auto two = exec_.template load_shared<std::uint64_t>(lane, page_id_offset(slot, j));
      pages[lane].of_run[j] = static_cast<std::int32_t>(two);
      pages[lane].of_run[j + 1] = static_cast<std::int32_t>(two >> 32);
    }
  });
  team_barrier();  // nobody reads the slot any more
  PerLane<RunRows> rows;
  locate_runs(begin, pages, rows);
  copy_scales<kFull>(begin, pages, slot);
  copy_runs<kFull>(index, rows, slot);
  // By every lane, a branch would take longer; those past the tile's are not read.
  exec_.each_lane([&](Lane lane) {
    const std::int32_t key = begin_of(index + kStages * step()) + lane.id * kRunKeys;
    exec_.copy_async_4(lane, page_id_offset(slot, lane.id), page_id(key), true);
  });
  exec_.copy_commit();
}

/// Copies the scales of a tile to its slot, words as in the cache; those along tokens to where products read them.
template <class Shim, std::int32_t S>
template <bool kFull>
FP4PA_FN void KeyStreamOf<Shim, S>::copy_scales(std::int32_t begin, const PerLane<Pages>& pages, std::uint32_t slot) {
  each_scale_row(begin, pages, [&](Lane lane, auto which, int i, int row, const std::uint8_t* from) {
    if constexpr (which == 2) {
      // A row of scales is its run's alone.
      exec_.copy_async_4(lane, slot + layout().v_scales + i * layout().v_scale_pitch + 4 * lane.id, from,
                         kFull || begin + row < walk_.range.end);
    } else {
      constexpr int kBytes = which == 0 ? Shape::kKBytes : Shape::kVBytes;
      const std::uint32_t to = slot + copied_scales(which, row);
      if constexpr (kBytes == 2) {  // with a neighbour's
        from = reinterpret_cast<const std::uint8_t*>(reinterpret_cast<std::uintptr_t>(from) & ~std::uintptr_t{3});
      }
      FP4PA_UNROLL
      for (int w = 0; w < (kBytes + 3) / 4; ++w) {
        exec_.copy_async_4(lane, to + 4 * w, from + 4 * w, kFull || exists(begin + row));
      }
    }
  });
}

/// Brings a tile's scales from words as in the cache to the products' form, which takes their place.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::form_scales(std::uint32_t slot) {
  PerLane<Scales> scales;
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int i = 0; i < kOwned; ++i) {
      const int row = i * kThreads + lane.id;
      const Run& run = run_[lane];
      load_copied_words<Shape::kKBytes>(exec_, lane, slot + copied_scales(0, row), run.k_half, scales[lane].k[i]);
      load_copied_words<Shape::kVBytes>(exec_, lane, slot + copied_scales(1, row), run.v_half, scales[lane].v[i]);
    }
  });
  team_barrier();
  if constexpr (kFollowsScales) form_following(slot, scales);
  exec_.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int i = 0; i < kOwned; ++i) {
      const int row = i * kThreads + lane.id;
      if constexpr (kKWords > 0) ScaleForm::store_key(exec_, lane, kKKind, head_dim(), slot + layout().k_scales, row, scales[lane].k[i]);
      if constexpr (kVWords > 0 && !kFollowsScales) {
        const std::uint32_t at = slot + static_cast<std::uint32_t>(layout().v_scales);
        if constexpr (Shape::kVBytes == 2) {  // words without the neighbour's bytes
          ScaleForm::store_value(exec_, lane, kVKind, head_dim(), at, row, scales[lane].v[i]);
        } else {
          ScaleForm::form_value(exec_, lane, kVKind, head_dim(), at + value_place(lane, row), scales[lane].v[i]);
        }
      }
    }
  });
}

/// V's scales, by a top that is raised first where a tile has larger ones.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::form_following(std::uint32_t slot, const PerLane<Scales>& scales) {
  const auto form_all = [&] {
    return exec_.any([&](Lane lane) {
      bool above = false;
      FP4PA_UNROLL
      for (int i = 0; i < kOwned; ++i) {
        const std::uint32_t to = slot + static_cast<std::uint32_t>(layout().v_scales) + value_place(lane, i * kThreads + lane.id);
        above |= ScaleForm::form_value_below(exec_, lane, kVKind, head_dim(), to, scales[lane].v[i], top_log2_);
      }
      return above;
    });
  };
  if (!form_all()) return;
  PerLane<std::uint32_t> largest;
  exec_.each_lane([&](Lane lane) {
    largest[lane] = 0;
    FP4PA_UNROLL
    for (int i = 0; i < kOwned; ++i) {
      const std::uint32_t mine = ScaleForm::largest(scales[lane].v[i]);
      if (mine > largest[lane]) largest[lane] = mine;
    }
  });
  const int top = ScaleForm::top_for(exec_.reduce_max(largest), top_log2_);
  if (top == top_log2_) return;  // NaN alone was above it
  top_log2_ = top;
  (void)form_all();
}

}  // namespace fp4pa::core
