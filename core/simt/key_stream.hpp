// The keys of one segment on their way from the pages of a pool to shared memory, tile by tile.
//
// A team (a warp with tiles of its own, or the block) keeps `stages` tiles under way. Three things must be known before a
// row can be copied: its page, its address, and that it exists; and each is asked for one tile ahead, so that no load is
// waited for in the loop:
//
//   release of tile n, which makes room for tile m = n + stages:
//     scales of tile m-1, loaded into registers last time   -> shared memory; with one stage when tile m-1 is waited for
//     page ids of tile m, loaded last time                  -> addresses of its rows, into shared memory
//     scales of tile m, page ids of tile m+1                -> asked for
//     barrier of the team; codes of tile m                  -> asynchronous copies, zeros for keys past the end
//
// A full tile of a cache whose pages are a power of two of tokens, at least 16, goes a shorter way: every run of 16 keys lies
// in one page, so that a thread finds the addresses of its copies by itself, from a few page ids. A plain instance knows no other
// way, and leaves out rows of tiles that are not full. Its warps, where they have tiles of their own, load nothing from global
// memory into registers at all.
//
//   key_rows.hpp    the long way
//   key_runs.hpp    the short way
//   key_copies.hpp  the short way with scales and page ids copied, too
//
// Rows that do not exist are zeros, codes and scales: what an unused slot of a page holds never enters a product.
// Scales pass through registers, where they are not copied, because a row of them may be as short as one byte, at any address.
#pragma once

#include <cstdint>

#include "core/attention/tile_backend.hpp"
#include "core/simt/scale_words.hpp"
#include "core/simt/stream_shape.hpp"
#include "core/simt/tile_walk.hpp"

namespace fp4pa::core {

/// @tparam Shim  config, Exec, swizzle, kTokenAlignment
template <class Shim, std::int32_t S>
class KeyStreamOf : StreamShape<Shim, S> {
  using Shape = StreamShape<Shim, S>;
  using typename Shape::E, typename Shape::Lane, typename Shape::ScaleForm;
  using typename Shape::Pages, typename Shape::Scales, typename Shape::RunRows;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Shape::kConfig, Shape::kBlockTeam, Shape::kTileKeys, Shape::kStages, Shape::kThreads, Shape::kOwned;
  using Shape::kKKind, Shape::kVKind, Shape::kKWords, Shape::kVWords, Shape::kTokenWords;
  using Shape::kHasRuns, Shape::kOnlyRuns, Shape::kCopiesAll, Shape::kRunChunks, Shape::kRunPitch, Shape::kRunRows, Shape::kRuns, Shape::kRunSteps,
      Shape::kAllRuns, Shape::kScalesInWait;

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
        index_(0),
        v_global_(segment.v.global(item.kv_head)),
        slot_at_(stages) {
    const int k_bytes = key_scale_bytes(k_kind(), this->head_dim());
    const int v_bytes = along_tokens(v_kind()) ? this->head_dim() : key_scale_bytes(v_kind(), this->head_dim());
    k_words_ = scales_are_words(segment.k, k_bytes);
    v_words_ = scales_are_words(segment.v, v_bytes);
    if constexpr (kOnlyRuns) walk_.first = walk_.first / kRunKeys * kRunKeys;
    index_ = first_index();
    if constexpr (kCopiesAll) {
      stages_ = kept<E>(stages_);
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
  [[nodiscard]] FP4PA_FN KeyRange keys() const { return tile(index_); }

  FP4PA_FN void wait() {
    exec_.template copy_wait<kStages - 1>();
    // Nobody reads the slot since the barrier in stage().
    if constexpr (kScalesInWait) store_scales(scales_, 0);
    team_barrier();
    if constexpr (kCopiesAll && kKWords + kVWords > 0 && !kKeepsWords) {
      form_scales(tile_offset());
      team_barrier();
    }
  }
  FP4PA_FN void release() {
    if constexpr (kCopiesAll) {
      refill(index_ + kStages * step());
      step_on();
      return;
    }
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
  [[nodiscard]] FP4PA_FN std::uint32_t tile_offset() const { return kCopiesAll ? slot_at_ : slot_offset(slot()); }
  /// Offset of what the instance keeps behind the stages of its team.
  [[nodiscard]] FP4PA_FN std::uint32_t behind_stages() const { return slot_offset(kStages); }
  /// Offset of the codes of key `lane` within a tile's, of K and of V, where the stream keeps it.
  static constexpr bool kKeepsRows = kCopiesAll;
  /// Whether scales stay words as in the cache, of which the products make what they need.
  static constexpr bool kKeepsWords = requires { requires ScaleForm::keeps_words(kKKind) && ScaleForm::keeps_words(kVKind); };
  [[nodiscard]] FP4PA_FN std::uint32_t row_of_lane(Lane lane) const { return row_[lane]; }
  /// Whether the factors that V's scales become are relative to 2^top_log2(), which follows the largest scale so far.
  static constexpr bool kFollowsScales = requires { ScaleForm::kLeastTopLog2; };
  static_assert(!kFollowsScales || (kCopiesAll && kVWords > 0 && Shape::kVBytes % 4 == 0));
  [[nodiscard]] FP4PA_FN int top_log2() const { return top_log2_; }
  /// Offset of the first scale of key `key` of V, one of the lane's own, within a tile's in the products' form.
  [[nodiscard]] FP4PA_FN std::uint32_t value_place(Lane lane, int key) const {
    if constexpr (kCopiesAll) {
      return value_place_[lane] + ScaleForm::value_place(kVKind, kConfig.head_dim, key - lane.id) -
             ScaleForm::value_place(kVKind, kConfig.head_dim, 0);
    } else {
      return ScaleForm::value_place(v_kind(), head_dim(), key);
    }
  }
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
    if constexpr (kCopiesAll) {
      slot_at_ += static_cast<std::uint32_t>(slot_pitch());
      if (slot_at_ == slot_offset(kStages)) slot_at_ = stages_;
      return;
    }
    if constexpr (!kSlotsByIndex) slot_ = slot_ + 1 == kStages ? 0 : slot_ + 1;
  }
  /// The current tile's. Of a block's tiles, numbered without gaps, in a power of two of slots it is known without being kept.
  static constexpr bool kSlotsByIndex = kBlockTeam && (kStages & (kStages - 1)) == 0;
  [[nodiscard]] FP4PA_FN int slot() const { return kSlotsByIndex ? index_ % kStages : slot_; }
  // A tile's index is its number or, where all is copied, its first key: what a loop of a few more instructions would derive from it.
  static constexpr int kIndexOfTile = kCopiesAll ? kTileKeys : 1;
  [[nodiscard]] FP4PA_FN std::int32_t first_index() const {
    return (kCopiesAll ? walk_.first : 0) + (kBlockTeam ? 0 : exec_.warp() * kIndexOfTile);
  }
  [[nodiscard]] FP4PA_FN int step() const { return kBlockTeam ? 1 : exec_.num_warps() * kIndexOfTile; }
  [[nodiscard]] FP4PA_FN std::int32_t begin_of(std::int32_t index) const {
    return kCopiesAll ? index : walk_.first + index * kTileKeys;
  }
  [[nodiscard]] FP4PA_FN KeyRange tile(std::int32_t index) const {
    if constexpr (kCopiesAll) {
      const std::int32_t end = index + kTileKeys;
      return {index, end < walk_.range.end ? end : walk_.range.end};
    } else {
      return walk_.tile(index);
    }
  }
  [[nodiscard]] FP4PA_FN bool empty(std::int32_t index) const {
    if constexpr (kCopiesAll) return index >= walk_.range.end;
    return tile(index).empty();
  }
  [[nodiscard]] FP4PA_FN bool is_full(std::int32_t index) const {
    if constexpr (kCopiesAll) return index + kTileKeys <= walk_.range.end;  // asked of tiles behind the first alone
    const KeyRange keys = tile(index);
    return keys.end - keys.begin == kTileKeys && (!kOnlyRuns || keys.begin >= walk_.range.begin);
  }
  [[nodiscard]] FP4PA_FN int slot_pitch() const { return layout().bytes + (kCopiesAll ? kPageIdBytes : 0); }
  [[nodiscard]] FP4PA_FN std::uint32_t slot_offset(int slot) const { return stages_ + slot * slot_pitch(); }
  [[nodiscard]] FP4PA_FN int thread(Lane lane) const { return (kBlockTeam ? exec_.warp() * E::kLanes : 0) + lane.id; }

  /// Asks for the page ids of a tile.
  FP4PA_FN void look_up_pages(std::int32_t index, PerLane<Pages>& pages) {
    if constexpr (kHasRuns) {
      if (by_runs_) {
        look_up_runs(index, pages);
        return;
      }
    }
    look_up_rows(index, pages);
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
    if constexpr (!kScalesInWait) {
      if (scales_pending) store_scales(scales_, slot == 0 ? kStages - 1 : slot - 1);  // of the tile staged before
    }
    const KeyRange keys = tile(index);
    if (empty(index)) {
      exec_.copy_commit();  // groups are counted by tile
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

  // key_rows.hpp: any tile of any pages.

  FP4PA_FN void look_up_rows(std::int32_t index, PerLane<Pages>& pages);
  FP4PA_FN void stage_rows(std::int32_t index, int slot, KeyRange keys);
  FP4PA_FN void locate(Lane lane, KeyRange keys, int row, int i);
  FP4PA_FN void copy_codes(Lane lane, std::uint32_t to, int pitch_chunks, int chunks, int which);
  FP4PA_FN void load_token_scales(Lane lane);

  // key_runs.hpp: the short way for full tiles.

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
  FP4PA_FN void copy_runs(std::int32_t index, const PerLane<RunRows>& rows, std::uint32_t slot);
  [[nodiscard]] FP4PA_FN int run_key(Lane lane, int j) const;
  /// Page id's address of a key; beyond the last, the last one's.
  [[nodiscard]] FP4PA_FN const std::int32_t* page_id(std::int32_t key) const {
    const std::int32_t last = walk_.range.end - 1;
    return page_ids_ + ((key < last ? key : last) >> page_shift_);
  }
  [[nodiscard]] FP4PA_FN static std::int32_t page_of_row(const Pages& pages, int row, int i);
  [[nodiscard]] FP4PA_FN bool exists(std::int32_t key) const { return key >= walk_.range.begin && key < walk_.range.end; }

  // key_copies.hpp: the same where scales and page ids are copied.

  FP4PA_FN void copy_first_tiles();
  FP4PA_FN void refill(std::int32_t index);
  template <bool kFull>
  FP4PA_FN void copy_tile(std::int32_t index, std::uint32_t slot);
  template <bool kFull>
  FP4PA_FN void copy_scales(std::int32_t begin, const PerLane<Pages>& pages, std::uint32_t slot);
  FP4PA_FN void form_scales(std::uint32_t slot);
  FP4PA_FN void form_following(std::uint32_t slot, const PerLane<Scales>& scales);
  [[nodiscard]] FP4PA_FN static constexpr int first_top() {
    if constexpr (kFollowsScales) {
      return ScaleForm::kLeastTopLog2;
    } else {
      return 0;
    }
  }
  /// Where a tile has the scale words of key `row` before form_scales, of K (which 0) or V (1).
  [[nodiscard]] FP4PA_FN std::uint32_t copied_scales(int which, int row) const {
    if (which == 0) return static_cast<std::uint32_t>(layout().k_scales + row * 4 * kKWords);
    return static_cast<std::uint32_t>(layout().v_scales + ScaleForm::copied_offset(kVKind, kConfig.head_dim, row));
  }
  /// Where the page ids lie of the tile that comes to a slot next.
  [[nodiscard]] FP4PA_FN std::uint32_t page_id_offset(std::uint32_t slot, int run) const {
    return slot + static_cast<std::uint32_t>(layout().bytes + run * 4);
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
  int top_log2_ = first_top();
  int slot_ = 0;             // its slot, or
  std::uint32_t slot_at_;    // that slot's offset, where all is copied
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
  PerLane<std::uint32_t> row_;          // see row_of_lane()
  PerLane<std::uint32_t> value_place_;  // see value_place()
  bool by_runs_ = false;
  int page_shift_ = 0;
  const std::int32_t* page_ids_ = nullptr;  // of the sequence
  PerLane<Run> run_;
};

}  // namespace fp4pa::core

#include "core/simt/key_copies.hpp"
#include "core/simt/key_rows.hpp"
#include "core/simt/key_runs.hpp"
