// The end of the matrix product of gemm.hpp: sums across the cluster, and results to memory.
#pragma once

#include "backends/sm80/gemm.hpp"
#include "backends/sm80/store_result.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::sm80 {

/// Sums to shared memory, across the cluster, and out.
template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::finish() const {
  exec_.template copy_wait<0>();
  __syncthreads();
  auto* const mine = reinterpret_cast<float*>(shared_);
  const int thread = last_thread();
  const auto batch = last_batch();
  const int lane = kTight ? thread % 32 : lane_.id;
  const int warp = kTight ? thread / 32 : exec_.warp();
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int nt = 0; nt < kXTiles; ++nt) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int row = warp * 32 + 16 * half + g + 8 * (v / 2);
        mine[(nt * 8 + 2 * t + v % 2) * kSumPitch + row] = sums_[half][nt][v];
      }
    }
  }
  cluster_barrier();
  const float w_global = p_.w_globals != nullptr ? p_.w_globals[p_.code_batch == 0 ? 0 : batch] : p_.w_global;
  const float x_global = p_.x_globals != nullptr ? p_.x_globals[batch] : 1.0f;
  const int row = first_row_ + thread;
  float bias = 0.0f;
  if (p_.bias != nullptr && row < p_.n) {
    core::load_plain_row(core::element_address(p_.bias, p_.bias_dtype, row), p_.bias_dtype, 1, &bias);
  }
  // A thread per row of W, the cluster's blocks taking turns at the rows of X.
  for (int i = rank_; i < 8 * kXTiles && first_x_ + i < p_.m && row < p_.n; i += p_.splits) {
    float part[kGemmMaxSplits];  // all on their way before the first is needed
#pragma unroll
    for (int r = 0; r < kGemmMaxSplits; ++r) part[r] = r < p_.splits ? sum_of(r, i * kSumPitch + thread) : 0.0f;
    float sum = part[0];
#pragma unroll
    for (int r = 1; r < kGemmMaxSplits; ++r) sum += part[r];
    const std::int64_t x_row = std::int64_t{batch} * p_.m + first_x_ + i;
    const float inverse = p_.x_inverse != nullptr ? p_.x_inverse[x_row] : 1.0f;
    const float value = sum * kUnit * inverse * w_global * x_global + bias;
    store_result(value, p_.out_dtype, p_.out, x_row * p_.n + row);
  }
  leave_cluster();
}

template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::cluster_barrier() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (p_.splits > 1) {
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
    return;
  }
#endif
  __syncthreads();
}

/// As in sm90/cluster.hpp.
template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ void GemmBlock<kNvfp4, kXTiles, kPaired>::leave_cluster() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (p_.splits > 1) asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// Float `index` of the sums of the cluster's block r.
template <bool kNvfp4, int kXTiles, bool kPaired>
__device__ __forceinline__ float GemmBlock<kNvfp4, kXTiles, kPaired>::sum_of(int r, int index) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (p_.splits > 1) {
    const std::uint32_t here = base_ + 4u * static_cast<std::uint32_t>(index);
    std::uint32_t there;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(r));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
    return value;
  }
#endif
  return reinterpret_cast<const float*>(shared_)[index];
}

}  // namespace fp4pa::sm80
