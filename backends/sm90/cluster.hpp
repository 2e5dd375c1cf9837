// What blocks of a cluster do with each other: meet, and read each other's shared memory.
#pragma once

#include <cstdint>

namespace fp4pa::sm90 {

/// All threads of all blocks; what was written to shared memory before is seen by all behind it.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

/// Where the cluster's block r has what this block has at `mine`, an address in its shared memory.
__device__ __forceinline__ std::uint32_t address_in_block(int r, std::uint32_t mine) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(r));
  return there;
}
__device__ __forceinline__ float float_of_block(int r, std::uint32_t mine) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address_in_block(r, mine)) : "memory");
  return value;
}
__device__ __forceinline__ float4 float4_of_block(int r, std::uint32_t mine) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address_in_block(r, mine))
               : "memory");
  return v;
}

}  // namespace fp4pa::sm90
