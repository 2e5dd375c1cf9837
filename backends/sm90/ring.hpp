// The ring of decoded tiles between the warps that decode and the warpgroups that multiply.
//
// Keys and values of a tile take a slot each, one behind the other: K0 V0 K1 V1 ... Every slot has two barriers. The first ends
// a round when all producers of its side have written the slot, the second when every consumer warp has read it. All roles walk
// the same items and tiles (items.hpp), so that nothing else is said between them.
//
//   producers  wait for empty(slot), decode, arrive at full(slot), step on by two: keys and values have producers of their own
//   consumers  wait for full(slot), multiply, arrive at empty(slot), step on
//
// Beside a slot stands whether its tile is in bf16 where f16 is usual (f16_window.hpp).
#pragma once

#include <cstdint>

#include "backends/sm90/operand_tile.hpp"
#include "core/simt/config.hpp"
#include "core/simt/key_stream.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

/// Where a role stands in a ring of kSlots, a power of two; one number, which goes on from item to item.
template <int kSlots>
struct RingPlace {
  static_assert((kSlots & (kSlots - 1)) == 0);
  std::uint32_t steps = 0;
  [[nodiscard]] FP4PA_FN std::uint32_t slot() const { return steps % kSlots; }
  /// Of the rounds before this one.
  [[nodiscard]] FP4PA_FN std::uint32_t parity() const { return steps / kSlots % 2; }
};

/// Tiles in the ring: keys and values of the tile at hand and of the next one.
inline constexpr int kRingSlots = 4;
using TilePlace = RingPlace<kRingSlots>;
/// Two barriers of each slot, and what is noted of it.
inline constexpr int kBarrierBytes = kRingSlots * (16 + 4);
/// For the block's items, behind the barriers.
inline constexpr int kItemBytes = 1024;

/// Warps that decode keys, or values.
[[nodiscard]] FP4PA_FN constexpr int producers_of_side(const core::SimtConfig& c) { return c.producers / 2; }

/// Bytes of an instance's ring with its barriers and items, and of what it takes to align it.
[[nodiscard]] FP4PA_FN constexpr int ring_bytes(const core::SimtConfig& c) {
  return kSwizzleBytes + kRingSlots * 2 * c.tile_keys * c.head_dim + kBarrierBytes + kItemBytes;
}

template <core::SimtConfig kConfig>
class Ring {
 public:
  using Tile = OperandTile<kConfig.tile_keys, kConfig.head_dim>;
  static constexpr int kSlots = kRingSlots;

  /// @param begin  offset of what an instance has behind its queries
  FP4PA_FN explicit Ring(std::uint32_t begin) : base_((begin + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes) {}
  [[nodiscard]] FP4PA_FN std::uint32_t tile(TilePlace at) const { return base_ + at.slot() * Tile::kBytes; }
  [[nodiscard]] FP4PA_FN std::uint32_t full(TilePlace at) const { return barriers() + 8 * at.slot(); }
  [[nodiscard]] FP4PA_FN std::uint32_t empty(TilePlace at) const { return barriers() + 8 * (kSlots + at.slot()); }
  [[nodiscard]] FP4PA_FN std::uint32_t note(TilePlace at) const { return barriers() + 16 * kSlots + 4 * at.slot(); }
  [[nodiscard]] FP4PA_FN std::uint32_t items() const { return barriers() + kBarrierBytes; }

  /// By one thread, before a barrier of the block.
  template <class E>
  FP4PA_FN void set_up(const E& exec) const {
    for (TilePlace at; at.steps < kSlots; ++at.steps) {
      exec.set_up_arrivals(full(at), producers_of_side(kConfig));
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

/// The stream of the consumers: the tiles that producers decode.
template <core::SimtConfig kConfig, std::int32_t S, class E, int kTokenAlignment>
class DecodedStream {
 public:
  static constexpr std::int32_t kSegment = S;

  FP4PA_FN DecodedStream(E& exec, const core::Segment& segment, const core::WorkItem& item, core::KeyRange range, int,
                         std::uint32_t stages, std::uint32_t)
      : exec_(exec),
        ring_(stages),
        walk_(core::TileWalk::make(range, kConfig.tile_keys, segment.page_size, core::along_tokens(kConfig.v[S]),
                                   kTokenAlignment)),
        v_global_(segment.v.global(item.kv_head)) {}

  [[nodiscard]] FP4PA_FN bool done() const { return walk_.tile(index_).empty(); }
  [[nodiscard]] FP4PA_FN core::KeyRange keys() const { return walk_.tile(index_); }
  /// The tile at hand is decoded: first keys, then values.
  FP4PA_FN void wait() { exec_.wait_for_arrivals(ring_.full(exec_.place), exec_.place.parity()); }
  /// Offset of the tile at hand.
  [[nodiscard]] FP4PA_FN std::uint32_t tile() const { return ring_.tile(exec_.place); }
  /// Whether it is in bf16, of a kind that has a window of f16. The lane that arrives for the warp reads the note for it.
  [[nodiscard]] FP4PA_FN bool wide() const {
    return exec_.any([&](auto lane) {
      return lane.id == 0 && exec_.template load_shared<std::uint32_t>(lane, ring_.note(exec_.place)) != 0;
    });
  }
  /// This warp has read the tile at hand.
  FP4PA_FN void pass() {
    arrive_for_warp(exec_, ring_.empty(exec_.place));
    ++exec_.place.steps;
  }
  FP4PA_FN void release() { ++index_; }

  [[nodiscard]] FP4PA_FN KvKind k_kind() const { return kConfig.k[S]; }
  [[nodiscard]] FP4PA_FN KvKind v_kind() const { return kConfig.v[S]; }
  [[nodiscard]] FP4PA_FN float v_global() const { return v_global_; }

 private:
  E& exec_;
  Ring<kConfig> ring_;
  core::TileWalk walk_;
  float v_global_;
  std::int32_t index_ = 0;
};

}  // namespace fp4pa::sm90
