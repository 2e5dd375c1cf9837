// C = X W^T with W in FP4, on mma.sync: a block takes 256 rows of W and 8, 16, 32 or 64 rows of X.
//
// W is the A operand: its rows fill the sixteen of an instruction however few rows X has, and each code is decoded once for
// all of them. X is the B operand, in f16. Both come through a ring of stages of 128 columns, filled by cp.async; a warp owns
// 32 rows of W. The order of columns within an instruction is free, so a lane takes eight neighbouring codes as ldmatrix
// gives them and e2m1_to_f16 pairs them (column c with c + 4); X is brought into the same order, either when it was
// prepared (kPaired) or by a permutation here.
//
// Scales, exactly. NVFP4's E4M3 is multiplied into the decoded f16 (six bits, times 2^-7). MXFP4's E8M0 is too, times 2^-3,
// while all scales of a warp's stage lie in 2^-20 to 2^4, where no bit is lost; otherwise it multiplies the f32 sums of its 32
// columns, which holds for every scale.
//
// Blocks that share a tile and divide K form a cluster; their sums meet in shared memory and are added in the order of K, so
// that results do not depend on timing. Below sm_90 K is not divided.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/exec.hpp"
#include "backends/sm80/gemm_params.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/paging/plain_row.hpp"
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
    first_row_ = tile % params.row_tiles * kGemmRows;
    first_x_ = tile / params.row_tiles * (8 * kXTiles);
    codes_ = params.codes + batch_ * params.code_batch;
    scales_ = params.scales + batch_ * params.scale_batch;
  }

  __device__ __forceinline__ void run() {
    const int first = static_cast<int>(static_cast<std::int64_t>(p_.stages) * rank_ / p_.splits);
    const int last = static_cast<int>(static_cast<std::int64_t>(p_.stages) * (rank_ + 1) / p_.splits);
    // W does not depend on the kernel that prepares X, and need not wait for it.
#pragma unroll
    for (int s = 0; s < kRing - 1; ++s) {
      if (first + s < last) fetch_weight(first + s, s);
    }
    wait_for_previous_kernel();
#pragma unroll
    for (int s = 0; s < kRing - 1; ++s) {
      if (first + s < last) fetch_x(first + s, s);
      exec_.copy_commit();
    }
#pragma unroll
    for (int i = 0; i < 2 * kXTiles * 4; ++i) sums_[i / (kXTiles * 4)][i / 4 % kXTiles][i % 4] = 0.0f;

    const bool idle = first_row_ + exec_.warp() * 32 >= p_.n;
    int slot = 0;
    for (int s = first; s < last; ++s) {
      exec_.template copy_wait<kRing - 2>();
      __syncthreads();
      const int next = s + kRing - 1;
      const int next_slot = slot == 0 ? kRing - 1 : slot - 1;
      if (next < last) {
        fetch_weight(next, next_slot);
        fetch_x(next, next_slot);
      }
      exec_.copy_commit();
      if (!idle) multiply_stage(slot);
      slot = slot == kRing - 1 ? 0 : slot + 1;
    }
    finish();
  }

 private:
  static constexpr int kRing = gemm_ring(kXTiles);
  static constexpr int kThreads = 32 * kGemmWarps;
  static constexpr int kCodes = kGemmRows * kCodeBytes;
  static constexpr int kX = kXTiles * 8 * kGemmStage * 2;
  static constexpr int kStageBytes = gemm_stage_bytes(kNvfp4, kXTiles);
  static constexpr int kScaleBytes = kNvfp4 ? 8 : 4;  // of a row and a stage
  static constexpr float kUnit = kNvfp4 ? 128.0f : 8.0f;  // what undoes the operands' powers of two

  __device__ __forceinline__ static void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }

  __device__ __forceinline__ static std::uint32_t code_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(row * kCodeBytes + ((chunk ^ (row >> 1)) & 3) * 16);
  }
  __device__ __forceinline__ static std::uint32_t x_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(kCodes + row * (kGemmStage * 2) + (chunk ^ ((row & 1) << 2)) * 16);
  }
  __device__ __forceinline__ static std::uint32_t scale_offset(int row) {
    return static_cast<std::uint32_t>(kCodes + kX + row * kScaleBytes);
  }

  template <int kBytes>
  __device__ __forceinline__ void copy_small(std::uint32_t to, const void* from, bool valid) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(base_ + to), "l"(from), "n"(kBytes),
                 "r"(valid ? kBytes : 0)
                 : "memory");
  }

  __device__ __forceinline__ void fetch_weight(int stage, int slot) const {
    const std::uint32_t ring = static_cast<std::uint32_t>(slot * kStageBytes);
    const int chunk = thread_ % 4;
    const std::int64_t at = std::int64_t{stage} * kCodeBytes + chunk * 16;
    const bool whole = p_.row_bytes % 16 == 0;  // NVFP4 rows may end in half a chunk, and then start at one
#pragma unroll
    for (int i = 0; i < kGemmRows / (kThreads / 4); ++i) {
      const int row = thread_ / 4 + i * (kThreads / 4);
      const bool there = first_row_ + row < p_.n;
      const std::uint8_t* const from = codes_ + std::int64_t{first_row_ + row} * p_.row_bytes + at;
      const std::uint32_t to = ring + code_offset(row, chunk);
      if (!kNvfp4 || whole) {
        const bool valid = there && at < p_.row_bytes;
        exec_.copy_async_16(lane_, to, valid ? from : codes_, valid);
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const bool valid = there && at + 8 * half < p_.row_bytes;
          copy_small<8>(to + 8 * half, valid ? from + 8 * half : codes_, valid);
        }
      }
    }
    fetch_scales(stage, ring);
  }

  /// A thread per row: its four or eight scales.
  __device__ __forceinline__ void fetch_scales(int stage, std::uint32_t ring) const {
    const int row = first_row_ + thread_;
#pragma unroll
    for (int word = 0; word < kScaleBytes / 4; ++word) {
      const int group = stage * kScaleBytes + 4 * word;
      const std::uint32_t to = ring + scale_offset(thread_) + 4 * word;
      const bool there = row < p_.n && group < p_.groups;
      if (p_.scale_layout == ScaleLayout::kBlocked) {
        const std::uint8_t* const from = there ? scales_ + core::blocked_scale_offset(row, group, p_.groups) : scales_;
        copy_small<4>(to, from, there);
      } else if (p_.groups % 4 == 0) {
        copy_small<4>(to, there ? scales_ + std::int64_t{row} * p_.groups + group : scales_, there);
      } else {
        // Rows that start between words: no copy engine for those.
        std::uint32_t four = 0;
        for (int b = 0; b < 4; ++b) {
          if (row < p_.n && group + b < p_.groups) {
            four |= std::uint32_t{scales_[std::int64_t{row} * p_.groups + group + b]} << (8 * b);
          }
        }
        exec_.store_shared(lane_, to, four);
      }
    }
  }

  __device__ __forceinline__ void fetch_x(int stage, int slot) const {
    const std::uint32_t ring = static_cast<std::uint32_t>(slot * kStageBytes);
    constexpr int kChunks = kXTiles * 8 * 16;
#pragma unroll
    for (int i = 0; i < (kChunks + kThreads - 1) / kThreads; ++i) {
      const int index = thread_ + i * kThreads;
      if (kChunks % kThreads != 0 && index >= kChunks) break;
      const int row = index / 16;
      const int chunk = index % 16;
      const int column = stage * kGemmStage + chunk * 8;
      const bool valid = first_x_ + row < p_.m && column < p_.x_cols;
      const std::uint16_t* const from = p_.x + (batch_ * p_.m + first_x_ + row) * p_.x_row + column;
      exec_.copy_async_16(lane_, ring + x_offset(row, chunk), valid ? from : p_.x, valid);
    }
  }

  __device__ __forceinline__ void multiply_stage(int slot) {
    const std::uint32_t ring = static_cast<std::uint32_t>(slot * kStageBytes);
    if constexpr (kNvfp4) {
      multiply<false>(ring);
    } else {
      // Every row of the warp is some lane's: one look at all scales of the stage. Bytes 107 to 131 are 2^-20 to 2^4.
      const std::uint32_t four = exec_.template load_shared<std::uint32_t>(lane_, ring + scale_offset(exec_.warp() * 32 + lane_.id));
      constexpr std::uint32_t kLow7 = 0x7f7f7f7fu;
      const std::uint32_t at_least_107 = ((four & kLow7) + 0x15151515u) | four;
      const std::uint32_t above_131 = ((four & kLow7) + 0x7c7c7c7cu) & four;
      const bool outside = ((~at_least_107 | above_131) & 0x80808080u) != 0;
      if (__any_sync(0xffffffffu, outside)) {
        multiply<true>(ring);
      } else {
        multiply<false>(ring);
      }
    }
  }

  /// @tparam kScaleSums  E8M0 scales multiply sums instead of codes
  template <bool kScaleSums>
  __device__ __forceinline__ void multiply(std::uint32_t ring) {
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
    const int warp_row = exec_.warp() * 32;
    std::uint32_t scale[4][kScaleBytes / 4];  // of rows g + 8 o
#pragma unroll
    for (int o = 0; o < 4; ++o) {
#pragma unroll
      for (int w = 0; w < kScaleBytes / 4; ++w) {
        scale[o][w] = exec_.template load_shared<std::uint32_t>(lane_, ring + scale_offset(warp_row + 8 * o + g) + 4 * w);
      }
    }
    // Registers: unrolled only where the sums leave some.
#pragma unroll(kScaleSums || kXTiles > 4 ? 1 : 4)
    for (int chunk = 0; chunk < 4; ++chunk) {
      WarpExec::PerLane<std::uint32_t[4]> words;
      exec_.template load_matrix<false>(
          [&](WarpExec::Lane lane) { return ring + code_offset(warp_row + lane.id, chunk); },
          [&](WarpExec::Lane lane) -> auto& { return words[lane]; });
      const std::uint32_t(&word)[4] = words.value;
      std::uint32_t pair[4][4];
#pragma unroll
      for (int o = 0; o < 4; ++o) {
        e2m1_to_f16(word[o], pair[o]);
        if constexpr (!kScaleSums) {
          const std::uint32_t factor = scale_f16(scale[o], chunk, t);
#pragma unroll
          for (int i = 0; i < 4; ++i) pair[o][i] = multiply_f16(pair[o][i], factor);
        }
      }
#pragma unroll
      for (int nt = 0; nt < kXTiles; ++nt) {
        std::uint32_t x[4];
        load_x(ring, nt * 8 + g, 4 * chunk + t, x);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          float(&sum)[4] = kScaleSums ? part : sums_[half][nt];
#pragma unroll
          for (int step = 0; step < 2; ++step) {
            const std::uint32_t a[4] = {pair[2 * half][2 * step], pair[2 * half + 1][2 * step], pair[2 * half][2 * step + 1],
                                        pair[2 * half + 1][2 * step + 1]};
            const std::uint32_t b[2] = {x[2 * step], x[2 * step + 1]};
            MmaM16N8K16Instruction<core::F16>::mma(sum, a, b, sum);
          }
          if constexpr (kScaleSums) {
#pragma unroll
            for (int v = 0; v < 4; ++v) {
              // 2^11 takes codes decoded at 2^-14 to the unit of the other path.
              const float s = e8m0_to_f32(scale[2 * half + v / 2][0], chunk);
              sums_[half][nt][v] = fmaf(s, part[v] * 2048.0f, sums_[half][nt][v]);
            }
          }
        }
      }
    }
  }

  /// The scale of a lane's eight codes of a chunk, in both halves.
  __device__ __forceinline__ static std::uint32_t scale_f16(const std::uint32_t (&scale)[kScaleBytes / 4], int chunk, int t) {
    if constexpr (kNvfp4) {
      const std::uint32_t two = (chunk < 2 ? scale[0] : scale[1]) >> (16 * (chunk % 2));
      const std::uint32_t sf = (t < 2 ? two : two >> 8) & 0x7fu;
      return multiply_f16(e4m3_to_f16(sf | sf << 8), 0x58005800u);  // 2^7 on codes at 2^-14
    } else {
      const std::uint32_t e = (scale[0] >> (8 * chunk)) & 0xffu;
      return ((e - 101) << 10) * 0x10001u;  // 2^(e - 127 + 11) on codes at 2^-14
    }
  }

  __device__ __forceinline__ void load_x(std::uint32_t ring, int row, int chunk, std::uint32_t (&x)[4]) const {
    std::uint32_t w[4];
    exec_.load_shared_16(lane_, ring + x_offset(row, chunk), w);
    if constexpr (kPaired) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = w[i];
    } else {
      x[0] = __byte_perm(w[0], w[2], 0x5410);
      x[1] = __byte_perm(w[0], w[2], 0x7632);
      x[2] = __byte_perm(w[1], w[3], 0x5410);
      x[3] = __byte_perm(w[1], w[3], 0x7632);
    }
  }

  /// Sums to shared memory, across the cluster, and out.
  __device__ __forceinline__ void finish() const {
    exec_.template copy_wait<0>();
    __syncthreads();
    auto* const mine = reinterpret_cast<float*>(shared_);
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int nt = 0; nt < kXTiles; ++nt) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int row = exec_.warp() * 32 + 16 * half + g + 8 * (v / 2);
          mine[(nt * 8 + 2 * t + v % 2) * kSumPitch + row] = sums_[half][nt][v];
        }
      }
    }
    cluster_barrier();
    const float w_global = p_.w_globals != nullptr ? p_.w_globals[p_.code_batch == 0 ? 0 : batch_] : p_.w_global;
    const float x_global = p_.x_globals != nullptr ? p_.x_globals[batch_] : 1.0f;
    const int row = first_row_ + thread_;
    float bias = 0.0f;
    if (p_.bias != nullptr && row < p_.n) {
      core::load_plain_row(core::element_address(p_.bias, p_.bias_dtype, row), p_.bias_dtype, 1, &bias);
    }
    // A thread per row of W, the cluster's blocks taking turns at the rows of X.
    for (int i = rank_; i < 8 * kXTiles && first_x_ + i < p_.m; i += p_.splits) {
      float sum = 0.0f;
      for (int r = 0; r < p_.splits; ++r) sum += sum_of(r, i * kSumPitch + thread_);
      if (row >= p_.n) continue;
      const std::int64_t x_row = batch_ * p_.m + first_x_ + i;
      const float inverse = p_.x_inverse != nullptr ? p_.x_inverse[x_row] : 1.0f;
      const float value = sum * kUnit * inverse * w_global * x_global + bias;
      core::store_plain_row(&value, 1, p_.out_dtype, core::element_address(p_.out, p_.out_dtype, x_row * p_.n + row));
    }
    if (p_.splits > 1) cluster_barrier();  // nobody leaves while its sums are being read
  }

  __device__ __forceinline__ void cluster_barrier() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (p_.splits > 1) {
      asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
      return;
    }
#endif
    __syncthreads();
  }

  /// Float `index` of the sums of the cluster's block r.
  __device__ __forceinline__ float sum_of(int r, int index) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (p_.splits > 1) {
      std::uint32_t there;
      float value;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(base_ + 4u * static_cast<std::uint32_t>(index)), "r"(r));
      asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
      return value;
    }
#endif
    return reinterpret_cast<const float*>(shared_)[index];
  }

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
