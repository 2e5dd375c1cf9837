// What blocks of a cluster do with each other: meet, and give each other what they have. Nobody reads another's shared memory, so that a
// block may leave when it has got what it was to be given.
// Source: PTX ISA 9.0, "barrier.cluster", "mapa", "st.async".
#pragma once

#include <cstdint>

namespace fp4pa::sm90 {

/// This block's place in its cluster, which lies along x, and the cluster's among all. A block launched without one is a cluster. Read
/// again at each call: it costs less than a register kept for it.
__device__ __forceinline__ int rank_in_cluster() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ int cluster_index() {
  int index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

/// Two steps that order nothing. Behind the second, all blocks have come as far as the first: what they had read and used by then may be
/// written over.
__device__ __forceinline__ void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/// Where the cluster's block r has what this block has at `mine`, an address in its shared memory.
__device__ __forceinline__ std::uint32_t address_in_block(int r, std::uint32_t mine) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(r));
  return there;
}
/// To block r at `mine`, an address in this one's memory, counted there by that block's `barrier`. Who waits for it sees what was given, and
/// nothing else has to be waited for: between stores and a barrier of the cluster there would be a fence of the whole GPU. If r is this
/// block it is a store, which nobody counts.
__device__ __forceinline__ void give_to_block(int r, bool is_this, std::uint32_t mine, std::uint32_t barrier, const float4& v) {
  asm volatile(
      "{.reg .pred here;\n"
      "setp.ne.u32 here, %0, 0;\n"
      "@here st.shared.v4.f32 [%1], {%4, %5, %6, %7};\n"
      "@!here st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%2], {%4, %5, %6, %7}, [%3];}" ::"r"(is_this ? 1 : 0),
      "r"(mine), "r"(address_in_block(r, mine)), "r"(address_in_block(r, barrier)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}
__device__ __forceinline__ void give_to_block(int r, bool is_this, std::uint32_t mine, std::uint32_t barrier, float v) {
  asm volatile(
      "{.reg .pred here;\n"
      "setp.ne.u32 here, %0, 0;\n"
      "@here st.shared.f32 [%1], %4;\n"
      "@!here st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%2], %4, [%3];}" ::"r"(is_this ? 1 : 0),
      "r"(mine), "r"(address_in_block(r, mine)), "r"(address_in_block(r, barrier)), "f"(v)
      : "memory");
}
/// As barrier_wait (tensor_copy.hpp), for what other blocks gave, which is seen behind it. A block is given sums once: the first phase.
__device__ __forceinline__ void wait_for_given(std::uint32_t barrier) {
  asm volatile(
      "{.reg .pred p;\n"
      "again_%=: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again_%=;}" ::"r"(barrier), "r"(0)
      : "memory");
}

__device__ __forceinline__ void add(float4& a, const float4& b) {
  a.x += b.x;
  a.y += b.y;
  a.z += b.z;
  a.w += b.w;
}

}  // namespace fp4pa::sm90
