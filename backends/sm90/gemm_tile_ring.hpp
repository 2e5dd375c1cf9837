// The two rings of the matrix product with decoded tiles, and their barriers.
//
//   codes   full when the copy engine has brought a stage, empty when all warps of its team have read it
//   slots   full when a team has decoded 64 columns and the copy engine has brought X's, empty when all warps that multiply have
//           read them
//
// A wait names the parity of the round that it waits for. Copies are asked for by a lane of each team, of its stages.
#pragma once

#include <cstdint>

#include "backends/sm90/gemm_tile_params.hpp"

namespace fp4pa::sm90 {

class TileRing {
 public:
  __device__ __forceinline__ TileRing(const TileParams& params, std::uint8_t* shared, const TilePart& part)
      : params_(params),
        base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
        x_row_(static_cast<int>(part.batch) * params.gemm.m + part.first_x),
        w_row_((params.gemm.code_batch == 0 ? 0 : static_cast<int>(part.batch) * params.gemm.n) + part.first_row),
        first_stage_(part.first_stage) {
    asm volatile("" : "+r"(base_));  // not to be worked out again in every round
  }

  /// By one warp, before a barrier of the block.
  __device__ __forceinline__ void set_up(int lane) const {
    if (lane < TileLayout::kSlots) {
      barrier_init(full(lane), TileLayout::kTeam + 1);  // and X
      barrier_init(empty(lane), TileLayout::kMultipliers);
    } else if (lane < TileLayout::kSlots + TileLayout::kStages) {
      barrier_init(codes_full(lane - TileLayout::kSlots), 1);
      barrier_init(codes_empty(lane - TileLayout::kSlots), TileLayout::kTeam);
    }
    barrier_init_fence();
  }

  /// Zeros where there is nothing: columns past the end make products of 0. Rows past the end may be the next product's: what they
  /// give is not written.
  __device__ __forceinline__ void fetch_codes(int stage, int place) const {
    barrier_expect(codes_full(place), TileLayout::kStageBytes);
    copy_box(base_ + codes(place), params_.w, (first_stage_ + stage) * sm80::kCodeBytes, w_row_, codes_full(place));
  }
  __device__ __forceinline__ void fetch_x(int step, int slot) const {
    barrier_expect(full(slot), TileLayout::kXBytes);
    copy_box(base_ + offset(slot), params_.x, (2 * first_stage_ + step) * kPanelDims, x_row_, full(slot));
  }

  // Offsets in shared memory, and barriers.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t offset(int slot) { return slot * TileLayout::kSlotBytes; }
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t codes(int place) { return TileLayout::kCodes + place * TileLayout::kStageBytes; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full(int slot) const { return base_ + TileLayout::kBarriers + 16 * slot; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t empty(int slot) const { return full(slot) + 8; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t codes_full(int place) const { return full(TileLayout::kSlots + place); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t codes_empty(int place) const { return codes_full(place) + 8; }
  /// Of the block's shared memory.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t base() const { return base_; }

 private:
  const TileParams& params_;
  std::uint32_t base_;
  int x_row_, w_row_, first_stage_;
};

}  // namespace fp4pa::sm90
