// The items of a block, on their way from the warp that finds them to all others.
//
// Whoever walks the schedule holds dozens of registers, and so does whoever looks a row of queries up. So one lane of the block
// walks, with its state in shared memory, and leaves what everybody needs of an item there too: a warp reads a number again
// where it would otherwise keep it. Items have slots like tiles (ring.hpp): published, then given back by every warp.
#pragma once

#include <cstdint>
#include <new>

#include "backends/sm90/ring.hpp"
#include "core/attention/body.hpp"

namespace fp4pa::sm90 {

/// What the warps of a block are told of an item.
struct PublishedItem {
  core::WorkItem item;
  core::RowMap rows;
  core::KeyRange keys;
};

/// Items are published so far ahead that nobody waits for the walk, and producers begin an item while consumers end the last.
inline constexpr int kItemsAhead = 2;
inline constexpr int kItemSlots = kItemsAhead + 2;
using ItemPlace = RingPlace<kItemSlots>;

class ItemRing {
 public:
  static constexpr int kWalkOffset = 16 * kItemSlots;
  static constexpr int kFirstOffset = (kWalkOffset + static_cast<int>(sizeof(core::ItemWalk)) + 15) / 16 * 16;
  static constexpr int kSlotBytes = (16 + static_cast<int>(sizeof(PublishedItem)) + 15) / 16 * 16;
  static_assert(kFirstOffset + kItemSlots * kSlotBytes <= kItemBytes);

  /// @param shared  the block's shared memory
  /// @param base    offset of kItemBytes
  FP4PA_FN ItemRing(std::uint8_t* shared, std::uint32_t base) : shared_(shared), base_(base) {}

  /// By one thread, before a barrier of the block.
  /// @param warps  that take items
  template <class E>
  FP4PA_FN void set_up(const E& exec, int warps) const {
    for (ItemPlace at; at.steps < kItemSlots; ++at.steps) {
      exec.set_up_arrivals(full(at), 1);
      exec.set_up_arrivals(empty(at), warps);
    }
  }

  /// Begins the walk of a worker; by one thread, which is the only one to publish.
  FP4PA_FN void start(const core::WorkList& list, std::int32_t worker) const {
    new (walk()) core::ItemWalk(list, worker, list.partition.starts[worker]);
  }
  /// Publishes the next item, or that there are no more.
  /// @param list  that the walk was started with
  template <class E>
  FP4PA_FN void publish(E& exec, ItemPlace at, const core::WorkList& list, const core::AttentionParams& p) const {
    exec.wait_for_arrivals(empty(at), at.parity() ^ 1);
    core::WorkItem item{};
    const bool found = walk()->next(list, item);
    *exists(at) = found ? 1 : 0;
    if (found) {
      const core::RowMap rows(p, item);
      new (slot(at)) PublishedItem{item, rows, core::keys_of<false>(p, rows, item)};
    }
    exec.arrive(full(at));
  }

  /// Calls f(PublishedItem, ItemPlace) for the items, each of which lies in shared memory until f returns; by all lanes of a
  /// warp.
  template <class E, class F>
  FP4PA_FN void for_each(E& exec, F&& f) const {
    for (ItemPlace at;; ++at.steps) {
      exec.wait_for_arrivals(full(at), at.parity());
      if (*exists(at) == 0) return;
      f(*slot(at), at);
      arrive_for_warp(exec, empty(at));
    }
  }

 private:
  [[nodiscard]] FP4PA_FN std::uint32_t full(ItemPlace at) const { return base_ + 8 * at.slot(); }
  [[nodiscard]] FP4PA_FN std::uint32_t empty(ItemPlace at) const { return base_ + 8 * (kItemSlots + at.slot()); }
  [[nodiscard]] FP4PA_FN core::ItemWalk* walk() const {
    return reinterpret_cast<core::ItemWalk*>(shared_ + base_ + kWalkOffset);
  }
  [[nodiscard]] FP4PA_FN std::uint8_t* entry(ItemPlace at) const {
    return shared_ + base_ + kFirstOffset + at.slot() * kSlotBytes;
  }
  // A slot begins with whether there is an item.
  [[nodiscard]] FP4PA_FN volatile std::int32_t* exists(ItemPlace at) const { return reinterpret_cast<std::int32_t*>(entry(at)); }
  [[nodiscard]] FP4PA_FN PublishedItem* slot(ItemPlace at) const { return reinterpret_cast<PublishedItem*>(entry(at) + 16); }

  std::uint8_t* shared_;
  std::uint32_t base_;
};

}  // namespace fp4pa::sm90
