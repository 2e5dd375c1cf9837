// The short way of a stream of keys: tiles whose every run of 16 keys lies in one page, see key_stream.hpp.
//
// A thread's copies come from a few runs of the tile, always from the same places within them. So what changes from tile to
// tile is a page id and a position in the page for each run, and no address passes through shared memory.
#pragma once

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

/// A key's scales in loads as wide as their alignment, see scales_are_aligned.
template <int kBytes, class E, int kWords>
FP4PA_FN void load_words(E& exec, const std::uint8_t* from, std::uint32_t (&words)[kWords]) {
  if constexpr (kBytes == 1) {
    words[0] = exec.template load_global<std::uint8_t>(from);
  } else if constexpr (kBytes == 2) {
    words[0] = exec.template load_global<std::uint16_t>(from);
  } else {
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) words[w] = exec.template load_global<std::uint32_t>(from + 4 * w);
  }
}

/// Whether tiles can go that way, and what does not change from tile to tile.
template <class Shim, std::int32_t S>
FP4PA_FN void KeyStreamOf<Shim, S>::prepare_runs() {
  const std::int32_t size = segment_.page_size;
  by_runs_ = fits_runs(size) && walk_.first % kRunKeys == 0 && walk_.pieces.group == 0 && segment_.table.ring_pages == 0 &&
             fits_runs(segment_.k, kKKind, head_dim()) && fits_runs(segment_.v, kVKind, head_dim());
  page_shift_ = 0;
  while ((1 << page_shift_) < size) ++page_shift_;
  const PageTable& table = segment_.table;
  page_ids_ = keep(table.pages + (table.indptr != nullptr ? table.indptr[item_.seq] : item_.seq * table.row_stride));
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
    run_[lane].k = keep(run_[lane].k);
    run_[lane].v = keep(run_[lane].v);
    run_[lane].k_scales = keep(run_[lane].k_scales);
    run_[lane].v_scales = keep(run_[lane].v_scales);
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
  const std::int32_t begin = walk_.first + index * kTileKeys;
  const std::int32_t last = walk_.range.end - 1;
  exec_.each_lane([&](Lane lane) {
    const auto page = [&](std::int32_t key) {
      return exec_.template load_global<std::int32_t>(page_ids_ + ((key < last ? key : last) >> page_shift_));
    };
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
    PerLane<RunRows> rows;
    locate_runs<true>(walk_.first + (index_ + s * step()) * kTileKeys, pages[s], rows, scales[s]);
    copy_runs<true>(index_ + s * step(), rows, s);
  }
  FP4PA_UNROLL
  for (int s = 0; s + 1 < kStages; ++s) store_scales(scales[s], s);
  scales_ = scales[kStages - 1];
}

/// @tparam kFull  all keys of the tile exist; else rows and scales of the others become zeros
template <class Shim, std::int32_t S>
template <bool kFull>
FP4PA_FN void KeyStreamOf<Shim, S>::stage_runs(std::int32_t index, int slot) {
  PerLane<RunRows> rows;
  locate_runs<kFull>(walk_.first + index * kTileKeys, pages_, rows, scales_);
  look_up_runs(index + step(), pages_);
  if constexpr (kAhead == 0) team_barrier();  // else the products had one after the last of them read the slot
  copy_runs<kFull>(index, rows, slot);
}

/// Where the rows of a tile that begins at `begin` lie; its scales are asked for.
template <class Shim, std::int32_t S>
template <bool kFull>
FP4PA_FN void KeyStreamOf<Shim, S>::locate_runs(std::int32_t begin, const PerLane<Pages>& pages, PerLane<RunRows>& rows,
                                                PerLane<Scales>& scales) {
  const std::uint32_t mask = static_cast<std::uint32_t>(segment_.page_size - 1);
  exec_.each_lane([&](Lane lane) {
    const Pages& p = pages[lane];
    Scales& loaded = scales[lane];
    FP4PA_UNROLL
    for (int j = 0; j < kRuns; ++j) {
      const std::uint32_t token = static_cast<std::uint32_t>(begin + run_key(lane, j)) & mask;
      rows[lane].of[j][0] = step_to<E>(run_[lane].k, p.of_run[j], segment_.k.page_stride, token, segment_.k.token_stride);
      rows[lane].of[j][1] = step_to<E>(run_[lane].v, p.of_run[j], segment_.v.page_stride, token, segment_.v.token_stride);
      if constexpr (kTokenWords > 0) {
        const std::uint8_t* const from = step_to<E>(run_[lane].v_scales, p.of_run[j], segment_.v.scale_page_stride,
                                                 token >> segment_.v.scale_shift, segment_.v.scale_token_stride);
        const bool there = kFull || begin + run_key(lane, j) < walk_.range.end;  // a row of scales is its run's alone
        loaded.tokens[j] = there ? exec_.template load_global<std::uint32_t>(from) : 0;
      }
    }
    FP4PA_UNROLL
    for (int i = 0; i < kOwned; ++i) {
      const int row = i * kThreads + thread(lane);
      if (kOwned * kThreads > kTileKeys && row >= kTileKeys) continue;
      const std::uint32_t token = static_cast<std::uint32_t>(begin + row) & mask;
      const std::int32_t page = page_of_row(p, row, i);
      if (!kFull && !exists(begin + row)) {
        FP4PA_UNROLL
        for (int w = 0; w < at_least_one(kKWords); ++w) loaded.k[i][w] = 0;
        FP4PA_UNROLL
        for (int w = 0; w < at_least_one(kVWords); ++w) loaded.v[i][w] = 0;
        continue;
      }
      if constexpr (kKWords > 0) {
        load_words<key_scale_bytes(kKKind, kConfig.head_dim)>(
            exec_,
            step_to<E>(run_[lane].k_scales, page, segment_.k.scale_page_stride, token, segment_.k.scale_token_stride),
            loaded.k[i]);
      }
      if constexpr (kVWords > 0) {
        load_words<key_scale_bytes(kVKind, kConfig.head_dim)>(
            exec_,
            step_to<E>(run_[lane].v_scales, page, segment_.v.scale_page_stride, token, segment_.v.scale_token_stride),
            loaded.v[i]);
      }
    }
  });
}

template <class Shim, std::int32_t S>
template <bool kFull>
FP4PA_FN void KeyStreamOf<Shim, S>::copy_runs(std::int32_t index, const PerLane<RunRows>& rows, int slot) {
  exec_.each_lane([&](Lane lane) {
    const std::int32_t first_key = walk_.first + index * kTileKeys + thread(lane) / kRunPitch;
    const std::uint32_t to = slot_offset(slot) + thread(lane) * kChunkBytes;
    FP4PA_UNROLL
    for (int which = 0; which < 2; ++which) {
      auto token_stride = static_cast<std::uint32_t>(which == 0 ? segment_.k.token_stride : segment_.v.token_stride);
      int own = thread(lane);
      if constexpr (kRunRows == 1) {  // else its multiples, and where a row is swizzled to, are kept from tile to tile
        token_stride = static_cast<std::uint32_t>(anew(static_cast<int>(token_stride)));
        own = anew(own);
      }
      FP4PA_UNROLL
      for (int run = 0; run < kRuns; ++run) {
        const std::uint8_t* const first = rows[lane].of[run][which];
        const auto copy = [&](int i) {
          const int c = run * kRunSteps + i;
          const int row = own / kRunPitch;
          const int column = own % kRunPitch;
          // Rows eight apart are swizzled alike.
          const int chunks = kRunRows % 8 == 0 ? 0
                                               : Shim::swizzle(c * kRunRows + row, column, kRunPitch) -
                                                     Shim::swizzle(row, column, kRunPitch);
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
  exec_.copy_commit();
}

}  // namespace fp4pa::core
