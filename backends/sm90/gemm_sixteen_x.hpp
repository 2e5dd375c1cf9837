// X of a matrix product with 9 to 16 rows on sm_90 (gemm_sixteen.hpp) on its way to a block's shared memory, as in gemm_few_x.hpp: the warps
// of a turn bring in what they multiply.
#pragma once

#include <cstdint>

#include "backends/sm90/gemm_few_part.hpp"
#include "backends/sm90/gemm_x_pieces.hpp"

namespace fp4pa::sm90 {

/// @tparam kBf16  X is, and becomes f16, in a unit of each turn's and row's own; else it is f16
/// @tparam kHeld  stages that a warp has under way
template <bool kNvfp4, bool kBf16, int kHeld, FewForm kForm>
class SixteenX : protected FewPart<kNvfp4, kForm> {
 protected:
  using Part = FewPart<kNvfp4, kForm>;
  using Part::batch_, Part::exec_, Part::f_, Part::first_, Part::lane_, Part::last_, Part::p_, Part::row_group_, Part::shared_, Part::turn_,
      Part::turn_barrier, Part::turns_;

  __device__ __forceinline__ SixteenX(const FewParams& params, std::uint8_t* shared)
      : Part(params, shared, kSixteenScales,
             sixteen_rows(kNvfp4, Part::row_groups(params), params.block_stages, params.gemm.m) + kSixteenScalesThere) {}

  /// Brings in X.
  __device__ __forceinline__ void bring_x() const {
    Pieces x;
    int stage = first_ + turn_ + turns_ * row_group_;
    if constexpr (kBf16) {
      std::uint32_t most[kOfLane] = {};
#pragma unroll 1
      for (; stage < last_; stage += kRound) {
        ask(stage, x);
#pragma unroll
        for (int i = 0; i < kPieces; ++i) most[i % kOfLane] = largest_bf16(most[i % kOfLane], x[i]);
      }
      float scale[kOfLane];
      find_scales(most, scale);
      // Back: the last round is held.
#pragma unroll 1
      for (stage -= kRound; stage >= first_; ask(stage, x)) {
        store(stage, x, scale);
        if ((stage -= kRound) < first_) break;
      }
      turn_barrier();
      if (lane_.id % kLanes == 0) {
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) set(row_group_, row(i), inverse_of_scale(scale[i]));
      }
      __syncwarp();  // a warp may have no stage, and meets nowhere else before it reads them
    } else {
#pragma unroll 1
      for (; stage < last_; stage += kRound) {
        ask(stage, x);
        store(stage, x, {});
      }
      turn_barrier();
    }
  }
  /// What brings the warp's sums of a row of X back to X's own unit.
  __device__ __forceinline__ float unit_of(int row) const { return kBf16 ? get(row_group_, row) : 1.0f; }

  /// Of eight columns of a row. Lanes of four read 64 bytes apart: the pieces of eight lanes lie in different banks.
  __device__ __forceinline__ std::uint32_t x_offset(int row, int piece) const {
    return static_cast<std::uint32_t>(sixteen_x(kNvfp4, Part::row_groups(f_), f_.block_stages) + row * sixteen_x_pitch(f_.block_stages) +
                                      (piece ^ (piece >> 3 & 1) ^ (row & 1) << 1) * 16);
  }

 private:
  static constexpr int kLanes = 8;                         // side by side in a row
  static constexpr int kOfLane = kSixteenX * kLanes / 32;  // rows
  static constexpr int kPiecesOfRow = 2;                   // of a lane in a stage
  static constexpr int kPieces = kHeld * kPiecesOfRow * kOfLane;
  static constexpr int kRound = kHeld * kFewWarps;  // stages of the block
  using Pieces = uint4[kPieces];                    // [stage][piece of a row][row]
  static_assert(kLanes * kPiecesOfRow * 8 == sm80::kGemmStage);

  __device__ __forceinline__ int row(int i) const { return lane_.id / kLanes + i % kOfLane * (32 / kLanes); }
  /// Of a piece, columns from the stage's on.
  __device__ __forceinline__ static constexpr int column(int piece) {
    return piece / (kPiecesOfRow * kOfLane) * (kFewWarps * sm80::kGemmStage) + piece / kOfLane % kPiecesOfRow * (kLanes * 8);
  }
  /// Whether a piece is of X's rows and the block's stages.
  __device__ __forceinline__ bool exists(int stage, int piece) const {
    return row(piece) < p_.m && stage + piece / (kPiecesOfRow * kOfLane) * kFewWarps < last_;
  }

  /// A round of stages; zeros where there is nothing, and past the last column.
  __device__ __forceinline__ void ask(int stage, Pieces& x) const {
    const int first = stage * sm80::kGemmStage + lane_.id % kLanes * 8;
    const std::uint16_t* const from = p_.x + (batch_ * p_.m + row(0)) * p_.x_row + first;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const bool there = exists(stage, i) && (Part::kPlain || first + column(i) < p_.x_cols);
      x[i] = there ? *reinterpret_cast<const uint4*>(from + i % kOfLane * (32 / kLanes) * p_.x_row + column(i)) : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void store(int stage, const Pieces& x, const float (&scale)[kOfLane]) const {
    std::uint32_t to[kPiecesOfRow];
#pragma unroll
    for (int j = 0; j < kPiecesOfRow; ++j) {
      to[j] = x_offset(row(0), (stage - first_) * (sm80::kGemmStage / 8) + j * kLanes + lane_.id % kLanes);
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (!exists(stage, i)) continue;
      const auto further = static_cast<std::uint32_t>(i % kOfLane * (32 / kLanes) * sixteen_x_pitch(f_.block_stages) +
                                                      i / (kPiecesOfRow * kOfLane) * (2 * kFewWarps * sm80::kGemmStage));
      exec_.store_shared(lane_, to[i / kOfLane % kPiecesOfRow] + further, kBf16 ? paired_in_f16(x[i], scale[i % kOfLane]) : paired(x[i]));
    }
  }

  /// What a warp of the turn has found of a row: numbers whose lower half is zeros.
  __device__ __forceinline__ std::uint32_t found_at(int warp, int row) const {
    const int at = sixteen_rows(kNvfp4, Part::row_groups(f_), f_.block_stages, p_.m);
    return static_cast<std::uint32_t>(at + 2 * ((turn_ * Part::row_groups(f_) + warp) * kSixteenX + row));
  }
  __device__ __forceinline__ void set(int warp, int row, float value) const {
    exec_.store_shared(lane_, found_at(warp, row), static_cast<std::uint16_t>(__float_as_uint(value) >> 16));
  }
  __device__ __forceinline__ float get(int warp, int row) const {
    return __uint_as_float(std::uint32_t{exec_.template load_shared<std::uint16_t>(lane_, found_at(warp, row))} << 16);
  }
  /// Of the lane's rows, from the largest in each half of what its pieces have.
  __device__ __forceinline__ void find_scales(std::uint32_t (&most)[kOfLane], float (&scale)[kOfLane]) const {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
#pragma unroll
      for (int lane = 1; lane < kLanes; lane *= 2) most[i] = sm80::max_halves(most[i], __shfl_xor_sync(0xffffffffu, most[i], lane));
      most[i] = larger_half(most[i]);
    }
    if (Part::row_groups(f_) > 1) {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) set(row_group_, row(i), __uint_as_float(most[i]));
      turn_barrier();
#pragma unroll 1
      for (int warp = 0; warp < Part::row_groups(f_); ++warp) {
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) most[i] = max(most[i], __float_as_uint(get(warp, row(i))));
      }
    }
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) scale[i] = scale_of_row(most[i]);
  }
};

}  // namespace fp4pa::sm90
