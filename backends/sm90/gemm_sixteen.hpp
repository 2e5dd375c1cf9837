// C = X W^T with W in FP4 and 9 to 16 rows of X on sm_90, on mma.sync.
//
// Blocks divide rows of W and K as in gemm_few.hpp, with X and the scales of a block's part of K in shared memory. X takes so much of
// it that a warp's ring has one stage of W, in two halves: a half goes to registers when it has come, and is asked for again while it is
// multiplied. A lane takes 32 neighbouring codes of a row as they lie in memory, so that lanes of four have different scales, which are
// multiplied into the codes, exactly. E8M0 scales outside of 2^-20 to 2^4 are 0 there, and what they multiply is added behind the loop.
//
// What comes before and after the loop is as many instructions as the loop itself if one does not take care: distances between pieces of
// X are constants (gemm_sixteen_x.hpp), and sums are added as they lie in registers, four at a time.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/gemm_scale.hpp"
#include "backends/sm80/store_result.hpp"
#include "backends/sm90/gemm_sixteen_x.hpp"
#include "cuda/dependency.cuh"

namespace fp4pa::sm90 {

/// Stages of X that a warp has under way: where it has mostly one, code for two would cost more than it spares.
[[nodiscard]] constexpr int sixteen_held(FewForm form) { return form == FewForm::kPlain || form == FewForm::kWideHalves ? 2 : 1; }

/// @tparam kBf16  X is, and becomes f16 on its way into shared memory; else it is f16
template <bool kNvfp4, bool kBf16, FewForm kForm>
class SixteenBlock : SixteenX<kNvfp4, kBf16, sixteen_held(kForm), kForm> {
  using X = SixteenX<kNvfp4, kBf16, sixteen_held(kForm), kForm>;
  using typename X::Part;
  using X::base_, X::batch_, X::codes_, X::exec_, X::f_, X::first_, X::first_row_, X::kPlain, X::kScaleBytes, X::lane_, X::last_,
      X::misalignment, X::p_, X::row_group_, X::rows_, X::scale_pitch_, X::shared_, X::turn_, X::turns_, X::x_offset;

 public:
  __device__ __forceinline__ SixteenBlock(const FewParams& params, std::uint8_t* shared)
      : X(params, shared),
        own_row_(first_row_),
        full_(this->scales_there_ + (kSixteenFull - kSixteenScalesThere) + exec_.warp() * (8 * kFewRing)) {
    // The last block begins early enough for all of its rows to exist, and writes its own.
    if (!kPlain && first_row_ > p_.n - rows_) first_row_ = p_.n - rows_;
  }

  __device__ __forceinline__ void run() {
    this->set_up_ring(full_);
    if (!f_.early) cuda::wait_for_previous();
    fetch(first_ + turn_, 0);
    fetch(first_ + turn_, 1);
    this->set_up_barriers();
    this->fetch_scales();
    cuda::wait_for_previous();
    cuda::allow_dependents();
    this->bring_x();
    this->wait_for_scales();

    find_operands();
#pragma unroll
    for (int i = 0; i < kRowTiles * kXTiles * 4; ++i) sums_[i / (4 * kXTiles)][i / 4 % kXTiles][i % 4] = 0.0f;
    std::uint32_t parity = 0;
#pragma unroll 1
    for (int s = first_ + turn_; s < last_; s += turns_) {
#pragma unroll
      for (int half = 0; half < kFewRing; ++half) {
        barrier_wait(full_ + 8 * half, parity);
        read_half(half);
        multiply(s, half);
      }
      parity ^= 1;
    }
    if (!kNvfp4 && __any_sync(0xffffffffu, outside_)) add_outside();
    this->done_with_operands();
    finish();
  }

 private:
  static constexpr int kXTiles = kSixteenX / 8;
  static constexpr int kRowTiles = kFewWarpRows / 16;
  static constexpr int kGroups = kNvfp4 ? 2 : 1;        // in a lane's 32 columns
  /// A byte e in both halves, times 2^10, less this is the f16 2^(e - 127 + 11) in both, for codes at 2^-14.
  static constexpr std::uint32_t kE8m0Zero = (101u << 10) * 0x10001u;
  static constexpr float kUnit = kNvfp4 ? 16384.0f : 8.0f;  // what undoes the operands' powers of two

  /// x, of which the compiler has computed nothing before.
  __device__ __forceinline__ static std::uint32_t anew(std::uint32_t x) {
    asm volatile("" : "+r"(x));
    return x;
  }

  /// A lane's first row of W, of the block.
  __device__ __forceinline__ int lane_row() const { return row_group_ * kFewWarpRows + lane_.id / 4; }
  /// Asks for half of a stage's rows.
  __device__ __forceinline__ void fetch(int stage, int half) const {
    if (stage < last_ && lane_.id == 0) this->template fetch_slot<kFewHalfRows>(full_, stage, half, this->code_row());
  }
  /// A half's words to registers: chunk t of rows g + 8 o.
  __device__ __forceinline__ void read_half(int half) {
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
    const std::uint32_t at = this->template slot_offset<kFewHalfRows>(half) + this->code_offset(g, t);
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) exec_.load_shared_16(lane_, at + static_cast<std::uint32_t>(8 * i * sm80::kCodeBytes), words_[i]);
  }

  /// Where a lane reads X and scales of the block's first stage. Rows that X does not have are some row's copy: their products are
  /// nobody's.
  __device__ __forceinline__ void find_operands() {
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
#pragma unroll
    for (int n = 0; n < kXTiles; ++n) x_at_[n] = anew(x_offset(8 * n + g < p_.m ? 8 * n + g : p_.m - 1, 4 * t));
    const int row = lane_row();
    scale_at_ = anew(kSixteenScales + row * scale_pitch_ + misalignment(first_row_ + row) + kGroups * t);
  }
  /// Of a lane's columns of a stage, in row g of the n-th eight of X.
  __device__ __forceinline__ std::uint32_t columns_at(int stage, int n) const {
    return anew(x_at_[n] + (stage - first_) * (2 * sm80::kGemmStage));
  }
  /// Those of word w of the lane's chunk.
  __device__ __forceinline__ void load_columns(std::uint32_t at, int w, std::uint32_t (&x)[4]) const {
    exec_.load_shared_16(lane_, at ^ static_cast<std::uint32_t>(16 * w), x);
  }

  __device__ __forceinline__ static void add_products(const std::uint32_t (&pair)[2][4], const std::uint32_t (&x)[4], float (&sum)[4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const std::uint32_t a[4] = {pair[0][2 * step], pair[1][2 * step], pair[0][2 * step + 1], pair[1][2 * step + 1]};
      const std::uint32_t b[2] = {x[2 * step], x[2 * step + 1]};
      sm80::MmaM16N8K16Instruction<core::F16>::mma(sum, a, b, sum);
    }
  }

  /// Of row g + 8 o of a half, in a lane's columns; E8M0 those of words 0 to 3, E4M3 of 0 and 1, then of 2 and 3.
  __device__ __forceinline__ std::uint32_t scale_at(int stage, int half, int o) const {
    return scale_at_ + (stage - first_) * kScaleBytes + static_cast<std::uint32_t>(kRowTiles * half + o) * (8 * scale_pitch_);
  }
  /// Whether f16 does not hold codes times a scale. A row's scales behind its last are zeros, and so is X.
  __device__ __forceinline__ bool is_outside(std::uint32_t e, int stage) const {
    return !sm80::in_f16(e) && (kPlain || stage * 4 + lane_.id % 4 < p_.groups);
  }

  /// Half of a warp's rows.
  __device__ __forceinline__ void multiply(int stage, int half) {
    std::uint32_t factor[kRowTiles];  // in both halves; of NVFP4 those of a lane's two groups
#pragma unroll
    for (int o = 0; o < kRowTiles; ++o) {
      if constexpr (kNvfp4) {
        factor[o] = sm80::e4m3_to_f16(exec_.template load_shared<std::uint16_t>(lane_, scale_at(stage, half, o)) & 0x7f7fu);
      } else {
        const std::uint32_t e = exec_.template load_shared<std::uint8_t>(lane_, scale_at(stage, half, o));
        const bool outside = is_outside(e, stage);
        outside_ |= outside;
        factor[o] = outside ? 0 : e * (0x10001u << 10) - kE8m0Zero;
      }
    }
    std::uint32_t columns[kXTiles];
#pragma unroll
    for (int n = 0; n < kXTiles; ++n) columns[n] = columns_at(stage, n);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      std::uint32_t x[kXTiles][4];
#pragma unroll
      for (int n = 0; n < kXTiles; ++n) load_columns(columns[n], w, x[n]);
#pragma unroll
      for (int o = 0; o < kRowTiles; o += 2) {
        std::uint32_t pair[2][4];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          sm80::e2m1_to_f16(words_[o + r][w], pair[r]);
          const std::uint32_t f = kNvfp4 ? __byte_perm(factor[o + r], 0, w < 2 ? 0x1010 : 0x3232) : factor[o + r];
#pragma unroll
          for (int e = 0; e < 4; ++e) pair[r][e] = sm80::multiply_f16(pair[r][e], f);
        }
#pragma unroll
        for (int n = 0; n < kXTiles; ++n) add_products(pair, x[n], sums_[(kRowTiles * half + o) / 2][n]);
      }
      if (w == 0) {  // all words are in registers, or these products were not made
        __syncwarp();
        fetch(stage + turns_, half);
      }
    }
  }

  /// The products of W under E8M0 scales that f16 does not hold, for which factors were 0. Rare, and slow.
  __device__ __forceinline__ void add_outside() {
#pragma unroll 1
    for (int i = 0; i < kRowTiles * kXTiles * 4; ++i) {
      const int row = lane_row() + i / (4 * kXTiles) * 16 + i % 4 / 2 * 8;
      const int m = i / 4 % kXTiles * 8 + lane_.id % 4 * 2 + i % 2;
      const float sum = m < p_.m ? outside_sum(row, m) : 0.0f;
#pragma unroll
      for (int j = 0; j < kRowTiles * kXTiles * 4; ++j) {
        if (j == i) sums_[j / (4 * kXTiles)][j / 4 % kXTiles][j % 4] += sum;
      }
    }
  }
  /// Those of a row of the block and one of X, in the unit of the others. W is read again.
  __device__ __forceinline__ float outside_sum(int row, int m) const {
    const std::uint32_t scales = kSixteenScales + row * scale_pitch_ + misalignment(first_row_ + row);
    float sum = 0.0f;
#pragma unroll 1
    for (int i = 4 * turn_; i < 4 * (last_ - first_); i += i % 4 == 3 ? 4 * turns_ - 3 : 1) {
      const auto e = exec_.template load_shared<std::uint8_t>(lane_, scales + i);
      if (sm80::in_f16(e) || 4 * first_ + i >= p_.groups) continue;
      const std::uint8_t* const codes = codes_ + std::int64_t{first_row_ + row} * p_.row_bytes + 16 * (4 * first_ + i);
      float part = 0.0f;
#pragma unroll 1
      for (int w = 0; w < 4; ++w) {
        std::uint32_t code[4], x[4];
        sm80::e2m1_to_f16(__ldg(reinterpret_cast<const std::uint32_t*>(codes) + w), code);
        exec_.load_shared_16(lane_, x_offset(m, 4 * i + w), x);
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&code[v]));
          const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&x[v]));
          part = fmaf(a.y, b.y, fmaf(a.x, b.x, part));
        }
      }
      sum = fmaf(sm80::e8m0_exact(e, 0), part * 2048.0f, sum);  // codes at 2^-14, to the others' unit
    }
    return sum;
  }

  /// Sums of all warps to shared memory, added in a fixed order, across the cluster too, and out. Four of a lane lie side by side: of
  /// rows g and g + 8 of a tile and two rows of X.
  __device__ __forceinline__ void finish() const {
    float unit[2 * kXTiles];  // of a lane's rows of X
#pragma unroll
    for (int i = 0; i < 2 * kXTiles; ++i) unit[i] = this->unit_of(i / 2 * 8 + lane_.id % 4 * 2 + i % 2);
    __syncthreads();
    auto* const sums = reinterpret_cast<float4*>(shared_);
    const int units = Part::row_groups(f_) * kRowTiles * kXTiles;  // of 32 lanes
#pragma unroll
    for (int i = 0; i < kRowTiles * kXTiles; ++i) {
      const float(&s)[4] = sums_[i / kXTiles][i % kXTiles];
      const float even = unit[i % kXTiles * 2], odd = unit[i % kXTiles * 2 + 1];
      sums[(turn_ * units + row_group_ * (kRowTiles * kXTiles) + i) * 32 + lane_.id] =
          make_float4(s[0] * even, s[1] * odd, s[2] * even, s[3] * odd);
    }
    __syncthreads();
    if constexpr (kPlain) return store_plain(sums, units);
    // Blocks that divide K take turns at units, and are given the others' sums of these, in the order of K.
    const int rank = rank_in_cluster();
    const auto given = static_cast<std::uint32_t>(kSixteenSums + lane_.id * 16);
    if (p_.splits > 1) this->ready_to_give((units - rank + p_.splits - 1) / p_.splits * (p_.splits - 1) * kSixteenUnitBytes);
#pragma unroll 1
    for (int unit = exec_.warp(); unit < units; unit += kFewWarps) {
      const int owner = unit % p_.splits;
      const auto place = static_cast<std::uint32_t>((unit - owner + rank) * kSixteenUnitBytes);
      give_to_block(owner, owner == rank, base_ + given + place, this->given_there(), of_all_turns(sums, unit, units));
    }
    __syncthreads();
    if (p_.splits > 1) this->wait_for_given();
    const float w_global = this->w_global();
    const float x_global = p_.x_globals != nullptr ? p_.x_globals[batch_] : 1.0f;
#pragma unroll 1
    for (int unit = exec_.warp() * p_.splits + rank; unit < units; unit += kFewWarps * p_.splits) {
      const int n = first_row_ + unit / kXTiles * 16 + lane_.id / 4;
      const int m = unit % kXTiles * 8 + lane_.id % 4 * 2;
      if (m >= p_.m || n + 8 < own_row_) continue;  // nothing of it is wanted
      auto place = given + static_cast<std::uint32_t>((unit - rank) * kSixteenUnitBytes);
      float4 sum = exec_.template load_shared<float4>(lane_, place);
#pragma unroll 1
      for (int r = 1; r < p_.splits; ++r) add(sum, exec_.template load_shared<float4>(lane_, place += kSixteenUnitBytes));
      const float value[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int v = 0; v < 4; ++v) store(value[v] * kUnit, w_global, x_global, m + v % 2, n + v / 2 * 8);
    }
  }
  /// Of a plain product, as in gemm_few.hpp: of two blocks each brings out half of the units.
  __device__ __forceinline__ void store_plain(float4* sums, int units) const {
    const float scale = kUnit * this->w_global();
    const auto store_unit = [&](const float4& sum, int unit) {
      const int n = first_row_ + unit / kXTiles * 16 + lane_.id / 4;
      const int m = unit % kXTiles * 8 + lane_.id % 4 * 2;
      float bias[2] = {0.0f, 0.0f};
      if (p_.bias != nullptr) {
#pragma unroll
        for (int r = 0; r < 2; ++r) bias[r] = load_bias_16(p_, n + 8 * r);
      }
      const float value[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        if (m + v % 2 >= p_.m) continue;
        const std::int64_t at = (batch_ * p_.m + m + v % 2) * p_.n + n + v / 2 * 8;
        sm80::store_result_16(value[v] * scale + bias[v / 2], p_.out_dtype, p_.out, at);
      }
    };
    if constexpr (kForm == FewForm::kPlain) {
#pragma unroll 1
      for (int unit = exec_.warp(); unit < units; unit += kFewWarps) store_unit(of_all_turns(sums, unit, units), unit);
      return;
    }
    const int half = units / 2;
    const int rank = rank_in_cluster();
    const auto given = static_cast<std::uint32_t>(kSixteenSums + lane_.id * 16);
    this->ready_to_give(half * kSixteenUnitBytes);
#pragma unroll 1
    for (int unit = exec_.warp(); unit < units; unit += kFewWarps) {
      const float4 sum = of_all_turns(sums, unit, units);
      if ((unit < half) == (rank == 0)) {
        sums[unit * 32 + lane_.id] = sum;
      } else {
        const auto place = static_cast<std::uint32_t>((unit < half ? unit : unit - half) * kSixteenUnitBytes);
        give_to_block(rank ^ 1, false, base_ + given + place, this->given_there(), sum);
      }
    }
    this->wait_for_given();
#pragma unroll 1
    for (int unit = exec_.warp(); unit < units; unit += kFewWarps) {
      if ((unit < half) != (rank == 0)) continue;
      float4 sum = sums[unit * 32 + lane_.id];
      add(sum, exec_.template load_shared<float4>(lane_, given + static_cast<std::uint32_t>((unit - rank * half) * kSixteenUnitBytes)));
      store_unit(sum, unit);
    }
  }
  __device__ __forceinline__ void store(float sum, float w_global, float x_global, int m, int n) const {
    if (m >= p_.m || n < own_row_) return;
    const float bias = p_.bias != nullptr ? load_bias(p_, n) : 0.0f;
    const std::int64_t x_row = batch_ * p_.m + m;
    const float inverse = p_.x_inverse != nullptr ? p_.x_inverse[x_row] : 1.0f;
    const float value = sum * inverse * w_global * x_global + bias;
    sm80::store_result(value, p_.out_dtype, p_.out, x_row * p_.n + n);
  }
  __device__ __forceinline__ float4 of_all_turns(const float4* sums, int unit, int units) const {
    float4 sum = sums[unit * 32 + lane_.id];
#pragma unroll 1
    for (int turn = 1; turn < turns_; ++turn) add(sum, sums[(turn * units + unit) * 32 + lane_.id]);
    return sum;
  }
  int own_row_;                            // the first that the block writes
  std::uint32_t full_;                     // the warp's barriers: a half has come
  std::uint32_t words_[kRowTiles][4];      // a lane's codes of a half
  std::uint32_t x_at_[kXTiles], scale_at_;
  float sums_[kRowTiles][kXTiles][4];
  bool outside_ = false;  // a scale was
};

}  // namespace fp4pa::sm90
