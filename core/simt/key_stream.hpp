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
// way, and leaves out rows of tiles that are not full.
//
// Rows that do not exist are zeros, codes and scales: what an unused slot of a page holds never enters a product.
// Scales pass through registers because a row of them may be as short as one byte, at any address.
#pragma once

#include <cstdint>

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
  static constexpr int kRunPitch = kHasRuns ? power_of_two_at_least(code_bytes(kKKind, kConfig.head_dim) / kChunkBytes) : 1;
  static constexpr int kRunRows = at_least_one(kThreads / kRunPitch);  // rows that the team's threads copy side by side
  static constexpr int kRuns = kTileKeys / (kRunRows > kRunKeys ? kRunRows : kRunKeys);  // that a thread copies from
  static constexpr int kRunCopies = kTileKeys / kRunRows;  // of a thread, of K and again of V
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
        seq_(item.seq),
        head_(item.kv_head),
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
    if constexpr (kHasRuns) {
      prepare_runs();
      if (by_runs() && is_full(index_) && is_full(index_ + (kStages - 1) * step())) {
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
  }
  FP4PA_FN void release() {
    // Whoever is late may still be reading the slot: the barrier in stage() comes before the copies.
    stage(index_ + kStages * step(), slot_, true);
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
  [[nodiscard]] FP4PA_FN std::uint32_t tile_offset() const { return slot_offset(slot_); }
  // For shims with kTilesAhead, whose teams are blocks: the current tile's number, and the next tile.
  [[nodiscard]] FP4PA_FN int index() const { return index_; }
  [[nodiscard]] FP4PA_FN bool first() const { return index_ == 0; }
  [[nodiscard]] FP4PA_FN bool has_next() const { return !empty(index_ + step()); }
  [[nodiscard]] FP4PA_FN std::uint32_t next_tile_offset() const { return slot_offset(slot_ + 1 == kStages ? 0 : slot_ + 1); }
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
  [[nodiscard]] FP4PA_FN std::int32_t kv_head() const { return head_; }
  /// Decode multiplier of V's codes, read once.
  [[nodiscard]] FP4PA_FN float v_global() const { return v_global_; }
  [[nodiscard]] FP4PA_FN int head_dim() const { return kConfig.exact_head_dim ? kConfig.head_dim : head_dim_; }

 private:
  FP4PA_FN void step_on() {
    index_ += step();
    slot_ = slot_ + 1 == kStages ? 0 : slot_ + 1;
  }
  [[nodiscard]] FP4PA_FN int step() const { return kBlockTeam ? 1 : exec_.num_warps(); }
  [[nodiscard]] FP4PA_FN bool empty(std::int32_t index) const { return walk_.tile(index).empty(); }
  [[nodiscard]] FP4PA_FN bool is_full(std::int32_t index) const {
    const KeyRange keys = walk_.tile(index);
    return keys.end - keys.begin == kTileKeys && (!kOnlyRuns || keys.begin >= walk_.range.begin);
  }
  [[nodiscard]] FP4PA_FN bool by_runs() const { return kOnlyRuns || by_runs_; }
  [[nodiscard]] FP4PA_FN std::uint32_t slot_offset(int slot) const { return stages_ + slot * layout().bytes; }
  [[nodiscard]] FP4PA_FN int thread(Lane lane) const { return (kBlockTeam ? exec_.warp() * E::kLanes : 0) + lane.id; }

  /// Asks for the page ids of a tile.
  FP4PA_FN void look_up_pages(std::int32_t index, PerLane<Pages>& pages) {
    if constexpr (kHasRuns) {
      if (by_runs()) look_up_runs(index, pages);
    }
    if constexpr (!kOnlyRuns) {
      if (by_runs_) return;
      const KeyRange keys = walk_.tile(index);
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kOwned; ++i) {
          const std::int32_t key = keys.begin + i * kThreads + thread(lane);
          pages[lane].of_key[i] = key < keys.end ? segment_.table.page(seq_, key / segment_.page_size) : 0;
        }
      });
    }
  }

  /// Writes scales that were asked for to their tile's slot.
  FP4PA_FN void store_scales(const PerLane<Scales>& scales, int to) {
    const std::uint32_t slot = slot_offset(to);
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
      if constexpr (kTokenWords > 0) {
        if (!along_tokens(v_kind())) return;
        FP4PA_UNROLL
        for (int i = 0; i < kTokenWords; ++i) {
          const int word = i * kThreads + thread(lane);
          if (4 * word < kTileKeys / kScalePiece * head_dim()) {
            exec_.template store_shared<std::uint32_t>(lane, slot + layout().v_scales + 4 * word, scales[lane].tokens[i]);
          }
        }
      }
    });
  }
  FP4PA_FN void stage(std::int32_t index, int slot, bool scales_pending) {
    if (scales_pending) store_scales(scales_, scales_slot_);
    scales_slot_ = slot;
    const KeyRange keys = walk_.tile(index);
    if (keys.empty()) {
      exec_.copy_commit();  // groups are counted by tile
      return;
    }
    if constexpr (kHasRuns) {
      if (by_runs() && is_full(index)) {
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
    exec_.template store_shared<std::uint64_t>(lane, entry, address(segment_.k.row(page, token, head_)));
    exec_.template store_shared<std::uint64_t>(lane, entry + 8, address(segment_.v.row(page, token, head_)));
    const int k_bytes = exists ? key_scale_bytes(k_kind(), head_dim()) : 0;
    const int v_bytes = exists ? key_scale_bytes(v_kind(), head_dim()) : 0;
    if constexpr (kKWords > 0) {
      load_scale_words(exec_, segment_.k.scale_row(page, token, head_), k_bytes, k_words_, scales_[lane].k[i]);
    }
    if constexpr (kVWords > 0) {
      load_scale_words(exec_, segment_.v.scale_row(page, token, head_), v_bytes, v_words_, scales_[lane].v[i]);
    }
    if constexpr (kTokenWords > 0) {
      if (along_tokens(v_kind()) && row % kScalePiece == 0) {
        exec_.template store_shared<std::uint64_t>(lane, addresses_ + kTileKeys * 16 + row / kScalePiece * 8,
                                                   address(segment_.v.scale_row(page, token, head_)));
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

  // Runs: the short way for full tiles.

  /// Whether tiles can go that way, and what does not change from tile to tile.
  FP4PA_FN void prepare_runs() {
    const std::int32_t size = segment_.page_size;
    by_runs_ = fits_runs(size) && walk_.first % kRunKeys == 0 && walk_.pieces.group == 0 && segment_.table.ring_pages == 0 &&
               fits_runs(segment_.k, kKKind, head_dim()) && fits_runs(segment_.v, kVKind, head_dim());
    page_shift_ = 0;
    while ((1 << page_shift_) < size) ++page_shift_;
    const PageTable& table = segment_.table;
    page_ids_ = keep(table.pages + (table.indptr != nullptr ? table.indptr[seq_] : seq_ * table.row_stride));
    exec_.each_lane([&](Lane lane) {
      const int row = thread(lane) / kRunPitch;
      const int offset = Shim::swizzle(row, thread(lane) % kRunPitch, kRunPitch) * kChunkBytes;
      const auto first = [&](const TensorView& t) {
        return t.data + head_ * t.head_stride + row % kRunKeys * t.token_stride + offset;
      };
      run_[lane].k = first(segment_.k);
      run_[lane].v = first(segment_.v);
      run_[lane].k_scales = segment_.k.scales + head_ * segment_.k.scale_head_stride;
      run_[lane].v_scales = segment_.v.scales + head_ * segment_.v.scale_head_stride;
      if constexpr (kTokenWords > 0) run_[lane].v_scales += 4 * thread(lane);
      run_[lane].k = keep(run_[lane].k);
      run_[lane].v = keep(run_[lane].v);
      run_[lane].k_scales = keep(run_[lane].k_scales);
      run_[lane].v_scales = keep(run_[lane].v_scales);
    });
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

  /// First key of the j-th run that this thread copies from, within a tile.
  [[nodiscard]] FP4PA_FN int run_key(Lane lane, int j) const {
    if constexpr (kRunRows <= kRunKeys) return j * kRunKeys;
    return j * kRunRows + thread(lane) / kRunPitch / kRunKeys * kRunKeys;
  }

  FP4PA_FN void look_up_runs(std::int32_t index, PerLane<Pages>& pages) {
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
  [[nodiscard]] FP4PA_FN static std::int32_t page_of_row(const Pages& pages, int row, int i) {
    if constexpr (!kAllRuns) return pages.of_key[i];
    std::int32_t page = pages.of_run[0];
    FP4PA_UNROLL
    for (int j = 1; j < kRuns; ++j) page = row >= j * kRunKeys ? pages.of_run[j] : page;
    return page;
  }

  /// from + page * page_stride + token * token_stride, for strides of less than 2^32.
  [[nodiscard]] FP4PA_FN static const std::uint8_t* step_to(const std::uint8_t* from, std::int32_t page,
                                                            std::int64_t page_stride, std::uint32_t token,
                                                            std::int64_t token_stride) {
    return steps(steps(from, static_cast<std::uint32_t>(page), page_stride), token, token_stride);
  }
  /// from + n * stride, where 64-bit arithmetic has an instruction for it.
  [[nodiscard]] FP4PA_FN static const std::uint8_t* steps(const std::uint8_t* from, std::uint32_t n, std::int64_t stride) {
    if constexpr (requires { E::add_product(from, n, n); }) {
      return E::add_product(from, n, static_cast<std::uint32_t>(stride));
    } else {
      return from + std::uint64_t{n} * static_cast<std::uint32_t>(stride);
    }
  }

  /// First rows of K and of V of the runs that a thread copies from.
  struct RunRows {
    const std::uint8_t* of[at_least_one(kRuns)][2];
  };

  /// The first tiles, all full: what they need is asked for at once, and not tile by tile.
  FP4PA_FN void start_runs() {
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
    scales_slot_ = kStages - 1;
  }

  /// @tparam kFull  all keys of the tile exist; else rows and scales of the others become zeros
  template <bool kFull>
  FP4PA_FN void stage_runs(std::int32_t index, int slot) {
    PerLane<RunRows> rows;
    locate_runs<kFull>(walk_.first + index * kTileKeys, pages_, rows, scales_);
    look_up_runs(index + step(), pages_);
    if constexpr (kAhead == 0) team_barrier();  // else the products had one after the last of them read the slot
    copy_runs<kFull>(index, rows, slot);
  }

  [[nodiscard]] FP4PA_FN bool exists(std::int32_t key) const { return key >= walk_.range.begin && key < walk_.range.end; }

  /// Where the rows of a tile that begins at `begin` lie; its scales are asked for.
  template <bool kFull>
  FP4PA_FN void locate_runs(std::int32_t begin, const PerLane<Pages>& pages, PerLane<RunRows>& rows, PerLane<Scales>& scales) {
    const std::uint32_t mask = static_cast<std::uint32_t>(segment_.page_size - 1);
    exec_.each_lane([&](Lane lane) {
      const Pages& p = pages[lane];
      Scales& loaded = scales[lane];
      FP4PA_UNROLL
      for (int j = 0; j < kRuns; ++j) {
        const std::uint32_t token = static_cast<std::uint32_t>(begin + run_key(lane, j)) & mask;
        rows[lane].of[j][0] = step_to(run_[lane].k, p.of_run[j], segment_.k.page_stride, token, segment_.k.token_stride);
        rows[lane].of[j][1] = step_to(run_[lane].v, p.of_run[j], segment_.v.page_stride, token, segment_.v.token_stride);
        if constexpr (kTokenWords > 0) {
          const std::uint8_t* const from = step_to(run_[lane].v_scales, p.of_run[j], segment_.v.scale_page_stride,
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
              step_to(run_[lane].k_scales, page, segment_.k.scale_page_stride, token, segment_.k.scale_token_stride),
              loaded.k[i]);
        }
        if constexpr (kVWords > 0) {
          load_words<key_scale_bytes(kVKind, kConfig.head_dim)>(
              step_to(run_[lane].v_scales, page, segment_.v.scale_page_stride, token, segment_.v.scale_token_stride),
              loaded.v[i]);
        }
      }
    });
  }

  template <bool kFull>
  FP4PA_FN void copy_runs(std::int32_t index, const PerLane<RunRows>& rows, int slot) {
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
        for (int c = 0; c < kRunCopies; ++c) {
          const int row = own / kRunPitch;
          const int column = own % kRunPitch;
          // Rows eight apart are swizzled alike.
          const int chunks = kRunRows % 8 == 0 ? 0
                                               : Shim::swizzle(c * kRunRows + row, column, kRunPitch) -
                                                     Shim::swizzle(row, column, kRunPitch);
          const int run = kRunRows > kRunKeys ? c : c * kRunRows / kRunKeys;
          constexpr auto kOffset = [](int copy) { return static_cast<std::uint32_t>(copy * kRunRows % kRunKeys); };
          const std::uint8_t* const first = rows[lane].of[run][which];
          const std::uint8_t* const from = first + kOffset(c) * token_stride + chunks * kChunkBytes;
          exec_.copy_async_16(lane, to + (which == 0 ? 0 : layout().v_codes) + c * kThreads * kChunkBytes, from,
                              kFull || exists(first_key + c * kRunRows));
        }
      }
    });
    exec_.copy_commit();
  }
  /// A key's scales in loads as wide as their alignment, see scales_are_aligned.
  template <int kBytes, int kWords>
  FP4PA_FN void load_words(const std::uint8_t* from, std::uint32_t (&words)[kWords]) {
    if constexpr (kBytes == 1) {
      words[0] = exec_.template load_global<std::uint8_t>(from);
    } else if constexpr (kBytes == 2) {
      words[0] = exec_.template load_global<std::uint16_t>(from);
    } else {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) words[w] = exec_.template load_global<std::uint32_t>(from + 4 * w);
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
  std::int32_t seq_;
  std::int32_t head_;
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
  int scales_slot_ = 0;      // of the tile that scales_ are of
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
  };
  bool by_runs_ = false;
  int page_shift_ = 0;
  const std::int32_t* page_ids_ = nullptr;  // of the sequence
  PerLane<Run> run_;
};

}  // namespace fp4pa::core
