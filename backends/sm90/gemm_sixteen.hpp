// C = X W^T with W in FP4 and 9 to 16 rows of X on sm_90, on mma.sync.
//
// Blocks divide rows of W and K as in gemm_few.hpp, with X and the scales of a block's part of K in shared memory. X takes so much of
// it that there is no room for a ring of W: a warp loads the next stage's codes to registers, half of its rows while it multiplies
// the others. A lane takes 32 neighbouring codes of a row as they lie in memory, so that lanes of four have different scales, which are
// multiplied into the codes, exactly. E8M0 scales outside of 2^-20 to 2^4 multiply sums of one lane's columns at a time.
//
// What comes before and after the loop is as many instructions as the loop itself if one does not take care: distances between pieces of
// X are constants (gemm_sixteen_x.hpp), and sums are added as they lie in registers, four at a time.
#pragma once

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
  __device__ __forceinline__ SixteenBlock(const FewParams& params, std::uint8_t* shared) : X(params, shared), own_row_(first_row_) {
    // The last block begins early enough for all of its rows to exist, and writes its own.
    if (!kPlain && first_row_ > p_.n - rows_) first_row_ = p_.n - rows_;
    row_step_ = 8 * static_cast<std::uint32_t>(p_.row_bytes);
  }

  __device__ __forceinline__ void run() {
    find_codes();
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
#pragma unroll 1
    for (int s = first_ + turn_; s < last_; s += turns_) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply(s, half);
        fetch(s + turns_, half);
      }
    }
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
  __device__ __forceinline__ void find_codes() {
    codes_ += std::int64_t{first_row_} * p_.row_bytes;
    code_at_ = static_cast<std::uint32_t>(lane_row()) * static_cast<std::uint32_t>(p_.row_bytes);
  }
  /// Half of a stage's rows to registers: chunk t of rows g + 8 o. Columns past the end take the last's codes: X has zeros there.
  __device__ __forceinline__ void fetch(int stage, int half) {
    if (stage >= last_) return;
    const auto bytes = static_cast<std::uint32_t>(p_.row_bytes);
    const std::uint32_t column = static_cast<std::uint32_t>(stage * sm80::kCodeBytes + lane_.id % 4 * 16);
    std::uint32_t at = code_at_ + (column < bytes ? column : bytes - 16) + static_cast<std::uint32_t>(half * kRowTiles) * row_step_;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      std::uint32_t(&w)[4] = words_[kRowTiles * half + i];
      asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                   : "l"(codes_ + at));
      at += row_step_;
    }
  }

  /// Where a lane reads X and scales of the block's first stage. Rows that X does not have are some row's copy: their products are
  /// nobody's.
  __device__ __forceinline__ void find_operands() {
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
#pragma unroll
    for (int n = 0; n < kXTiles; ++n) x_at_[n] = anew(x_offset(8 * n + g < p_.m ? 8 * n + g : p_.m - 1, 4 * t));
    const int row = lane_row();
    scale_at_ = anew(row * scale_pitch_ + misalignment(first_row_ + row) + kGroups * t);
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

  /// Half of a warp's rows.
  __device__ __forceinline__ void multiply(int stage, int half) {
    const std::uint32_t scales = scale_at_ + (stage - first_) * kScaleBytes;
    std::uint32_t factor[kRowTiles];  // in both halves; of NVFP4 those of a lane's two groups
    bool outside = false;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const std::uint32_t at = scales + static_cast<std::uint32_t>(kRowTiles * half + i) * (8 * scale_pitch_);
      if constexpr (kNvfp4) {
        factor[i] = sm80::e4m3_to_f16(exec_.template load_shared<std::uint16_t>(lane_, at) & 0x7f7fu);
      } else {
        const std::uint32_t e = exec_.template load_shared<std::uint8_t>(lane_, at);
        outside |= !sm80::in_f16(e);
        factor[i] = e * (0x10001u << 10) - kE8m0Zero;
      }
    }
    outside = outside && stage * 4 + lane_.id % 4 < p_.groups;  // a row's scales behind its last are zeros, and so is X
    if (!kNvfp4 && __any_sync(0xffffffffu, outside)) return multiply_scaled_sums(stage, half, scales - lane_.id % 4);
    std::uint32_t columns[kXTiles];
#pragma unroll
    for (int n = 0; n < kXTiles; ++n) columns[n] = columns_at(stage, n);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      std::uint32_t x[kXTiles][4];
#pragma unroll
      for (int n = 0; n < kXTiles; ++n) load_columns(columns[n], w, x[n]);
#pragma unroll
      for (int i = 0; i < kRowTiles; i += 2) {
        std::uint32_t pair[2][4];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          sm80::e2m1_to_f16(words_[kRowTiles * half + i + r][w], pair[r]);
          const std::uint32_t f = kNvfp4 ? __byte_perm(factor[i + r], 0, w < 2 ? 0x1010 : 0x3232) : factor[i + r];
#pragma unroll
          for (int e = 0; e < 4; ++e) pair[r][e] = sm80::multiply_f16(pair[r][e], f);
        }
#pragma unroll
        for (int n = 0; n < kXTiles; ++n) add_products(pair, x[n], sums_[(kRowTiles * half + i) / 2][n]);
      }
    }
  }

  /// The same with E8M0 scales multiplied into sums, one lane of four after the other.
  /// @param scales  of lane 0's columns
  __device__ __forceinline__ void multiply_scaled_sums(int stage, int half, std::uint32_t scales) {
#pragma unroll
    for (int i = 0; i < kRowTiles / 2 * kXTiles; ++i) {
      const int tile = kRowTiles / 2 * half + i / kXTiles;
      const int n = i % kXTiles;
      float(&sum)[4] = sums_[tile][n];
#pragma unroll 1
      for (int t = 0; t < 4; ++t) {
        float part[4] = {};
        const std::uint32_t columns = columns_at(stage, n);
        // Registers are few: a word is decoded, and the four change places, which after four rounds is no change.
#pragma unroll 1
        for (int w = 0; w < 4; ++w) {
          std::uint32_t pair[2][4];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            std::uint32_t(&words)[4] = words_[2 * tile + r];
            const std::uint32_t word = words[0];
            sm80::e2m1_to_f16(word, pair[r]);
            words[0] = words[1];
            words[1] = words[2];
            words[2] = words[3];
            words[3] = word;
          }
          std::uint32_t x[4];
          load_columns(columns, w, x);
#pragma unroll
          for (std::uint32_t& v : x) v = lane_.id % 4 == t ? v : 0;
          add_products(pair, x, part);
        }
        // 2^11 takes codes decoded at 2^-14 to the others' unit.
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const std::uint32_t at = scales + static_cast<std::uint32_t>(2 * tile + v / 2) * (8 * scale_pitch_) + t;
          sum[v] = fmaf(sm80::e8m0_exact(exec_.template load_shared<std::uint8_t>(lane_, at), 0), part[v] * 2048.0f, sum[v]);
        }
      }
    }
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
  std::uint32_t code_at_, row_step_;       // bytes to a lane's first row, and between its rows
  std::uint32_t words_[2 * kRowTiles][4];  // a lane's codes of a stage
  std::uint32_t x_at_[kXTiles], scale_at_;
  float sums_[kRowTiles][kXTiles][4];
};

}  // namespace fp4pa::sm90
