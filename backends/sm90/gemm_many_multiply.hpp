// The multiplying warpgroups of the matrix product for many rows of X: 64 rows of W each by the block's rows of X, on wgmma with W as
// A, decoded in registers to what X is, f16 or bf16, and X as B in the ring.
//
// X lies as it does in memory, so columns keep their order, and a lane needs two neighbouring codes of every eight: one byte of each
// word. With up to 128 rows of X these have been put into one word (gemm_many_arrange.hpp). A chunk of 32 or 64 columns is decoded while
// those before are multiplied.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/sm80/convert.hpp"
#include "backends/sm90/exec.hpp"
#include "backends/sm90/gemm_many_ring.hpp"
#include "backends/sm90/operand_tile.hpp"
#include "cuda/dependency.cuh"

namespace fp4pa::sm90 {

template <ManyLayout kLayout>
class ManyMultiplier {
 public:
  __device__ __forceinline__ ManyMultiplier(const ManyParams& params, std::uint8_t* shared, const ManyPart& part)
      : ring_(params, shared, part), exec_(shared), lane_{static_cast<int>(threadIdx.x % 32)}, stages_(part.stages) {
    const int first = exec_.warp() * 16;
    const int row = first + lane_.id / 4;
    codes_ = kLayout.arranged() ? code_address(first + lane_.id % 8, lane_.id / 8) : code_address(row, 0);
    factors_ = static_cast<std::uint32_t>(row * kLayout.factor_row_bytes());
    asm volatile("" : "+r"(codes_), "+r"(factors_));  // not to be worked out again in every round
  }

  /// Asks for what fills the ring, by a thread for codes and one for X. Not by those that fetch: they wait for scales then.
  __device__ __forceinline__ void fetch(bool early) const {
    if (threadIdx.x == ManyLayout::kMultipliers / 2) {
      if (!early) cuda::wait_for_previous();
#pragma unroll 1
      for (int s = 0; s < kLayout.ring() && s < stages_; ++s) {
        if (s == kCodesFirst) cuda::wait_for_previous();
        ring_.copy_codes(s);
      }
    }
    if (threadIdx.x == 0) {
      cuda::wait_for_previous();
#pragma unroll 1
      for (int s = 0; s < kLayout.ring() && s < stages_; ++s) ring_.copy_x(s);
    }
  }

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int i = 0; i < kXRows / 2; ++i) sums_[i / 4][0][i % 4] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8 * kSteps; ++i) a_[i / (4 * kSteps)][i / 4 % kSteps][i % 4] = 0;
    x_ = matrix_descriptor(ring_.base() & 0x3ffff, {0, core::kChunkBytes, kSwizzleBytes});
    Turn turn;
    std::uint32_t before = ring_.read(turn);  // of the stage before, from the second one on
    barrier_wait(ring_.full(turn), turn.parity);
    cuda::allow_dependents();  // behind the wait of those that fetched this
    decode<0>(turn, 0);
#pragma unroll 1
    for (int s = 0; s < stages_; ++s) {
      const Turn now = turn;
      turn.next();
      // Behind the last stage there is nothing to wait for, and what is decoded is not used.
      const bool ready = s + 1 == stages_ || barrier_test(ring_.full(turn), turn.parity);
#pragma unroll
      for (int chunk = 0; chunk + 1 < kChunks; ++chunk) {
        issue(now, chunk);
        decode<1>(now, chunk + 1);
        if (chunk > 0) continue;
        if (s > 0 && lane_.id == 0) barrier_arrive(before);  // its products have ended
        before = ring_.read(now);
      }
      issue(now, kChunks - 1);
      if (!ready) barrier_wait(ring_.full(turn), turn.parity);
      decode<1>(turn, 0);
    }
    wait<0>();
    pin(sums_);
  }

  using Sums = float[kLayout.x_rows / 8][1][4];
  [[nodiscard]] __device__ __forceinline__ Sums& sums() { return sums_; }

 private:
  static constexpr bool kNvfp4 = kLayout.nvfp4;
  static constexpr int kXRows = kLayout.x_rows;
  using Element = std::conditional_t<kLayout.bf16, core::BF16, core::F16>;
  using Ring = ManyRing<kLayout>;
  using Turn = ManyTurn<kLayout>;
  using Factors = std::conditional_t<kNvfp4, uint4, uint2>;  // of a row and a stage, 16 bits each
  // Whether a stage's factors are loaded at once. Of MXFP4 in f16, whose chunks have little to wait for, loads as they are needed are
  // faster while codes are not arranged, though they are 7 instructions more.
  static constexpr bool kLoadsAll = kNvfp4 || kLayout.bf16 || kLayout.arranged();
  // Stages whose codes are asked for before X is: more of them would keep X waiting.
  static constexpr int kCodesFirst = 3;
  // Columns decoded at once. With fewer, the warps of a group meet more often; with more rows of X there are no registers for more.
  static constexpr int kChunkColumns = kXRows <= 32 ? 64 : 32;
  static constexpr int kChunks = sm80::kGemmStage / kChunkColumns;
  static constexpr int kSteps = kChunkColumns / 16;
  using Operands = std::uint32_t[kSteps][4];  // of a chunk, 16 columns a step

  template <int kNewest>
  __device__ __forceinline__ static void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNewest) : "memory");
  }
  /// Operands that an instruction in flight may still have read up to here.
  __device__ __forceinline__ static void pin(Operands& a) {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
  }
  __device__ __forceinline__ static void pin(float (&d)[kXRows / 8][1][4]) { sm90::pin(d); }

  /// The products of a chunk: an instruction a step.
  __device__ __forceinline__ void issue(const Turn& turn, int chunk) {
    constexpr int kPanelChunks = kPanelDims / kChunkColumns;
    // Addresses are the descriptor's lowest bits, in units of 16 bytes.
    const std::uint64_t x =
        x_ + static_cast<std::uint32_t>(turn.slot * (kLayout.stage_bytes() / 16) + chunk / kPanelChunks * (kLayout.x_bytes() / 32));
    exec_.group_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      wgmma<Element, kXRows, false>(sums_, a_[chunk % 2][step], x + (chunk % kPanelChunks * kSteps + step) * (2 * kStep / 16), true);
    }
    exec_.group_commit();
  }

  /// Of the 32 columns `group` of a row, in a slot, where the copy engine's swizzle puts them.
  [[nodiscard]] __device__ __forceinline__ static std::uint32_t code_address(int row, int group) {
    return static_cast<std::uint32_t>(kLayout.x_bytes() + row * sm80::kCodeBytes + (group ^ (row >> 1 & 3)) * 16);
  }

  /// A stage's codes to registers, as they have been arranged.
  __device__ __forceinline__ void load_words(const Turn& turn) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      exec_.template load_matrix<false>(
          [&](WarpExec::Lane) { return codes_ + Ring::slot(turn) + 8 * r * sm80::kCodeBytes; },
          [&](WarpExec::Lane) -> std::uint32_t(&)[4] { return words_[r]; });
    }
  }
  /// A lane's eight codes of 32 columns, in f16 times 2^-14 or in bf16 times 2^-126.
  __device__ __forceinline__ static void decode_word(std::uint32_t codes, std::uint32_t (&out)[4]) {
    if constexpr (kLayout.bf16) {
      sm80::e2m1_to_bf16(codes, out);
    } else {
      sm80::e2m1_to_f16(codes, out);
    }
  }
  /// The same of codes that nobody arranged: a lane's two of each eight of 32 columns, which lie at `codes`.
  __device__ __forceinline__ void decode_row(std::uint32_t codes, std::uint32_t (&out)[4]) const {
    std::uint32_t w[4];
    exec_.load_shared_16(lane_, codes, w);
    const auto t = static_cast<std::uint32_t>(lane_.id % 4);
    const std::uint32_t select = t | (4 + t) << 4;
    const std::uint32_t q = __byte_perm(__byte_perm(w[0], w[1], select), __byte_perm(w[2], w[3], select), 0x5410);
    if constexpr (kLayout.bf16) {
      // Lower halves of bytes to the lower half of the word, 0, 2, 1 and 3.
      const std::uint32_t moved = sm80::select_bits(0xffff0000u, q << 12, q >> 12);
      std::uint32_t halves[4];
      sm80::e2m1_to_bf16(sm80::select_bits(0xf0f00f0fu, q, moved), halves);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] = halves[i % 2 * 2 + i / 2];
      return;
    }
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

  [[nodiscard]] __device__ __forceinline__ std::uint32_t factors_at(const Turn& turn, int r) const {
    return factors_ + Ring::factors(turn) + 8 * r * kLayout.factor_row_bytes();
  }
  /// Two of a row's factors.
  __device__ __forceinline__ static std::uint32_t pair(const uint2& row, int i) { return i == 0 ? row.x : row.y; }
  __device__ __forceinline__ static std::uint32_t pair(const uint4& row, int i) {
    return i == 0 ? row.x : i == 1 ? row.y : i == 2 ? row.z : row.w;
  }

  /// A chunk as operands, in registers that at most the kNewest newest products do not read.
  template <int kNewest>
  __device__ __forceinline__ void decode(const Turn& turn, int chunk) {
    constexpr int kGroups = kChunkColumns / 32;
    std::uint32_t out[kGroups][2][4];
    std::uint32_t factors[kGroups][2];  // two of MXFP4's groups, or the two of NVFP4's in 32 columns
    if (kLayout.arranged() && chunk == 0) load_words(turn);
    if (kLoadsAll && chunk == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) row_factors_[r] = exec_.template load_shared<Factors>(lane_, factors_at(turn, r));
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int group = chunk * kGroups + g;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int two = kNvfp4 ? group : group / 2;
        if constexpr (kLoadsAll) {
          factors[g][r] = pair(row_factors_[r], two);
        } else {
          factors[g][r] = g % 2 == 1 ? factors[g - 1][r] : exec_.template load_shared<std::uint32_t>(lane_, factors_at(turn, r) + 4 * two);
        }
        if constexpr (kLayout.arranged()) {
          decode_word(words_[r][group], out[g][r]);
        } else {
          // Eight rows further the swizzle is the same.
          const std::uint32_t codes = codes_ + Ring::slot(turn);
          decode_row((codes ^ static_cast<std::uint32_t>(16 * group)) + 8 * r * sm80::kCodeBytes, out[g][r]);
        }
      }
    }
    wait<kNewest>();
    pin(a_[chunk % 2]);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          a_[chunk % 2][2 * g + i / 2][i % 2 * 2 + r] =
              multiply_by_half(out[g][r][i], factors[g][r], kNvfp4 ? i / 2 : (chunk * kGroups + g) % 2);
        }
      }
    }
  }
  /// Both halves of `a` by one of `factors`, which the instruction can choose.
  __device__ __forceinline__ static std::uint32_t multiply_by_half(std::uint32_t a, std::uint32_t factors, int half) {
    std::uint32_t out;
#define FP4PA_MULTIPLY_BY(which, type)                                                                                           \
  asm("{.reg .b16 low, high; .reg .b32 both; mov.b32 {low, high}, %2; mov.b32 both, {" which ", " which "}; mul.rn." type " %0, %1, both;}" \
      : "=r"(out)                                                                                                                \
      : "r"(a), "r"(factors))
    if constexpr (kLayout.bf16) {
      if (half == 0) {
        FP4PA_MULTIPLY_BY("low", "bf16x2");
      } else {
        FP4PA_MULTIPLY_BY("high", "bf16x2");
      }
    } else if (half == 0) {
      FP4PA_MULTIPLY_BY("low", "f16x2");
    } else {
      FP4PA_MULTIPLY_BY("high", "f16x2");
    }
#undef FP4PA_MULTIPLY_BY
    return out;
  }

  Ring ring_;
  WarpExec exec_;
  WarpExec::Lane lane_;
  int stages_;
  std::uint32_t codes_, factors_;  // offsets: of the first codes that a lane loads in a slot, of the factors of its first row in theirs
  std::uint64_t x_;  // descriptor of the ring's first X
  Factors row_factors_[2];     // of the lane's rows
  std::uint32_t words_[2][4];  // codes of the lane's rows, 32 columns each
  Sums sums_;
  Operands a_[2];
};

}  // namespace fp4pa::sm90
