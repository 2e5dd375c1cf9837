// C = X W^T with W in FP4 and many rows of X on sm_90a, on wgmma: three warpgroups of 64 rows of W each, and 64 or 128 rows of X.
//
// W is the A operand, decoded to f16 in registers, and X the B operand, in f16 in shared memory as it lies in memory. So columns
// keep their order, and a lane needs two neighbouring codes of every eight: one byte of each word.
//
// Scales, exactly, as in backends/sm80/gemm.hpp: E4M3 is multiplied into the decoded f16, and E8M0 too, at 2^-3, while all scales of
// a warp's stage lie in 2^-20 to 2^4. A warp that finds others gives zeros to its group's products of this stage and adds its
// sixteen rows by mma.sync, whose sums lie as wgmma's do, with the scales multiplied into sums of 32 columns.
//
// A half of a stage is decoded while the half before is multiplied. Stages of 128 columns come through a ring, W and its scales by
// cp.async and X by the copy engine.
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

/// @tparam kXRows  of a block
template <bool kNvfp4, int kXRows>
class ManyBlock {
 public:
  __device__ __forceinline__ ManyBlock(const ManyParams& many, std::uint8_t* shared)
      : x_map_(many.x),
        p_(many.gemm),
        exec_(shared),
        shared_(shared),
        base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
        thread_(static_cast<int>(threadIdx.x)),
        lane_{static_cast<int>(threadIdx.x % 32)},
        rank_(static_cast<int>(blockIdx.x) % p_.splits),
        batch_(blockIdx.z) {
    const int tile = static_cast<int>(blockIdx.x) / p_.splits;
    first_row_ = tile % p_.row_tiles * kManyRows;
    first_x_ = tile / p_.row_tiles * kXRows;
    first_ = static_cast<int>(static_cast<std::int64_t>(p_.stages) * rank_ / p_.splits);
    last_ = static_cast<int>(static_cast<std::int64_t>(p_.stages) * (rank_ + 1) / p_.splits);
    codes_ = p_.codes + batch_ * p_.code_batch;
    scales_ = p_.scales + batch_ * p_.scale_batch;
  }

  __device__ __forceinline__ void run() {
    if (thread_ == 0) {
      for (int i = 0; i < kRing; ++i) barrier_init(barrier(i));
      barrier_init_fence();
    }
    cuda::allow_dependents();
    cuda::wait_for_previous();
    __syncthreads();
#pragma unroll 1
    for (int s = 0; s < kAhead; ++s) {
      fetch(first_ + s, s);
      exec_.copy_commit();
    }
#pragma unroll
    for (int i = 0; i < kXRows / 2; ++i) sums_[i / 4][0][i % 4] = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i) a_[i / 16][i / 4 % 4][i % 4] = 0;

    int slot = 0;
    int next = kAhead;
    std::uint32_t parity = 0;
    begin(first_, slot, next, parity);
#pragma unroll 1
    for (int s = first_; s < last_; ++s) {
      // No instruction is in flight here.
      const std::uint32_t at = slot_offset(slot);
      if (outside_) add_scaled_sums(at);
      issue(at, 0);
      decode(at, 1);
      issue(at, 1);
      if (++slot == kRing) {
        slot = 0;
        parity ^= 1;
      }
      next = next == kRing - 1 ? 0 : next + 1;
      begin(s + 1, slot, next, parity);
      wait<0>();
      pin(sums_);
      pin(a_[1]);
    }
    finish();
  }

 private:
  static constexpr int kRing = many_ring(kXRows);
  static constexpr int kAhead = kRing - 2;
  static constexpr int kStageBytes = many_stage_bytes(kNvfp4, kXRows);
  static constexpr int kPanel = kXRows * kPanelRowBytes;
  static constexpr int kCodes = 2 * kPanel;  // behind X
  static constexpr int kScales = kCodes + kManyCodes;
  static constexpr int kScaleBytes = kNvfp4 ? 8 : 4;  // of a row and a stage
  static constexpr float kUnit = kNvfp4 ? 16384.0f : 8.0f;  // what undoes the operands' powers of two
  static constexpr std::uint32_t kOnes = 0x7f7f7f7fu;       // four E8M0 scales of 1

  __device__ __forceinline__ static std::uint32_t slot_offset(int slot) { return static_cast<std::uint32_t>(slot * kStageBytes); }
  /// Of X of a stage; barriers lie behind the ring.
  __device__ __forceinline__ std::uint32_t barrier(int slot) const {
    return base_ + static_cast<std::uint32_t>(kRing * kStageBytes + 8 * slot);
  }
  __device__ __forceinline__ static std::uint32_t code_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(kCodes + row * sm80::kCodeBytes + ((chunk ^ (row >> 1)) & 3) * 16);
  }
  __device__ __forceinline__ static std::uint32_t x_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(chunk / 8 * kPanel + row * kPanelRowBytes + ((chunk ^ row) & 7) * 16);
  }

  /// Zeros where there is nothing: codes and columns of X past the end make products of 0. Rows of X past the end may be the next
  /// product's: what they give is not written.
  __device__ __forceinline__ void fetch(int stage, int slot) const {
    if (stage >= last_) return;
    const std::uint32_t to = base_ + static_cast<std::uint32_t>(slot * kStageBytes);
    {
      const int row = thread_ / 4;
      const std::int64_t column = std::int64_t{stage} * sm80::kCodeBytes + thread_ % 4 * 16;
      const std::uint8_t* const from = codes_ + (first_row_ + row) * p_.row_bytes + column;
      const int left = column < p_.row_bytes ? p_.n - first_row_ - row : 0;
      constexpr int kApart = kManyThreads / 4;
#pragma unroll
      for (int i = 0; i < kManyRows / kApart; ++i) {
        copy_16(to + code_offset(row, thread_ % 4) + i * kApart * sm80::kCodeBytes, from + i * kApart * p_.row_bytes, i * kApart < left);
      }
    }
    if (thread_ == 0) {
      barrier_expect(barrier(slot), 2 * kPanel);
#pragma unroll
      for (int panel = 0; panel < 2; ++panel) {
        copy_box(to + panel * kPanel, x_map_, stage * sm80::kGemmStage + panel * kPanelDims, static_cast<int>(batch_) * p_.m + first_x_,
                 barrier(slot));
      }
    }
    if (thread_ < kManyRows) fetch_scales(stage, slot * kStageBytes + kScales + thread_ * sm80::gemm_scale_pitch(kNvfp4));
  }
  __device__ __forceinline__ static void copy_16(std::uint32_t to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
  }

  /// Bytes between a word's start and that of a row's linear scales.
  __device__ __forceinline__ int misalignment(int row) const {
    if (p_.scale_layout == ScaleLayout::kBlocked) return 0;
    return static_cast<int>((reinterpret_cast<std::uintptr_t>(scales_) +
                             static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(p_.groups)) & 3u);
  }
  /// A thread's row; a linear row that starts between words brings its neighbour's bytes along.
  __device__ __forceinline__ void fetch_scales(int stage, int to) const {
    const int row = first_row_ + thread_;
    const bool blocked = p_.scale_layout == ScaleLayout::kBlocked;
    const int before = misalignment(row);
    const int group = stage * kScaleBytes - before;
    const std::uint8_t* const from =
        scales_ + (blocked ? static_cast<std::int64_t>(core::blocked_scale_offset(row, group, p_.groups)) : std::int64_t{row} * p_.groups + group);
    const int left = row < p_.n ? p_.groups - group : 0;
#pragma unroll
    for (int word = 0; word < kScaleBytes / 4; ++word) copy_scales(to + 4 * word, from + word * (blocked ? 512 : 4), left - 4 * word);
    if (before != 0) copy_scales(to + kScaleBytes, from + kScaleBytes, left - kScaleBytes);
  }
  /// Up to four scales. A row's last one to three are read one by one: they may end the memory, within a word.
  __device__ __forceinline__ void copy_scales(int to, const std::uint8_t* from, int left) const {
    if (left <= 0 || left >= 4) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(base_ + static_cast<std::uint32_t>(to)),
                   "l"(left > 0 ? from : scales_), "r"(left > 0 ? 4 : 0)
                   : "memory");
      return;
    }
    std::uint32_t word = 0;
    for (int i = 0; i < left; ++i) word |= std::uint32_t{from[i]} << (8 * i);
    exec_.store_shared(lane_, static_cast<std::uint32_t>(to), word);
  }

  /// Has stage `stage` wait in `slot` and its first half decoded, while the second half of the one before is multiplied; the one
  /// before that has been, and its slot is filled again. Past the last stage there is nothing to wait for, and what is decoded is not used.
  __device__ __forceinline__ void begin(int stage, int slot_index, int next, std::uint32_t parity) {
    exec_.template copy_wait<kAhead - 1>();
    __syncthreads();
    if (stage < last_) barrier_wait(barrier(slot_index), parity);
    const std::uint32_t slot = slot_offset(slot_index);
    fetch(stage + kAhead, next);
    exec_.copy_commit();
    outside_ = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      load_scales(stage, slot, r, scale_[r]);
      if constexpr (!kNvfp4) outside_ |= outside_f16(scale_[r][0]);
    }
    if constexpr (!kNvfp4) outside_ = __any_sync(0xffffffffu, outside_);
    wait<1>();
    pin(a_[0]);
    decode(slot, 0);
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

  /// Scales of row g + 8 r of the warp. Those that do not exist are 1: their codes are zeros.
  __device__ __forceinline__ void load_scales(int stage, std::uint32_t slot, int r, std::uint32_t (&words)[2]) const {
    const int row = warp_row() + lane_.id / 4 + 8 * r;
    const std::uint32_t at = slot + static_cast<std::uint32_t>(kScales + row * sm80::gemm_scale_pitch(kNvfp4));
    const int shift = 8 * misalignment(first_row_ + row);
    words[0] = exec_.template load_shared<std::uint32_t>(lane_, at);
    words[1] = kNvfp4 ? exec_.template load_shared<std::uint32_t>(lane_, at + 4) : 0;
    if (shift != 0) {
      const auto behind = exec_.template load_shared<std::uint32_t>(lane_, at + kScaleBytes);
      words[0] = __funnelshift_r(words[0], kNvfp4 ? words[1] : behind, shift);
      words[1] = __funnelshift_r(words[1], behind, shift);
    }
    if constexpr (!kNvfp4) {
      const int left = p_.groups - stage * kScaleBytes;
      if (left < 4) words[0] = (words[0] & ((1u << (8 * left)) - 1)) | (kOnes << (8 * left));
      if (first_row_ + row >= p_.n) words[0] = kOnes;
    }
  }
  /// Whether one of four E8M0 scales is outside of 2^-20 to 2^4, bytes 107 to 131.
  __device__ __forceinline__ static bool outside_f16(std::uint32_t four) {
    const std::uint32_t at_least_107 = ((four & kOnes) + 0x15151515u) | four;
    const std::uint32_t above_131 = ((four & kOnes) + 0x7c7c7c7cu) & four;
    return ((~at_least_107 | above_131) & 0x80808080u) != 0;
  }

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
    out[0] = __byte_perm(even, odd, 0x4000) & kHalves;
    out[1] = __byte_perm(even, odd, 0x5010) & kHalves;
    out[2] = __byte_perm(even, odd, 0x6020) & kHalves;
    out[3] = __byte_perm(even, odd, 0x7030) & kHalves;
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
          const std::uint32_t both = sm80::e4m3_to_f16((scale_[r][chunk / 2] & kOnes) >> (16 * (chunk % 2)));
          factor[0] = __byte_perm(both, 0, 0x1010);
          factor[1] = __byte_perm(both, 0, 0x3232);
        } else {
          // 2^(e - 127 + 11) in f16, on codes at 2^-14.
          const std::uint32_t two = (((scale_[r][0] >> (chunk % 2 * 8)) & 0x00ff00ffu) << 10) - (101u << 10) * 0x10001u;
          factor[0] = factor[1] = outside_ ? 0 : __byte_perm(two, 0, chunk < 2 ? 0x1010 : 0x3232);
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
    exec_.template copy_wait<0>();
    __syncthreads();
    auto* const mine = reinterpret_cast<float*>(shared_);
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
#pragma unroll
    for (int nt = 0; nt < kXRows / 8; ++nt) {
#pragma unroll
      for (int v = 0; v < 4; ++v) mine[(8 * nt + 2 * t + v % 2) * kManySumPitch + warp_row() + g + 8 * (v / 2)] = sums_[nt][0][v];
    }
    block_or_cluster_barrier();
    const float w_global = p_.w_globals != nullptr ? p_.w_globals[p_.code_batch == 0 ? 0 : batch_] : p_.w_global;
    const float x_global = p_.x_globals != nullptr ? p_.x_globals[batch_] : 1.0f;
    // A thread has four rows of W, the cluster's blocks take turns at the rows of X.
    constexpr int kFours = kManyRows / 4;
    constexpr int kAtOnce = kManyThreads / kFours;
    const int row = first_row_ + thread_ % kFours * 4;
    float bias[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (p_.bias != nullptr) {
      for (int e = 0; e < 4 && row + e < p_.n; ++e) {
        core::load_plain_row(core::element_address(p_.bias, p_.bias_dtype, row + e), p_.bias_dtype, 1, bias + e);
      }
    }
    for (int i = rank_ * kAtOnce + thread_ / kFours; i < kXRows && first_x_ + i < p_.m; i += kAtOnce * p_.splits) {
      const int at = i * kManySumPitch + thread_ % kFours * 4;
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
  const sm80::GemmParams& p_;
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
  std::uint32_t scale_[2][2];  // of the current stage, rows g and g + 8
  bool outside_;
  std::uint32_t a_[2][4][4];  // of a stage's halves: steps of 16 columns
};

}  // namespace fp4pa::sm90
