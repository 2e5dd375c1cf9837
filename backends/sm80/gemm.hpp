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
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/exec.hpp"
#include "backends/sm80/gemm_params.hpp"
#include "backends/sm80/gemm_scale.hpp"
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
    wait_for_previous_kernel();
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
    return static_cast<std::uint32_t>(kCodes + kX + row * gemm_scale_pitch(kNvfp4));
  }

  /// `bytes` of kBytes, and zeros. Nothing is read when there are none.
  template <int kBytes>
  __device__ __forceinline__ void copy(std::uint32_t to, const void* from, int bytes) const {
    if constexpr (kBytes == 16) {
      // What follows in a row is the next stage's.
      asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(base_ + to), "l"(from), "r"(bytes) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(base_ + to), "l"(from), "n"(kBytes), "r"(bytes)
                   : "memory");
    }
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

  __device__ __forceinline__ Walk walk_from(int stage) const {
    Walk w;
    w.code_bytes = static_cast<Bytes>(p_.row_bytes) - Bytes{stage} * kCodeBytes - thread_ % 4 * 16;
    w.codes = codes_ + std::int64_t{first_row_ + thread_ / 4 + 1} * p_.row_bytes - w.code_bytes;
    w.rows_left = p_.n - first_row_ - thread_ / 4;
    const int row = first_row_ + thread_;
    const bool blocked = p_.scale_layout == ScaleLayout::kBlocked;
    w.before = blocked ? 0 : misalignment(row);
    const int first = stage * kScaleBytes - w.before;
    w.scales_left = row < p_.n ? p_.groups - first : 0;
    w.scales = scales_ + (blocked ? static_cast<std::int64_t>(core::blocked_scale_offset(row, first, p_.groups))
                                  : std::int64_t{row} * p_.groups + first);
    const int column = stage * kGemmStage + thread_ % 16 * 8;
    w.columns_left = p_.x_cols - column;
    w.x = p_.x + (batch_ * p_.m + first_x_ + thread_ / 16) * p_.x_row + column;
    return w;
  }

  /// A thread's chunks of W: one of four in a row, of every kRowsApart-th row; then the scales of a row. Codes past K multiply
  /// zeros of X, so that it does not matter what they are.
  __device__ __forceinline__ void fetch_weight(Walk& w, int stage, std::uint32_t ring) const {
    constexpr int kRowsApart = kThreads / 4;
    const auto thread = own_thread();
    const int row = static_cast<int>(thread / 4);
    const int chunk = static_cast<int>(thread % 4);
    const int scale_row = static_cast<int>(thread);
    const std::uint32_t to = ring + code_offset(row, chunk);
    if constexpr (kTight) {
      w.code_bytes = static_cast<Bytes>(p_.row_bytes) - stage * kCodeBytes - chunk * 16;
      w.rows_left = p_.n - first_row_ - row;
      w.scales_left = first_row_ + scale_row < p_.n ? p_.groups + w.before - stage * kScaleBytes : 0;
    }
    if (!kNvfp4 || p_.row_bytes % 16 == 0) {
      const int bytes = w.code_bytes > 0 ? 16 : 0;
#pragma unroll
      for (int i = 0; i < kRows / kRowsApart; ++i) {
        copy<16>(to + i * kRowsApart * kCodeBytes, w.codes + i * kRowsApart * p_.row_bytes, i * kRowsApart < w.rows_left ? bytes : 0);
      }
    } else {
      // NVFP4 rows that end in half a chunk, so that every second one starts with one.
#pragma unroll 1
      for (int i = 0; i < 2 * kRows / kRowsApart; ++i) {
        const int below = i / 2 * kRowsApart;
        const int half = 8 * (i % 2);
        const bool there = below < w.rows_left && w.code_bytes > half;
        copy<8>(to + below * kCodeBytes + half, w.codes + below * p_.row_bytes + half, there ? 8 : 0);
      }
    }
    w.codes += kCodeBytes;
    w.code_bytes -= kCodeBytes;

    // Zeros past the last scale. A linear row that starts between words brings its neighbours' bytes along, to be shifted out
    // by scale_word.
    const int step = p_.scale_layout == ScaleLayout::kBlocked ? 512 : 4;
    const std::uint32_t scales = ring + scale_offset(scale_row);
#pragma unroll
    for (int word = 0; word < kScaleBytes / 4; ++word) {
      copy_scales(scales + 4 * word, w.scales + word * step, w.scales_left - 4 * word);
    }
    if (w.before != 0) copy_scales(scales + kScaleBytes, w.scales + kScaleBytes, w.scales_left - kScaleBytes);
    w.scales += kScaleBytes / 4 * step;
    w.scales_left -= kScaleBytes;
  }

  /// Up to four scales. A row's last one to three are read one by one: they may end the memory, within a word.
  __device__ __forceinline__ void copy_scales(std::uint32_t to, const std::uint8_t* from, int left) const {
    if (left <= 0 || left >= 4) return copy<4>(to, from, left > 0 ? 4 : 0);
    std::uint32_t word = 0;
    for (int i = 0; i < left; ++i) word |= scale_byte(from + i) << (8 * i);
    exec_.store_shared(lane_, to, word);
  }

  __device__ __forceinline__ static std::uint32_t scale_byte(const std::uint8_t* from) {
    if constexpr (!kTight) return *from;
    // From the address that cp.async takes: for a load of its own the compiler walks along K with a second pointer.
    std::uint32_t byte;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(byte) : "l"(from));
    return byte;
  }

  __device__ __forceinline__ void fetch_x(Walk& w, int stage, std::uint32_t ring) const {
    constexpr int kRowsApart = kThreads / 16;
    const auto thread = own_thread();
    const int row = static_cast<int>(thread / 16);
    const int chunk = static_cast<int>(thread % 16);
    const std::uint32_t to = ring + x_offset(row, chunk);
    if constexpr (kTight) w.columns_left = p_.x_cols - stage * kGemmStage - chunk * 8;
    const int left = w.columns_left > 0 ? p_.m - first_x_ - row : 0;
#pragma unroll
    for (int i = 0; i < kXTiles * 8 / kRowsApart; ++i) {
      copy<16>(to + i * kRowsApart * kGemmStage * 2, w.x + i * kRowsApart * p_.x_row, i * kRowsApart < left ? 16 : 0);
    }
    w.x += kGemmStage;
    w.columns_left -= kGemmStage;
  }

  /// Bytes between a word's start and that of a row's linear scales.
  __device__ __forceinline__ int misalignment(int row) const {
    return static_cast<int>((reinterpret_cast<std::uintptr_t>(scales_) + static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(p_.groups)) & 3u);
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

  __device__ __forceinline__ void multiply_stage(std::uint32_t ring) {
    if constexpr (kNvfp4) {
      multiply<false>(ring);
    } else if constexpr (kAlwaysSums) {
      multiply<true>(ring);
    } else {
      // Every row of the warp is some lane's: one look at all scales of the stage.
      const int row = exec_.warp() * 32 + lane_.id;
      const bool outside = outside_f16(scale_word(ring, row, 0, row_shift(row)));
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
    // Chunks of a row differ in the bits that the swizzle turns over, and only there: one exclusive or per chunk.
    const std::uint32_t codes = ring + code_offset(warp_row + lane_.id, 0);
    const std::uint32_t columns = ring + x_offset(g, t);
    const int shift = row_shift(warp_row + g);  // of its rows 8, 16 and 24 further too
    // MXFP4's scales one by one where they are needed, if registers are few; else those of the stage at once.
    constexpr bool kOneByOne = !kNvfp4 && !kAlwaysSums && (kTight || kScaleSums);
    const std::uint32_t first_scale = ring + scale_offset(warp_row + g) + shift / 8;
    const auto one_scale = [&](int o, int chunk) -> std::uint32_t {
      return exec_.template load_shared<std::uint8_t>(lane_, first_scale + 8 * o * gemm_scale_pitch(kNvfp4) + chunk);
    };
    std::uint32_t scale[4][2];  // of rows g + 8 o: for sums as they are, else f16 of chunks 0 2 and 1 3
    if constexpr (!kOneByOne) {
#pragma unroll
      for (int o = 0; o < 4; ++o) load_scales<kScaleSums>(ring, warp_row + 8 * o + g, shift, t, scale[o]);
    }
    // Registers: unrolled only where the sums leave some.
#pragma unroll(kTight || (kScaleSums && !kAlwaysSums) ? 1 : 4)
    for (int chunk = 0; chunk < 4; ++chunk) {
      WarpExec::PerLane<std::uint32_t[4]> words;
      exec_.template load_matrix<false>(
          [&](WarpExec::Lane) { return codes ^ static_cast<std::uint32_t>(16 * chunk); },
          [&](WarpExec::Lane lane) -> auto& { return words[lane]; });
      std::uint32_t pair[4][4];
#pragma unroll
      for (int o = 0; o < 4; ++o) {
        e2m1_to_f16(words.value[o], pair[o]);
        if constexpr (!kScaleSums) {
          const std::uint32_t factor =
              kOneByOne ? one_scale(o, chunk) * (0x10001u << 10) - kE8m0Zero
                        : __byte_perm(chunk % 2 == 0 ? scale[o][0] : scale[o][1], 0, chunk < 2 ? 0x1010 : 0x3232);
#pragma unroll
          for (int i = 0; i < 4; ++i) pair[o][i] = multiply_f16(pair[o][i], factor);
        }
      }
      float sf[4];
      if constexpr (kScaleSums) {
#pragma unroll
        for (int o = 0; o < 4; ++o) sf[o] = kOneByOne ? e8m0_exact(one_scale(o, chunk), 0) : e8m0_exact(scale[o][0], chunk);
      }
      // Instructions on the same sums stand as far apart as registers allow.
      constexpr int kPairOf = kXTiles == 1 || (kScaleSums && kTight) ? 1 : 2;
      const auto add_products = [&](int from, int to) {
#pragma unroll
        for (int first = from; first < to; first += kPairOf) {
          std::uint32_t x[kPairOf][4];
          float part[2][kPairOf][4];
#pragma unroll
          for (int nt = 0; nt < kPairOf; ++nt) {
            load_x((columns ^ static_cast<std::uint32_t>(64 * chunk)) + (first + nt) * 8 * kGemmStage * 2, x[nt]);
#pragma unroll
            for (int i = 0; i < 8; ++i) part[i / 4][nt][i % 4] = 0.0f;
          }
#pragma unroll
          for (int i = 0; i < 4 * kPairOf; ++i) {
            const int step = i / (2 * kPairOf);
            const int nt = i / 2 % kPairOf;
            const int half = i % 2;
            float(&sum)[4] = kScaleSums ? part[half][nt] : sums_[half][first + nt];
            const std::uint32_t a[4] = {pair[2 * half][2 * step], pair[2 * half + 1][2 * step], pair[2 * half][2 * step + 1],
                                        pair[2 * half + 1][2 * step + 1]};
            const std::uint32_t b[2] = {x[nt][2 * step], x[nt][2 * step + 1]};
            MmaM16N8K16Instruction<core::F16>::mma(sum, a, b, sum);
          }
          if constexpr (kScaleSums) {
#pragma unroll
            for (int i = 0; i < 8 * kPairOf; ++i) {
              const int half = i / (4 * kPairOf);
              const int nt = i / 4 % kPairOf;
              const int v = i % 4;
              // Where both ways meet, 2^11 takes codes decoded at 2^-14 to the other's unit.
              const float p = kAlwaysSums ? part[half][nt][v] : part[half][nt][v] * 2048.0f;
              sums_[half][first + nt][v] = fmaf(sf[2 * half + v / 2], p, sums_[half][first + nt][v]);
            }
          }
        }
      };
      if constexpr (kTight) {
        // X may end with the first half. The branch also keeps loads of the second half from being issued ahead of all products,
        // for which the registers do not suffice.
        add_products(0, kXTiles / 2);
        if (p_.m - first_x_ > kXTiles / 2 * 8) add_products(kXTiles / 2, kXTiles);
      } else {
        add_products(0, kXTiles);
      }
    }
  }

  /// A row's scales of a stage, as a lane uses them: its eight codes of each of the four chunks have one scale.
  template <bool kScaleSums>
  __device__ __forceinline__ void load_scales(std::uint32_t ring, int row, int shift, int t, std::uint32_t (&out)[2]) const {
    if constexpr (kNvfp4) {
      // Two scales a chunk: lanes 0 and 1 of a row take the first, 2 and 3 the second.
      const std::uint32_t mine = __byte_perm(scale_word(ring, row, 0, shift), scale_word(ring, row, 1, shift), t < 2 ? 0x6240 : 0x7351);
      const std::uint32_t four = mine & 0x7f7f7f7fu;
      out[0] = e4m3_to_f16(four);
      out[1] = e4m3_to_f16(four >> 16);
    } else if constexpr (kScaleSums) {
      out[0] = scale_word(ring, row, 0, shift);
      out[1] = 0;
    } else {
      const std::uint32_t four = scale_word(ring, row, 0, shift);
      out[0] = ((four & 0x00ff00ffu) << 10) - kE8m0Zero;
      out[1] = (((four >> 8) & 0x00ff00ffu) << 10) - kE8m0Zero;
    }
  }

  /// A lane's eight columns of a row of X, paired.
  __device__ __forceinline__ void load_x(std::uint32_t at, std::uint32_t (&x)[4]) const {
    std::uint32_t w[4];
    exec_.load_shared_16(lane_, at, w);
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
    const int thread = last_thread();
    const auto batch = last_batch();
    const int lane = kTight ? thread % 32 : lane_.id;
    const int warp = kTight ? thread / 32 : exec_.warp();
    const int g = lane / 4;
    const int t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int nt = 0; nt < kXTiles; ++nt) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int row = warp * 32 + 16 * half + g + 8 * (v / 2);
          mine[(nt * 8 + 2 * t + v % 2) * kSumPitch + row] = sums_[half][nt][v];
        }
      }
    }
    cluster_barrier();
    const float w_global = p_.w_globals != nullptr ? p_.w_globals[p_.code_batch == 0 ? 0 : batch] : p_.w_global;
    const float x_global = p_.x_globals != nullptr ? p_.x_globals[batch] : 1.0f;
    const int row = first_row_ + thread;
    float bias = 0.0f;
    if (p_.bias != nullptr && row < p_.n) {
      core::load_plain_row(core::element_address(p_.bias, p_.bias_dtype, row), p_.bias_dtype, 1, &bias);
    }
    // A thread per row of W, the cluster's blocks taking turns at the rows of X.
    for (int i = rank_; i < 8 * kXTiles && first_x_ + i < p_.m; i += p_.splits) {
      float part[kGemmMaxSplits];  // all on their way before the first is needed
#pragma unroll
      for (int r = 0; r < kGemmMaxSplits; ++r) part[r] = r < p_.splits ? sum_of(r, i * kSumPitch + thread) : 0.0f;
      float sum = part[0];
#pragma unroll
      for (int r = 1; r < kGemmMaxSplits; ++r) sum += part[r];
      if (row >= p_.n) continue;
      const std::int64_t x_row = std::int64_t{batch} * p_.m + first_x_ + i;
      const float inverse = p_.x_inverse != nullptr ? p_.x_inverse[x_row] : 1.0f;
      const float value = sum * kUnit * inverse * w_global * x_global + bias;
      core::store_plain_row(&value, 1, p_.out_dtype, core::element_address(p_.out, p_.out_dtype, x_row * p_.n + row));
    }
    if (p_.splits > 1) cluster_barrier();  // nobody leaves while its sums are being read
  }

  __device__ __forceinline__ void cluster_barrier() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (p_.splits > 1) {
      asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
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
