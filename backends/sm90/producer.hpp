// The warps of a prefill kernel that decode tiles into the ring: some the keys, some the values.
#pragma once

#include <cstdint>

#include "backends/sm90/items.hpp"
#include "backends/sm90/ring.hpp"
#include "backends/sm90/tile_loader.hpp"

namespace fp4pa::sm90 {

/// Keys (side 0) or values (1) of a segment.
[[nodiscard]] FP4PA_FN const core::TensorView& tensor_of(const core::Segment& segment, int side) {
  return side == 0 ? segment.k : segment.v;
}

/// has_plain_places of all segments of a side.
template <core::SimtConfig kConfig, int kSide>
[[nodiscard]] FP4PA_FN bool all_have_plain_places(const core::AttentionParams& p) {
  constexpr const KvKind(&kKinds)[2] = kSide == 0 ? kConfig.k : kConfig.v;
  const auto plain = [&]<KvKind kKind>(const core::Segment& s) {
    return has_plain_places<kKind>(s, tensor_of(s, kSide), kConfig.head_dim);
  };
  return plain.template operator()<kKinds[0]>(p.segments[0]) &&
         (kConfig.segments == 1 || plain.template operator()<kKinds[1]>(p.segments[1]));
}

/// Where tiles begin beside scales along tokens, see core::TileWalk::make; in pages of whole pieces.
[[nodiscard]] FP4PA_FN core::KeyRange from_whole_piece(core::KeyRange keys) {
  return {keys.begin / core::kScalePiece * core::kScalePiece, keys.end};
}

/// Decodes those keys or values of an item that lie in segment S.
/// @tparam kConfig  of the kernel
/// @tparam kSide    0: keys, 1: values
/// @tparam kPlain   all_have_plain_places
template <core::SimtConfig kConfig, int kSide, std::int32_t S, bool kPlain, class E>
FP4PA_FN void produce_segment(E& exec, const core::Segment& segment, const core::WorkItem& item, core::KeyRange keys,
                              const Ring<kConfig>& ring) {
  constexpr KvKind kKind = kSide == 0 ? kConfig.k[S] : kConfig.v[S];
  constexpr KvKind kOrder = kSide == 0 ? kConfig.k[0] : kConfig.v[0];
  using Tile = typename Ring<kConfig>::Tile;
  using Loader = TileLoader<kKind, E, kConfig.head_dim, kConfig.tile_keys, producers_of_side(kConfig), Tile, kPlain, kOrder, S == 1>;
  Loader loader(exec, segment, tensor_of(segment, kSide), item, keys);
  while (exec.any([&](auto) { return !loader.done(); })) {
    exec.wait_together(ring.empty(exec.place), exec.place.parity() ^ 1);
    const bool wide = loader.decode(ring.tile(exec.place));
    if constexpr (has_window(kKind)) {
      exec.each_lane([&](auto lane) {
        if (exec.warp() == 0 && lane.id == 0) exec.template store_shared<std::uint32_t>(lane, ring.note(exec.place), wide ? 1 : 0);
      });
    }
    exec.async_fence();
    arrive_for_warp(exec, ring.full(exec.place));
    exec.place.steps += 2;
  }
}

/// Decodes the keys or the values of an item.
/// @tparam kPlain  all_have_plain_places
template <core::SimtConfig kConfig, int kSide, bool kPlain, class E>
FP4PA_FN void produce(E& exec, const core::AttentionParams& p, const PublishedItem& published, const Ring<kConfig>& ring) {
  if constexpr (kConfig.segments == 1) {
    const core::KeyRange keys = core::along_tokens(kConfig.v[0]) ? from_whole_piece(published.keys) : published.keys;
    produce_segment<kConfig, kSide, 0, kPlain>(exec, p.segments[0], published.item, keys, ring);
  } else {
    // The second range is found anew when it is needed: its registers would be taken from the loop of the first.
    const auto border = [&] { return core::first_segment_tokens(p, published.rows.kv_len); };
    const core::KeyRange old = core::keys_of_segment<0>(published.keys, border());
    if (!old.empty()) produce_segment<kConfig, kSide, 0, kPlain>(exec, p.segments[0], published.item, old, ring);
    const core::KeyRange recent = core::keys_of_segment<1>(published.keys, border());
    if (!recent.empty()) produce_segment<kConfig, kSide, 1, kPlain>(exec, p.segments[1], published.item, recent, ring);
  }
}

/// Brings the rows of queries of an item into the second-level cache, by the `threads` threads of which this is `thread`.
template <KvKind kKey, class E>
FP4PA_FN void prefetch_queries(E& exec, const core::AttentionParams& p, const core::RowMap& rows, int thread, int threads) {
  const bool scaled = core::queries_have_scales<kKey>(p);
  const int bytes = scaled ? 1 : p.q.dtype == DType::kF32 ? 4 : 2;
  for (int row = thread; row < rows.num_rows; row += threads) {
    const std::int64_t at = rows.token(row) * p.q.token_stride + rows.head(row) * p.q.head_stride;
    const auto* const from = static_cast<const std::uint8_t*>(p.q.data) + at * bytes;
    for (int i = 0; i < p.head_dim * bytes; i += kLine) exec.prefetch(from + i);
    const core::QueryScales& scales = p.q_scales;
    if (scaled) exec.prefetch(scales.data + rows.token(row) * scales.token_stride + rows.head(row) * scales.head_stride);
  }
}

}  // namespace fp4pa::sm90
