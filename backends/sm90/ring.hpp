// The ring of decoded tiles between the warps that decode and the warpgroups that multiply.
//
// Keys and values of a tile take a slot each, one behind the other: K0 V0 K1 V1 ... Every slot has two barriers. The first ends
// a round when all producers have written the slot, the second when every consumer warp has read it. Both roles walk the same
// items and tiles, so that nothing else is said between them.
//
//   producers  wait for empty(slot), decode, arrive at full(slot), step on
//   consumers  wait for full(slot), multiply, arrive at empty(slot), step on
#pragma once

#include <cstdint>

#include "backends/sm90/operand_tile.hpp"
#include "core/simt/config.hpp"
#include "core/simt/key_stream.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

/// Where a role stands in the ring of decoded tiles; goes on from item to item.
struct RingPlace {
  int slot = 0;
  std::uint32_t parity = 0;  // of the rounds before this one
  FP4PA_FN void advance(int slots) {
    ++slot;
    if (slot < slots) return;
    slot = 0;
    parity ^= 1;
  }
};

/// Tiles in the ring. Three keep both roles busy; a fourth lets the warpgroups drift further apart, where there is room for it.
[[nodiscard]] FP4PA_FN constexpr int ring_slots(const core::SimtConfig& c) {
  return core::is_fp4(c.k[0]) || c.tile_keys == 64 ? 4 : 3;
}
inline constexpr int kBarrierBytes = 128;

/// Bytes of an instance's ring behind its stages, and of what it takes to align it.
[[nodiscard]] FP4PA_FN constexpr int ring_bytes(const core::SimtConfig& c) {
  return kSwizzleBytes + ring_slots(c) * 2 * c.tile_keys * c.head_dim + kBarrierBytes;
}

template <core::SimtConfig kConfig>
class Ring {
 public:
  using Tile = OperandTile<kConfig.tile_keys, kConfig.head_dim>;
  static constexpr int kSlots = ring_slots(kConfig);
  static_assert(16 * kSlots <= kBarrierBytes);

  /// @param stages  offset of the block's stages
  FP4PA_FN explicit Ring(std::uint32_t stages) {
    constexpr int kStaged =
        kConfig.stages[0] * core::tile_layout(kConfig.k[0], kConfig.v[0], kConfig.head_dim, kConfig.tile_keys).bytes;
    base_ = (stages + kStaged + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes;
  }
  [[nodiscard]] FP4PA_FN std::uint32_t tile(RingPlace at) const { return base_ + at.slot * Tile::kBytes; }
  [[nodiscard]] FP4PA_FN std::uint32_t full(RingPlace at) const { return barriers() + 8 * at.slot; }
  [[nodiscard]] FP4PA_FN std::uint32_t empty(RingPlace at) const { return barriers() + 8 * (kSlots + at.slot); }

  /// By one thread, before a barrier of the block.
  template <class E>
  FP4PA_FN void set_up(const E& exec) const {
    for (RingPlace at; at.parity == 0; at.advance(kSlots)) {
      exec.set_up_arrivals(full(at), kConfig.producers);
      exec.set_up_arrivals(empty(at), kConfig.warps);
    }
  }

 private:
  [[nodiscard]] FP4PA_FN std::uint32_t barriers() const { return base_ + kSlots * Tile::kBytes; }
  std::uint32_t base_;
};

/// Whoever of a warp arrives for it.
template <class E>
FP4PA_FN void arrive_for_warp(E& exec, std::uint32_t at) {
  exec.warp_barrier();
  exec.each_lane([&](auto lane) {
    if (lane.id == 0) exec.arrive(at);
  });
}

/// The stream of the consumers: the same tiles as the producers' KeyStreamOf, decoded.
template <core::SimtConfig kConfig, class E, int kTokenAlignment>
class DecodedStream {
 public:
  static constexpr std::int32_t kSegment = 0;

  FP4PA_FN DecodedStream(E& exec, const core::Segment& segment, const core::WorkItem& item, core::KeyRange range, int,
                         std::uint32_t stages, std::uint32_t)
      : exec_(exec),
        ring_(stages),
        walk_(core::TileWalk::make(range, kConfig.tile_keys, segment.page_size, core::along_tokens(kConfig.v[0]), kTokenAlignment)),
        v_global_(segment.v.global(item.kv_head)) {}

  [[nodiscard]] FP4PA_FN bool done() const { return walk_.tile(index_).empty(); }
  [[nodiscard]] FP4PA_FN core::KeyRange keys() const { return walk_.tile(index_); }
  /// The tile at hand is decoded: first keys, then values.
  FP4PA_FN void wait() { exec_.wait_for_arrivals(ring_.full(exec_.place), exec_.place.parity); }
  /// Offset of the tile at hand.
  [[nodiscard]] FP4PA_FN std::uint32_t tile() const { return ring_.tile(exec_.place); }
  /// This warp has read the tile at hand.
  FP4PA_FN void pass() {
    arrive_for_warp(exec_, ring_.empty(exec_.place));
    exec_.place.advance(Ring<kConfig>::kSlots);
  }
  FP4PA_FN void release() { ++index_; }

  [[nodiscard]] FP4PA_FN KvKind k_kind() const { return kConfig.k[0]; }
  [[nodiscard]] FP4PA_FN KvKind v_kind() const { return kConfig.v[0]; }
  [[nodiscard]] FP4PA_FN float v_global() const { return v_global_; }

 private:
  E& exec_;
  Ring<kConfig> ring_;
  core::TileWalk walk_;
  float v_global_;
  std::int32_t index_ = 0;
};

}  // namespace fp4pa::sm90
