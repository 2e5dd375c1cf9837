// The end of the matrix product for many rows of X: sums lie in the registers of the warps that multiplied, in tiles of 16 rows of W by 8
// of X. The blocks of a cluster, which divide K, take turns at the tiles: each gives all of its sums to whose tile it is, to the thread that
// has the same rows there, and adds up and brings out what it was given, which lies where the ring was. A warp has a barrier that counts
// what it is given, so that it waits for the same warps of other blocks alone.
#pragma once

#include <cstdint>

#include "backends/sm90/cluster.hpp"
#include "backends/sm90/gemm_given.hpp"
#include "backends/sm90/gemm_many_params.hpp"
#include "backends/sm90/gemm_results.hpp"

namespace fp4pa::sm90 {

/// Of a thread of those that multiplied.
template <ManyLayout kLayout>
class ManyResults {
 public:
  static constexpr int kTiles = kLayout.x_rows / 8;
  using Sums = float[kTiles][1][4];

  __device__ __forceinline__ ManyResults(const sm80::GemmParams& p, std::uint8_t* shared, const ManyPart& part, int rank)
      : p_(p),
        part_(part),
        mine_(reinterpret_cast<float4*>(shared) + threadIdx.x),
        given_(given(shared, static_cast<int>(threadIdx.x) / 32)),
        rank_(rank),
        rows_(part.rows) {}

  /// Adds what the block's factors left out.
  __device__ __forceinline__ void add_outside(Sums& sums) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
    for (int i = 0; i < 4 * kTiles; ++i) {
      const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int n = first_row() + lane / 4 + i % 4 / 2 * 8;
      const float sum = row < rows_ && n < p_.n ? outside_sum<kLayout.bf16>(p_, part_, part_.first_x + row, n) : 0.0f;
#pragma unroll
      for (int j = 0; j < 4 * kTiles; ++j) {
        if (j == i) sums[j / 4][0][j % 4] += sum;
      }
    }
  }

  /// Whether a block with all of K can bring out what its threads have as it is.
  [[nodiscard]] __device__ __forceinline__ bool alone() const { return p_.splits == 1 && ResultTiles::in_fours(p_); }
  __device__ __forceinline__ void store_own(const Sums& sums) const {
    const ResultTiles tiles = results();
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += kAtOnce) {
      float4 sum[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) sum[i] = tile_of(sums, tile + i);
      tiles.store_fours(sum, tile, 1);
    }
  }

  /// Announces what other blocks will give a warp, also of rows of X that do not exist. By one thread.
  __device__ __forceinline__ static void expect(const sm80::GemmParams& p, const std::uint8_t* shared, int rank, int warp) {
    const int tiles = (kTiles - rank + p.splits - 1) / p.splits;
    barrier_expect(given(shared, warp), static_cast<std::uint32_t>(tiles * (p.splits - 1) * kWarpBytes));
  }

  /// To the blocks that bring them out, behind a step of the cluster: no ring is in use any more. The block's own go to the same place.
  __device__ __forceinline__ void give(const Sums& sums) const {
    std::uint32_t to = static_cast<std::uint32_t>(__cvta_generic_to_shared(mine_ + rank_ * kThreads));
    int owner = 0;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      give_to_block(owner, owner == rank_, to, given_, tile_of(sums, tile));
      if (++owner == p_.splits) {
        owner = 0;
        to += p_.splits * kThreads * 16;
      }
    }
  }

  /// Brings out what was given.
  __device__ __forceinline__ void store() const {
    const ResultTiles tiles = results();
    wait_for_given(given_);
    if (ResultTiles::in_fours(p_)) {
#pragma unroll 1
      for (int tile = rank_; 8 * tile < rows_; tile += kAtOnce * p_.splits) {
        float4 sum[kAtOnce];
        add_up(tile, sum);
        tiles.store_fours(sum, tile, p_.splits);
      }
    } else {
#pragma unroll 1
      for (int tile = rank_; 8 * tile < rows_; tile += p_.splits) {
        float4 sum[1];
        add_up(tile, sum);
        tiles.store_each(sum, tile);
      }
    }
  }

 private:
  static constexpr int kThreads = ManyLayout::kMultipliers;
  static constexpr int kAtOnce = 4;           // tiles of a thread: their waits are one
  static constexpr int kWarpBytes = 32 * 16;  // of a warp's tile

  static_assert(most_given(kTiles) * kThreads * 16 <= kLayout.ring() * kLayout.stage_bytes());

  [[nodiscard]] __device__ __forceinline__ int first_row() const { return part_.first_row + static_cast<int>(threadIdx.x) / 32 * 16; }
  [[nodiscard]] __device__ __forceinline__ ResultTiles results() const {
    return ResultTiles(p_, part_.batch, first_row(), part_.first_x, rows_, WeightUnit<kLayout.nvfp4, kLayout.bf16>::kSum);
  }
  [[nodiscard]] __device__ __forceinline__ static float4 tile_of(const Sums& sums, int tile) {
    return make_float4(sums[tile][0][0], sums[tile][0][1], sums[tile][0][2], sums[tile][0][3]);
  }
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t given(const std::uint8_t* shared, int warp) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + kLayout.given() + 8 * warp;
  }

  /// In the order of K, of kCount of the block's tiles; of those that are none, something.
  template <int kCount>
  __device__ __forceinline__ void add_up(int tile, float4 (&sum)[kCount]) const {
    const float4* from[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      from[i] = mine_ + (tile - rank_ + (8 * (tile + i * p_.splits) < rows_ ? i * p_.splits : 0)) * kThreads;
      sum[i] = *from[i];
    }
#pragma unroll 1
    for (int r = 1; r < p_.splits; ++r) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        from[i] += kThreads;
        add(sum[i], *from[i]);
      }
    }
  }

  const sm80::GemmParams& p_;
  const ManyPart& part_;
  float4* mine_;
  std::uint32_t given_;  // barrier
  int rank_, rows_;      // of X
};

}  // namespace fp4pa::sm90
