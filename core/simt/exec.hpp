// How lane code is executed: by lane regions, so that one source runs on a GPU and, lane by lane, on the host.
//
//   exec.each_lane([&](auto lane) { sum[lane] += x[lane]; });   once on a GPU, over all lanes on the host
//   auto y = exec.shuffle_xor(sum, 4);                          a collective: only between regions
//
// A value that every lane has its own of is a PerLane<T>: one T in registers on a GPU, an array over lanes on the host.
// Everything outside a region is the same in all lanes of a warp, and control flow depends on nothing else. That is what
// makes a collective legal wherever it stands, and what lets a host run lanes and warps in any order.
//
// Shared memory is an array of bytes that belongs to the block, addressed by offset. Every access goes through Exec:
// an emulator can then poison it, check it against the barriers, and land asynchronous copies as late as is legal.
#pragma once

#include <concepts>
#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

/// Something to hand to a region where only its shape matters.
struct AnyRegion {
  template <class Lane>
  FP4PA_FN bool operator()(Lane) const {
    return false;
  }
};

/// A warp as one worker of a block. PerLane<T> is `typename E::template PerLane<T>`, indexed by the `lane` that a region is
/// handed; lane.id counts from 0.
template <class E>
concept Exec = requires(E& e, const E& ce, typename E::template PerLane<float>& f, typename E::template PerLane<float> fv,
                        typename E::template PerLane<std::uint32_t> u, typename E::template PerLane<int> source,
                        typename E::Lane lane, std::uint32_t offset, const void* global, bool flag) {
  requires std::same_as<decltype(E::kLanes), const int>;
  { lane.id } -> std::convertible_to<int>;
  { f[lane] } -> std::same_as<float&>;
  { ce.warp() } -> std::same_as<int>;
  { ce.num_warps() } -> std::same_as<int>;
  e.each_lane(AnyRegion());

  // Collectives of a warp. `reduce_max` and `any` give every lane the same answer.
  { e.shuffle_xor(fv, 1) } -> std::same_as<typename E::template PerLane<float>>;
  { e.reduce_max(u) } -> std::same_as<std::uint32_t>;
  { e.any(AnyRegion()) } -> std::same_as<bool>;

  // Barriers order all accesses to shared memory before them, of the warp's lanes or of the block's warps, before all
  // accesses after them.
  e.warp_barrier();
  e.block_barrier();

  // Shared memory; offsets and sizes aligned to the access.
  e.template store_shared<std::uint32_t>(lane, offset, std::uint32_t{});
  { e.template load_shared<std::uint32_t>(lane, offset) } -> std::same_as<std::uint32_t>;

  // Read-only global memory.
  { e.template load_global<std::uint32_t>(global) } -> std::same_as<std::uint32_t>;

  // 16 bytes from global to shared memory, zeros if the flag is false; they may be read after copy_wait and a barrier.
  // copy_commit closes a group; copy_wait<N> returns when at most the N newest groups of the lane are under way. Plain instances
  // ask for copy_async_4, too.
  e.copy_async_16(lane, offset, global, flag);
  e.copy_commit();
  e.template copy_wait<0>();
};

// What an Exec may have beside the concept: kLeastWarps, where a launch chooses how many warps work on an item; copy_lanes_16, which is
// copy_async_16 for lanes whose targets are 16 bytes apart and takes the first lane's; and for compilers that know better than their
// registers allow, opaque() and anew().

/// Warps that work on an item at least.
/// @param warps  that an instance is made for
template <class E>
[[nodiscard]] FP4PA_FN constexpr int least_warps(int warps) {
  if constexpr (requires { E::kLeastWarps; }) {
    return warps < E::kLeastWarps ? warps : E::kLeastWarps;
  } else {
    return warps;
  }
}

/// x, in a register from here on: a compiler would rather find it out again for every tile.
template <class E, class T>
[[nodiscard]] FP4PA_FN T kept(T x) {
  if constexpr (requires { E::opaque(x); }) {
    return E::opaque(x);
  } else {
    return x;
  }
}
/// x, of which a compiler has computed nothing before.
template <class E>
[[nodiscard]] FP4PA_FN int anew(int x) {
  if constexpr (requires { E::anew(x); }) {
    return E::anew(x);
  } else {
    return x;
  }
}
/// The same of a lane.
template <class E>
[[nodiscard]] FP4PA_FN typename E::Lane lane_anew(typename E::Lane lane) {
  if constexpr (requires { E::anew(lane); }) {
    return E::anew(lane);
  } else {
    lane.id = anew<E>(lane.id);
    return lane;
  }
}

}  // namespace fp4pa::core
