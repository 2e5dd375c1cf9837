// The end of a matrix product with up to 8 rows of X on sm_90 (gemm_few.hpp): sums of a block's warps to shared memory, across the blocks
// that divide K, and out.
#pragma once

#include <cstdint>

#include "backends/sm80/store_result.hpp"
#include "backends/sm90/gemm_few_x.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::sm90 {

/// Pieces of X, of 16 bytes, that a thread has under way: of a plain product in bf16 all that it has of 8192 columns.
[[nodiscard]] constexpr int few_held(int parts, bool bf16, FewForm form) {
  switch (form) {
    case FewForm::kAny:
      return parts == 1 || (parts == 2 && bf16) ? 8 : 4;
    case FewForm::kPlain:
      return parts == 4 ? 4 : parts == 1 && bf16 ? 16 : 8;
    case FewForm::kHalves:
      return 4;
    case FewForm::kWideHalves:
      return 8;
  }
  return 0;
}

/// Parameters as FewBlock's.
template <bool kNvfp4, int kParts, bool kBf16, FewForm kForm, int kTiles>
class FewResults : protected FewX<kNvfp4, 8 / kParts, kBf16, few_held(kParts, kBf16, kForm), kForm, kTiles> {
 protected:
  using X = FewX<kNvfp4, 8 / kParts, kBf16, few_held(kParts, kBf16, kForm), kForm, kTiles>;
  using typename X::Part;
  using X::base_, X::batch_, X::exec_, X::f_, X::first_row_, X::kPlain, X::lane_, X::p_, X::row_group_, X::rows_, X::shared_,
      X::thread_, X::turn_, X::turns_;

  static constexpr int kWarpRows = 16 * kTiles;

  __device__ __forceinline__ FewResults(const FewParams& params, std::uint8_t* shared) : X(params, shared) {}

  /// Sums of all warps to shared memory, across the cluster, and out.
  __device__ __forceinline__ void finish(const float (&own_sums)[kTiles][4]) const {
    __syncthreads();
    auto* const sums = reinterpret_cast<float*>(shared_);
    const int pitch = few_sum_pitch(Part::row_groups(f_), kTiles);
    const int g = lane_.id / 4;
    int t = lane_.id % 4;
    float unit[2];  // of the rows of X of a lane's sums
#pragma unroll
    for (int v = 0; v < 2; ++v) unit[v] = this->unit_of(kParts == 4 ? v : kParts == 2 ? 2 * (t % 2) + v : 2 * t + v);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      asm volatile("" : "+r"(t));  // or the compiler writes the loop once for each t
      float x[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) x[v] = own_sums[tile][v] * unit[v % 2];
      if constexpr (kParts == 4) {
        // A lane of four ends with the sum of one of the four numbers.
        const bool upper = (t & 2) != 0, odd = (t & 1) != 0;
        float low = upper ? x[2] : x[0], high = upper ? x[3] : x[1];
        low += __shfl_xor_sync(0xffffffffu, upper ? x[0] : x[2], 2);
        high += __shfl_xor_sync(0xffffffffu, upper ? x[1] : x[3], 2);
        const float sum = (odd ? high : low) + __shfl_xor_sync(0xffffffffu, odd ? low : high, 1);
        const int row = row_group_ * kWarpRows + 16 * tile + g + 8 * (t / 2);
        if (t % 2 < p_.m) sums[(turn_ * p_.m + t % 2) * pitch + row] = sum;
      } else if constexpr (kParts == 2) {
        // A lane ends with the sums of one of its two rows.
        const bool upper = t >= 2;
        const int row = row_group_ * kWarpRows + 16 * tile + g + 8 * (t / 2);
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          const int column = 2 * (t % 2) + v;
          const float sum = (upper ? x[2 + v] : x[v]) + __shfl_xor_sync(0xffffffffu, upper ? x[v] : x[2 + v], 2);
          if (column < p_.m) sums[(turn_ * p_.m + column) * pitch + row] = sum;
        }
      } else {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int column = 2 * t + v % 2;
          const int row = row_group_ * kWarpRows + 16 * tile + g + 8 * (v / 2);
          if (column < p_.m) sums[(turn_ * p_.m + column) * pitch + row] = x[v];
        }
      }
    }
    __syncthreads();
    if constexpr (kPlain) {
      store_plain(sums, pitch);
    } else {
      store_any(sums, pitch);
    }
  }

 private:
  static constexpr float kUnit = 16384.0f;  // what undoes the decoded codes' power of two

  /// Of any product: blocks that divide K take turns at rows of X, and are given the others' sums of these, to the same threads.
  __device__ __forceinline__ void store_any(float* sums, int pitch) const {
    const float w_global = this->w_global();
    const float x_global = p_.x_globals != nullptr ? p_.x_globals[batch_] : 1.0f;
    const int row = thread_ & (rows_ - 1);
    const int rows_log2 = 31 - __clz(rows_);  // a power of two
    const int first_x = thread_ >> rows_log2;  // rows of X are as many threads' turns
    const int x_step = kFewThreads >> rows_log2;
    const float bias = p_.bias != nullptr && first_row_ + row < p_.n ? load_bias(p_, first_row_ + row) : 0.0f;
    const int rank = rank_in_cluster();
    if (p_.splits > 1) {
      int own = 0;  // rows of X
#pragma unroll 1
      for (int i = x_step * rank; i < p_.m; i += x_step * p_.splits) own += x_step < p_.m - i ? x_step : p_.m - i;
      this->ready_to_give(own * rows_ * (p_.splits - 1) * 4);
    }
    const auto step = static_cast<std::uint32_t>(kFewThreads * 4);  // from block to block
    std::uint32_t to = base_ + kFewGiven + static_cast<std::uint32_t>(thread_ * 4) + rank * step;
    int owner = 0;
#pragma unroll 1
    for (int i = first_x; i < p_.m; i += x_step) {
      give_to_block(owner, owner == rank, to, this->given_there(), of_all_turns(sums, i * pitch + row, pitch));
      if (++owner == p_.splits) {
        owner = 0;
        to += p_.splits * step;
      }
    }
    if (p_.splits > 1) this->wait_for_given();
    auto from = static_cast<std::uint32_t>(kFewGiven + thread_ * 4);
#pragma unroll 1
    for (int i = x_step * rank + first_x; i < p_.m && first_row_ + row < p_.n; i += x_step * p_.splits) {
      float sum = 0.0f;
#pragma unroll 1
      for (int r = 0; r < p_.splits; ++r) {
        sum += exec_.template load_shared<float>(lane_, from);
        from += step;
      }
      const std::int64_t x_row = batch_ * p_.m + i;
      const float inverse = p_.x_inverse != nullptr ? p_.x_inverse[x_row] : 1.0f;
      const float value = sum * kUnit * inverse * w_global * x_global + bias;
      sm80::store_result(value, p_.out_dtype, p_.out, x_row * p_.n + first_row_ + row);
    }
  }

  /// Of a plain product. Two blocks that divide K bring out half of the rows each, and are given the other's sums of these: nobody's
  /// memory is read, so that a block may leave.
  __device__ __forceinline__ void store_plain(float* sums, int pitch) const {
    const float unit = kUnit * this->w_global();
    const int row = kForm == FewForm::kPlain ? static_cast<int>(threadIdx.x % kWarpRows) : thread_ & (rows_ - 1);
    const int rows_log2 = 31 - __clz(rows_);
    const int x_step = kFewThreads >> rows_log2;
    const int n = first_row_ + row;
    const float bias = p_.bias != nullptr ? load_bias_16(p_, n) : 0.0f;
    const auto store = [&](float sum, int i) {
      sm80::store_result_16(sum * unit + bias, p_.out_dtype, p_.out, (batch_ * p_.m + i) * p_.n + n);
    };
    const auto sum_of = [&](int i) { return of_turns(sums + i * pitch + row, p_.m * pitch); };
    if constexpr (kForm == FewForm::kPlain) {
      static_assert(kFewThreads / kWarpRows >= 8 / kParts);  // a thread has a sum, or none
      const int i = thread_ / kWarpRows;
      if (i < p_.m) store(sum_of(i), i);
      return;
    }
    const int half = rows_ / 2;
    const int rank = rank_in_cluster();
    const bool mine = (row < half) == (rank == 0);
    const auto given = static_cast<std::uint32_t>(kFewGiven + (row & (half - 1)) * 4);
    this->ready_to_give(p_.m * half * 4);
#pragma unroll 1
    for (int i = thread_ >> rows_log2; i < p_.m; i += x_step) {
      const float sum = sum_of(i);
      if (mine) {
        sums[i * pitch + row] = sum;
      } else {
        give_to_block(rank ^ 1, false, base_ + given + static_cast<std::uint32_t>(i * half * 4), this->given_there(), sum);
      }
    }
    if (!mine) return;
    this->wait_for_given();
#pragma unroll 1
    for (int i = thread_ >> rows_log2; i < p_.m; i += x_step) {
      const auto others = exec_.template load_shared<float>(lane_, given + static_cast<std::uint32_t>(i * half * 4));
      store(sums[i * pitch + row] + others, i);
    }
  }
  /// Of all turns, several at once: each wait is for all of their sums.
  __device__ __forceinline__ float of_turns(const float* at, int step) const {
    constexpr bool kAll = kForm == FewForm::kPlain;  // of a block of 64 rows
    constexpr int kAtOnce = kAll ? kFewWarps : 8;
    float sum = 0.0f;
#pragma unroll 1
    for (int turn = 0; turn < (kAll ? kFewWarps : turns_); turn += kAtOnce) {
      float part[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        part[k] = kAll || turn + k < turns_ ? *at : 0.0f;
        at += step;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) sum += part[k];
    }
    return sum;
  }
  __device__ __forceinline__ float of_all_turns(const float* sums, int at, int pitch) const {
    float sum = sums[at];
    for (int turn = 1; turn < turns_; ++turn) sum += sums[at + turn * p_.m * pitch];
    return sum;
  }
};

}  // namespace fp4pa::sm90
