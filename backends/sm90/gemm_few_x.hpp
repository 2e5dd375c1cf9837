// X of a matrix product with few rows on sm_90 (gemm_few.hpp) on its way to a block's shared memory: through registers, where columns are put
// in the pairs that decoding gives and bf16 becomes f16. The warps of a turn bring in what they multiply, all rows of X in their own
// stages, and wait for no other's: mostly that is one warp. Distances between a lane's pieces are constants, since the stages that a
// warp brings in are as many apart as a block has warps.
#pragma once

#include <cstdint>

#include "backends/sm90/gemm_few_part.hpp"
#include "backends/sm90/gemm_x_pieces.hpp"

namespace fp4pa::sm90 {

/// @tparam kRows   of X, at most: 2, 4 or 8
/// @tparam kBf16   X is, and becomes f16, in a unit of each turn's and row's own; else it is f16
/// @tparam kHeld   pieces of 16 bytes that a lane has under way
/// @tparam kTiles  sixteens of rows of W of a warp
template <bool kNvfp4, int kRows, bool kBf16, int kHeld, FewForm kForm, int kTiles>
class FewX : protected FewPart<kNvfp4, kForm, kTiles> {
 protected:
  using Part = FewPart<kNvfp4, kForm, kTiles>;
  using Part::batch_, Part::exec_, Part::f_, Part::first_, Part::lane_, Part::last_, Part::p_, Part::row_group_,
      Part::thread_, Part::turn_, Part::turn_barrier, Part::turns_;

  __device__ __forceinline__ FewX(const FewParams& params, std::uint8_t* shared)
      : Part(params, shared, few_scales(kRows, kTiles),
             few_zeros(kNvfp4, Part::row_groups(params), params.block_stages, params.gemm.m, kTiles) + kFewZeros),
        x_pitch_(few_x_pitch(params.block_stages)),
        x_at_(few_x(kNvfp4, Part::row_groups(params), params.block_stages, kRows, kTiles)) {}

  /// By all threads, before a barrier of the block.
  __device__ __forceinline__ void write_zeros() const {
    if (thread_ < kFewZeros / 4) exec_.store_shared(lane_, zeros() + 4 * thread_, std::uint32_t{0});
  }
  /// Brings in X.
  /// @param meanwhile  is called once X has come
  template <class Meanwhile>
  __device__ __forceinline__ void bring_x(Meanwhile&& meanwhile) {
    uint4 x[kHeld];
    int stage = first_ + turn_ + turns_ * row_group_;
    if constexpr (kBf16) {
      std::uint32_t most = 0;
#pragma unroll 1
      for (; stage < last_; stage += kRound) {
        ask(stage, x);
#pragma unroll
        for (int i = 0; i < kHeld; ++i) most = largest_bf16(most, x[i]);
      }
#pragma unroll
      for (int lane = 1; lane < kLanes; lane *= 2) most = sm80::max_halves(most, __shfl_xor_sync(0xffffffffu, most, lane));
      scale_ = scale_of_row(of_turn(larger_half(most)));
      meanwhile();
      // Back: the last round is held.
#pragma unroll 1
      for (stage -= kRound; stage >= first_; ask(stage, x)) {
        store(stage, x);
        if ((stage -= kRound) < first_) break;
      }
    } else {
#pragma unroll 1
      for (; stage < last_; stage += kRound) {
        ask(stage, x);
        store(stage, x);
      }
      meanwhile();
    }
  }
  /// X and scales are there.
  __device__ __forceinline__ void wait_for_operands() const {
    turn_barrier();
    this->wait_for_scales();
  }
  /// kFewZeros bytes behind X.
  __device__ __forceinline__ std::uint32_t zeros() const { return static_cast<std::uint32_t>(x_at_ + p_.m * x_pitch_); }
  /// What brings the warp's sums of a row of X back to X's own unit. By all lanes.
  __device__ __forceinline__ float unit_of(int row) const {
    return kBf16 ? inverse_of_scale(__shfl_sync(0xffffffffu, scale_, row * kLanes)) : 1.0f;
  }

  int x_pitch_, x_at_;

 private:
  // In bf16 a lane's pieces are of one row, whose largest it looks for. Others read 128 bytes of a row side by side, at least.
  static constexpr int kOfLane = kRows == 8 && !kBf16 ? 2 : 1;             // rows
  static constexpr int kLanes = 32 / kRows * kOfLane;                      // side by side in a row
  static constexpr int kPieces = sm80::kGemmStage / 8 / kLanes * kOfLane;  // of a lane in a stage
  static constexpr int kRound = kHeld / kPieces * kFewWarps;               // stages of the block
  static_assert(kHeld % kPieces == 0);

  /// Of what its warps have found in a row: in the 64 bytes behind it.
  __device__ __forceinline__ std::uint32_t of_turn(std::uint32_t largest) const {
    if (Part::row_groups(f_) == 1) return largest;
    const auto found = static_cast<std::uint32_t>(x_at_ + (row() + 1) * x_pitch_ - 4 * kFewWarps + 4 * turn_ * Part::row_groups(f_));
    if (row() < p_.m) exec_.store_shared(lane_, found + 4 * row_group_, largest);
    turn_barrier();
#pragma unroll 1
    for (int warp = 0; row() < p_.m && warp < Part::row_groups(f_); ++warp) {
      largest = max(largest, exec_.template load_shared<std::uint32_t>(lane_, found + 4 * warp));
    }
    return largest;
  }

  __device__ __forceinline__ int row() const { return lane_.id / kLanes; }
  /// Whether a piece is of X's rows and the block's stages.
  __device__ __forceinline__ bool exists(int stage, int piece) const {
    return row() + piece % kOfLane * (32 / kLanes) < p_.m && stage + piece / kPieces * kFewWarps < last_;
  }
  /// Of a piece, columns from the stage's on.
  __device__ __forceinline__ static constexpr int column(int piece) {
    return piece / kPieces * (kFewWarps * sm80::kGemmStage) + piece % kPieces / kOfLane * (kLanes * 8);
  }

  /// A round of stages; zeros where there is nothing, and past the last column.
  __device__ __forceinline__ void ask(int stage, uint4 (&x)[kHeld]) const {
    const int first = stage * sm80::kGemmStage + lane_.id % kLanes * 8;
    const std::uint16_t* const from = p_.x + (batch_ * p_.m + row()) * p_.x_row + first;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const std::int64_t further = i % kOfLane * (32 / kLanes) * p_.x_row + column(i);
      const bool there = exists(stage, i) && (Part::kPlain || first + column(i) < p_.x_cols);
      x[i] = there ? *reinterpret_cast<const uint4*>(from + further) : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void store(int stage, const uint4 (&x)[kHeld]) const {
    const auto to = static_cast<std::uint32_t>(x_at_ + row() * x_pitch_ + (stage - first_) * (2 * sm80::kGemmStage) + lane_.id % kLanes * 16);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (!exists(stage, i)) continue;
      const auto further = static_cast<std::uint32_t>(i % kOfLane * (32 / kLanes) * x_pitch_ + 2 * column(i));
      exec_.store_shared(lane_, to + further, kBf16 ? paired_in_f16(x[i], scale_) : paired(x[i]));
    }
  }

  float scale_;  // of the lane's row
};

}  // namespace fp4pa::sm90
