// X of any matrix product with few rows on sm_90 (gemm_few.hpp) on its way to a block's shared memory: through registers, where columns are
// put in the pairs that decoding gives and bf16 becomes f16. Rows are divided among the warps, several warps a row where rows are few.
#pragma once

#include <cstdint>

#include "backends/sm90/gemm_x_pieces.hpp"
#include "backends/sm90/gemm_few_part.hpp"

namespace fp4pa::sm90 {

/// @tparam kBf16  X is, and becomes f16; else it is f16
/// @tparam kHeld  pieces of 16 bytes that a thread has under way
template <bool kNvfp4, bool kBf16, int kHeld>
class FewX : protected FewPart<kNvfp4, FewForm::kAny> {
 protected:
  using Part = FewPart<kNvfp4, FewForm::kAny>;
  using Part::batch_, Part::exec_, Part::first_, Part::lane_, Part::last_, Part::p_, Part::shared_, Part::thread_;

  __device__ __forceinline__ FewX(const FewParams& params, std::uint8_t* shared)
      : Part(params, shared, kFewScales),
        x_pitch_(few_x_pitch(params.block_stages)),
        x_at_(few_x(kNvfp4, Part::row_groups(params), params.block_stages)) {}

  /// What need not wait for the kernel before.
  __device__ __forceinline__ void begin_x() const {
    if (thread_ < 16) exec_.store_shared(lane_, zeros() + 4 * thread_, std::uint32_t{0});
    if (kBf16 && thread_ < kFewMostX) *largest_of(thread_) = 0;
  }
  /// Behind fetch_scales().
  __device__ __forceinline__ void asked_for_scales() const { exec_.copy_commit(); }
  /// The block's columns of X; zeros past their end, and behind X.
  /// @param meanwhile  is called once X has come
  template <class Meanwhile>
  __device__ __forceinline__ void bring_x(Meanwhile&& meanwhile) const {
    if constexpr (kBf16) {
      convert_x(meanwhile);
    } else {
#pragma unroll 1
      for (int first = first_piece(); first < pieces(); first += kHeld * piece_step()) {
        uint4 x[kHeld];
        ask_x(first, x);
        store_pieces(first, x, [](const uint4& piece) { return paired(piece); });
      }
      meanwhile();
    }
  }
  /// X and scales are there, all of the block's.
  __device__ __forceinline__ void wait_for_operands() const {
    exec_.template copy_wait<0>();
    __syncthreads();
  }
  /// 64 bytes behind X.
  __device__ __forceinline__ std::uint32_t zeros() const { return static_cast<std::uint32_t>(x_at_ + p_.m * x_pitch_); }
  /// What brings a warp's sums, and what brings all of the block's, of a row of X back to X's own unit.
  __device__ __forceinline__ static float unit_of(int) { return 1.0f; }
  __device__ __forceinline__ float unit_of_row(int row) const { return inverse_of_row(*largest_of(row)); }

  int x_pitch_, x_at_;

 private:
  /// Of the block's part of a row of X in bf16, the upper half of an f32: behind the zeros.
  __device__ __forceinline__ std::uint32_t* largest_of(int row) const {
    return reinterpret_cast<std::uint32_t*>(shared_ + zeros() + kFewOwn) + row;
  }

  __device__ __forceinline__ int rows_log2() const { return p_.m <= 1 ? 0 : 32 - __clz(p_.m - 1); }
  __device__ __forceinline__ int own_row() const { return exec_.warp() & ((1 << rows_log2()) - 1); }
  __device__ __forceinline__ int first_piece() const { return (exec_.warp() >> rows_log2()) * 32 + lane_.id; }
  __device__ __forceinline__ int piece_step() const { return kFewThreads >> rows_log2(); }
  __device__ __forceinline__ int pieces() const { return (last_ - first_) * (sm80::kGemmStage / 8); }

  /// Pieces of the warp's row from `first` on; zeros past its end.
  __device__ __forceinline__ void ask_x(int first, uint4 (&x)[kHeld]) const {
    const std::uint16_t* const from = p_.x + (batch_ * p_.m + own_row()) * p_.x_row + first_ * sm80::kGemmStage;
    const int in_row = (p_.x_cols - first_ * sm80::kGemmStage) / 8;
    const int there = own_row() >= p_.m ? 0 : in_row < pieces() ? in_row : pieces();
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int piece = first + i * piece_step();
      x[i] = piece < there ? *reinterpret_cast<const uint4*>(from + 8 * piece) : make_uint4(0, 0, 0, 0);
    }
  }
  /// Pieces of the warp's row from `first` on, which to_f16 makes f16 in pairs.
  template <class ToF16>
  __device__ __forceinline__ void store_pieces(int first, const uint4 (&x)[kHeld], ToF16&& to_f16) const {
    if (own_row() >= p_.m) return;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int piece = first + i * piece_step();
      const auto at = static_cast<std::uint32_t>(x_at_ + own_row() * x_pitch_ + piece * 16);
      if (piece < pieces()) exec_.store_shared(lane_, at, to_f16(x[i]));
    }
  }
  /// In bf16, to f16: a row's part times what suits its largest element, which takes two barriers to know.
  template <class Meanwhile>
  __device__ __forceinline__ void convert_x(Meanwhile&& meanwhile) const {
    const int round = kHeld * piece_step();
    uint4 x[kHeld];
    std::uint32_t most = 0;
#pragma unroll 1
    for (int first = first_piece(); first < pieces(); first += round) {
      ask_x(first, x);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) most = largest_bf16(most, x[i]);
    }
    most = largest_of_warp(most);
    meanwhile();
    __syncthreads();  // nothing has been counted yet
    if (own_row() < p_.m && lane_.id == 0) atomicMax(largest_of(own_row()), most);
    __syncthreads();
    if (own_row() >= p_.m) return;
    const float scale = scale_of_row(*largest_of(own_row()));
#pragma unroll 1
    for (int first = first_piece(); first < pieces(); first += round) {
      if (pieces() > round) ask_x(first, x);  // else they are held
      store_pieces(first, x, [scale](const uint4& piece) { return paired_in_f16(piece, scale); });
    }
  }
};

}  // namespace fp4pa::sm90
