// The end of the matrix product for many rows of X: sums lie in shared memory, where the ring was, row by row of X, and all threads bring
// them out, a thread eight rows of W.
#pragma once

#include <cstdint>

#include "backends/sm90/cluster.hpp"
#include "backends/sm90/gemm_many_params.hpp"
#include "backends/sm90/gemm_results.hpp"

namespace fp4pa::sm90 {

template <ManyLayout kLayout>
class ManyResults {
 public:
  static_assert(kLayout.sum_bytes() <= kLayout.factors());

  /// The cluster's blocks take turns.
  __device__ __forceinline__ static void store(const sm80::GemmParams& p, const std::uint8_t* shared, const ManyPart& part, int rank) {
    const int n = part.first_row + column();
    if (n >= p.n) return;
    const int rows = rows_of(p, part);
    const ResultColumns columns(p, part.batch, n, WeightUnit<kLayout.nvfp4, kLayout.bf16>::kSum);
#pragma unroll 1
    for (int i = rank * kAtOnce + first(); i < rows; i += kAtOnce * p.splits) {
      float4 sums[2];
      cluster_sums(p.splits, rank, reinterpret_cast<const float4*>(shared) + index(i) / 4, n + 4 < p.n ? 2 : 1, sums);
      columns.store(sums, part.first_x + i);
    }
  }

  /// Adds to the block's sums what its factors left out.
  __device__ __forceinline__ static void add_outside(const sm80::GemmParams& p, std::uint8_t* shared, const ManyPart& part) {
    const int rows = rows_of(p, part);
#pragma unroll 1
    for (int i = first(); i < rows; i += kAtOnce) {
#pragma unroll 1
      for (int e = 0; e < 8; ++e) {
        const int n = part.first_row + column() + e;
        if (n < p.n) reinterpret_cast<float*>(shared)[index(i) + e] += outside_sum<kLayout.bf16>(p, part, part.first_x + i, n);
      }
    }
  }

 private:
  static constexpr int kEights = ManyLayout::kRows / 8;
  static constexpr int kAtOnce = ManyLayout::kThreads / kEights;  // rows of X

  /// A thread's rows of W, and its first row of X.
  __device__ __forceinline__ static int column() { return static_cast<int>(threadIdx.x) % kEights * 8; }
  __device__ __forceinline__ static int first() { return static_cast<int>(threadIdx.x) / kEights; }
  __device__ __forceinline__ static int rows_of(const sm80::GemmParams& p, const ManyPart& part) {
    return p.m - part.first_x < kLayout.x_rows ? p.m - part.first_x : kLayout.x_rows;
  }
  /// In floats.
  __device__ __forceinline__ static int index(int x_row) { return x_row * ManyLayout::kSumPitch + column(); }
};

}  // namespace fp4pa::sm90
