// The keys of one segment on their way from the pages of a pool to shared memory, tile by tile.
//
// A team (a warp with tiles of its own, or the block) keeps `stages` tiles under way. Three things must be known before a
// row can be copied: its page, its address, and that it exists; and each is asked for one tile ahead, so that no load is
// waited for in the loop:
//
//   release of tile n, which makes room for tile m = n + stages:
//     scales of tile m-1, loaded into registers last time   -> shared memory
//     page ids of tile m, loaded last time                  -> addresses of its rows, into shared memory
//     scales of tile m, page ids of tile m+1                -> asked for
//     barrier of the team; codes of tile m                  -> asynchronous copies, zeros for keys past the end
//
// A full tile of a cache whose pages are a power of two of tokens, at least 16, goes a shorter way: every run of 16 keys lies
// in one page, so that a thread finds the addresses of its copies by itself, from a few page ids. A plain instance knows no other
// way, and leaves out rows of tiles that are not full. Its warps, where they have tiles of their own, copy scales and page ids as they
// copy codes, and load nothing from global memory into registers:
//
//   release of tile n:
//     page ids of tile m, which came with tile n            -> addresses of its rows
//     codes and scales of tile m, page ids of tile m+stages -> asynchronous copies
//   wait for tile n+1:
//     its scales, in place                                  -> the products' form
//
// A GPU knows that a load has come by one of a few counters, which loads share: with one from global memory under way from tile
// to tile, a load from shared memory was waited for as long as that one.
//
// Rows that do not exist are zeros, codes and scales: what an unused slot of a page holds never enters a product.
// Scales pass through registers, where they are not copied, because a row of them may be as short as one byte, at any address.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/attention/tile_backend.hpp"
#include "core/paging/two_tier.hpp"
#include "core/simt/exec.hpp"
#include "core/simt/page_runs.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::core {

/// Which tiles a team walks, and which keys they hold.
struct TileWalk {
  KeyRange range;
  std::int32_t first;   // key (or, in pieces, piece) of tile 0
  std::int32_t width;   // keys of a tile
  PageCut pieces;       // group 0: tiles are plain runs of keys

  /// Plain tiles of `width` keys. With scales along tokens every piece of 16 keys must lie within one row of scales: pieces
  /// then begin where `alignment`, 16 or what the shim's atom needs, divides the position in the page. A first tile may so begin
  /// before the range, with keys that no row of the item sees. Pages that 16 does not divide are walked a piece at a time,
  /// cut at the range.
  FP4PA_FN static TileWalk make(KeyRange range, std::int32_t width, std::int32_t page_size, bool scales_along_tokens,
                                std::int32_t alignment) {
    TileWalk w{range, range.begin, width, {page_size, 0}};
    if (!scales_along_tokens) return w;
    if (page_size % kScalePiece == 0) {
      w.first = range.begin / alignment * alignment;
      return w;
    }
    w.pieces.group = kScalePiece;
    const std::int32_t row = range.begin % page_size;
    w.first = static_cast<std::int32_t>(w.pieces.piece_of(range.begin - row % kScalePiece));
    return w;
  }
  [[nodiscard]] FP4PA_FN KeyRange tile(std::int32_t index) const {
    if (pieces.group == 0) {
      const std::int32_t begin = first + index * width;
      return {begin, begin + width < range.end ? begin + width : range.end};
    }
    std::int32_t begin = pieces.first_token(first + index);
    std::int32_t end = begin + pieces.tokens(first + index);
    if (begin < range.begin) begin = range.begin;
    if (end > range.end) end = range.end;
    return {begin, end};
  }
};

/// Little-endian words of `bytes` bytes at any address.
template <int kWords, class E>
FP4PA_FN void load_scale_words(E& exec, const std::uint8_t* from, int bytes, bool aligned, std::uint32_t (&words)[kWords]) {
  FP4PA_UNROLL
  for (int w = 0; w < kWords; ++w) {
    words[w] = 0;
    if (4 * w >= bytes) continue;
    if (aligned) {
      words[w] = exec.template load_global<std::uint32_t>(from + 4 * w);
    } else {
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (4 * w + i < bytes) {
          words[w] |= std::uint32_t{exec.template load_global<std::uint8_t>(from + 4 * w + i)} << (8 * i);
        }
      }
    }
  }
}

/// Whether all scale rows of a tensor begin on words and are whole words long.
[[nodiscard]] FP4PA_FN bool scales_are_words(const TensorView& view, int bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.scales);
  return ((address | view.scale_page_stride | view.scale_token_stride | view.scale_head_stride | bytes) & 3) == 0;
}

/// Tiles beyond the current one that a shim reads while it works on that; none unless it says so.
template <class Shim>
inline constexpr int kTilesAheadOf = 0;
template <class Shim>
  requires requires { Shim::kTilesAhead; }
inline constexpr int kTilesAheadOf<Shim> = Shim::kTilesAhead;

/// @tparam Shim  config, Exec, swizzle, kTokenAlignment
template <class Shim, std::int32_t S>
class KeyStreamOf {
  static constexpr SimtConfig kConfig = Shim::kConfig;
  static constexpr bool kBlockTeam = divides_rows(kConfig);
  using ScaleForm = typename ScaleFormOf<Shim>::type;
  using E = typename Shim::Exec;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Lane = typename E::Lane;

  static constexpr int kTileKeys = kConfig.tile_keys;
  static constexpr int kStages = kConfig.stages[S];
  static constexpr int kThreads = E::kLanes * (kBlockTeam ? kConfig.warps : 1);
  static constexpr int kOwned = (kTileKeys + kThreads - 1) / kThreads;  // keys that a thread looks up
  static constexpr KvKind kKKind = kConfig.k[S];
  static constexpr KvKind kVKind = kConfig.v[S];
  // Scale words of a key at most; and words of a thread's share of the rows along tokens.
  static constexpr int words_of(KvKind k) {
    return k == KvKind::kAny ? round_up_to(kConfig.head_dim / 16, 4) / 4
                             : round_up_to(key_scale_bytes(k, kConfig.head_dim), 4) / 4;  // none in a recent tier
  }
  static constexpr int kTokenWords =
      kVKind == KvKind::kAny || along_tokens(kVKind)
          ? (kTileKeys / kScalePiece * kConfig.head_dim / 4 + kThreads - 1) / kThreads
          : 0;
  static constexpr int at_least_one(int n) { return n > 0 ? n : 1; }
  static constexpr int kKWords = words_of(kKKind);
  static constexpr int kVWords = words_of(kVKind);
  // Bytes of a key's scales, where the instance fixes them.
  static constexpr int kKBytes = key_scale_bytes(kKKind, kConfig.head_dim);
  static constexpr int kVBytes = key_scale_bytes(kVKind, kConfig.head_dim);

  // A tile's scales reach shared memory one release after its codes were asked for.
  static constexpr int kAhead = kTilesAheadOf<Shim>;
  static_assert(kStages >= 2 + kAhead || (kKWords == 0 && kVWords == 0 && kTokenWords == 0 && kStages > kAhead));

  // Full tiles of pages of a power of two of tokens, see stage_runs().
  // A swizzle that tells rows eight apart from each other has no part in it, nor has the recent tier, whose pages are a ring.
  static constexpr bool kFarRows = requires { requires Shim::kSwizzlesFarRows; };
  static constexpr bool kHasRuns = S == 0 && !kFarRows && kConfig.exact_head_dim && (!kConfig.decode_tiles || kAhead > 0) &&
                                   !is_any(kKKind) && !is_any(kVKind) &&
                                   code_bytes(kKKind, kConfig.head_dim) == code_bytes(kVKind, kConfig.head_dim) &&
                                   kThreads * code_bytes(kKKind, kConfig.head_dim) >= kChunkBytes * kChunkBytes &&
                                   kThreads * kChunkBytes <= kTileKeys * code_bytes(kKKind, kConfig.head_dim) &&
                                   (!along_tokens(kVKind) || kThreads == kConfig.head_dim / 4);
  /// Nothing but runs: whoever selects a plain instance has looked at the pages (simt::is_plain).
  static constexpr bool kOnlyRuns = kConfig.plain && !kConfig.decode_tiles && S == 0;
  static_assert(kHasRuns || !kOnlyRuns);
  /// Scales and page ids are copied as codes are.
  static constexpr bool kCopiesAll = kOnlyRuns && !kBlockTeam;
  static constexpr int kRunPitch = kHasRuns ? power_of_two_at_least(code_bytes(kKKind, kConfig.head_dim) / kChunkBytes) : 1;
  static constexpr int kRunRows = at_least_one(kThreads / kRunPitch);  // rows that the team's threads copy side by side
  static constexpr int kRuns = kTileKeys / (kRunRows > kRunKeys ? kRunRows : kRunKeys);  // that a thread copies from
  static constexpr int kRunSteps = kTileKeys / kRunRows / at_least_one(kRuns);  // a thread's copies from a run, K's and again V's
  static constexpr bool kAllRuns = kRunRows <= kRunKeys;   // a thread copies from every run of the tile

  struct Pages {
    std::int32_t of_key[kOwned];
    std::int32_t of_run[at_least_one(kRuns)];
  };
  struct Scales {
    std::uint32_t k[kOwned][at_least_one(kKWords)];
    std::uint32_t v[kOwned][at_least_one(kVWords)];
    std::uint32_t tokens[at_least_one(kTokenWords)];
  };

 public:
  static constexpr std::int32_t kSegment = S;

  FP4PA_FN KeyStreamOf(E& exec, const Segment& segment, const WorkItem& item, KeyRange range, int head_dim,
                       std::uint32_t stages, std::uint32_t addresses)
      : exec_(exec),
        segment_(segment),
        item_(item),
        head_dim_(head_dim),
        k_kind_(kv_kind(segment.k)),
        v_kind_(kv_kind(segment.v)),
        layout_(tile_layout<ScaleForm>(k_kind(), v_kind(), this->head_dim(), kTileKeys)),
        walk_(TileWalk::make(range, kTileKeys, segment.page_size, along_tokens(v_kind()), Shim::kTokenAlignment)),
        stages_(stages),
        addresses_(addresses),
        index_(kBlockTeam ? 0 : exec.warp()),
        v_global_(segment.v.global(item.kv_head)) {
    const int k_bytes = key_scale_bytes(k_kind(), this->head_dim());
    const int v_bytes = along_tokens(v_kind()) ? this->head_dim() : key_scale_bytes(v_kind(), this->head_dim());
    k_words_ = scales_are_words(segment.k, k_bytes);
    v_words_ = scales_are_words(segment.v, v_bytes);
    if constexpr (kOnlyRuns) walk_.first = walk_.first / kRunKeys * kRunKeys;
    if constexpr (kCopiesAll) {
      prepare_runs();
      copy_first_tiles();
      return;
    }
    if constexpr (kHasRuns) {
      prepare_runs();
      if (by_runs_ && is_full(index_) && is_full(index_ + (kStages - 1) * step())) {
        start_runs();
        return;
      }
    }
    look_up_pages(index_, pages_);
    for (int s = 0; s < kStages; ++s) {
      if (kBlockTeam && s > 0) team_barrier();  // before the addresses of the tile before are overwritten
      stage(index_ + s * step(), s, s > 0);
      if (!kBlockTeam) team_barrier();  // a warp's lie in its scratch, and its query is read to that next
    }
  }

  [[nodiscard]] FP4PA_FN bool done() const { return empty(index_); }
  [[nodiscard]] FP4PA_FN KeyRange keys() const { return walk_.tile(index_); }

  FP4PA_FN void wait() {
    exec_.template copy_wait<kStages - 1 - kAhead>();
    team_barrier();
    if constexpr (kCopiesAll && kKWords + kVWords > 0) {
      form_scales(tile_offset());
      team_barrier();
    }
  }
  FP4PA_FN void release() {
    // Whoever is late may still be reading the slot: the barrier in stage() comes before the copies.
    stage(index_ + kStages * step(), slot(), true);
    step_on();
  }

  /// A barrier of the warps that share a tile.
  FP4PA_FN void team_barrier() const {
    if constexpr (kBlockTeam) {
      exec_.block_barrier();
    } else {
      exec_.warp_barrier();
    }
  }

  // What the products read.
  [[nodiscard]] FP4PA_FN std::uint32_t tile_offset() const { return slot_offset(slot()); }
  // For shims with kTilesAhead, whose teams are blocks: the current tile's number, and the next tile.
  [[nodiscard]] FP4PA_FN int index() const { return index_; }
  [[nodiscard]] FP4PA_FN bool first() const { return index_ == 0; }
  [[nodiscard]] FP4PA_FN bool has_next() const { return !empty(index_ + step()); }
  [[nodiscard]] FP4PA_FN std::uint32_t next_tile_offset() const { return slot_offset(slot() + 1 == kStages ? 0 : slot() + 1); }
  /// Offset of what the instance keeps behind the stages of its team.
  [[nodiscard]] FP4PA_FN std::uint32_t behind_stages() const { return slot_offset(kStages); }
  // Constants where the instance fixes them.
  [[nodiscard]] FP4PA_FN TileLayout layout() const {
    if constexpr (kConfig.exact_head_dim && !is_any(kKKind) && !is_any(kVKind)) {
      constexpr TileLayout kLayout = tile_layout<ScaleForm>(kKKind, kVKind, kConfig.head_dim, kTileKeys);
      return kLayout;
    } else {
      return layout_;
    }
  }
  [[nodiscard]] FP4PA_FN KvKind k_kind() const { return is_any(kKKind) ? k_kind_ : kKKind; }
  [[nodiscard]] FP4PA_FN KvKind v_kind() const { return is_any(kVKind) ? v_kind_ : kVKind; }
  [[nodiscard]] FP4PA_FN const Segment& segment() const { return segment_; }
  [[nodiscard]] FP4PA_FN std::int32_t kv_head() const { return item_.kv_head; }
  /// Decode multiplier of V's codes, read once.
  [[nodiscard]] FP4PA_FN float v_global() const { return v_global_; }
  [[nodiscard]] FP4PA_FN int head_dim() const { return kConfig.exact_head_dim ? kConfig.head_dim : head_dim_; }

 private:
  FP4PA_FN void step_on() {
    index_ += step();
    if constexpr (!kSlotsByIndex) slot_ = slot_ + 1 == kStages ? 0 : slot_ + 1;
  }
  /// The current tile's. Of a block's tiles, numbered without gaps, in a power of two of slots it is known without being kept.
  static constexpr bool kSlotsByIndex = kBlockTeam && (kStages & (kStages - 1)) == 0;
  [[nodiscard]] FP4PA_FN int slot() const { return kSlotsByIndex ? index_ % kStages : slot_; }
  [[nodiscard]] FP4PA_FN int step() const { return kBlockTeam ? 1 : exec_.num_warps(); }
  [[nodiscard]] FP4PA_FN bool empty(std::int32_t index) const { return walk_.tile(index).empty(); }
  [[nodiscard]] FP4PA_FN bool is_full(std::int32_t index) const {
    const KeyRange keys = walk_.tile(index);
    return keys.end - keys.begin == kTileKeys && (!kOnlyRuns || keys.begin >= walk_.range.begin);
  }
  [[nodiscard]] FP4PA_FN std::uint32_t slot_offset(int slot) const { return stages_ + slot * layout().bytes; }
  [[nodiscard]] FP4PA_FN int thread(Lane lane) const { return (kBlockTeam ? exec_.warp() * E::kLanes : 0) + lane.id; }

  /// Asks for the page ids of a tile.
  FP4PA_FN void look_up_pages(std::int32_t index, PerLane<Pages>& pages) {
    if constexpr (kHasRuns) {
      if (by_runs_) {
        look_up_runs(index, pages);
        return;
      }
    }
    const KeyRange keys = walk_.tile(index);
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kOwned; ++i) {
        const std::int32_t key = keys.begin + i * kThreads + thread(lane);
        pages[lane].of_key[i] = key < keys.end ? segment_.table.page(item_.seq, key / segment_.page_size) : 0;
      }
    });
  }

  /// Writes the scales of keys to their tile, in the products' form.
  FP4PA_FN void store_key_scales(const PerLane<Scales>& scales, std::uint32_t slot) {
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kOwned; ++i) {
        const int row = i * kThreads + thread(lane);
        if (row >= kTileKeys) continue;
        if constexpr (kKWords > 0) {
          ScaleForm::store_key(exec_, lane, k_kind(), head_dim(), slot + layout().k_scales, row, scales[lane].k[i]);
        }
        if constexpr (kVWords > 0) {
          ScaleForm::store_value(exec_, lane, v_kind(), head_dim(), slot + layout().v_scales, row, scales[lane].v[i]);
        }
      }
    });
  }
  /// Writes scales that were asked for to their tile's slot.
  FP4PA_FN void store_scales(const PerLane<Scales>& scales, int to) {
    const std::uint32_t slot = slot_offset(to);
    store_key_scales(scales, slot);
    if constexpr (kTokenWords > 0) {
      if (!along_tokens(v_kind())) return;
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kTokenWords; ++i) {
          const int word = i * kThreads + thread(lane);
          if (4 * word < kTileKeys / kScalePiece * head_dim()) {
            exec_.template store_shared<std::uint32_t>(lane, slot + layout().v_scales + 4 * word, scales[lane].tokens[i]);
          }
        }
      });
    }
  }
  FP4PA_FN void stage(std::int32_t index, int slot, bool scales_pending) {
    if (!kCopiesAll && scales_pending) store_scales(scales_, slot == 0 ? kStages - 1 : slot - 1);  // of the tile staged before
    const KeyRange keys = walk_.tile(index);
    if (keys.empty()) {
      exec_.copy_commit();  // groups are counted by tile
      return;
    }
    if constexpr (kCopiesAll) {
      if (is_full(index)) {
        copy_tile<true>(index, slot);
      } else {
        copy_tile<false>(index, slot);
      }
      return;
    }
    if constexpr (kHasRuns) {
      if (by_runs_ && is_full(index)) {
        stage_runs<true>(index, slot);
        return;
      }
    }
    if constexpr (kOnlyRuns) {
      stage_runs<false>(index, slot);
    } else {
      stage_rows(index, slot, keys);
    }
  }

  /// Any tile of any pages: rows are found one by one.
  FP4PA_FN void stage_rows(std::int32_t index, int slot, KeyRange keys) {
    if constexpr (!kBlockTeam) exec_.warp_barrier();  // the addresses may lie in a scratch that somebody still reads
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kOwned; ++i) {
        const int row = i * kThreads + thread(lane);
        if (row < kTileKeys) locate(lane, keys, row, i);
      }
    });
    look_up_pages(index + step(), pages_);
    team_barrier();
    exec_.each_lane([&](Lane lane) {
      copy_codes(lane, slot_offset(slot), layout().k_chunks, code_bytes(k_kind(), head_dim()) / kChunkBytes, 0);
      copy_codes(lane, slot_offset(slot) + layout().v_codes, layout().v_chunks,
                 code_bytes(v_kind(), head_dim()) / kChunkBytes, 8);
      if constexpr (kTokenWords > 0) load_token_scales(lane);
    });
    exec_.copy_commit();
  }

  /// Addresses and scales of row `row` of a tile, the i-th that this thread owns.
  FP4PA_FN void locate(Lane lane, KeyRange keys, int row, int i) {
    const std::int32_t key = keys.begin + row;
    const bool exists = key < keys.end;
    const std::int64_t page = by_runs_ ? page_of_row(pages_[lane], row, i) : pages_[lane].of_key[i];
    const std::int32_t token = exists ? key % segment_.page_size : 0;
    const auto address = [&](const std::uint8_t* p) {
      return exists ? static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(p)) : 0;
    };
    const std::uint32_t entry = addresses_ + row * 16;
    exec_.template store_shared<std::uint64_t>(lane, entry, address(segment_.k.row(page, token, item_.kv_head)));
    exec_.template store_shared<std::uint64_t>(lane, entry + 8, address(segment_.v.row(page, token, item_.kv_head)));
    const int k_bytes = exists ? key_scale_bytes(k_kind(), head_dim()) : 0;
    const int v_bytes = exists ? key_scale_bytes(v_kind(), head_dim()) : 0;
    if constexpr (kKWords > 0) {
      load_scale_words(exec_, segment_.k.scale_row(page, token, item_.kv_head), k_bytes, k_words_, scales_[lane].k[i]);
    }
    if constexpr (kVWords > 0) {
      load_scale_words(exec_, segment_.v.scale_row(page, token, item_.kv_head), v_bytes, v_words_, scales_[lane].v[i]);
    }
    if constexpr (kTokenWords > 0) {
      if (along_tokens(v_kind()) && row % kScalePiece == 0) {
        exec_.template store_shared<std::uint64_t>(lane, addresses_ + kTileKeys * 16 + row / kScalePiece * 8,
                                                   address(segment_.v.scale_row(page, token, item_.kv_head)));
      }
    }
  }

  /// Neighbouring lanes fill neighbouring chunks, as devices want it that copy a warp's chunks as one; which chunk of the row
  /// that is, is the source's affair.
  FP4PA_FN void copy_codes(Lane lane, std::uint32_t to, int pitch_chunks, int chunks, int which) {
    const int total = kTileKeys * pitch_chunks;
    const int own = anew(thread(lane));  // else a dozen offsets are kept from tile to tile
    FP4PA_UNROLL
    for (int at = 0; at < total; at += kThreads) {
      const int i = at + own;
      const int row = i / pitch_chunks;
      const int chunk = Shim::swizzle(row, i % pitch_chunks, pitch_chunks);  // its own inverse
      if (i >= total || chunk >= chunks) continue;
      const auto from = exec_.template load_shared<std::uint64_t>(lane, addresses_ + row * 16 + which);
      const auto* const data = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(from));
      exec_.copy_async_16(lane, to + i * kChunkBytes, data + chunk * kChunkBytes, from != 0);
    }
  }

  // key_runs.hpp: the short way for full tiles.

  /// First rows of K and of V of the runs that a thread copies from.
  struct RunRows {
    const std::uint8_t* of[at_least_one(kRuns)][2];
  };

  FP4PA_FN void prepare_runs();
  FP4PA_FN void start_runs();
  template <bool kFull>
  FP4PA_FN void stage_runs(std::int32_t index, int slot);
  FP4PA_FN void look_up_runs(std::int32_t index, PerLane<Pages>& pages);
  FP4PA_FN void locate_runs(std::int32_t begin, const PerLane<Pages>& pages, PerLane<RunRows>& rows) const;
  template <class F>
  FP4PA_FN void each_scale_row(std::int32_t begin, const PerLane<Pages>& pages, F&& f) const;
  template <bool kFull>
  FP4PA_FN void load_scales(std::int32_t begin, const PerLane<Pages>& pages, PerLane<Scales>& scales);
  template <bool kFull>
  FP4PA_FN void copy_runs(std::int32_t index, const PerLane<RunRows>& rows, int slot);
  [[nodiscard]] FP4PA_FN int run_key(Lane lane, int j) const;
  /// Page id's address of a key; beyond the last, the last one's.
  [[nodiscard]] FP4PA_FN const std::int32_t* page_id(std::int32_t key) const {
    const std::int32_t last = walk_.range.end - 1;
    return page_ids_ + ((key < last ? key : last) >> page_shift_);
  }
  [[nodiscard]] FP4PA_FN static std::int32_t page_of_row(const Pages& pages, int row, int i);
  [[nodiscard]] FP4PA_FN bool exists(std::int32_t key) const { return key >= walk_.range.begin && key < walk_.range.end; }

  // The same where scales and page ids are copied.

  FP4PA_FN void copy_first_tiles();
  template <bool kFull>
  FP4PA_FN void copy_tile(std::int32_t index, int slot);
  template <bool kFull>
  FP4PA_FN void copy_scales(std::int32_t begin, const PerLane<Pages>& pages, std::uint32_t slot);
  FP4PA_FN void form_scales(std::uint32_t slot);
  /// Where a tile has the scale words of key `row` before form_scales, of K (which 0) or V (1).
  [[nodiscard]] FP4PA_FN std::uint32_t copied_scales(int which, int row) const {
    if (which == 0) return static_cast<std::uint32_t>(layout().k_scales + row * 4 * kKWords);
    return static_cast<std::uint32_t>(layout().v_scales + ScaleForm::copied_offset(kVKind, kConfig.head_dim, row));
  }
  /// Where the page ids lie of the tile that comes to a slot next: behind the stages.
  [[nodiscard]] FP4PA_FN std::uint32_t page_id_offset(int slot, int run) const {
    return slot_offset(kStages) + static_cast<std::uint32_t>((slot * kRuns + run) * 4);
  }

  /// x, in a register from here on: a compiler would rather find it out again for every tile.
  template <class T>
  [[nodiscard]] FP4PA_FN static T keep(T x) {
    if constexpr (requires { E::opaque(x); }) {
      return E::opaque(x);
    } else {
      return x;
    }
  }

  /// x, of which a compiler has computed nothing before.
  [[nodiscard]] FP4PA_FN static int anew(int x) {
    if constexpr (requires { E::anew(x); }) {
      return E::anew(x);
    } else {
      return x;
    }
  }

  FP4PA_FN void load_token_scales(Lane lane) {
    if (!along_tokens(v_kind())) return;
    const int row_words = head_dim() / 4;
    FP4PA_UNROLL
    for (int i = 0; i < kTokenWords; ++i) {
      const int word = i * kThreads + thread(lane);
      const int piece = word / row_words;
      std::uint32_t loaded[1] = {0};
      if (piece < kTileKeys / kScalePiece) {
        const auto from = exec_.template load_shared<std::uint64_t>(lane, addresses_ + kTileKeys * 16 + piece * 8);
        const auto* const row = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(from));
        if (from != 0) load_scale_words(exec_, row + word % row_words * 4, 4, v_words_, loaded);
      }
      scales_[lane].tokens[i] = loaded[0];
    }
  }

  E& exec_;
  const Segment& segment_;
  const WorkItem& item_;
  int head_dim_;
  KvKind k_kind_;
  KvKind v_kind_;
  TileLayout layout_;
  TileWalk walk_;
  std::uint32_t stages_;     // offset of slot 0
  std::uint32_t addresses_;
  std::int32_t index_;       // current tile
  float v_global_;
  int slot_ = 0;
  bool k_words_;
  bool v_words_;
  PerLane<Pages> pages_;     // of the next tile to stage
  PerLane<Scales> scales_;   // of the last tile staged

  // Where a thread's copies and scales begin: head and lane within them, page and token not.
  struct Run {
    const std::uint8_t* k;
    const std::uint8_t* v;
    const std::uint8_t* k_scales;
    const std::uint8_t* v_scales;
    int k_half;  // of rows of two bytes: which of the aligned four they are
    int v_half;
  };
  bool by_runs_ = false;
  int page_shift_ = 0;
  const std::int32_t* page_ids_ = nullptr;  // of the sequence
  PerLane<Run> run_;
};

}  // namespace fp4pa::core

#include "core/simt/key_runs.hpp"
