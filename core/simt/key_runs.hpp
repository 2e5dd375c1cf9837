// The short way of a stream of keys: tiles whose every run of 16 keys lies in one page, see key_stream.hpp.
//
// A thread's copies come from a few runs of the tile, always from the same places within them. So what changes from tile to
// tile is a page id and a position in the page for each run, and no address passes through shared memory.
#pragma once

#include <type_traits>

#include "core/simt/key_stream.hpp"

namespace fp4pa::core {

/// from + n * stride, where 64-bit arithmetic has an instruction for it.
template <class E>
[[nodiscard]] FP4PA_FN const std::uint8_t* steps(const std::uint8_t* from, std::uint32_t n, std::int64_t stride) {
  if constexpr (requires { E::add_product(from, n, n); }) {
    return E::add_product(from, n, static_cast<std::uint32_t>(stride));
  } else {
    return from + std::uint64_t{n} * static_cast<std::uint32_t>(stride);
  }
}

/// from + page * page_stride + token * token_stride, for strides of less than 2^32.
template <class E>
[[nodiscard]] FP4PA_FN const std::uint8_t* step_to(const std::uint8_t* from, std::int32_t page, std::int64_t page_stride,
                                                   std::uint32_t token, std::int64_t token_stride) {
  return steps<E>(steps<E>(from, static_cast<std::uint32_t>(page), page_stride), token, token_stride);
}

/// page * page_stride + token * token_stride, likewise.
template <class E>
[[nodiscard]] FP4PA_FN std::int64_t offset_to(std::int32_t page, std::int64_t page_stride, std::uint32_t token, std::int64_t token_stride) {
  if constexpr (requires { E::add_product(nullptr, token, token); }) {
    return reinterpret_cast<std::int64_t>(step_to<E>(nullptr, page, page_stride, token, token_stride));
  } else {
    return std::int64_t{page} * page_stride + std::int64_t{token} * token_stride;
  }
}

/// Whether tiles can go that way, and what does not change from tile to tile.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::prepare_runs() {
  const std::int32_t size = segment_.page_size;
  by_runs_ = kOnlyRuns || (fits_runs(size) && walk_.first % kRunKeys == 0 && walk_.pieces.group == 0 &&
                           segment_.table.ring_pages == 0 && fits_runs(segment_.k, kKKind, head_dim()) &&
                           fits_runs(segment_.v, kVKind, head_dim()));
  page_shift_ = 0;
  while ((1 << page_shift_) < size) ++page_shift_;
  const PageTable& table = segment_.table;
  page_ids_ = kept<E>(table.pages + (table.indptr != nullptr ? table.indptr[item_.seq] : item_.seq * table.row_stride));
  exec_.each_lane([&](Lane lane) {
    const int row = thread(lane) / kRunPitch;
    const int offset = Shim::swizzle(row, thread(lane) % kRunPitch, kRunPitch) * kChunkBytes;
    const auto first = [&](const TensorView& t) {
      return t.data + item_.kv_head * t.head_stride + row % kRunKeys * t.token_stride + offset;
    };
    run_[lane].k = first(segment_.k);
    run_[lane].v = first(segment_.v);
    run_[lane].k_scales = segment_.k.scales + item_.kv_head * segment_.k.scale_head_stride;
    run_[lane].v_scales = segment_.v.scales + item_.kv_head * segment_.v.scale_head_stride;
    if constexpr (kTokenWords > 0) run_[lane].v_scales += 4 * thread(lane);
    // Neighbouring keys of a lane are a multiple of 32 apart, and pages of four bytes: which half it has does not change.
    const auto half = [&](const std::uint8_t* scales, std::int64_t token_stride) {
      const auto address = reinterpret_cast<std::uintptr_t>(scales) + static_cast<std::uintptr_t>(lane.id * token_stride);
      return static_cast<int>(address / 2 % 2);
    };
    if constexpr (Shape::kKBytes == 2) run_[lane].k_half = half(run_[lane].k_scales, segment_.k.scale_token_stride);
    if constexpr (Shape::kVBytes == 2) run_[lane].v_half = half(run_[lane].v_scales, segment_.v.scale_token_stride);
    run_[lane].k = kept<E>(run_[lane].k);
    run_[lane].v = kept<E>(run_[lane].v);
    run_[lane].k_scales = kept<E>(run_[lane].k_scales);
    run_[lane].v_scales = kept<E>(run_[lane].v_scales);
  });
}

/// First key of the j-th run that this thread copies from, within a tile.
template <class Shim, std::int32_t S>
FP4PA_FN int KeyStreamOf<Shim, S>::run_key(Lane lane, int j) const {
  if constexpr (kRunRows <= kRunKeys) return j * kRunKeys;
  return j * kRunRows + thread(lane) / kRunPitch / kRunKeys * kRunKeys;
}

template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::look_up_runs(std::int32_t index, PerLane<Pages>& pages) {
  const std::int32_t begin = begin_of(index);
  exec_.each_lane([&](Lane lane) {
    const auto page = [&](std::int32_t key) { return exec_.template load_global<std::int32_t>(page_id(key)); };
    FP4PA_UNROLL
    for (int j = 0; j < kRuns; ++j) pages[lane].of_run[j] = page(begin + run_key(lane, j));
    if constexpr (!kAllRuns) {
      FP4PA_UNROLL
      for (int i = 0; i < kOwned; ++i) pages[lane].of_key[i] = page(begin + i * kThreads + thread(lane));
    }
  });
}

/// Page of row `row` of a tile, the i-th that a thread owns.
template <class Shim, std::int32_t S>
FP4PA_FN std::int32_t KeyStreamOf<Shim, S>::page_of_row(const Pages& pages, int row, int i) {
  if constexpr (!kAllRuns) return pages.of_key[i];
  std::int32_t page = pages.of_run[0];
  FP4PA_UNROLL
  for (int j = 1; j < kRuns; ++j) page = row >= j * kRunKeys ? pages.of_run[j] : page;
  return page;
}

/// The first tiles, all full: what they need is asked for at once, and not tile by tile.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::start_runs() {
  PerLane<Pages> pages[kStages];
  PerLane<Scales> scales[kStages];
  FP4PA_UNROLL
  for (int s = 0; s < kStages; ++s) look_up_runs(index_ + s * step(), pages[s]);
  look_up_runs(index_ + kStages * step(), pages_);
  FP4PA_UNROLL
  for (int s = 0; s < kStages; ++s) {
    const std::int32_t begin = begin_of(index_ + s * step());
    PerLane<RunRows> rows;
    locate_runs(begin, pages[s], rows);
    load_scales<true>(begin, pages[s], scales[s]);
    copy_runs<true>(index_ + s * step(), rows, slot_offset(s));
    exec_.copy_commit();
  }
  FP4PA_UNROLL
  for (int s = 0; s + 1 < kStages; ++s) store_scales(scales[s], s);
  scales_ = scales[kStages - 1];
}

/// @tparam kFull  all keys of the tile exist; else rows and scales of the others become zeros
template <class Shim, std::int32_t S>
template <bool kFull>
FP4PA_FN void KeyStreamOf<Shim, S>::stage_runs(std::int32_t index, int slot) {
  const std::int32_t begin = begin_of(index);
  PerLane<RunRows> rows;
  locate_runs(begin, pages_, rows);
  load_scales<kFull>(begin, pages_, scales_);
  look_up_runs(index + step(), pages_);
  team_barrier();  // nobody reads the slot any more
  copy_runs<kFull>(index, rows, slot_offset(slot));
  exec_.copy_commit();
}

/// Where the rows of a tile that begins at `begin` lie.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::locate_runs(std::int32_t begin, const PerLane<Pages>& pages, PerLane<RunRows>& rows) const {
  const std::uint32_t mask = static_cast<std::uint32_t>(segment_.page_size - 1);
  exec_.each_lane([&](Lane lane) {
    const Pages& p = pages[lane];
    FP4PA_UNROLL
    for (int j = 0; j < kRuns; ++j) {
      const std::uint32_t token = static_cast<std::uint32_t>(begin + run_key(lane, j)) & mask;
      if constexpr (kOnlyRuns) {  // K and V lie alike
        const std::int64_t offset = offset_to<E>(p.of_run[j], segment_.k.page_stride, token, segment_.k.token_stride);
        rows[lane].of[j][0] = run_[lane].k + offset;
        rows[lane].of[j][1] = run_[lane].v + offset;
        continue;
      }
      rows[lane].of[j][0] = step_to<E>(run_[lane].k, p.of_run[j], segment_.k.page_stride, token, segment_.k.token_stride);
      rows[lane].of[j][1] = step_to<E>(run_[lane].v, p.of_run[j], segment_.v.page_stride, token, segment_.v.token_stride);
    }
  });
}

/// Calls f(lane, which, i, row, address) for the rows of scales that are a thread's: of K (which 0) and of V (1) those of key
/// `row`, the i-th that it owns; along tokens (2) its word of those of the i-th run, which begins with key `row`.
template <class Shim, std::int32_t S>
template <class F>
FP4PA_FN void KeyStreamOf<Shim, S>::each_scale_row(std::int32_t begin, const PerLane<Pages>& pages, F&& f) const {
  const std::uint32_t mask = static_cast<std::uint32_t>(segment_.page_size - 1);
  exec_.each_lane([&](Lane lane) {
    const Pages& p = pages[lane];
    if constexpr (kTokenWords > 0) {
      FP4PA_UNROLL
      for (int j = 0; j < kRuns; ++j) {
        const std::uint32_t token = static_cast<std::uint32_t>(begin + run_key(lane, j)) & mask;
        f(lane, std::integral_constant<int, 2>(), j, run_key(lane, j),
          step_to<E>(run_[lane].v_scales, p.of_run[j], segment_.v.scale_page_stride, token >> segment_.v.scale_shift,
                     segment_.v.scale_token_stride));
      }
    }
    FP4PA_UNROLL
    for (int i = 0; i < kOwned; ++i) {
      const int row = i * kThreads + thread(lane);
      if (kOwned * kThreads > kTileKeys && row >= kTileKeys) continue;
      const std::uint32_t token = static_cast<std::uint32_t>(begin + row) & mask;
      const std::int32_t page = page_of_row(p, row, i);
      if constexpr (kOnlyRuns && kKKind == kVKind && kKWords > 0) {
        const std::int64_t offset = offset_to<E>(page, segment_.k.scale_page_stride, token, segment_.k.scale_token_stride);
        f(lane, std::integral_constant<int, 0>(), i, row, run_[lane].k_scales + offset);
        f(lane, std::integral_constant<int, 1>(), i, row, run_[lane].v_scales + offset);
        continue;
      }
      if constexpr (kKWords > 0) {
        f(lane, std::integral_constant<int, 0>(), i, row,
          step_to<E>(run_[lane].k_scales, page, segment_.k.scale_page_stride, token, segment_.k.scale_token_stride));
      }
      if constexpr (kVWords > 0) {
        f(lane, std::integral_constant<int, 1>(), i, row,
          step_to<E>(run_[lane].v_scales, page, segment_.v.scale_page_stride, token, segment_.v.scale_token_stride));
      }
    }
  });
}

/// Asks for the scales of a tile.
template <class Shim, std::int32_t S>
template <bool kFull>
FP4PA_FN void KeyStreamOf<Shim, S>::load_scales(std::int32_t begin, const PerLane<Pages>& pages, PerLane<Scales>& scales) {
  each_scale_row(begin, pages, [&](Lane lane, auto which, int i, int row, const std::uint8_t* from) {
    // Along tokens a row of scales is its run's alone.
    const bool there = kFull || (which == 2 ? begin + row < walk_.range.end : exists(begin + row));
    if constexpr (which == 0) {
      load_words<Shape::kKBytes>(exec_, from, there, scales[lane].k[i]);
    } else if constexpr (which == 1) {
      load_words<Shape::kVBytes>(exec_, from, there, scales[lane].v[i]);
    } else {
      scales[lane].tokens[i] = there ? exec_.template load_global<std::uint32_t>(from) : 0;
    }
  });
}

template <class Shim, std::int32_t S>
template <bool kFull>
FP4PA_FN void KeyStreamOf<Shim, S>::copy_runs(std::int32_t index, const PerLane<RunRows>& rows, std::uint32_t slot) {
  exec_.each_lane([&](Lane lane) {
    const std::int32_t first_key = begin_of(index) + thread(lane) / kRunPitch;
    const std::uint32_t to = slot + thread(lane) * kChunkBytes;
    FP4PA_UNROLL
    for (int which = 0; which < 2; ++which) {
      auto token_stride = static_cast<std::uint32_t>(which == 0 || kOnlyRuns ? segment_.k.token_stride : segment_.v.token_stride);
      int own = thread(lane);
      if constexpr (kRunRows == 1) {  // else its multiples, and where a row is swizzled to, are kept from tile to tile
        token_stride = static_cast<std::uint32_t>(anew<E>(static_cast<int>(token_stride)));
        own = anew<E>(own);
      }
      FP4PA_UNROLL
      for (int run = 0; run < kRuns; ++run) {
        const std::uint8_t* const first = rows[lane].of[run][which];
        const auto copy = [&](int i) {
          const int c = run * kRunSteps + i;
          const int row = own / kRunPitch;
          const int column = own % kRunPitch;
          const int chunk = Shim::swizzle(c * kRunRows + row, column, kRunPitch);
          if (kRunChunks < kRunPitch && chunk >= kRunChunks) return;  // behind the row's end, which may be the pool's
          // Rows eight apart are swizzled alike.
          const int chunks = kRunRows % 8 == 0 ? 0 : chunk - Shim::swizzle(row, column, kRunPitch);
          const auto offset = static_cast<std::uint32_t>(c * kRunRows % kRunKeys);
          const std::uint8_t* const from = first + offset * token_stride + chunks * kChunkBytes;
          exec_.copy_async_16(lane, to + (which == 0 ? 0 : layout().v_codes) + c * kThreads * kChunkBytes, from,
                              kFull || exists(first_key + c * kRunRows));
        };
        if constexpr ((kFull && kConfig.plain) || kRunSteps <= 8) {
          FP4PA_UNROLL
          for (int i = 0; i < kRunSteps; ++i) copy(i);
        } else {  // all at once, they would find out which of them exist before the first one goes
          FP4PA_NO_UNROLL
          for (int i = 0; i < kRunSteps; ++i) copy(i);
        }
      }
    }
  });
}

}  // namespace fp4pa::core
