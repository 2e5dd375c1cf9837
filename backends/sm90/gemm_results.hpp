// From sums to results, for the matrix product for many rows of X: products that f16 does not hold, and what multiplies a sum.
#pragma once

#include <cstdint>

#include "backends/sm80/gemm_scale.hpp"
#include "backends/sm80/store_result.hpp"
#include "backends/sm90/gemm_bias.hpp"
#include "backends/sm90/gemm_many_params.hpp"
#include "backends/sm90/gemm_scales.hpp"
#include "backends/sm90/weight_unit.hpp"
#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::sm90 {

/// What E8M0 scales that factors do not hold add to the sum of row m of X and row n of W in a block's part of K. Read from memory, in
/// f32, and rare.
template <bool kBf16>
__device__ __forceinline__ float outside_sum(const sm80::GemmParams& p, const ManyPart& part, int m, int n) {
  const int last = (part.first_stage + part.stages) * 4 < p.groups ? (part.first_stage + part.stages) * 4 : p.groups;
  const ScaleRow<false> scales(p, part.batch, n);
  const std::uint8_t* const codes = p.codes + part.batch * p.code_batch + n * p.row_bytes;
  const std::uint16_t* const x = p.x + (part.batch * p.m + m) * p.x_row;
  float sum = 0.0f;
#pragma unroll 1
  for (int group = part.first_stage * 4; group < last; ++group) {
    const std::uint32_t scale = scales.load(group);
    if (WeightUnit<false, kBf16>::holds(scale)) continue;
    float products = 0.0f;
#pragma unroll 1
    for (int column = 32 * group; column < 32 * group + 32 && column < p.x_cols; ++column) {
      const auto code = static_cast<std::uint8_t>(codes[column / 2] >> (4 * (column % 2)) & 0xf);
      const float of_x = kBf16 ? core::bf16_to_f32(x[column]) : core::f16_to_f32(x[column]);
      products = fmaf(of_x, core::E2M1::decode(code), products);
    }
    sum = fmaf(sm80::e8m0_exact(scale, 0), products / WeightUnit<false, kBf16>::kSum, sum);
  }
  return sum;
}

/// Sums to results, in tiles of 16 rows of W by 8 of X as an m16n8 instruction leaves them: a lane has rows g and g + 8 of W by rows 2t and
/// 2t + 1 of X, with g = lane / 4 and t = lane % 4.
class ResultTiles {
 public:
  /// @param n     the first row of W; those past the end are left out
  /// @param m     the first row of X
  /// @param rows  of X, from m on
  /// @param unit  what a sum is counted in
  __device__ __forceinline__ ResultTiles(const sm80::GemmParams& p, std::int64_t batch, int n, int m, int rows, float unit)
      : p_(p),
        n_(n),
        rows_(rows),
        first_row_(batch * p.m + m),
        of_w_(unit * (p.w_globals != nullptr ? p.w_globals[p.code_batch == 0 ? 0 : batch] : p.w_global)),
        x_global_(p.x_globals != nullptr ? p.x_globals[batch] : 1.0f) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = n + group() + 8 * h;
      bias_[h] = p.bias != nullptr && row < p.n ? load_bias(p, row) : 0.0f;
    }
  }

  /// Whether four results of neighbouring rows of W are 8 bytes that can be stored at once.
  [[nodiscard]] __device__ __forceinline__ static bool in_fours(const sm80::GemmParams& p) {
    return p.out_dtype != DType::kF32 && p.n % 4 == 0 && reinterpret_cast<std::uintptr_t>(p.out) % 8 == 0;
  }

  /// Where in_fours(): of X's rows m + 8 tile and on, and of every tile that is `step` further. By all lanes of a warp, without a branch
  /// from tile to tile, so that no tile waits for the one before.
  template <int kCount>
  __device__ __forceinline__ void store_fours(const float4 (&sums)[kCount], int tile, int step) const {
    std::uint32_t two[kCount][2];  // of row group() of X: rows pair() and pair() + 8 of W, and the next
    float value[kCount][4];
    values(sums, tile, step, value);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::uint32_t f16 = sm80::pack_f16(value[i][2 * h], value[i][2 * h + 1]);
        const std::uint32_t bf16 = sm80::pack_bf16(value[i][2 * h], value[i][2 * h + 1]);
        two[i][h] = p_.out_dtype == DType::kF16 ? f16 : bf16;
        // Neighbours in memory are rows of W, which are a lane group's: a tile of 8 by 8 is turned over.
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(two[i][h]));
      }
    }
    // Two lanes exchange halves of what they have of two such tiles, so that each has four neighbours.
    const bool odd = (pair() & 2) != 0;
    const int n = n_ + (odd ? pair() + 6 : pair());
    auto* to = static_cast<std::uint16_t*>(p_.out) + (first_row_ + 8 * tile + group()) * p_.n + n;
    std::uint32_t other[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) other[i] = __shfl_xor_sync(0xffffffffu, odd ? two[i][0] : two[i][1], 1);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (8 * (tile + i * step) + group() < rows_ && n < p_.n) {
        *reinterpret_cast<uint2*>(to) = odd ? make_uint2(other[i], two[i][1]) : make_uint2(two[i][0], other[i]);
      }
      to += std::int64_t{8} * step * p_.n;
    }
  }

  /// Of one tile, in any type and at any address.
  __device__ __forceinline__ void store_each(const float4 (&sums)[1], int tile) const {
    float value[1][4];
    values(sums, tile, 0, value);
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int row = 8 * tile + pair() + v % 2, n = n_ + group() + v / 2 * 8;
      if (row < rows_ && n < p_.n) sm80::store_result(value[0][v], p_.out_dtype, p_.out, (first_row_ + row) * p_.n + n);
    }
  }

 private:
  __device__ __forceinline__ static int group() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  __device__ __forceinline__ static int pair() { return static_cast<int>(threadIdx.x) % 4 * 2; }

  template <int kCount>
  __device__ __forceinline__ void values(const float4 (&sums)[kCount], int tile, int step, float (&value)[kCount][4]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float sum[4] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
#pragma unroll
      for (int v = 0; v < 4; ++v) value[i][v] = sum[v];
    }
    if (p_.x_inverse != nullptr || p_.x_globals != nullptr) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
#pragma unroll
        for (int v = 0; v < 2; ++v) {
          const int row = 8 * (tile + i * step) + pair() + v;
          const float inverse = p_.x_inverse != nullptr && row < rows_ ? p_.x_inverse[first_row_ + row] : 1.0f;
#pragma unroll
          for (int h = 0; h < 2; ++h) value[i][2 * h + v] = value[i][2 * h + v] * inverse * x_global_;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int v = 0; v < 4; ++v) value[i][v] = fmaf(value[i][v], of_w_, bias_[v / 2]);
    }
  }

  const sm80::GemmParams& p_;
  int n_, rows_;
  std::int64_t first_row_;  // of results
  float of_w_, x_global_;  // what multiplies a sum
  float bias_[2];
};

}  // namespace fp4pa::sm90
