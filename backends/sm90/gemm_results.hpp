// From sums to results, for the matrix product for many rows of X: products that f16 does not hold, and what multiplies a sum.
#pragma once

#include <cstdint>

#include "backends/sm80/gemm_scale.hpp"
#include "backends/sm80/store_result.hpp"
#include "backends/sm90/gemm_many_params.hpp"
#include "backends/sm90/gemm_scales.hpp"
#include "backends/sm90/weight_unit.hpp"
#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "core/paging/plain_row.hpp"
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

/// Sums to results, of eight neighbouring rows of W.
class ResultColumns {
 public:
  static constexpr int kCount = 8;

  /// @param n     the first row of W; those past the end are left out
  /// @param unit  what a sum is counted in
  __device__ __forceinline__ ResultColumns(const sm80::GemmParams& p, std::int64_t batch, int n, float unit)
      : p_(p),
        first_row_(batch * p.m),
        n_(n),
        unit_(unit),
        w_global_(p.w_globals != nullptr ? p.w_globals[p.code_batch == 0 ? 0 : batch] : p.w_global),
        x_global_(p.x_globals != nullptr ? p.x_globals[batch] : 1.0f) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) bias_[e] = 0.0f;
    if (p.bias == nullptr) return;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      if (n + e < p.n) core::load_plain_row(core::element_address(p.bias, p.bias_dtype, n + e), p.bias_dtype, 1, bias_ + e);
    }
  }

  /// Of row m of X.
  __device__ __forceinline__ void store(const float4 (&four)[kCount / 4], int m) const {
    const float sums[kCount] = {four[0].x, four[0].y, four[0].z, four[0].w, four[1].x, four[1].y, four[1].z, four[1].w};
    const std::int64_t row = first_row_ + m;
    const float inverse = p_.x_inverse != nullptr ? p_.x_inverse[row] : 1.0f;
    float value[kCount];
#pragma unroll
    for (int e = 0; e < kCount; ++e) value[e] = sums[e] * unit_ * inverse * w_global_ * x_global_ + bias_[e];
    const std::int64_t at = row * p_.n + n_;
    void* const to = core::element_address(p_.out, p_.out_dtype, at);
    if (n_ <= p_.n - kCount && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
      if (p_.out_dtype == DType::kF32) {
#pragma unroll
        for (int e = 0; e < kCount; e += 4) {
          static_cast<float4*>(to)[e / 4] = make_float4(value[e], value[e + 1], value[e + 2], value[e + 3]);
        }
      } else {
        std::uint32_t pairs[kCount / 2];
#pragma unroll
        for (int e = 0; e < kCount / 2; ++e) {
          pairs[e] = p_.out_dtype == DType::kF16 ? sm80::pack_f16(value[2 * e], value[2 * e + 1]) : sm80::pack_bf16(value[2 * e], value[2 * e + 1]);
        }
        *static_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
      return;
    }
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      if (n_ + e < p_.n) sm80::store_result(value[e], p_.out_dtype, p_.out, at + e);
    }
  }

 private:
  const sm80::GemmParams& p_;
  std::int64_t first_row_;
  int n_;
  float unit_, w_global_, x_global_;
  float bias_[kCount];
};

}  // namespace fp4pa::sm90
