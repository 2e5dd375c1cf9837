// What blocks of a cluster do with each other: meet, and read each other's shared memory.
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

/// All threads of all blocks; what was written to shared memory before is seen by all behind it.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

/// Two steps that order nothing. Behind the second, all blocks have come as far as the first: what they had read and used by then may be
/// written over.
__device__ __forceinline__ void arrive_at_cluster() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

/// The last that a block does: nobody leaves while others read its shared memory. Whoever calls it has used what it read of theirs. It
/// orders nothing, so that results on their way to memory are not waited for.
__device__ __forceinline__ void leave_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;" ::: "memory");
}

/// Where the cluster's block r has what this block has at `mine`, an address in its shared memory.
__device__ __forceinline__ std::uint32_t address_in_block(int r, std::uint32_t mine) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(r));
  return there;
}
__device__ __forceinline__ void store_to_block(int r, std::uint32_t mine, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address_in_block(r, mine)), "f"(value) : "memory");
}
__device__ __forceinline__ void store_to_block(int r, std::uint32_t mine, const float4& v) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address_in_block(r, mine)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
/// The same where r may be this block, and only if `wanted`. Without a branch: calls follow each other closely.
__device__ __forceinline__ void store_to_block_if(bool wanted, int r, bool is_this, std::uint32_t mine, const float4& v) {
  asm volatile(
      "{.reg .pred here, there;\n"
      "setp.ne.u32 here, %0, 0;\n"
      "setp.ne.u32 there, %1, 0;\n"
      "@here st.shared.v4.f32 [%2], {%4, %5, %6, %7};\n"
      "@there st.shared::cluster.v4.f32 [%3], {%4, %5, %6, %7};}" ::"r"(wanted && is_this ? 1 : 0),
      "r"(wanted && !is_this ? 1 : 0), "r"(mine), "r"(address_in_block(r, mine)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}
__device__ __forceinline__ void load_of_block(int r, std::uint32_t mine, float& value) {
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address_in_block(r, mine)) : "memory");
}
__device__ __forceinline__ void load_of_block(int r, std::uint32_t mine, float4& v) {
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address_in_block(r, mine))
               : "memory");
}

__device__ __forceinline__ void add(float4& a, const float4& b) {
  a.x += b.x;
  a.y += b.y;
  a.z += b.z;
  a.w += b.w;
}

/// Sums over the cluster's `splits` blocks of what they have where this one, block `rank`, has here[0], here[1] and so on in its shared
/// memory: in a fixed order that begins with the block's own. Short code before few waits: it runs once.
/// @param wanted  how many of them: what nobody uses must not be under way when the block leaves
template <int kCount>
__device__ __forceinline__ void cluster_sums(int splits, int rank, const float4* here, int wanted, float4 (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) sums[i] = here[i];
  const auto mine = static_cast<std::uint32_t>(__cvta_generic_to_shared(here));
  int r = rank;
#pragma unroll 1
  for (int k = 1; k < splits; ++k) {
    if (++r == splits) r = 0;
    float4 part[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      part[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (i < wanted) load_of_block(r, mine + 16 * i, part[i]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) add(sums[i], part[i]);
  }
}

}  // namespace fp4pa::sm90
