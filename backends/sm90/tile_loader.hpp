// Keys or values of an item on their way from the pages of a pool to the ring: through registers, decoded on the way.
//
// Every warp that loads has rows of the tile of its own, and needs no other warp for them. A lane looks one of these rows up: its
// page, where it lies, its scales. For the copying itself lanes stand side by side along a row, 16 bytes each, so that memory is
// read in whole sectors, and ask the lane that knows the row. Everything is asked for early:
//
//   before tile n is decoded:   page ids of tile n + 2 (or n + 3); places and scales of the rows of tile n + 1
//   meanwhile:                  chunks of these rows as registers become free, a half or a whole tile ahead
//
// Any page size, any strides, any alignment of scales: nothing is different in the loop but how wide scales are loaded. Rows past
// the end of the keys are zeros, codes and scales. A tile whose scales f16 does not take (f16_window.hpp) is read a second time.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/sm80/tile_decode.hpp"
#include "backends/sm90/f16_window.hpp"
#include "core/attention/row_map.hpp"
#include "core/simt/key_stream.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

inline constexpr int kLine = 128;  // bytes of a cache line

/// @tparam kWarps  that share the tile, exec.warp() of which is one
/// @tparam Tile    where rows lie in a decoded tile
template <KvKind kKind, class E, int kHeadDim, int kTileKeys, int kWarps, class Tile>
class TileLoader {
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Chunk = sm80::Chunk;

  static constexpr int kRows = kTileKeys / kWarps;                                     // of a warp
  static constexpr int kChunks = core::code_bytes(kKind, kHeadDim) / core::kChunkBytes;  // of a row
  static constexpr int kOut = kHeadDim * 2 / core::kChunkBytes / kChunks;              // decoded chunks of a chunk
  static constexpr int kSideBySide = E::kLanes / kChunks;                              // rows of a warp's copy
  static constexpr int kCopies = kRows / kSideBySide;
  // Few query rows: their warpgroup is done with a tile before memory answers, and has registers to spare.
  static constexpr bool kEarly = kWarps == 2;
  static constexpr int kHeld = kCopies > (kEarly ? 8 : 4) ? kCopies / 2 : kCopies;      // that are under way
  static constexpr int kScaleBytes = core::key_scale_bytes(kKind, kHeadDim);
  static constexpr int kWords = kScaleBytes == 0 ? 1 : (kScaleBytes + 3) / 4;
  using ScaleWords = PerLane<std::uint32_t[kWords]>;
  static_assert(kRows <= E::kLanes && kRows % kSideBySide == 0 && !core::along_tokens(kKind));
  static_assert(!has_window(kKind) || kWords == 1);

  // Eight lanes, which store together, have chunks of one panel, of so many rows that the swizzle spreads them over all banks.
  static constexpr int kPanels = kHeadDim / kPanelDims;
  static constexpr int kPanelChunks = kChunks / kPanels;
  static_assert(kSwizzleRows % kPanelChunks == 0 && E::kLanes / kSwizzleRows % kPanels == 0);

 public:
  /// @param view         of `segment`, its keys or its values
  /// @param item, range  read again and again
  FP4PA_FN TileLoader(E& exec, const core::Segment& segment, const core::TensorView& view, const core::WorkItem& item,
                      const core::KeyRange& range)
      : exec_(exec),
        segment_(segment),
        view_(view),
        item_(item),
        range_(range),
        pages_(segment.table.pages +
               (segment.table.indptr != nullptr ? segment.table.indptr[item.seq] : item.seq * segment.table.row_stride)),
        first_(range.begin) {
    exec_.each_lane([&](Lane lane) {
      page_[lane] = load_page(lane, 0);
      if constexpr (kEarly) next_page_[lane] = load_page(lane, 1);
    });
    locate(scales_);
    const PerLane<Share> share = shares();
    const PerLane<std::int32_t> left = rows_left(share);
    FP4PA_UNROLL
    for (int c = 0; c < kHeld; ++c) load(c, share, row_, left, codes_, c);
    turn_page();
  }

  /// Whether all tiles have been decoded.
  [[nodiscard]] FP4PA_FN bool done() const { return first_ >= range_.end; }

  /// Decodes this warp's rows of the tile at hand to `to`, and steps on to the next one. All warps that share the tile call it.
  /// @returns whether the tile is in bf16, of a kind that has a window of f16: from the first tile on that does not fit there
  FP4PA_FN bool decode(std::uint32_t to) {
    if constexpr (has_window(kKind)) {
      wide_ = exec_.block_any([&](Lane lane) { return wide_ | !F16Window<kKind>::holds(scales_[lane][0]); });
      if (wide_) {
        FP4PA_NO_UNROLL
        for (int c = 0; c < kCopies; ++c) store_wide(c, to);
        step_on<false>(to);
        return true;
      }
      exec_.each_lane([&](Lane lane) { scales_[lane][0] = F16Window<kKind>::fields(scales_[lane][0]); });
    }
    step_on<true>(to);
    return false;
  }

 private:
  template <bool kStores>
  FP4PA_FN void step_on(std::uint32_t to) {
    const PerLane<Share> share = shares();
    PerLane<std::uint32_t[kOut]> target;
    if constexpr (kStores) find_targets(share, to, target);
    ScaleWords next_scales;
    PerLane<std::int32_t> left = rows_left(share);
    PerLane<std::uint64_t> rows = row_;
    first_ += kTileKeys;
    locate(next_scales);
    if constexpr (kOut == 1) prefetch_rows();
    FP4PA_UNROLL
    for (int c = 0; c < kCopies; ++c) {
      if (c + kHeld == kCopies) {
        left = rows_left(share);
        rows = row_;
      }
      if constexpr (kStores) store(c, share, target);
      load((c + kHeld) % kCopies, share, rows, left, codes_, c % kHeld);
    }
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) scales_[lane][w] = next_scales[lane][w];
    });
    turn_page();
  }
  FP4PA_FN void turn_page() {
    exec_.each_lane([&](Lane lane) {
      page_[lane] = next_page_[lane];
      if constexpr (kEarly) next_page_[lane] = later_page_[lane];
    });
  }

  /// Of a power of two.
  [[nodiscard]] FP4PA_FN static int log2_of(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
    return 31 - __clz(static_cast<int>(x));
#else
    return std::countr_zero(x);
#endif
  }
  /// Number of the page, and of the token in it, of a key.
  struct Place {
    std::int32_t page;
    std::int32_t token;
  };
  [[nodiscard]] FP4PA_FN Place place_of(std::int32_t key) const {
    const auto size = static_cast<std::uint32_t>(sm80::recomputed(segment_.page_size));
    const auto k = static_cast<std::uint32_t>(key);
    const std::uint32_t page = (size & (size - 1)) == 0 ? k >> log2_of(size) : k / size;
    return {static_cast<std::int32_t>(page), static_cast<std::int32_t>(k - page * size)};
  }
  /// The key whose row a lane looks up, `ahead` tiles after the one at hand, and whether there is one.
  [[nodiscard]] FP4PA_FN std::int32_t key_of(Lane lane, int ahead = 0) const {
    return first_ + ahead * kTileKeys + sm80::recomputed(exec_.warp() * kRows + lane.id);
  }
  [[nodiscard]] FP4PA_FN bool exists(Lane lane, int ahead = 0) const {
    return lane.id < kRows && key_of(lane, ahead) < range_.end;
  }

  /// Asks for the page id of a lane's key.
  [[nodiscard]] FP4PA_FN std::int32_t load_page(Lane lane, int ahead) const {
    return exists(lane, ahead) ? exec_.template load_global<std::int32_t>(pages_ + place_of(key_of(lane, ahead)).page) : 0;
  }
  /// Where the rows of the tile at hand lie, whose page ids have come; asks for their scales, and for the page ids of the next
  /// tile, or the one behind it.
  FP4PA_FN void locate(ScaleWords& scales) {
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) scales[lane][w] = 0;
      row_[lane] = 0;
      if (exists(lane)) {
        const std::int32_t token = place_of(key_of(lane)).token;
        row_[lane] = reinterpret_cast<std::uintptr_t>(view_.row(page_[lane], token, item_.kv_head));
        if constexpr (kScaleBytes > 0) {
          core::load_scale_words(exec_, view_.scale_row(page_[lane], token, item_.kv_head), kScaleBytes,
                                 core::scales_are_words(view_, kScaleBytes), scales[lane]);
        }
      }
      (kEarly ? later_page_ : next_page_)[lane] = load_page(lane, kEarly ? 2 : 1);
    });
  }

  /// Which of its warp's chunks a lane copies and decodes: always the same of a row, of every kSideBySide-th row.
  struct Share {
    int row;  // the first
    int chunk;
  };
  [[nodiscard]] FP4PA_FN PerLane<Share> shares() {
    PerLane<Share> share;
    exec_.each_lane([&](Lane lane) {
      const int id = sm80::recomputed(lane.id);
      share[lane] = {id / kSwizzleRows / kPanels * (kSwizzleRows / kPanelChunks) + id % kSwizzleRows / kPanelChunks,
                     id / kSwizzleRows % kPanels * kPanelChunks + id % kPanelChunks};
    });
    return share;
  }
  /// From a lane's first row of the tile at hand to the end of the keys.
  [[nodiscard]] FP4PA_FN PerLane<std::int32_t> rows_left(const PerLane<Share>& share) {
    PerLane<std::int32_t> left;
    exec_.each_lane([&](Lane lane) { left[lane] = range_.end - first_ - exec_.warp() * kRows - share[lane].row; });
    return left;
  }
  /// Brings the rows of the tile at hand into the second-level cache: of those that are not decoded registers hold too little.
  FP4PA_FN void prefetch_rows() {
    exec_.each_lane([&](Lane lane) {
      if (!exists(lane)) return;
      FP4PA_UNROLL
      for (int i = 0; i < kChunks * core::kChunkBytes; i += kLine) {
        exec_.prefetch(reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(row_[lane])) + i);
      }
    });
  }
  /// Asks for the c-th chunk that a lane copies, into place `at`.
  /// @param rows  where the lanes' rows lie
  template <class Chunks>
  FP4PA_FN void load(int c, const PerLane<Share>& share, const PerLane<std::uint64_t>& rows, const PerLane<std::int32_t>& left,
                     Chunks& to, int at) {
    const PerLane<std::uint64_t> row = exec_.shuffle(rows, [&](Lane lane) { return share[lane].row + c * kSideBySide; });
    exec_.each_lane([&](Lane lane) {
      const auto* const from = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(row[lane]));
      to[lane][at] = exec_.template load_global_or_zero<Chunk>(from + share[lane].chunk * core::kChunkBytes,
                                                               c * kSideBySide < left[lane]);
    });
  }

  /// Where the decoded chunks of a lane's first row go.
  FP4PA_FN void find_targets(const PerLane<Share>& share, std::uint32_t to, PerLane<std::uint32_t[kOut]>& target) {
    exec_.each_lane([&](Lane lane) {
      const std::uint32_t row = Tile::row_address(to, exec_.warp() * kRows + share[lane].row);
      FP4PA_UNROLL
      for (int i = 0; i < kOut; ++i) target[lane][i] = Tile::chunk_address(row, share[lane].chunk * kOut + i);
    });
  }
  /// Decodes the c-th chunk that a lane copied.
  FP4PA_FN void store(int c, const PerLane<Share>& share, const PerLane<std::uint32_t[kOut]>& target) {
    const ScaleWords scales = scales_of_copy(c, share);
    exec_.each_lane([&](Lane lane) {
      const auto& codes = codes_[lane][c % kHeld].word;
      const int chunk = share[lane].chunk;
      Chunk out[kOut];
      if constexpr (has_window(kKind)) {
        F16Window<kKind>::decode(codes, F16Window<kKind>::factor(scales[lane][0], scale_of_chunk(chunk)), out);
      } else {
        sm80::decode_chunk<kKind>(codes, [&](int w) { return byte_of_row(scales[lane], 2 * chunk + w / 2); }, out);
      }
      store_chunks(lane, c, target, out);
    });
  }
  /// The same to bf16, from the pages.
  FP4PA_FN void store_wide(int c, std::uint32_t to) {
    const PerLane<Share> share = shares();
    PerLane<std::uint32_t[kOut]> target;
    find_targets(share, to, target);
    const ScaleWords scales = scales_of_copy(c, share);
    PerLane<Chunk[1]> codes;
    load(c, share, row_, rows_left(share), codes, 0);
    exec_.each_lane([&](Lane lane) {
      const std::uint32_t byte = byte_of_row(scales[lane], scale_of_chunk(share[lane].chunk));
      Chunk out[kOut];
      sm80::decode_chunk<kKind>(codes[lane][0].word, [&](int) { return sm80::e8m0_pair(byte); }, out);
      store_chunks(lane, c, target, out);
    });
  }
  FP4PA_FN void store_chunks(Lane lane, int c, const PerLane<std::uint32_t[kOut]>& target, const Chunk (&out)[kOut]) {
    FP4PA_UNROLL
    for (int i = 0; i < kOut; ++i) {
      exec_.template store_shared<Chunk>(lane, Tile::later_row(target[lane][i], c * kSideBySide), out[i]);
    }
  }
  [[nodiscard]] FP4PA_FN ScaleWords scales_of_copy(int c, const PerLane<Share>& share) {
    ScaleWords scales;
    if constexpr (kScaleBytes > 0) {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) {
        PerLane<std::uint32_t> own;
        exec_.each_lane([&](Lane lane) { own[lane] = scales_[lane][w]; });
        const PerLane<std::uint32_t> got = exec_.shuffle(own, [&](Lane lane) { return share[lane].row + c * kSideBySide; });
        exec_.each_lane([&](Lane lane) { scales[lane][w] = got[lane]; });
      }
    }
    return scales;
  }
  /// Scale, among a row's, of chunk `chunk` of E8M0's kinds.
  [[nodiscard]] FP4PA_FN static int scale_of_chunk(int chunk) { return kKind == KvKind::kMxfp8 ? chunk / 2 : chunk; }
  [[nodiscard]] FP4PA_FN static std::uint32_t byte_of_row(const std::uint32_t (&scales)[kWords], int i) {
    const std::uint32_t word = kWords > 1 && i >= 4 ? scales[kWords - 1] : scales[0];
    return (word >> (i % 4 * 8)) & 0xffu;
  }

  E& exec_;
  const core::Segment& segment_;
  const core::TensorView& view_;
  const core::WorkItem& item_;
  const core::KeyRange& range_;
  const std::int32_t* pages_;   // of the sequence
  std::int32_t first_;          // key of the tile at hand
  bool wide_ = false;           // see decode
  PerLane<std::int32_t> page_;  // of the tile at hand
  PerLane<std::int32_t> next_page_;
  PerLane<std::int32_t> later_page_;  // of the tile behind that, where page ids are asked for early
  PerLane<std::uint64_t> row_;  // 0: there is none
  PerLane<Chunk[kHeld]> codes_;
  ScaleWords scales_;           // from decode on: fields of factors, see F16Window
};

}  // namespace fp4pa::sm90
