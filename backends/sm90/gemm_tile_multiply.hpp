// The multiplying warpgroups of the matrix product with decoded tiles: 64 rows of X each by the block's rows of W, on wgmma with
// both operands in the ring's slots.
#pragma once

#include <cstdint>

#include "backends/sm90/exec.hpp"
#include "backends/sm90/gemm_tile_results.hpp"
#include "backends/sm90/gemm_tile_ring.hpp"

namespace fp4pa::sm90 {

template <bool kNvfp4>
class TileMultiplier {
 public:
  __device__ __forceinline__ TileMultiplier(const TileParams& params, std::uint8_t* shared, const TilePart& part)
      : ring_(params, shared, part),
        exec_(shared),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x)),
        steps_(2 * part.stages) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) sums_[i / 4][0][i % 4] = 0.0f;
    // Of slot 0: rows of X of the warpgroup, and W.
    const auto group = static_cast<std::uint32_t>(thread_ / 128 * 64 * kPanelRowBytes);
    const std::uint64_t x = descriptor(group, {0, core::kChunkBytes, kSwizzleBytes});
    const std::uint64_t w = descriptor(TileLayout::kXBytes, Values::value_step(0, 0));
    int slot = 0;
    int before = 0;
    std::uint32_t parity = 0;
#pragma unroll 1
    for (int step = 0; step < steps_; ++step) {
      barrier_wait(ring_.full(slot), parity);
      exec_.async_fence();  // here and not by those that decode, whose loads it would wait for
      exec_.group_fence();
#pragma unroll
      for (int i = 0; i < kPanelDims / kStep; ++i) {
        // Addresses are the descriptors' lowest bits, in units of 16 bytes.
        const std::uint64_t there = TileRing::offset(slot) / 16;
        wgmma<core::F16, TileLayout::kWRows, true>(sums_, x + (there + i * 2 * kStep / 16),
                                                   w + (there + i * kStep * kPanelRowBytes / 16), true);
      }
      exec_.group_commit();
      wait<1>();
      // The products of the step before have ended.
      if (step > 0 && thread_ % 32 == 0) barrier_arrive(ring_.empty(before));
      before = slot;
      if (++slot == TileLayout::kSlots) {
        slot = 0;
        parity ^= 1;
      }
    }
    wait<0>();
    pin(sums_);
  }

  /// Sums to shared memory, when all that multiply have read all slots.
  __device__ __forceinline__ void put_sums() const {
    asm volatile("bar.sync 1, %0;" ::"n"(32 * TileLayout::kMultipliers) : "memory");
#pragma unroll
    for (int unit = 0; unit < Results::kUnits; ++unit) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile = unit / 4 * 8 + half * 4;
        const int v = unit % 4;
        reinterpret_cast<float4*>(shared_)[Results::index(unit, half, thread_)] =
            make_float4(sums_[tile][0][v], sums_[tile + 1][0][v], sums_[tile + 2][0][v], sums_[tile + 3][0][v]);
      }
    }
  }

 private:
  using Results = TileResults<kNvfp4>;
  using Values = OperandTile<kPanelDims, TileLayout::kWRows>;
  static constexpr int kTiles = TileLayout::kWRows / 8;

  /// In a cluster an address has the block's rank in its upper bits, which must not reach the descriptor's next field.
  __device__ __forceinline__ std::uint64_t descriptor(std::uint32_t offset, const SharedMatrix& matrix) const {
    return matrix_descriptor((ring_.base() + offset) & 0x3ffff, matrix);
  }

  template <int kNewest>
  __device__ __forceinline__ static void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNewest) : "memory");
  }

  TileRing ring_;
  WarpExec exec_;
  std::uint8_t* shared_;
  int thread_;
  int steps_;
  float sums_[kTiles][1][4];
};

}  // namespace fp4pa::sm90
