// C = X W^T with W in FP4, on mma.sync: a block takes 128 rows of W and 8 or 16 rows of X, or 256 and 32 or 64.
//
// W is the A operand: its rows fill the sixteen of an instruction however few rows X has, and each code is decoded once for
// all of them. X is the B operand, in f16. Both come through a ring of stages of 128 columns, filled by cp.async; a warp owns
// 32 rows of W. The order of columns within an instruction is free, so a lane takes eight neighbouring codes as ldmatrix
// gives them and e2m1_to_f16 pairs them (column c with c + 4); X is brought into the same order, either when it was
// prepared (kPaired) or by a permutation here.
//
// Scales, exactly. NVFP4's E4M3 is multiplied into the decoded f16: products have six bits and, at 2^-14, are multiples of
// f16's smallest number. MXFP4's E8M0 multiplies the f32 sums of its 32 columns, which holds for every scale; with many rows
// of X it is multiplied into the f16 too, at 2^-3, while all scales of a warp's stage lie in 2^-20 to 2^4, where no bit is lost.
//
// Blocks that share a tile and divide K form a cluster; their sums meet in shared memory and are added in the order of K, so
// that results do not depend on timing. Below sm_90 K is not divided.
//
//   gemm_fetch.hpp     W, its scales and X into the ring
//   gemm_multiply.hpp  a stage of the ring multiplied
//   gemm_results.hpp   sums across the cluster, and results to memory
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/exec.hpp"
#include "backends/sm80/gemm_params.hpp"
#include "backends/sm80/gemm_scale.hpp"
#include "cuda/dependency.cuh"
#include "fp4pa/types.hpp"

namespace fp4pa::sm80 {

/// @tparam kXTiles  eights of rows of X
template <bool kNvfp4, int kXTiles, bool kPaired>
class GemmBlock {
 public:
  __device__ __forceinline__ GemmBlock(const GemmParams& params, std::uint8_t* shared)
      : p_(params),
        exec_(shared),
        shared_(shared),
        base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
        thread_(static_cast<int>(threadIdx.x)),
        lane_{static_cast<int>(threadIdx.x % 32)},
        rank_(static_cast<int>(blockIdx.x) % params.splits),
        batch_(blockIdx.z) {
    const int tile = static_cast<int>(blockIdx.x) / params.splits;
    first_row_ = tile % params.row_tiles * kRows;
    first_x_ = tile / params.row_tiles * (8 * kXTiles);
    codes_ = params.codes + batch_ * params.code_batch;
    scales_ = params.scales + batch_ * params.scale_batch;
  }

  __device__ __forceinline__ void run() {
    const int first = static_cast<int>(static_cast<std::int64_t>(p_.stages) * rank_ / p_.splits);
    const int last = static_cast<int>(static_cast<std::int64_t>(p_.stages) * (rank_ + 1) / p_.splits);
    Walk walk = walk_from(first);
    // W does not depend on the kernel that prepares X, and need not wait for it.
#pragma unroll 1
    for (int s = 0; s < kRing - 1; ++s) {
      if (first + s < last) fetch_weight(walk, first + s, s * kStageBytes);
    }
    cuda::wait_for_previous();
#pragma unroll 1
    for (int s = 0; s < kRing - 1; ++s) {
      if (first + s < last) fetch_x(walk, first + s, s * kStageBytes);
      exec_.copy_commit();
    }
#pragma unroll
    for (int i = 0; i < 2 * kXTiles * 4; ++i) sums_[i / (kXTiles * 4)][i / 4 % kXTiles][i % 4] = 0.0f;

    const bool idle = first_row_ + exec_.warp() * 32 >= p_.n;
    std::uint32_t ring = 0;
    std::uint32_t next_ring = (kRing - 1) * kStageBytes;
#pragma unroll 1
    for (int s = first; s < last; ++s) {
      exec_.template copy_wait<kRing - 2>();
      __syncthreads();
      if (s + kRing - 1 < last) {
        fetch_weight(walk, s + kRing - 1, next_ring);
        fetch_x(walk, s + kRing - 1, next_ring);
      }
      exec_.copy_commit();
      if (!idle) multiply_stage(ring);
      next_ring = ring;
      ring = ring == (kRing - 1) * kStageBytes ? 0 : ring + kStageBytes;
    }
    finish();
  }

 private:
  static constexpr int kRing = gemm_ring(kXTiles);
  static constexpr int kRows = gemm_rows(kXTiles);
  static constexpr int kThreads = kRows;
  static constexpr int kSumPitch = gemm_sum_pitch(kXTiles);
  static constexpr int kCodes = kRows * kCodeBytes;
  static constexpr int kX = kXTiles * 8 * kGemmStage * 2;
  static constexpr int kStageBytes = gemm_stage_bytes(kNvfp4, kXTiles);
  static constexpr int kScaleBytes = kNvfp4 ? 8 : 4;  // of a row and a stage
  static_assert(kStageBytes % 256 == 0 && kCodes % 256 == 0, "exclusive ors of offsets stay within rows");
  /// With few rows of X, MXFP4's scales are multiplied into sums for less than into codes.
  static constexpr bool kAlwaysSums = !kNvfp4 && kXTiles <= 2;
  /// With 64 rows of X the sums are half of a thread's registers: what a few instructions make again is not kept.
  static constexpr bool kTight = kXTiles > 4;
  /// A byte e in both halves, times 2^10, less this is the f16 2^(e - 127 + 11) in both, for codes at 2^-14.
  static constexpr std::uint32_t kE8m0Zero = (101u << 10) * 0x10001u;
  static constexpr float kUnit = kNvfp4 || kAlwaysSums ? 16384.0f : 8.0f;  // what undoes the operands' powers of two

  /// The thread's number. If kTight nothing that depends on it was computed before, and divisions have no sign to regard.
  __device__ __forceinline__ auto own_thread() const {
    if constexpr (kTight) {
      return static_cast<std::uint32_t>(WarpExec::anew(thread_));
    } else {
      return thread_;
    }
  }
  /// After the loop: if kTight from where threadIdx.x and blockIdx.z come from, so that no register keeps them until then.
  __device__ __forceinline__ int last_thread() const {
    if constexpr (!kTight) return thread_;
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
  }
  __device__ __forceinline__ auto last_batch() const {
    if constexpr (kTight) {
      int z;
      asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(z));
      return z;
    } else {
      return batch_;
    }
  }

  __device__ __forceinline__ static std::uint32_t code_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(row * kCodeBytes + ((chunk ^ (row >> 1)) & 3) * 16);
  }
  __device__ __forceinline__ static std::uint32_t x_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(kCodes + row * (kGemmStage * 2) + (chunk ^ ((row & 1) << 2)) * 16);
  }
  __device__ __forceinline__ static std::uint32_t scale_offset(int row) {
    return static_cast<std::uint32_t>(kCodes + kX + row * gemm_scale_pitch(kNvfp4));
  }

  using Bytes = std::conditional_t<kTight, std::int32_t, std::int64_t>;  // a row of codes has less than 2^30
  /// A thread's place in W, its scales and X, which walks along K with the stages. If kTight what is left is counted anew in
  /// each.
  struct Walk {
    const std::uint8_t* codes;
    const std::uint8_t* scales;
    const std::uint16_t* x;
    Bytes code_bytes;  // left in the row
    std::int32_t scales_left, columns_left;
    std::int32_t rows_left;    // of W from the thread's first on
    std::int32_t before;       // bytes of a linear scale row's first word that are its neighbour's
  };

  // gemm_fetch.hpp
  __device__ __forceinline__ Walk walk_from(int stage) const;
  template <int kBytes>
  __device__ __forceinline__ void copy(std::uint32_t to, const void* from, int bytes) const;
  __device__ __forceinline__ void fetch_weight(Walk& w, int stage, std::uint32_t ring) const;
  __device__ __forceinline__ void copy_scales(std::uint32_t to, const std::uint8_t* from, int left) const;
  __device__ __forceinline__ static std::uint32_t scale_byte(const std::uint8_t* from);
  __device__ __forceinline__ void fetch_x(Walk& w, int stage, std::uint32_t ring) const;

  /// Bytes between a word's start and that of a row's linear scales.
  __device__ __forceinline__ int misalignment(int row) const {
    const auto before = static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(p_.groups);
    return static_cast<int>((reinterpret_cast<std::uintptr_t>(scales_) + before) & 3u);
  }

  __device__ __forceinline__ int row_shift(int row) const {
    return p_.scale_layout == ScaleLayout::kBlocked ? 0 : 8 * misalignment(first_row_ + row);
  }

  /// Scales 4 `word` and the next three of a row of the block.
  /// @param shift  bits, 8 * misalignment of the row
  __device__ __forceinline__ std::uint32_t scale_word(std::uint32_t ring, int row, int word, int shift) const {
    const std::uint32_t at = ring + scale_offset(row) + 4 * word;
    const auto low = exec_.template load_shared<std::uint32_t>(lane_, at);
    const auto high = exec_.template load_shared<std::uint32_t>(lane_, at + 4);
    return __funnelshift_r(low, high, shift);
  }

  // gemm_multiply.hpp
  __device__ __forceinline__ void multiply_stage(std::uint32_t ring);
  template <bool kScaleSums>
  __device__ __forceinline__ void multiply(std::uint32_t ring);
  template <bool kScaleSums>
  __device__ __forceinline__ void load_scales(std::uint32_t ring, int row, int shift, int t, std::uint32_t (&out)[2]) const;
  __device__ __forceinline__ void load_x(std::uint32_t at, std::uint32_t (&x)[4]) const;

  // gemm_results.hpp
  __device__ __forceinline__ void finish() const;
  __device__ __forceinline__ void cluster_barrier() const;
  __device__ __forceinline__ void leave_cluster() const;
  __device__ __forceinline__ float sum_of(int r, int index) const;

  const GemmParams& p_;
  WarpExec exec_;
  std::uint8_t* shared_;
  std::uint32_t base_;
  int thread_;
  WarpExec::Lane lane_;
  int rank_;
  std::int64_t batch_;
  int first_row_, first_x_;
  const std::uint8_t* codes_;
  const std::uint8_t* scales_;
  float sums_[2][kXTiles][4];
};

}  // namespace fp4pa::sm80

#include "backends/sm80/gemm_fetch.hpp"
#include "backends/sm80/gemm_multiply.hpp"
#include "backends/sm80/gemm_results.hpp"
