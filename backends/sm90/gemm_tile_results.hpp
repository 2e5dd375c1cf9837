// The end of the matrix product with decoded tiles: sums across the cluster, in the order of K, and results to memory, by all
// threads.
//
// Sums lie in shared memory where the ring was, four floats side by side. What a lane that multiplied has comes in units of eight
// neighbouring results: position p of the 64 rows of W that a panel has is row p % 8 * 8 + p / 8.
//
// Products with E8M0 scales that f16 does not hold are added here, read from memory again, in f32. They are rare.
#pragma once

#include <cstdint>

#include "backends/sm80/gemm_scale.hpp"
#include "backends/sm90/gemm_tile_params.hpp"
#include "backends/sm90/gemm_tile_scales.hpp"
#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "core/paging/plain_row.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::sm90 {

template <bool kNvfp4>
class TileResults {
 public:
  static constexpr int kUnits = TileLayout::kWRows / 16;
  static_assert(TileLayout::kXRows * TileLayout::kWRows * 4 <= TileLayout::kCodes);

  /// Where four sums of unit `unit` of multiplying thread `owner` lie.
  [[nodiscard]] __device__ __forceinline__ static int index(int unit, int half, int owner) {
    return (2 * unit + half) * kOwners + owner;
  }

  /// The cluster's blocks take turns.
  __device__ __forceinline__ static void store(const sm80::GemmParams& p, const std::uint8_t* shared, const TilePart& part,
                                               int rank) {
    const std::int64_t batch = part.batch;
    const float w_global = p.w_globals != nullptr ? p.w_globals[p.code_batch == 0 ? 0 : batch] : p.w_global;
    const float x_global = p.x_globals != nullptr ? p.x_globals[batch] : 1.0f;
    const int step = TileLayout::kThreads * p.splits;
#pragma unroll 1
    for (int i = rank * TileLayout::kThreads + static_cast<int>(threadIdx.x); i < kUnits * kOwners; i += step) {
      const int unit = i / kOwners;
      const int owner = i % kOwners;
      const int m = part.first_x + x_row_of(unit, owner);
      const int n = part.first_row + w_row_of(unit, owner);
      if (m >= p.m || n >= p.n) continue;
      float value[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = index(unit, half, owner);
        const float4 four = p.splits > 1 ? cluster_sum(p.splits, shared, at) : reinterpret_cast<const float4*>(shared)[at];
        value[4 * half] = four.x;
        value[4 * half + 1] = four.y;
        value[4 * half + 2] = four.z;
        value[4 * half + 3] = four.w;
      }
      const std::int64_t x_row = batch * p.m + m;
      const float inverse = p.x_inverse != nullptr ? p.x_inverse[x_row] : 1.0f;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float bias = 0.0f;
        if (p.bias != nullptr && n + e < p.n) {
          core::load_plain_row(core::element_address(p.bias, p.bias_dtype, n + e), p.bias_dtype, 1, &bias);
        }
        value[e] = value[e] * kUnit * inverse * w_global * x_global + bias;
      }
      store_row(p, value, x_row * p.n + n, p.n - n);
    }
  }

  /// Adds to the block's sums what its decoders left out.
  __device__ __forceinline__ static void add_outside(const sm80::GemmParams& p, std::uint8_t* shared, const TilePart& part) {
    const int last = (part.first_stage + part.stages) * 4 < p.groups ? (part.first_stage + part.stages) * 4 : p.groups;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kUnits * kOwners * 8; i += TileLayout::kThreads) {
      const int unit = i / 8 / kOwners;
      const int owner = i / 8 % kOwners;
      const int m = part.first_x + x_row_of(unit, owner);
      const int n = part.first_row + w_row_of(unit, owner) + i % 8;
      if (m >= p.m || n >= p.n) continue;
      const ScaleRow<kNvfp4> scales(p, part.batch, n);
      const std::uint8_t* const codes = p.codes + part.batch * p.code_batch + n * p.row_bytes;
      const std::uint16_t* const x = p.x + (part.batch * p.m + m) * p.x_row;
      float sum = 0.0f;
#pragma unroll 1
      for (int group = part.first_stage * 4; group < last; ++group) {
        const std::uint32_t scale = scales.load(group);
        if (sm80::in_f16(scale)) continue;
        float products = 0.0f;
#pragma unroll 1
        for (int column = 32 * group; column < 32 * group + 32 && column < p.x_cols; ++column) {
          const auto code = static_cast<std::uint8_t>(codes[column / 2] >> (4 * (column % 2)) & 0xf);
          products = fmaf(core::f16_to_f32(x[column]), core::E2M1::decode(code), products);
        }
        sum = fmaf(sm80::e8m0_exact(scale, 0), products / kUnit, sum);
      }
      reinterpret_cast<float*>(shared)[4 * index(unit, i / 4 % 2, owner) + i % 4] += sum;
    }
  }

 private:
  static constexpr int kOwners = 32 * TileLayout::kMultipliers;
  static constexpr float kUnit = kNvfp4 ? 16384.0f : 8.0f;  // what undoes the operands' powers of two

  /// Of a unit's results, from the block's first.
  __device__ __forceinline__ static int x_row_of(int unit, int owner) { return owner / 32 * 16 + owner % 32 / 4 + unit % 4 / 2 * 8; }
  __device__ __forceinline__ static int w_row_of(int unit, int owner) { return unit / 4 * 64 + owner % 4 * 16 + unit % 2 * 8; }

  __device__ __forceinline__ static float4 cluster_sum(int splits, const std::uint8_t* shared, int at) {
    const auto mine = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + 16u * static_cast<std::uint32_t>(at);
    float4 part[sm80::kGemmMaxSplits];  // all on their way before the first is needed
#pragma unroll
    for (int r = 0; r < sm80::kGemmMaxSplits; ++r) part[r] = r < splits ? load_of(r, mine) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 sum = part[0];
#pragma unroll
    for (int r = 1; r < sm80::kGemmMaxSplits; ++r) {
      sum.x += part[r].x;
      sum.y += part[r].y;
      sum.z += part[r].z;
      sum.w += part[r].w;
    }
    return sum;
  }
  /// What lies at this address in the cluster's block r.
  __device__ __forceinline__ static float4 load_of(int r, std::uint32_t mine) {
    std::uint32_t there;
    float4 v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(r));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(there) : "memory");
    return v;
  }

  /// Up to eight results from element `at` on.
  __device__ __forceinline__ static void store_row(const sm80::GemmParams& p, const float (&value)[8], std::int64_t at, int left) {
    void* const to = core::element_address(p.out, p.out_dtype, at);
    if (left >= 8 && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
      if (p.out_dtype == DType::kF32) {
        static_cast<float4*>(to)[0] = make_float4(value[0], value[1], value[2], value[3]);
        static_cast<float4*>(to)[1] = make_float4(value[4], value[5], value[6], value[7]);
      } else {
        alignas(16) std::uint16_t halves[8];
        core::store_plain_row(value, 8, p.out_dtype, halves);
        *static_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(halves);
      }
      return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < left) core::store_plain_row(value + e, 1, p.out_dtype, core::element_address(p.out, p.out_dtype, at + e));
    }
  }
};

}  // namespace fp4pa::sm90
