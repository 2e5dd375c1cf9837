// Keys or values of an item on their way from the pages of a pool to the ring: through registers, decoded on the way.
//
// Every warp that loads has rows of the tile of its own, and needs no other warp for them. A lane looks one of these rows up: its
// page, where it lies, its scales. For the copying itself lanes stand side by side along a row, 16 bytes each, so that memory is
// read in whole sectors, and ask the lane that knows the row. Everything is asked for early:
//
//   tile n is decoded:   page ids of tile n + 2; chunks of rows as registers become free, up to a whole tile ahead
//
// Any page size, any strides, any alignment of scales: nothing is different in the loop but how wide scales are loaded. Rows past
// the end of the keys are zeros, codes and scales.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/sm80/tile_decode.hpp"
#include "core/attention/row_map.hpp"
#include "core/simt/key_stream.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

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
  static constexpr int kHeld = kCopies > 4 ? kCopies / 2 : kCopies;                    // that are under way
  static constexpr int kScaleBytes = core::key_scale_bytes(kKind, kHeadDim);
  static constexpr int kWords = kScaleBytes == 0 ? 1 : (kScaleBytes + 3) / 4;
  static_assert(kRows <= E::kLanes && kRows % kSideBySide == 0 && !core::along_tokens(kKind));

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
    look_up(0, page_);
    locate();
    FP4PA_UNROLL
    for (int c = 0; c < kHeld; ++c) load(c);
    load_scales();
  }

  /// Whether all tiles have been decoded.
  [[nodiscard]] FP4PA_FN bool done() const { return first_ >= range_.end; }

  /// Decodes this warp's rows of the tile at hand to `to`, and steps on to the next one.
  FP4PA_FN void decode(std::uint32_t to) {
    FP4PA_UNROLL
    for (int c = 0; c < kCopies; ++c) {
      if (c + kHeld == kCopies) {
        first_ += kTileKeys;
        locate();
      }
      store(c, to);
      load((c + kHeld) % kCopies);
    }
    load_scales();
  }

 private:
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

  /// Asks for the page ids of a tile.
  FP4PA_FN void look_up(int ahead, PerLane<std::int32_t>& page) {
    exec_.each_lane([&](Lane lane) {
      page[lane] = 0;
      if (exists(lane, ahead)) page[lane] = exec_.template load_global<std::int32_t>(pages_ + place_of(key_of(lane, ahead)).page);
    });
  }
  /// Where the rows of the tile at hand lie, whose page ids have come; asks for those of the next one.
  FP4PA_FN void locate() {
    exec_.each_lane([&](Lane lane) {
      row_[lane] = 0;
      if (!exists(lane)) return;
      row_[lane] = reinterpret_cast<std::uintptr_t>(view_.row(page_[lane], place_of(key_of(lane)).token, item_.kv_head));
    });
    look_up(1, next_page_);
  }
  /// Asks for the c-th chunk that a lane copies.
  FP4PA_FN void load(int c) {
    PerLane<std::uint64_t> own;
    exec_.each_lane([&](Lane lane) { own[lane] = row_[lane]; });
    const PerLane<std::uint64_t> row = exec_.shuffle(own, [c](Lane lane) { return copied_row(lane, c); });
    exec_.each_lane([&](Lane lane) {
      codes_[lane][c % kHeld] = Chunk{};
      if (row[lane] == 0) return;
      const auto* const from = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(row[lane]));
      codes_[lane][c % kHeld] =
          exec_.template load_global<Chunk>(from + sm80::recomputed(lane.id) % kChunks * core::kChunkBytes);
    });
  }
  /// Asks for the scales of the tile at hand, whose page ids are not needed any more.
  FP4PA_FN void load_scales() {
    exec_.each_lane([&](Lane lane) {
      if constexpr (kScaleBytes > 0) {
        const std::uint8_t* const from = view_.scale_row(page_[lane], place_of(key_of(lane)).token, item_.kv_head);
        core::load_scale_words(exec_, from, exists(lane) ? kScaleBytes : 0, core::scales_are_words(view_, kScaleBytes),
                               scales_[lane]);
      }
      page_[lane] = next_page_[lane];
    });
  }

  /// Decodes the c-th chunk that a lane copied. Of two panels the second one's chunks are stored in another order, so that the
  /// eight lanes that store side by side fall into different banks.
  FP4PA_FN void store(int c, std::uint32_t to) {
    PerLane<std::uint32_t[kWords]> scales;
    if constexpr (kScaleBytes > 0) {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) {
        PerLane<std::uint32_t> own;
        exec_.each_lane([&](Lane lane) { own[lane] = scales_[lane][w]; });
        const PerLane<std::uint32_t> got = exec_.shuffle(own, [c](Lane lane) { return copied_row(lane, c); });
        exec_.each_lane([&](Lane lane) { scales[lane][w] = got[lane]; });
      }
    }
    exec_.each_lane([&](Lane lane) {
      const int chunk = sm80::recomputed(lane.id) % kChunks;
      const bool swaps = kTwoPanels && chunk >= kChunks / 2;
      Chunk codes = codes_[lane][c % kHeld];
      if constexpr (kTwoPanels && kOut > 1) {
        const Chunk in = codes;
        FP4PA_UNROLL
        for (int w = 0; w < 4; ++w) codes.word[w] = swaps ? in.word[w ^ 2] : in.word[w];
      }
      const auto scale = [&](int w) {
        if constexpr (kKind == KvKind::kNvfp4) return byte_of_row(scales[lane], 2 * chunk + (swaps ? w / 2 ^ 1 : w / 2));
        return sm80::e8m0_pair(byte_of_row(scales[lane], kKind == KvKind::kMxfp8 ? chunk / 2 : chunk));
      };
      Chunk out[kOut];
      sm80::decode_chunk<kKind>(codes.word, scale, out);
      const std::uint32_t row = Tile::row_address(to, sm80::recomputed(exec_.warp()) * kRows + copied_row(lane, c));
      FP4PA_UNROLL
      for (int i = 0; i < kOut; ++i) {
        const int other = kOut > 1 && swaps ? i ^ kOut / 2 : i;
        exec_.template store_shared<Chunk>(lane, Tile::chunk_address(row, chunk * kOut + other), out[i]);
      }
    });
  }
  static constexpr bool kTwoPanels = kHeadDim == 128;
  /// Of this warp's rows, of the c-th chunk that a lane copies.
  [[nodiscard]] FP4PA_FN static int copied_row(Lane lane, int c) { return c * kSideBySide + sm80::recomputed(lane.id) / kChunks; }
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
  PerLane<std::int32_t> page_;  // of the tile at hand
  PerLane<std::int32_t> next_page_;
  PerLane<std::uint64_t> row_;  // 0: there is none
  PerLane<Chunk[kHeld]> codes_;
  PerLane<std::uint32_t[kWords]> scales_;
};

}  // namespace fp4pa::sm90
