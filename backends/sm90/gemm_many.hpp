// C = X W^T with W in FP4 and many rows of X on sm_90a, on wgmma: two or three warpgroups of 64 rows of W each, and 32 to 128 rows of X.
//
// W is the A operand, decoded to f16 in registers, and X the B operand, in f16 in shared memory as it lies in memory. So columns
// keep their order, and a lane needs two neighbouring codes of every eight: one byte of each word.
//
// Scales, exactly, as in backends/sm80/gemm.hpp: E4M3 is multiplied into the decoded f16, and E8M0 too, at 2^-3, while all scales of
// a warp's stage lie in 2^-20 to 2^4. A warp that finds others gives zeros to its group's products of this stage and adds its
// sixteen rows by mma.sync, whose sums lie as wgmma's do, with the scales multiplied into sums of 32 columns.
//
// A half of a stage is decoded while the half before is multiplied. W and X come by the copy engine through a ring of stages
// of 128 columns, which has no barrier of the block: warpgroups may be a stage apart, so that one decodes while another's products run.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/gemm_scale.hpp"
#include "backends/sm90/exec.hpp"
#include "backends/sm90/gemm_many_params.hpp"
#include "backends/sm90/tensor_copy.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/paging/plain_row.hpp"
#include "cuda/dependency.cuh"
#include "fp4pa/types.hpp"

namespace fp4pa::sm90 {

/// @tparam kGroups  warpgroups, each with 64 rows of W
/// @tparam kXRows   of X
template <bool kNvfp4, int kGroups, int kXRows>
class ManyBlock {
 public:
  __device__ __forceinline__ ManyBlock(const ManyParams& many, std::uint8_t* shared)
      : x_map_(many.x),
        w_map_(many.w),
        p_(many.gemm),
        prepared_(many.prepared),
        exec_(shared),
        shared_(shared),
        base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
        thread_(static_cast<int>(threadIdx.x)),
        lane_{static_cast<int>(threadIdx.x % 32)},
        rank_(static_cast<int>(blockIdx.x) % p_.splits),
        batch_(blockIdx.z) {
    const int tile = static_cast<int>(blockIdx.x) / p_.splits;
    first_row_ = tile % p_.row_tiles * kRows;
    first_x_ = tile / p_.row_tiles * kXRows;
    first_ = static_cast<int>(static_cast<std::int64_t>(p_.stages) * rank_ / p_.splits);
    last_ = static_cast<int>(static_cast<std::int64_t>(p_.stages) * (rank_ + 1) / p_.splits);
    codes_ = p_.codes + batch_ * p_.code_batch;
    scales_ = p_.scales + batch_ * p_.scale_batch;
  }

  __device__ __forceinline__ void run() {
    if (thread_ == 0) {
      for (int i = 0; i < kRing; ++i) {
        barrier_init(full(i), 1);
        barrier_init(empty(i), kThreads / 32);
      }
      barrier_init_fence();
    }
    cuda::allow_dependents();
    // What prepared X did nothing else, and W need not wait for it.
    if (!prepared_) cuda::wait_for_previous();
    __syncthreads();
#pragma unroll 1
    for (int s = 0; s < kAhead; ++s) fetch_w(first_ + s, s, 1);
    if (prepared_) cuda::wait_for_previous();
#pragma unroll 1
    for (int s = 0; s < kAhead; ++s) fetch_x(first_ + s, s);
    find_scales();
    load_scales(first_);
#pragma unroll
    for (int i = 0; i < kXRows / 2; ++i) sums_[i / 4][0][i % 4] = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i) a_[i / 16][i / 4 % 4][i % 4] = 0;

    int slot = 0;
    int next = kAhead;
    std::uint32_t parity = 0;
    std::uint32_t next_parity = 1;  // of what has not been used there is nothing to wait for
    begin(first_, slot, parity);
#pragma unroll 1
    for (int s = first_; s < last_; ++s) {
      // No instruction is in flight here.
      const std::uint32_t at = slot_offset(slot);
      const int used = slot;
      fetch(s + kAhead, next, next_parity);
      if (++next == kRing) {
        next = 0;
        next_parity ^= 1;
      }
      if (outside_) add_scaled_sums(at);
      issue(at, 0);
      decode(at, 1);
      issue(at, 1);
      if (++slot == kRing) {
        slot = 0;
        parity ^= 1;
      }
      begin(s + 1, slot, parity);
      wait<0>();
      pin(sums_);
      pin(a_[1]);
      if (lane_.id == 0) barrier_arrive(empty(used));
    }
    finish();
  }

 private:
  static constexpr int kRows = 64 * kGroups;  // of W
  static constexpr int kThreads = 128 * kGroups;
  static constexpr int kSumPitch = many_sum_pitch(kGroups);
  static constexpr int kRing = many_ring(kGroups, kXRows);
  static constexpr int kAhead = kRing - 3;  // warpgroups may be a stage apart
  static constexpr int kStageBytes = many_stage_bytes(kGroups, kXRows);
  static constexpr int kPanel = kXRows * kPanelRowBytes;
  static constexpr int kCodes = 2 * kPanel;           // behind X
  static constexpr int kWords = kNvfp4 ? 2 : 1;       // of a row's scales of a stage
  static constexpr float kUnit = kNvfp4 ? 16384.0f : 8.0f;  // what undoes the operands' powers of two
  static constexpr std::uint32_t kUnsigned = 0x7f7f7f7fu;   // four E4M3 scales but their signs
  static constexpr bool kTight = !kNvfp4 && kXRows == 128;  // the instance that needs all registers

  __device__ __forceinline__ static std::uint32_t slot_offset(int slot) { return static_cast<std::uint32_t>(slot * kStageBytes); }
  /// Barriers lie behind the ring: a stage has arrived, all warps are through with it.
  __device__ __forceinline__ std::uint32_t full(int slot) const {
    return base_ + static_cast<std::uint32_t>(kRing * kStageBytes + 16 * slot);
  }
  __device__ __forceinline__ std::uint32_t empty(int slot) const { return full(slot) + 8; }
  __device__ __forceinline__ static std::uint32_t code_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(kCodes + row * sm80::kCodeBytes + ((chunk ^ (row >> 1)) & 3) * 16);
  }
  __device__ __forceinline__ static std::uint32_t x_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(chunk / 8 * kPanel + row * kPanelRowBytes + ((chunk ^ row) & 7) * 16);
  }

  /// Zeros where there is nothing: codes and columns of X past the end make products of 0. Rows past the end may be the next
  /// product's: what they give is not written.
  __device__ __forceinline__ void fetch(int stage, int slot, std::uint32_t parity) const {
    fetch_w(stage, slot, parity);
    fetch_x(stage, slot);
  }
  __device__ __forceinline__ void fetch_w(int stage, int slot, std::uint32_t parity) const {
    if (stage >= last_ || thread_ != 0) return;
    barrier_wait(empty(slot), parity);
    barrier_expect(full(slot), kStageBytes);
    copy_box(base_ + slot_offset(slot) + kCodes, w_map_, stage * sm80::kCodeBytes,
             (p_.code_batch == 0 ? 0 : static_cast<int>(batch_) * p_.n) + first_row_, full(slot));
  }
  __device__ __forceinline__ void fetch_x(int stage, int slot) const {
    if (stage >= last_ || thread_ != 0) return;
#pragma unroll
    for (int panel = 0; panel < 2; ++panel) {
      copy_box(base_ + slot_offset(slot) + panel * kPanel, x_map_, stage * sm80::kGemmStage + panel * kPanelDims,
               static_cast<int>(batch_) * p_.m + first_x_, full(slot));
    }
  }

  /// Where the scales of a lane's two rows begin; rows past the end take the last's. A linear row may begin within a word.
  __device__ __forceinline__ void find_scales() {
    const bool blocked = p_.scale_layout == ScaleLayout::kBlocked;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int row = first_row_ + warp_row() + lane_.id / 4 + 8 * r;
      if (row >= p_.n) row = p_.n - 1;
      const std::uint8_t* const at = scales_ + (blocked ? static_cast<std::int64_t>(core::blocked_scale_offset(row, 0, p_.groups))
                                                        : std::int64_t{row} * p_.groups);
      before_[r] = static_cast<int>(reinterpret_cast<std::uintptr_t>(at) & 3u);
      // Else the compiler shifts by the address, and keeps its low word beside these bits.
      if constexpr (kTight) before_[r] = WarpExec::anew(before_[r]);
      scale_at_[r] = at - before_[r];
    }
    word_step_ = blocked ? 512 : 4;
  }
  /// A lane's scales of a stage on their way to registers. Those past a row's end are 1, or 0 in E4M3: their codes are zeros.
  __device__ __forceinline__ void load_scales(int stage) {
    if (stage >= last_) return;
    const int group = stage * 4 * kWords;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const std::uint8_t* const at = scale_at_[r] + std::int64_t{stage} * kWords * word_step_;
      const int left = p_.groups - group + before_[r];  // bytes of the row from `at` on
      const int words = before_[r] != 0 ? kWords + 1 : kWords;
      next_scale_[r][kWords] = 0;
      if (left >= 4 * words) {
#pragma unroll
        for (int w = 0; w < kWords + 1; ++w) {
          if (w < words) next_scale_[r][w] = __ldg(reinterpret_cast<const std::uint32_t*>(at + w * word_step_));
        }
      } else {
        // Byte by byte: the row's last may end the memory, within a word.
#pragma unroll
        for (int w = 0; w < kWords + 1; ++w) {
          std::uint32_t word = 0;
          for (int i = 0; i < 4; ++i) {
            const int index = 4 * w + i;
            const bool there = index >= before_[r] && index < left;
            word |= (there ? std::uint32_t{at[w * word_step_ + i]} : kNvfp4 ? 0u : 0x7fu) << (8 * i);
          }
          next_scale_[r][w] = word;
        }
      }
    }
  }

  /// Waits for stage `stage` and decodes its first half, while the second half of the one before is multiplied. Past the last stage there is nothing
  /// to wait for, and what is decoded is not used.
  __device__ __forceinline__ void begin(int stage, int slot, std::uint32_t parity) {
    outside_ = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) scale_[r][w] = __funnelshift_r(next_scale_[r][w], next_scale_[r][w + 1], 8 * before_[r]);
      if constexpr (!kNvfp4) outside_ |= sm80::outside_f16(scale_[r][0]);
    }
    if constexpr (!kNvfp4) outside_ = __any_sync(0xffffffffu, outside_);
    load_scales(stage + 1);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (kNvfp4) {
#pragma unroll
        for (int chunk = 0; chunk < 4; ++chunk) {
          factors_[r][chunk] = sm80::e4m3_to_f16((scale_[r][chunk / 2] & kUnsigned) >> (16 * (chunk % 2)));
        }
      } else {
        // 2^(e - 127 + 11) in f16, on codes at 2^-14: of chunks 0 and 2, then of 1 and 3.
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          const std::uint32_t two = (((scale_[r][0] >> (8 * odd)) & 0x00ff00ffu) << 10) - (101u << 10) * 0x10001u;
          factors_[r][odd] = outside_ ? 0 : two;
        }
      }
    }
    if (stage < last_) barrier_wait(full(slot), parity);
    wait<1>();
    pin(a_[0]);
    decode(slot_offset(slot), 0);
  }

  template <int kNewest>
  __device__ __forceinline__ static void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNewest) : "memory");
  }
  using Sums = float[kXRows / 8][1][4];
  __device__ __forceinline__ static void pin(Sums& d) { sm90::pin(d); }
  /// Operands that an instruction in flight may still have read up to here.
  __device__ __forceinline__ static void pin(std::uint32_t (&a)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
  }

  /// The products of a half: four instructions.
  __device__ __forceinline__ void issue(std::uint32_t slot, int half) {
    exec_.group_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const std::uint32_t at = slot + static_cast<std::uint32_t>(half * kPanel + step * 2 * kStep);
      wgmma<core::F16, kXRows, false>(sums_, a_[half][step], matrix_descriptor(base_ + at, {at, core::kChunkBytes, kSwizzleBytes}), true);
    }
    exec_.group_commit();
  }

  __device__ __forceinline__ int warp_row() const { return exec_.warp() * 16; }

  /// A lane's two codes of each eight of the 32 in a chunk, in f16 times 2^-14.
  __device__ __forceinline__ void decode_chunk(std::uint32_t slot, int row, int chunk, std::uint32_t (&out)[4]) const {
    std::uint32_t w[4];
    exec_.load_shared_16(lane_, slot + code_offset(row, chunk), w);
    const auto t = static_cast<std::uint32_t>(lane_.id % 4);
    const std::uint32_t select = t | (4 + t) << 4;
    const std::uint32_t q = __byte_perm(__byte_perm(w[0], w[1], select), __byte_perm(w[2], w[3], select), 0x5410);
    // As in sm80::e2m1_to_f16, but that the halves of a result are the codes of one byte.
    constexpr std::uint32_t kSigns = 0x80808080u;
    constexpr std::uint32_t kHalves = 0x8e008e00u;
    const std::uint32_t even = sm80::select_bits(kSigns, q << 4, q << 1);
    const std::uint32_t odd = sm80::select_bits(kSigns, q, q >> 3);
    const std::uint32_t first = __byte_perm(even, odd, 0x5410);
    const std::uint32_t last = __byte_perm(even, odd, 0x7632);
    out[0] = (first << 8) & kHalves;
    out[1] = first & kHalves;
    out[2] = (last << 8) & kHalves;
    out[3] = last & kHalves;
  }

  /// A half of a stage as operands; zeros if its scales cannot be multiplied into f16.
  __device__ __forceinline__ void decode(std::uint32_t slot, int half) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int chunk = 2 * half + c;
        std::uint32_t out[4];
        decode_chunk(slot, warp_row() + lane_.id / 4 + 8 * r, chunk, out);
        std::uint32_t factor[2];  // of the chunk's halves
        if constexpr (kNvfp4) {
          factor[0] = __byte_perm(factors_[r][chunk], 0, 0x1010);
          factor[1] = __byte_perm(factors_[r][chunk], 0, 0x3232);
        } else {
          factor[0] = factor[1] = __byte_perm(factors_[r][chunk % 2], 0, chunk < 2 ? 0x1010 : 0x3232);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) a_[half][2 * c + i / 2][i % 2 * 2 + r] = sm80::multiply_f16(out[i], factor[i / 2]);
      }
    }
  }

  /// The stage's products of the warp's rows, with scales multiplied into the sums of their columns.
  __device__ __forceinline__ void add_scaled_sums(std::uint32_t slot) {
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
#pragma unroll 1
    for (int chunk = 0; chunk < 4; ++chunk) {
      std::uint32_t pair[2][4];
      float factor[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        decode_chunk(slot, warp_row() + g + 8 * r, chunk, pair[r]);
        factor[r] = sm80::e8m0_exact(scale_[r][0] >> (8 * chunk), 0);
      }
#pragma unroll
      for (int nt = 0; nt < kXRows / 8; ++nt) {
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const std::uint32_t a[4] = {pair[0][2 * step], pair[1][2 * step], pair[0][2 * step + 1], pair[1][2 * step + 1]};
          std::uint32_t b[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            b[i] = exec_.template load_shared<std::uint32_t>(lane_, slot + x_offset(8 * nt + g, 4 * chunk + 2 * step + i) + 4 * t);
          }
          sm80::MmaM16N8K16Instruction<core::F16>::mma(part, a, b, part);
        }
        // 2^11 takes codes decoded at 2^-14 to the others' unit.
#pragma unroll
        for (int v = 0; v < 4; ++v) sums_[nt][0][v] = fmaf(factor[v / 2], part[v] * 2048.0f, sums_[nt][0][v]);
      }
    }
  }

  /// Sums to shared memory, across the cluster, and out.
  __device__ __forceinline__ void finish() const {
    __syncthreads();
    auto* const mine = reinterpret_cast<float*>(shared_);
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
#pragma unroll
    for (int nt = 0; nt < kXRows / 8; ++nt) {
#pragma unroll
      for (int v = 0; v < 4; ++v) mine[(8 * nt + 2 * t + v % 2) * kSumPitch + warp_row() + g + 8 * (v / 2)] = sums_[nt][0][v];
    }
    block_or_cluster_barrier();
    const float w_global = p_.w_globals != nullptr ? p_.w_globals[p_.code_batch == 0 ? 0 : batch_] : p_.w_global;
    const float x_global = p_.x_globals != nullptr ? p_.x_globals[batch_] : 1.0f;
    // A thread has four rows of W, the cluster's blocks take turns at the rows of X.
    constexpr int kFours = kRows / 4;
    constexpr int kAtOnce = kThreads / kFours;
    const int row = first_row_ + thread_ % kFours * 4;
    float bias[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (p_.bias != nullptr) {
      for (int e = 0; e < 4 && row + e < p_.n; ++e) {
        core::load_plain_row(core::element_address(p_.bias, p_.bias_dtype, row + e), p_.bias_dtype, 1, bias + e);
      }
    }
    for (int i = rank_ * kAtOnce + thread_ / kFours; i < kXRows && first_x_ + i < p_.m; i += kAtOnce * p_.splits) {
      const int at = i * kSumPitch + thread_ % kFours * 4;
      float4 sum = *reinterpret_cast<const float4*>(mine + at);
      if (p_.splits > 1) {
        float4 part[sm80::kGemmMaxSplits];  // all on their way before the first is needed
#pragma unroll
        for (int r = 0; r < sm80::kGemmMaxSplits; ++r) part[r] = r < p_.splits ? sums_of(r, at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        sum = part[0];
#pragma unroll
        for (int r = 1; r < sm80::kGemmMaxSplits; ++r) {
          sum.x += part[r].x;
          sum.y += part[r].y;
          sum.z += part[r].z;
          sum.w += part[r].w;
        }
      }
      const std::int64_t x_row = batch_ * p_.m + first_x_ + i;
      const float inverse = p_.x_inverse != nullptr ? p_.x_inverse[x_row] : 1.0f;
      const float value[4] = {sum.x * kUnit * inverse * w_global * x_global + bias[0], sum.y * kUnit * inverse * w_global * x_global + bias[1],
                              sum.z * kUnit * inverse * w_global * x_global + bias[2], sum.w * kUnit * inverse * w_global * x_global + bias[3]};
      store(value, x_row * p_.n + row, p_.n - row);
    }
    if (p_.splits > 1) block_or_cluster_barrier();  // nobody leaves while its sums are being read
  }
  /// Up to four results from element `at` on.
  __device__ __forceinline__ void store(const float (&value)[4], std::int64_t at, int left) const {
    void* const to = core::element_address(p_.out, p_.out_dtype, at);
    const bool f32 = p_.out_dtype == DType::kF32;
    if (left >= 4 && reinterpret_cast<std::uintptr_t>(to) % (f32 ? 16 : 8) == 0) {
      if (f32) {
        *static_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
      } else {
        alignas(8) std::uint16_t halves[4];
        core::store_plain_row(value, 4, p_.out_dtype, halves);
        *static_cast<uint2*>(to) = make_uint2(halves[0] | std::uint32_t{halves[1]} << 16, halves[2] | std::uint32_t{halves[3]} << 16);
      }
      return;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (e < left) core::store_plain_row(value + e, 1, p_.out_dtype, core::element_address(p_.out, p_.out_dtype, at + e));
    }
  }

  __device__ __forceinline__ void block_or_cluster_barrier() const {
    if (p_.splits > 1) {
      asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
    } else {
      __syncthreads();
    }
  }
  /// Four floats of the sums of the cluster's block r.
  __device__ __forceinline__ float4 sums_of(int r, int index) const {
    std::uint32_t there;
    float4 v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(base_ + 4u * static_cast<std::uint32_t>(index)), "r"(r));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(there) : "memory");
    return v;
  }

  const TensorMap& x_map_;
  const TensorMap& w_map_;
  const sm80::GemmParams& p_;
  bool prepared_;
  WarpExec exec_;
  std::uint8_t* shared_;
  std::uint32_t base_;
  int thread_;
  WarpExec::Lane lane_;
  int rank_;
  std::int64_t batch_;
  int first_row_, first_x_, first_, last_;
  const std::uint8_t* codes_;
  const std::uint8_t* scales_;
  float sums_[kXRows / 8][1][4];
  // Of a lane's rows g and g + 8 of its warp:
  const std::uint8_t* scale_at_[2];
  int before_[2], word_step_;
  std::uint32_t next_scale_[2][kWords + 1];  // as read, of the next stage
  std::uint32_t scale_[2][kWords];
  std::uint32_t factors_[2][kNvfp4 ? 4 : 2];  // the scales in f16; zeros if outside_
  bool outside_;
  std::uint32_t a_[2][4][4];  // of a stage's halves: steps of 16 columns
};

}  // namespace fp4pa::sm90
