// Keys or values of an item on their way from the pages of a pool to the ring: through registers, decoded on the way.
//
// Every warp that loads has rows of the tile of its own, and needs no other warp for them. A lane looks one of these rows up: its
// page and its scales. For the copying itself lanes stand side by side along a row, 16 bytes each, so that memory is read in
// whole sectors, and are handed what the lane knows that looked the row up. Everything is asked for a tile ahead, in an order
// that a GPU's way of counting asks for: it has a few counters for all loads and shuffles under way, so that who waits for one
// may wait for whatever was asked for since.
//
//   when tile n is decoded:   its codes and scales and the page ids of tile n + 1, asked for meanwhile, are waited for at once;
//                             scales and page ids are handed over
//   behind its first chunk:   scales of tile n + 1, page ids of tile n + 2
//   meanwhile:                chunks of tile n + 1 as registers become free, a half or a whole tile ahead
//
// Any page size, any strides, any alignment of scales; where places are plain (has_plain_places) they take two multiplications.
// Rows past the end of the keys are zeros: their codes, or their scales where codes times 0 are 0. A tile whose scales f16 does
// not take (f16_window.hpp) is read a second time. Scales along tokens are asked for by the lane that copies, for its dims: a warp's
// rows share a row of them.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/sm80/query_pairs.hpp"
#include "backends/sm80/tile_decode.hpp"
#include "backends/sm90/f16_window.hpp"
#include "core/attention/row_map.hpp"
#include "core/simt/key_stream.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

inline constexpr int kLine = 128;  // bytes of a cache line

/// Whether pages are a power of two of tokens, strides of tokens and pages below 2^31, and scales aligned: practically always.
template <KvKind kKind>
[[nodiscard]] FP4PA_FN bool has_plain_places(const core::Segment& segment, const core::TensorView& view, int head_dim) {
  const auto size = static_cast<std::uint32_t>(segment.page_size);
  const int scale_bytes = core::along_tokens(kKind) ? core::kChunkBytes : core::key_scale_bytes(kKind, head_dim);
  const auto strides = static_cast<std::uint64_t>(view.page_stride | view.token_stride | view.scale_page_stride |
                                                  view.scale_token_stride);
  const auto scales = static_cast<std::uint64_t>(view.scale_page_stride | view.scale_token_stride | view.scale_head_stride) |
                      reinterpret_cast<std::uintptr_t>(view.scales);
  return (size & (size - 1)) == 0 && strides >> 31 == 0 && (scale_bytes == 0 || scales % scale_bytes == 0);
}

/// @tparam kWarps  that share the tile, exec.warp() of which is one
/// @tparam Tile    where rows lie in a decoded tile
/// @tparam kPlain  has_plain_places
/// @tparam kOrder  the kind in whose order dims go into the tile: a recent tier's take that of the tier before it
/// @tparam kRing   its pages may be a ring
template <KvKind kKind, class E, int kHeadDim, int kTileKeys, int kWarps, class Tile, bool kPlain, KvKind kOrder = kKind, bool kRing = false>
class TileLoader {
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Chunk = sm80::Chunk;
  /// Of a key: number of its page in the table, or the page's id, and its token in the page.
  struct Place {
    std::int32_t page;
    std::int32_t token;
  };

  static constexpr int kRows = kTileKeys / kWarps;                                     // of a warp
  static constexpr int kChunks = core::code_bytes(kKind, kHeadDim) / core::kChunkBytes;  // of a row
  static constexpr int kOut = kHeadDim * 2 / core::kChunkBytes / kChunks;              // decoded chunks of a chunk
  static constexpr int kSideBySide = E::kLanes / kChunks;                              // rows of a warp's copy
  static constexpr int kCopies = kRows / kSideBySide;
  // Few query rows: their warpgroup is done with a tile before memory answers, and has registers to spare.
  static constexpr bool kEarly = kWarps == 2 && kHeadDim <= 128;
  static constexpr int kHeld = kCopies > (kEarly ? 8 : 4) ? kCopies / (kCopies > 8 && !kEarly ? 4 : 2) : kCopies;  // that are under way
  // How lanes are told where the rows lie that they copy: pages of all at once, or each row's place when it is its turn, which
  // takes fewer registers.
  static constexpr bool kAtOnce = kHeld == kCopies && (kEarly || kCopies <= 2);
  // Of few query rows of 16 bits nothing is decoded and memory is the limit: what is asked for earlier comes earlier.
  static constexpr bool kAsksFirst = kOut == 1 && kEarly;
  static constexpr int kScaleBytes = core::key_scale_bytes(kKind, kHeadDim);
  static constexpr bool kTokens = core::along_tokens(kKind);
  static constexpr int kChunkDims = kHeadDim / kChunks;
  static constexpr int kWords = kTokens ? kChunkDims / 4 : kScaleBytes == 0 ? 1 : (kScaleBytes + 3) / 4;
  // Of a row's words lanes are handed all, or where these are many the one that their chunk's scales lie in.
  static constexpr bool kPicks = !kTokens && kWords > (has_window(kKind) ? 1 : 2);
  static constexpr int kHandedWords = kPicks ? 1 : kWords;
  using ScaleWords = PerLane<std::uint32_t[kWords]>;
  using HandedScales = PerLane<std::uint32_t[kCopies][kHandedWords]>;
  static_assert(kRows <= E::kLanes && kRows % kSideBySide == 0 && (!kTokens || kRows <= core::kScalePiece));
  // Rows that do not exist keep codes of earlier ones where no code is infinite or NaN: their scales are 0.
  static constexpr bool kAnyCodes = core::is_fp4(kKind) && !kTokens;

  // FP4 lies as it falls out of the decoding, p and p + 4 of eight side by side (decoded_dim).
  static constexpr bool kPairs = core::is_fp4(kOrder) && !core::is_fp4(kKind);
  static_assert(!kPairs || !sm80::needs_decoding(kKind));

  // Eight lanes, which store together, have chunks of one panel, of so many rows that the swizzle spreads them over all banks.
  static constexpr int kPanels = kHeadDim / kPanelDims;
  static constexpr int kPanelChunks = kChunks / kPanels;
  static_assert(kSwizzleRows % kPanelChunks == 0 && E::kLanes / kSwizzleRows % kPanels == 0);

 public:
  /// @param view         of `segment`, its keys or its values
  /// @param range        begins where a row of scales along tokens may
  FP4PA_FN TileLoader(E& exec, const core::Segment& segment, const core::TensorView& view, const core::WorkItem& item,
                      const core::KeyRange& range)
      : exec_(exec),
        segment_(segment),
        view_(view),
        head_(item.kv_head),
        pages_(segment.table.pages +
               (segment.table.indptr != nullptr ? segment.table.indptr[item.seq] : item.seq * segment.table.row_stride)),
        first_(range.begin),
        end_(range.end) {
    if constexpr (kPlain) page_log2_ = log2_of(static_cast<std::uint32_t>(segment.page_size));
    exec_.each_lane([&](Lane lane) {
      own_[lane] = exec_.warp() * kRows + lane.id;
      asked_page_[lane] = 0;
      FP4PA_UNROLL
      for (int c = 0; c < kHeld; ++c) codes_[lane][c] = Chunk{};
    });
    ask_page(0);
    take_page();
    const PerLane<Share> share = shares();
    if constexpr (kAtOnce) hand_pages(share);
    ask();
    FP4PA_UNROLL
    for (int c = 0; c < kHeld; ++c) load(c, share, row_, first_, c);
  }

  /// Whether all tiles have been decoded.
  [[nodiscard]] FP4PA_FN bool done() const { return first_ >= end_; }

  /// Decodes this warp's rows of the tile at hand to `to`, and steps on to the next one. All warps that share the tile call it.
  /// @returns whether the tile is in bf16, of a kind that has a window of f16: from the first tile on that does not fit there
  FP4PA_FN bool decode(std::uint32_t to) {
    // What the last call asked for is taken here, where codes are waited for anyhow.
    take_page();
    exec_.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) scales_[lane][w] = asked_scales_[lane][w];
    });
    if constexpr (has_window(kKind)) {
      wide_ = exec_.block_any([&](Lane lane) {
        bool holds = true;
        FP4PA_UNROLL
        for (int w = 0; w < kWords; ++w) holds = holds & F16Window<kKind>::holds(scales_[lane][w]);
        return wide_ | !holds;
      });
      if (wide_) {
        FP4PA_NO_UNROLL
        for (int c = 0; c < kCopies; ++c) store_wide(c, to);
        step_on<false>(to);
        return true;
      }
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int w = 0; w < kWords; ++w) scales_[lane][w] = F16Window<kKind>::fields(scales_[lane][w]);
      });
    } else {
      exec_.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int w = 0; w < kWords; ++w) scales_[lane][w] &= 0x7f7f7f7fu;  // a scale has no sign
      });
    }
    step_on<true>(to);
    return false;
  }

 private:
  // Shuffles come first, and memory is asked for behind the first codes: see above.
  template <bool kStores>
  FP4PA_FN void step_on(std::uint32_t to) {
    const PerLane<Share> share = shares();
    PerLane<std::uint32_t[kOut]> target;
    if constexpr (kStores) find_targets(share, to, target);
    HandedScales scales;
    if constexpr (kStores) {
      FP4PA_UNROLL
      for (int c = 0; c < kCopies; ++c) {
        hand_scales(c, share, [&](Lane lane, int w, std::uint32_t x) { scales[lane][c][w] = x; });
      }
    }
    if constexpr (kAtOnce) hand_pages(share, kTileKeys);
    const std::int32_t at_hand = first_;
    PerLane<std::uint64_t> rows = row_;
    const auto ask_for_next = [&] {
      first_ += kTileKeys;
      ask();
      if constexpr (kOut == 1) prefetch_rows();
    };
    if constexpr (kAsksFirst) ask_for_next();
    FP4PA_UNROLL
    for (int c = 0; c < kCopies; ++c) {
      if constexpr (kStores) store(c, share, scales, target);
      if (!kAsksFirst && c == 0) ask_for_next();
      const bool next = c + kHeld >= kCopies;
      if (c + kHeld == kCopies) rows = row_;
      load((c + kHeld) % kCopies, share, rows, next ? first_ : at_hand, c % kHeld);
    }
  }
  FP4PA_FN void take_page() {
    exec_.each_lane([&](Lane lane) {
      if constexpr (has_window(kKind) && kAtOnce) decoded_page_[lane] = page_[lane];
      page_[lane] = asked_page_[lane];
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
  [[nodiscard]] FP4PA_FN Place place_of(std::int32_t key) const {
    const auto k = static_cast<std::uint32_t>(key);
    std::uint32_t page;
    std::uint32_t token;
    if constexpr (kPlain) {
      page = k >> page_log2_;
      token = k & ((1u << page_log2_) - 1);
    } else {
      const auto size = static_cast<std::uint32_t>(sm80::recomputed(segment_.page_size));
      page = (size & (size - 1)) == 0 ? k >> log2_of(size) : k / size;
      token = k - page * size;
    }
    return {static_cast<std::int32_t>(page), static_cast<std::int32_t>(token)};
  }
  /// The row of a tile that a lane looks up.
  [[nodiscard]] FP4PA_FN int own(Lane lane) const {
    if constexpr (kEarly) return own_[lane];
    return sm80::recomputed(exec_.warp() * kRows + lane.id);
  }
  /// The key whose row a lane looks up, `ahead` keys after the tile at hand, and whether there is one.
  [[nodiscard]] FP4PA_FN std::int32_t key_of(Lane lane, int ahead = 0) const { return first_ + ahead + own(lane); }
  [[nodiscard]] FP4PA_FN bool exists(Lane lane, int ahead = 0) const {
    return (kRows == E::kLanes || lane.id < kRows) && key_of(lane, ahead) < end_;
  }

  /// Asks for the page id of a lane's key.
  FP4PA_FN void ask_page(int ahead) {
    exec_.each_lane([&](Lane lane) {
      std::int32_t page = place_of(key_of(lane, ahead)).page;
      if constexpr (kRing) {
        if (segment_.table.ring_pages != 0) page %= segment_.table.ring_pages;
      }
      exec_.load_word_if(asked_page_[lane], pages_ + page, exists(lane, ahead));
    });
  }
  /// Asks for the scales of the tile at hand, whose page ids have come, and for the next one's page ids.
  FP4PA_FN void ask() {
    if constexpr (kTokens) ask_token_scales();
    exec_.each_lane([&](Lane lane) {
      const std::int32_t token = place_of(key_of(lane)).token;
      if constexpr (!kAtOnce) row_[lane] = exists(lane) ? reinterpret_cast<std::uintptr_t>(row_of(page_[lane], token)) : 0;
      if constexpr (!kTokens) {
        FP4PA_UNROLL
        for (int w = 0; w < kWords; ++w) asked_scales_[lane][w] = 0;
      }
      if constexpr (kScaleBytes > 0) {
        if constexpr (kPlain) {
          exec_.template load_scales_if<kScaleBytes>(
              asked_scales_[lane],
              plain_row(view_.scales + head_ * view_.scale_head_stride, page_[lane], view_.scale_page_stride, token,
                        view_.scale_token_stride),
              exists(lane));
        } else if (exists(lane)) {
          core::load_scale_words(exec_, view_.scale_row(page_[lane], token, head_), kScaleBytes,
                                 core::scales_are_words(view_, kScaleBytes), asked_scales_[lane]);
        }
      }
    });
    ask_page(kTileKeys);
  }
  /// Asks for the scales of a lane's chunk in the row of scales that the warp's rows share.
  FP4PA_FN void ask_token_scales() {
    const PerLane<Share> share = shares();
    const PerLane<std::int32_t> page = exec_.shuffle(page_, [](Lane) { return 0; });
    exec_.each_lane([&](Lane lane) {
      const std::int32_t key = first_ + (own(lane) - lane.id);
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) asked_scales_[lane][w] = 0;
      const std::uint8_t* const from = view_.scale_row(page[lane], place_of(key).token, head_) + share[lane].chunk * kChunkDims;
      if constexpr (kPlain) {
        FP4PA_UNROLL
        for (int w = 0; w < kWords; w += 4) {
          Chunk four{};
          exec_.load_chunk_if(four.word, from + 4 * w, key < end_);
          FP4PA_UNROLL
          for (int i = 0; i < 4; ++i) asked_scales_[lane][w + i] = four.word[i];
        }
      } else if (key < end_) {
        core::load_scale_words(exec_, from, kChunkDims, core::scales_are_words(view_, kChunkDims), asked_scales_[lane]);
      }
    });
  }
  /// By two multiplications of 32 bits.
  [[nodiscard]] FP4PA_FN static const std::uint8_t* plain_row(const std::uint8_t* base, std::int32_t page,
                                                              std::int64_t page_stride, std::int32_t token,
                                                              std::int64_t token_stride) {
    const auto product = [](std::int32_t x, std::int64_t stride) {
      return std::uint64_t{static_cast<std::uint32_t>(x)} * static_cast<std::uint32_t>(stride);
    };
    return base + product(page, page_stride) + product(token, token_stride);
  }
  [[nodiscard]] FP4PA_FN const std::uint8_t* row_of(std::int32_t page, std::int32_t token) const {
    if constexpr (kPlain) {
      return plain_row(view_.data + head_ * view_.head_stride, page, view_.page_stride, token, view_.token_stride);
    } else {
      return view_.row(page, token, head_);
    }
  }

  /// Which of its warp's chunks a lane copies and decodes: always the same of a row, of every kSideBySide-th row.
  struct Share {
    int row;  // the first
    int chunk;
  };
  [[nodiscard]] FP4PA_FN PerLane<Share> shares() {
    PerLane<Share> share;
    exec_.each_lane([&](Lane lane) {
      const auto id = static_cast<unsigned>(kEarly ? lane.id : sm80::recomputed(lane.id));
      share[lane] = {static_cast<int>(id / kSwizzleRows / kPanels * (kSwizzleRows / kPanelChunks) + id % kSwizzleRows / kPanelChunks),
                     static_cast<int>(id / kSwizzleRows % kPanels * kPanelChunks + id % kPanelChunks)};
    });
    return share;
  }
  /// The key of the c-th chunk that a lane copies of the tile that begins at `first`.
  [[nodiscard]] FP4PA_FN std::int32_t key_of_copy(Lane lane, const Share& share, std::int32_t first, int c) const {
    return first + (own(lane) - lane.id) + share.row + c * kSideBySide;
  }
  /// Hands the page ids of a tile, `ahead` keys after the one at hand, to the lanes that copy.
  FP4PA_FN void hand_pages(const PerLane<Share>& share, int ahead = 0) {
    PerLane<std::int32_t> token;
    if constexpr (!kPlain) exec_.each_lane([&](Lane lane) { token[lane] = place_of(key_of(lane, ahead)).token; });
    FP4PA_UNROLL
    for (int c = 0; c < kCopies; ++c) {
      const PerLane<std::int32_t> page = hand(page_, c, share);
      exec_.each_lane([&](Lane lane) { places_[lane][c].page = page[lane]; });
      if constexpr (!kPlain) {
        const PerLane<std::int32_t> of_copy = hand(token, c, share);
        exec_.each_lane([&](Lane lane) { places_[lane][c].token = of_copy[lane]; });
      }
    }
  }
  /// What the lane that looks a row up knows of it, to the lanes that copy the row as their c-th.
  template <class T>
  [[nodiscard]] FP4PA_FN PerLane<T> hand(const PerLane<T>& x, int c, const PerLane<Share>& share) {
    return exec_.shuffle(x, [&](Lane lane) { return share[lane].row + c * kSideBySide; });
  }
  /// The same of the row's scales that are handed over: f(lane, word, scales).
  template <class F>
  FP4PA_FN void hand_scales(int c, const PerLane<Share>& share, F&& f) {
    if constexpr (kScaleBytes > 0) {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) {
        PerLane<std::uint32_t> own;
        exec_.each_lane([&](Lane lane) { own[lane] = scales_[lane][w]; });
        const PerLane<std::uint32_t> got = hand(own, c, share);
        exec_.each_lane([&](Lane lane) {
          if constexpr (kPicks) {
            if (w == 0 || row_scale(share[lane].chunk) / 4 == w) f(lane, 0, got[lane]);
          } else {
            f(lane, w, got[lane]);
          }
        });
      }
    }
  }
  /// Brings the rows of the tile at hand into the second-level cache: of those that are not decoded registers hold too little.
  FP4PA_FN void prefetch_rows() {
    exec_.each_lane([&](Lane lane) {
      if (!exists(lane)) return;
      const std::uint8_t* const row = row_of(page_[lane], place_of(key_of(lane)).token);
      FP4PA_UNROLL
      for (int i = 0; i < kChunks * core::kChunkBytes; i += kLine) exec_.prefetch(row + i);
    });
  }
  /// Asks for the c-th chunk that a lane copies of the tile that begins at `first`, into place `at`.
  /// @param rows  of that tile, where they are handed over one by one
  FP4PA_FN void load(int c, const PerLane<Share>& share, const PerLane<std::uint64_t>& rows, std::int32_t first, int at) {
    PerLane<std::uint64_t> row;
    if constexpr (!kAtOnce) row = hand(rows, c, share);
    exec_.each_lane([&](Lane lane) {
      const std::int32_t key = key_of_copy(lane, share[lane], first, c);
      const std::uint8_t* from;
      if constexpr (kAtOnce) {
        from = row_of(places_[lane][c].page, kPlain ? place_of(key).token : places_[lane][c].token);
      } else {
        from = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(row[lane]));
      }
      load_chunk(from + share[lane].chunk * core::kChunkBytes, key < end_, codes_[lane][at]);
    });
  }
  FP4PA_FN void load_chunk(const std::uint8_t* from, bool exists, Chunk& to) {
    if constexpr (kAnyCodes) {
      exec_.load_chunk_if(to.word, from, exists);
    } else {
      to = exec_.template load_global_or_zero<Chunk>(from, exists);
    }
  }

  /// Where the decoded chunks of a lane's first row go.
  FP4PA_FN void find_targets(const PerLane<Share>& share, std::uint32_t to, PerLane<std::uint32_t[kOut]>& target) {
    exec_.each_lane([&](Lane lane) {
      const std::uint32_t row = Tile::row_address(to, (own(lane) - lane.id) + share[lane].row);
      FP4PA_UNROLL
      for (int i = 0; i < kOut; ++i) target[lane][i] = Tile::chunk_address(row, share[lane].chunk * kOut + i);
    });
  }
  /// Decodes the c-th chunk that a lane copied.
  FP4PA_FN void store(int c, const PerLane<Share>& share, const HandedScales& scales,
                      const PerLane<std::uint32_t[kOut]>& target) {
    exec_.each_lane([&](Lane lane) {
      const auto& codes = codes_[lane][c % kHeld].word;
      const auto& scale = scales[lane][c];
      const int chunk = share[lane].chunk;
      Chunk out[kOut];
      if constexpr (kTokens) {
        decode_by_tokens(lane, codes, out);
      } else if constexpr (has_window(kKind)) {
        F16Window<kKind>::decode(codes, F16Window<kKind>::factor(scale[0], scale_of_chunk(chunk)), out);
      } else {
        sm80::decode_chunk<kKind>(codes, [&](int w) { return sm80::e4m3_to_f16(twice(scale, scale_of_chunk(chunk) + w / 2)); }, out);
      }
      if constexpr (kPairs) sm80::pair_dims(out[0].word);
      store_chunks(lane, c, target, out);
    });
  }
  FP4PA_FN void decode_by_tokens(Lane lane, const std::uint32_t (&codes)[4], Chunk (&out)[kOut]) const {
    const auto& s = scales_[lane];
    // Factors in f16, whatever they were made of, multiply codes as NVFP4's do.
    sm80::decode_chunk<KvKind::kNvfp4Tokens>(codes, [&](int w, int p) {
      if constexpr (has_window(kKind)) {
        return F16Window<kKind>::factors(s[2 * w], s[2 * w + 1], p);
      } else {
        return sm80::e4m3_pair_to_f16(s[2 * w], s[2 * w + 1], p);
      }
    }, out);
  }
  /// The same to bf16, from the pages.
  FP4PA_FN void store_wide(int c, std::uint32_t to) {
    const PerLane<Share> share = shares();
    PerLane<std::uint32_t[kOut]> target;
    find_targets(share, to, target);
    PerLane<std::uint32_t> scales;
    hand_scales(c, share, [&](Lane lane, int, std::uint32_t x) { scales[lane] = x; });
    PerLane<std::int32_t> page;
    PerLane<std::uint64_t> row;
    if constexpr (kAtOnce) {
      page = hand(decoded_page_, c, share);
    } else {
      row = hand(row_, c, share);
    }
    exec_.each_lane([&](Lane lane) {
      const std::int32_t key = key_of_copy(lane, share[lane], first_, c);
      const std::uint8_t* from;
      if constexpr (kAtOnce) {
        from = row_of(page[lane], place_of(key).token);
      } else {
        from = reinterpret_cast<const std::uint8_t*>(static_cast<std::uintptr_t>(row[lane]));
      }
      Chunk codes{};
      load_chunk(from + share[lane].chunk * core::kChunkBytes, key < end_, codes);
      Chunk out[kOut];
      if constexpr (kTokens) {
        const auto& s = scales_[lane];
        sm80::decode_chunk<kKind>(codes.word, [&](int w, int p) { return sm80::e8m0_to_bf16(s[2 * w], s[2 * w + 1], p); }, out);
      } else {
        const std::uint32_t byte = (scales[lane] >> (8 * scale_of_chunk(share[lane].chunk))) & 0xffu;
        sm80::decode_chunk<kKind>(codes.word, [&](int) { return sm80::e8m0_pair(byte); }, out);
      }
      store_chunks(lane, c, target, out);
    });
  }
  FP4PA_FN void store_chunks(Lane lane, int c, const PerLane<std::uint32_t[kOut]>& target, const Chunk (&out)[kOut]) {
    FP4PA_UNROLL
    for (int i = 0; i < kOut; ++i) {
      exec_.template store_shared<Chunk>(lane, Tile::later_row(target[lane][i], c * kSideBySide), out[i]);
    }
  }
  /// Where the first scale of chunk `chunk` stands among those that were handed over.
  [[nodiscard]] FP4PA_FN static int scale_of_chunk(int chunk) { return kPicks ? row_scale(chunk) % 4 : row_scale(chunk); }
  /// The same among its row's.
  [[nodiscard]] FP4PA_FN static int row_scale(int chunk) {
    if constexpr (kKind == KvKind::kPerToken) return 0;
    return kKind == KvKind::kMxfp8 ? chunk / 2 : kKind == KvKind::kNvfp4 ? 2 * chunk : chunk;
  }
  /// Byte i of a row's scales, in bits 7..0 and 15..8.
  [[nodiscard]] FP4PA_FN static std::uint32_t twice(const std::uint32_t (&scales)[kHandedWords], int i) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(scales[0], scales[kHandedWords - 1], 0x11 * i);
#else
    return ((scales[i / 4] >> (i % 4 * 8)) & 0xffu) * 0x101u;
#endif
  }

  E& exec_;
  const core::Segment& segment_;
  const core::TensorView& view_;
  std::int32_t head_;
  const std::int32_t* pages_;   // of the sequence
  int page_log2_ = 0;           // of plain places
  std::int32_t first_;          // key of the tile at hand
  std::int32_t end_;            // of the keys
  bool wide_ = false;           // see decode
  PerLane<int> own_;            // row of a tile that a lane looks up
  PerLane<std::int32_t> page_;  // of its row of the tile that codes are asked for
  PerLane<std::int32_t> asked_page_;      // of the one behind it, on its way
  PerLane<std::int32_t> decoded_page_;    // of the one before it, where there is a window and pages are handed over
  PerLane<Place[kCopies]> places_;  // of the chunks that a lane copies; tokens where places are not plain
  PerLane<std::uint64_t> row_;      // where rows are handed over one by one: of the tile that codes are asked for
  PerLane<Chunk[kHeld]> codes_;
  ScaleWords asked_scales_;     // of the tile that codes are asked for, on their way
  ScaleWords scales_;           // of the tile that is decoded; fields of factors where there is a window, see F16Window
};

}  // namespace fp4pa::sm90
