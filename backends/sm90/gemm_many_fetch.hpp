// The fetching warps of the matrix product for many rows of X: a lane asks the copy engine for X and codes, once those that fill the ring
// are used up (gemm_many_multiply.hpp asks for these), and every thread turns the scales of a row of W into factors of its codes.
//
// Factors are what X is, exactly. f16: E4M3 has four significant bits and makes multiples of f16's smallest number; E8M0 goes in at 2^-3
// while it lies in 2^-20 to 2^4. bf16: E8M0 goes in at 2^-6 up to 2^7, E4M3 at 2^-12 (WeightUnit). Where a scale does not fit, the factor is
// 0, and the block is told (gemm_many.hpp).
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/gemm_scale.hpp"
#include "backends/sm90/gemm_many_ring.hpp"
#include "backends/sm90/gemm_scales.hpp"
#include "backends/sm90/weight_unit.hpp"
#include "cuda/dependency.cuh"

namespace fp4pa::sm90 {

template <ManyLayout kLayout>
class ManyFetcher {
 public:
  __device__ __forceinline__ ManyFetcher(const ManyParams& params, std::uint8_t* shared, const ManyPart& part)
      : ring_(params, shared, part),
        p_(params.gemm),
        shared_(shared),
        part_(part),
        thread_(static_cast<int>(threadIdx.x) - ManyLayout::kMultipliers),
        row_(params.gemm, part.batch, part.first_row + thread_) {}

  /// Asks for the first scales. Before the block's barrier, which they do not need.
  __device__ __forceinline__ void begin(bool early) {
    if (!early) cuda::wait_for_previous();
    load_scales(0);
  }

  __device__ __forceinline__ void run() {
    cuda::wait_for_previous();
    cuda::allow_dependents();
    // What has been read makes room for factors of the stage kPlaces further, and for a slot of the one kRing further.
    Turn turn;
#pragma unroll 1
    for (int first = 0; first < part_.stages + kPlaces - kRing; first += kAtOnce) {
      Scales scales;
#pragma unroll
      for (int i = 0; i < kAtOnce * kWords; ++i) scales[i] = next_[i];
      load_scales(first + kAtOnce);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int s = first + i;
        const int next = s - kPlaces + kRing;
        if (s >= kPlaces && next < part_.stages) {
          barrier_wait(ring_.read(turn), turn.parity ^ 1);  // of stage s - kPlaces, a round before
          if (leads()) {
            ring_.copy_codes(next);
            ring_.copy_x(next);
          }
        }
        if (s < part_.stages) {
          put_factors(s, turn, &scales[i * kWords]);
          barrier_arrive(ring_.full(turn));  // each for itself: racecheck does not follow an arrival on behalf of a warp
        }
        turn.next();
      }
    }
  }

 private:
  using Turn = ManyTurn<kLayout>;
  static constexpr bool kNvfp4 = kLayout.nvfp4;
  static constexpr int kRing = kLayout.ring();
  static constexpr int kPlaces = kLayout.factor_ring();
  static constexpr int kAtOnce = 4;                 // stages whose scales are asked for together, ahead of those before
  static constexpr int kWords = kNvfp4 ? 2 : 1;     // of a row's scales of a stage
  // In place of an E8M0 scale whose factor is to be 0: that of 101 is in f16, and that of 0 is made so in bf16.
  static constexpr std::uint32_t kNone = kLayout.bf16 ? 0 : 101;
  using Unit = WeightUnit<kNvfp4, kLayout.bf16>;
  using Scales = std::uint32_t[kAtOnce * kWords];

  [[nodiscard]] __device__ __forceinline__ bool leads() const { return thread_ == 0; }

  /// Of a few stages, on their way to registers.
  __device__ __forceinline__ void load_scales(int stage) {
    if (stage < part_.stages) row_.load_words((part_.first_stage + stage) * kWords, next_);
  }

  __device__ __forceinline__ void put_factors(int stage, const Turn& turn, const std::uint32_t* scales) const {
    std::uint8_t* const to = shared_ + ManyRing<kLayout>::factors(turn) + thread_ * kLayout.factor_row_bytes();
    if constexpr (kNvfp4) {
      std::uint32_t pair[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) pair[i] = Unit::factors_of_e4m3(scales[i / 2] >> (16 * (i % 2)) & 0x7f7fu);
      *reinterpret_cast<uint4*>(to) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    } else {
      std::uint32_t four = scales[0];
      const bool outside = Unit::outside(four);
      if (outside) four = without_outside(four, stage);
      uint2 pairs = make_uint2(Unit::factors(__byte_perm(four, 0, 0x4140)), Unit::factors(__byte_perm(four, 0, 0x4342)));
      if (kLayout.bf16 && outside) {
        pairs.x &= there(four);
        pairs.y &= there(four >> 16);
      }
      *reinterpret_cast<uint2*>(to) = pairs;
    }
  }

  /// Halves of ones for those of two scales that are not kNone.
  __device__ __forceinline__ static std::uint32_t there(std::uint32_t two) {
    return ((two & 0xffu) != kNone ? 0xffffu : 0u) | ((two >> 8 & 0xffu) != kNone ? 0xffff0000u : 0u);
  }

  /// Four E8M0 scales, those that factors do not hold as kNone. The block is told of them, unless their codes are zeros, as those of an
  /// empty group are.
  __device__ __forceinline__ std::uint32_t without_outside(std::uint32_t four, int stage) const {
    const int n = part_.first_row + thread_ < p_.n ? part_.first_row + thread_ : p_.n - 1;
    const std::uint8_t* const codes = p_.codes + part_.batch * p_.code_batch + n * p_.row_bytes;
    std::uint32_t held = 0;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t scale = four >> (8 * i) & 0xffu;
      if (Unit::holds(scale)) {
        held |= scale << (8 * i);
        continue;
      }
      held |= kNone << (8 * i);
      bool lost = scale == 0xff;  // NaN, of codes of zero too
      const int group = (part_.first_stage + stage) * 4 + i;
      if (group < p_.groups) {
        const uint4 q = __ldg(reinterpret_cast<const uint4*>(codes + 16 * group));
        lost |= ((q.x | q.y | q.z | q.w) & 0x77777777u) != 0;
      }
      if (lost) *reinterpret_cast<volatile std::uint32_t*>(shared_ + kLayout.outside()) = 1;
    }
    return held;
  }

  ManyRing<kLayout> ring_;
  const sm80::GemmParams& p_;
  std::uint8_t* shared_;
  const ManyPart& part_;
  int thread_;  // and row of W
  ScaleRow<kNvfp4> row_;
  Scales next_;
};

}  // namespace fp4pa::sm90
