// The warps of a prefill kernel that decode tiles into the ring: some the keys, some the values.
#pragma once

#include <cstdint>

#include "backends/sm90/items.hpp"
#include "backends/sm90/ring.hpp"
#include "backends/sm90/tile_loader.hpp"

namespace fp4pa::sm90 {

/// Keys (side 0) or values (1) of a call.
[[nodiscard]] FP4PA_FN const core::TensorView& tensor_of(const core::AttentionParams& p, int side) {
  return side == 0 ? p.segments[0].k : p.segments[0].v;
}

/// Decodes the keys or the values of an item.
/// @tparam kConfig  of the kernel
/// @tparam kSide    0: keys, 1: values
/// @tparam kPlain   has_plain_places
template <core::SimtConfig kConfig, int kSide, bool kPlain, class E>
FP4PA_FN void produce(E& exec, const core::AttentionParams& p, const PublishedItem& published, const Ring<kConfig>& ring) {
  static_assert(kConfig.segments == 1);
  constexpr KvKind kKind = kSide == 0 ? kConfig.k[0] : kConfig.v[0];
  using Tile = typename Ring<kConfig>::Tile;
  using Loader = TileLoader<kKind, E, kConfig.head_dim, kConfig.tile_keys, producers_of_side(kConfig), Tile, kPlain>;
  Loader loader(exec, p.segments[0], tensor_of(p, kSide), published.item, published.keys);
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
