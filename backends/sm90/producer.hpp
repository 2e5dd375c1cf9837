// The warps of a prefill kernel that stage tiles and decode them into the ring.
#pragma once

#include <cstdint>

#include "backends/sm80/tile_decode.hpp"
#include "backends/sm90/ring.hpp"
#include "core/attention/body.hpp"

namespace fp4pa::sm90 {

/// What KeyStreamOf asks of a shim: the producers stage as a block of their own.
template <core::SimtConfig kShape, class Executor>
struct StagingShim {
  static constexpr core::SimtConfig kConfig = [] {
    core::SimtConfig c = kShape;
    c.warps = c.producers;
    c.decode_tiles = false;
    return c;
  }();
  using Exec = Executor;
  FP4PA_FN static int swizzle(int row, int chunk, int chunks) { return chunk ^ sm80::swizzle_bits(row, chunks); }
  static constexpr int kTokenAlignment = core::kScalePiece;
};

/// Decodes all tiles of an item, keys before values.
/// @tparam kConfig  of the kernel
template <core::SimtConfig kConfig, class E>
FP4PA_FN void produce(E& exec, const core::AttentionParams& p, const core::WorkItem& item, const core::SharedLayout& shared) {
  static_assert(kConfig.segments == 1);
  using Tile = typename Ring<kConfig>::Tile;
  constexpr int kThreads = E::kLanes * kConfig.producers;
  const core::RowMap rows(p, item);
  const core::KeyRange range = core::keys_of(p, rows, item);
  if (range.empty()) return;

  const Ring<kConfig> ring(shared.stages);
  const auto decode = [&]<KvKind kKind>(core::KindConstant<kKind>, std::uint32_t from, sm80::StagedScales scales) {
    exec.wait_for_arrivals(ring.empty(exec.place), exec.place.parity ^ 1);
    sm80::TileDecoder<kKind, E, kConfig.head_dim, kConfig.tile_keys, kThreads, Tile>::run(exec, from, scales, ring.tile(exec.place));
    exec.async_fence();
    arrive_for_warp(exec, ring.full(exec.place));
    exec.place.advance(Ring<kConfig>::kSlots);
  };
  exec.block_barrier();  // nobody reads the last item's stages any more
  core::KeyStreamOf<StagingShim<kConfig, E>, 0> stream(exec, p.segments[0], item, range, p.head_dim, shared.stages, shared.addresses);
  while (!stream.done()) {
    stream.wait();
    const core::TileLayout layout = stream.layout();
    const std::uint32_t tile = stream.tile_offset();
    decode(core::KindConstant<kConfig.k[0]>(), tile, {tile + layout.k_scales, layout.k_scale_pitch});
    decode(core::KindConstant<kConfig.v[0]>(), tile + layout.v_codes, {tile + layout.v_scales, layout.v_scale_pitch});
    stream.release();
  }
  exec.template copy_wait<0>();
}

}  // namespace fp4pa::sm90
