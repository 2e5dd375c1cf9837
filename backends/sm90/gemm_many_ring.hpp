// The two rings of the matrix product for many rows of X: slots of X and codes, by the copy engine, and factors, by the fetching warps,
// which are at least as far ahead. Their barriers:
//
//   full   the engine has brought a stage, its factors are there, and its codes are arranged where they are to be
//   read   all warps that multiply have read it
//   codes  the engine has brought a stage's codes, which are to be arranged
//
// Where a stage lies is counted by those who go from stage to stage (ManyTurn); who asks for copies works it out from the stage's number. A
// wait names the parity of the round that it waits for.
#pragma once

#include <cstdint>

#include "backends/sm90/gemm_many_params.hpp"
#include "backends/sm90/operand_tile.hpp"

namespace fp4pa::sm90 {

/// Where a stage lies, counted: numbers of no thread's own, which stay in uniform registers.
template <ManyLayout kLayout>
struct ManyTurn {
  int slot = 0;   // of X and codes
  int place = 0;  // of factors and barriers
  std::uint32_t parity = 0;

  __device__ __forceinline__ void next() {
    if (++slot == kLayout.ring()) slot = 0;
    if (++place == kLayout.factor_ring()) {
      place = 0;
      parity ^= 1;
    }
  }
};

template <ManyLayout kLayout>
class ManyRing {
 public:
  using Turn = ManyTurn<kLayout>;

  __device__ __forceinline__ ManyRing(const ManyParams& params, const std::uint8_t* shared, const ManyPart& part)
      : params_(params),
        base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
        x_row_(static_cast<int>(part.batch) * params.gemm.m + part.first_x),
        w_row_((params.gemm.code_batch == 0 ? 0 : static_cast<int>(part.batch) * params.gemm.n) + part.first_row),
        first_stage_(part.first_stage),
        brought_x_bytes_(params.block_rows * (kLayout.x_bytes() / kLayout.x_rows)) {
    asm volatile("" : "+r"(base_), "+r"(brought_x_bytes_));  // not to be worked out again in every round
  }

  /// By one thread, before a barrier of the block. With a lane for each barrier the compiler writes a loop over lanes.
  __device__ __forceinline__ static void set_up(const std::uint8_t* shared) {
    const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
#pragma unroll
    for (int i = 0; i < static_cast<int>(kPlaces); ++i) {
      const std::uint32_t full = base + kLayout.barriers() + kLayout.place_bytes() * i;
      barrier_init(full, 1 + ManyLayout::kFetchers + (kLayout.arranged() ? ManyLayout::kArrangers : 0));
      barrier_init(full + 8, ManyLayout::kMultipliers / 32);
      if (kLayout.arranged()) barrier_init(full + 16, 1);
    }
#pragma unroll
    for (int warp = 0; warp < ManyLayout::kMultipliers / 32; ++warp) barrier_init(base + kLayout.given() + 8 * warp, 1);
    barrier_init_fence();
  }

  /// Zeros where there is nothing: codes and columns of X past the end make products of 0. Rows past the end may be the next
  /// product's: what they give is not written.
  __device__ __forceinline__ void copy_codes(int stage) const {
    // Where codes have no barrier of their own, the stage's bytes are announced with them.
    const std::uint32_t barrier = full(stage) + (kLayout.arranged() ? 16 : 0);
    barrier_expect(barrier, kLayout.code_bytes() + (kLayout.arranged() ? 0 : brought_x_bytes_));
    copy_box(base_ + slot(stage) + kLayout.x_bytes(), params_.w, (first_stage_ + stage) * sm80::kCodeBytes, w_row_, barrier);
  }
  __device__ __forceinline__ void copy_x(int stage) const {
    if constexpr (kLayout.arranged()) barrier_expect(full(stage), brought_x_bytes_);
#pragma unroll
    for (int panel = 0; panel < 2; ++panel) {
      copy_box(base_ + slot(stage) + panel * kLayout.x_bytes() / 2, params_.x, (first_stage_ + stage) * sm80::kGemmStage + panel * kPanelDims,
               x_row_, full(stage));
    }
  }

  // Offsets in shared memory, and barriers.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t slot(const Turn& turn) { return turn.slot * kLayout.stage_bytes(); }
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t factors(const Turn& turn) {
    return kLayout.factors() + turn.place * kLayout.factor_bytes();
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full(const Turn& turn) const { return full_at(turn.place); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t read(const Turn& turn) const { return full(turn) + 8; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t codes(const Turn& turn) const { return full(turn) + 16; }
  /// Of the block's shared memory.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t base() const { return base_; }

 private:
  static constexpr unsigned kPlaces = kLayout.factor_ring();
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t slot(int stage) {
    return static_cast<unsigned>(stage) % kLayout.ring() * kLayout.stage_bytes();
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full(int stage) const { return full_at(static_cast<unsigned>(stage) % kPlaces); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full_at(std::uint32_t place) const {
    return base_ + kLayout.barriers() + kLayout.place_bytes() * place;
  }

  const ManyParams& params_;
  std::uint32_t base_;
  int x_row_, w_row_, first_stage_;
  int brought_x_bytes_;  // of a stage, zeros for rows behind the last included
};

}  // namespace fp4pa::sm90
