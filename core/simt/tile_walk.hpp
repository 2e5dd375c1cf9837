// Which tiles of keys a team walks: plain runs of keys, or pieces that do not cross a row of scales along tokens.
#pragma once

#include <cstdint>

#include "core/attention/row_map.hpp"
#include "core/paging/two_tier.hpp"
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

}  // namespace fp4pa::core
