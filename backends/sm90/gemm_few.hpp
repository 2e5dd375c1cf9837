// C = X W^T with W in FP4 and up to 8 rows of X on sm_90: bounded by reading W.
//
// A multiprocessor's share of a large weight is hardly more than its shared memory, so that a block runs for a few microseconds, and
// what counts is that all of its loads are under way at once and that warps never wait for one another: a block has all of
// X and of the scales of its part of K in shared memory from the start, of X each warp what it brought in itself (gemm_few_x.hpp), and
// each warp has a ring of W of its own, mostly 64 rows by 128 columns a stage, that it alone reads: two stages, or, with one or two rows
// of X, one in two parts, so that a block of the next product has room beside this one's while it ends. A lane asks the copy engine:
// copies by every lane, with an address and a question whether the row exists for each, took an eighth of the loop's instructions.
//
// W is the A operand of mma.sync in f16. More than four rows of X: as in backends/sm80/gemm.hpp, E4M3 scales multiply the decoded codes and
// E8M0 scales the sums of their 32 columns, both exactly.
//
// Four rows of X and fewer leave columns of the instruction free, and they serve to keep sums apart (kParts), so that a scale multiplies
// sums of more instructions, and no scale is ever multiplied into codes:
// - One or two rows: a lane takes 32 neighbouring codes of a row, and X stands in column 2 t + i of B where lane t's codes meet row i
//   of X, with zeros elsewhere. So a lane's sums are those of its own 32 columns alone.
// - Three or four: two lanes share a group, and X stands in column 4 p + i where the codes of lanes 2 p and 2 p + 1 meet row i.
// Sums of a block's warps, then of the cluster's blocks that divide K, are added in the order of K.
//
// Back to back, the next product's blocks come in as this one's leave. What runs once is short, in loops that are not unrolled: fetching
// code takes longer than executing it.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/gemm_scale.hpp"
#include "backends/sm90/gemm_few_results.hpp"
#include "cuda/dependency.cuh"
#include "fp4pa/types.hpp"

namespace fp4pa::sm90 {

/// @tparam kParts  of a row's four lanes, whose sums are apart: 4 for up to 2 rows of X, 2 for up to 4, else 1
/// @tparam kBf16   X is, and becomes f16 on its way into shared memory; else it is f16
/// @tparam kTiles  sixteens of rows of W of a warp: kFewTiles, or of kFewOtherTiles
template <bool kNvfp4, int kParts, bool kBf16, FewForm kForm, int kTiles = kFewTiles>
class FewBlock : FewResults<kNvfp4, kParts, kBf16, kForm, kTiles> {
  using X = FewResults<kNvfp4, kParts, kBf16, kForm, kTiles>;
  using X::base_, X::batch_, X::code_offset, X::exec_, X::f_, X::first_, X::first_row_, X::kScaleBytes, X::kWarpRows, X::lane_,
      X::last_, X::misalignment, X::p_, X::row_group_, X::scale_pitch_, X::turn_, X::turns_, X::x_at_, X::x_pitch_, X::zeros;

 public:
  __device__ __forceinline__ FewBlock(const FewParams& params, std::uint8_t* shared)
      : X(params, shared),
        code_row_(this->code_row()),
        full_(base_ + zeros() + kFewFull + exec_.warp() * (8 * kFewRing)) {}

  __device__ __forceinline__ void run() {
    this->set_up_ring(full_);
    if (!f_.early) cuda::wait_for_previous();
    // A block with all of K asks for W before its scales, one with half behind them: the other way round either takes longer.
    if constexpr (kForm == FewForm::kPlain) fetch_first();
    this->write_zeros();
    this->set_up_barriers();
    this->fetch_scales();
    if constexpr (kForm != FewForm::kPlain) fetch_first();
    cuda::wait_for_previous();
    // Where blocks of two products share a multiprocessor, the next one's W would delay this one's but for its last stage.
    if (!kPaired || first_ + turn_ + turns_ >= last_) cuda::allow_dependents();
    // The ring's second slot when X is there: behind so much of W it would be late, and so would what the product before still waits for.
    this->bring_x([&] {
      if (!kPaired) fetch(first_ + turn_ + turns_, 1);
      if (kPaired && !all_at_once()) fetch(first_ + turn_, 1);
    });
    this->wait_for_operands();

#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) sums_[i / 4][i % 4] = 0.0f;
    int slot = 0;
    std::uint32_t parity = 0;
#pragma unroll 1
    for (int s = first_ + turn_; s < last_; s += turns_) {
      if constexpr (kPaired) {
        if (s + turns_ >= last_) cuda::allow_dependents();
        multiply_own(s, parity);
        parity ^= 1;
        continue;
      }
      barrier_wait(full_ + 8 * slot, parity);
      if constexpr (kParts == 2 && !kNvfp4) {
        multiply_pairs(s - first_, slot);
      } else {
        multiply(s - first_, slot);
      }
      __syncwarp();
      fetch(s + kFewRing * turns_, slot);
      parity ^= static_cast<std::uint32_t>(slot);
      slot ^= 1;
    }
    this->done_with_operands();
    this->finish(sums_);
  }

 private:
  static_assert(kFewRing == 2);
  static constexpr int kMostX = 8 / kParts;
  static constexpr bool kPaired = kMostX <= kFewPairedX;  // with a block of the next product
  static constexpr int kTileBytes = 16 * sm80::kCodeBytes;
  static constexpr int kScales = few_scales(kMostX, kTiles);
  static constexpr int kSlotRows = few_slot_rows(kMostX);
  static constexpr int kFirstTiles = (kTiles + 1) / 2;  // of a stage in two parts
  static_assert(kTiles == kFewTiles || (kPaired && kForm == FewForm::kPlain));

  /// Whether a block has so little of W, a half of its rings or less, that nothing is late behind it.
  [[nodiscard]] __device__ __forceinline__ bool all_at_once() const { return 2 * (last_ - first_) <= turns_; }
  __device__ __forceinline__ void fetch_first() const {
    fetch(first_ + turn_, 0);
    if (kPaired && all_at_once()) fetch(first_ + turn_, 1);
  }

  __device__ __forceinline__ void fetch(int stage, int slot) const {
    if constexpr (kTiles != kFewTiles) return fetch_tiles(stage, slot);
    if (stage >= last_ || lane_.id != 0) return;
    this->template fetch_slot<kSlotRows>(full_, stage, slot, code_row_);
  }
  /// A lane a tile.
  __device__ __forceinline__ void fetch_tiles(int stage, int slot) const {
    const int tiles = slot == 0 ? kFirstTiles : kTiles - kFirstTiles;
    if (stage >= last_ || lane_.id >= tiles) return;
    if (lane_.id == 0) barrier_expect(full_ + 8 * slot, static_cast<std::uint32_t>(tiles) * kTileBytes);
    copy_box(base_ + slot_offset(slot) + static_cast<std::uint32_t>(lane_.id) * kTileBytes, f_.w, stage * sm80::kCodeBytes,
             code_row_ + 16 * (slot * kFirstTiles + lane_.id), full_ + 8 * slot);
  }
  __device__ __forceinline__ std::uint32_t slot_offset(int slot) const {
    if constexpr (kTiles != kFewTiles) return static_cast<std::uint32_t>(exec_.warp() * kTiles + slot * kFirstTiles) * kTileBytes;
    return X::template slot_offset<kSlotRows>(slot);
  }

  /// multiply() with sums of each lane's own. Lane t of a row takes chunk t of its codes, which is a group of MXFP4 and two of NVFP4. Waits
  /// for the ring's halves, and asks for the next stage's as soon as their words are in registers.
  /// @param at_stage  of K
  __device__ __forceinline__ void multiply_own(int at_stage, std::uint32_t parity) {
    const int stage = at_stage - first_;
    constexpr int kGroups = kNvfp4 ? 2 : 1;
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
    std::uint32_t x[4][4];
    // A row that X does not have is the other one's copy: its products are nobody's.
    const int x_row = g % 2 < p_.m ? g % 2 : 0;
    const std::uint32_t at =
        g / 2 == t ? static_cast<std::uint32_t>(x_at_ + x_row * x_pitch_ + stage * (2 * sm80::kGemmStage) + 64 * t) : zeros();
#pragma unroll
    for (int w = 0; w < 4; ++w) exec_.load_shared_16(lane_, at + 16 * w, x[w]);
    const int first = row_group_ * kWarpRows + g;
    const int before = misalignment(first_row_ + first);  // of its rows 8, 16, ... further too
    std::uint32_t scales = static_cast<std::uint32_t>(kScales + first * scale_pitch_ + stage * kScaleBytes + before + kGroups * t);
    const std::uint32_t codes = slot_offset(0) + code_offset(g, t);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile % kFirstTiles == 0) barrier_wait(full_ + 8 * (tile / kFirstTiles), parity);
      float scale[2][kGroups];
      std::uint32_t words[2][4];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        exec_.load_shared_16(lane_, codes + static_cast<std::uint32_t>((16 * tile + 8 * r) * sm80::kCodeBytes), words[r]);
        if constexpr (kNvfp4) {
          const std::uint32_t both = sm80::e4m3_to_f16(exec_.template load_shared<std::uint16_t>(lane_, scales) & 0x7f7fu);
          const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&both));
          scale[r][0] = values.x;
          scale[r][1] = values.y;
        } else {
          scale[r][0] = sm80::e8m0_exact(exec_.template load_shared<std::uint8_t>(lane_, scales), 0);
        }
        scales += 8 * scale_pitch_;
      }
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        float part[4] = {};
#pragma unroll
        for (int w = group * (4 / kGroups); w < (group + 1) * (4 / kGroups); ++w) {
          multiply_words(words[0][w], words[1][w], x[w], part);
          // All words are in registers, or these products were not made.
          if (w == 0 && (tile == kFirstTiles - 1 || tile == kTiles - 1)) {
            __syncwarp();
            fetch(at_stage + turns_, tile / kFirstTiles);
          }
        }
#pragma unroll
        for (int v = 0; v < 4; ++v) sums_[tile][v] = fmaf(scale[v / 2][group], part[v], sums_[tile][v]);
      }
    }
  }

  /// multiply() of MXFP4 with sums that two lanes share: lanes 2 p and 2 p + 1 of a row take half a group each, first of chunk 2 p, then
  /// of 2 p + 1.
  __device__ __forceinline__ void multiply_pairs(int stage, int slot) {
    const int g = lane_.id / 4;
    const int p = lane_.id % 4 / 2;
    const int half = lane_.id % 2;
    const std::uint32_t x_at = pair_x(stage * (2 * sm80::kGemmStage) + 128 * p + 32 * half);
    const std::uint32_t x_step = has_pair_x() ? 64 : 0;
    const int first = row_group_ * kWarpRows + g;
    const int before = misalignment(first_row_ + first);  // of its rows 8, 16, ... further too
    const auto scales = static_cast<std::uint32_t>(kScales + first * scale_pitch_ + stage * kScaleBytes + before + 2 * p);
    const std::uint32_t codes = slot_offset(slot) + code_offset(g, 2 * p) + static_cast<std::uint32_t>(8 * half);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      std::uint32_t x[2][4];
#pragma unroll
      for (int w = 0; w < 2; ++w) exec_.load_shared_16(lane_, x_at + i * x_step + 16 * w, x[w]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        float scale[2];
        std::uint32_t words[2][2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = 16 * tile + 8 * r;
          const auto both = exec_.template load_shared<std::uint64_t>(
              lane_, (codes ^ static_cast<std::uint32_t>(16 * i)) + static_cast<std::uint32_t>(row * sm80::kCodeBytes));
          words[r][0] = static_cast<std::uint32_t>(both);
          words[r][1] = static_cast<std::uint32_t>(both >> 32);
          scale[r] = sm80::e8m0_exact(
              exec_.template load_shared<std::uint8_t>(lane_, scales + static_cast<std::uint32_t>(i + row * scale_pitch_)), 0);
        }
        float part[4] = {};
#pragma unroll
        for (int w = 0; w < 2; ++w) multiply_words(words[0][w], words[1][w], x[w], part);
#pragma unroll
        for (int v = 0; v < 4; ++v) sums_[tile][v] = fmaf(scale[v / 2], part[v], sums_[tile][v]);
      }
    }
  }
  /// Whether a lane's codes meet X in its column, if pairs of lanes have sums apart.
  __device__ __forceinline__ bool has_pair_x() const { return lane_.id / 16 == lane_.id % 4 / 2; }
  /// Where a lane finds its column of X, if pairs of lanes have sums apart, or zeros: 16 bytes further, in banks that X does not use then.
  __device__ __forceinline__ std::uint32_t pair_x(int offset) const {
    return has_pair_x() ? row_of_x(lane_.id / 4 % 4, offset) : zeros() + 16;
  }
  /// Rows that X does not have are the last one's copy: their products are nobody's.
  __device__ __forceinline__ std::uint32_t row_of_x(int row, int offset) const {
    return static_cast<std::uint32_t>(x_at_ + (row < p_.m ? row : p_.m - 1) * x_pitch_ + offset);
  }

  /// @param stage  of the block
  __device__ __forceinline__ void multiply(int stage, int slot) {
    const int g = lane_.id / 4;
    const int t = lane_.id % 4;
    const std::uint32_t codes = slot_offset(slot) + code_offset(lane_.id, 0);
    const int column = stage * (2 * sm80::kGemmStage) + 16 * t;
    const std::uint32_t columns = kParts == 2 ? pair_x(column) : row_of_x(g, column);
    const std::uint32_t x_step = kParts == 2 && !has_pair_x() ? 0 : 64;
    std::uint32_t scale[2 * kTiles][2];  // of rows g + 8 o: E8M0 as they are, E4M3 as f16 of chunks 0 2 and 1 3
    const int before = misalignment(first_row_ + row_group_ * kWarpRows + g);  // of its rows 8, 16, ... further too
#pragma unroll
    for (int o = 0; o < 2 * kTiles; ++o) {
      load_scales(static_cast<std::uint32_t>(kScales + (row_group_ * kWarpRows + 8 * o + g) * scale_pitch_ + stage * kScaleBytes +
                                             (before & ~3)),
                  8 * (before & 3), t, scale[o]);
    }
#pragma unroll
    for (int chunk = 0; chunk < 4; ++chunk) {
      std::uint32_t x[4];
      exec_.load_shared_16(lane_, columns + chunk * x_step, x);
#pragma unroll
      for (int pair = 0; pair < kTiles / 2; ++pair) {
        sm80::WarpExec::PerLane<std::uint32_t[4]> words;
        exec_.template load_matrix<false>(
            [&](sm80::WarpExec::Lane) {
              return (codes ^ static_cast<std::uint32_t>(16 * chunk)) + static_cast<std::uint32_t>(32 * sm80::kCodeBytes * pair);
            },
            [&](sm80::WarpExec::Lane lane) -> auto& { return words[lane]; });
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int tile = 2 * pair + half;
          multiply_tile(words.value[2 * half], words.value[2 * half + 1], scale[2 * tile], scale[2 * tile + 1], chunk, x, sums_[tile]);
        }
      }
    }
  }

  /// Sixteen rows of W by 32 columns: a lane's eight codes of its two rows.
  __device__ __forceinline__ static void multiply_tile(std::uint32_t low, std::uint32_t high, const std::uint32_t (&low_scale)[2],
                                                       const std::uint32_t (&high_scale)[2], int chunk,
                                                       const std::uint32_t (&x)[4], float (&sums)[4]) {
    if constexpr (kNvfp4 && kParts == 1) {
      std::uint32_t pair[2][4];
      sm80::e2m1_to_f16(low, pair[0]);
      sm80::e2m1_to_f16(high, pair[1]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t both = (i < 4 ? low_scale : high_scale)[chunk % 2];
        pair[i / 4][i % 4] = sm80::multiply_f16(pair[i / 4][i % 4], __byte_perm(both, 0, chunk < 2 ? 0x1010 : 0x3232));
      }
      multiply_decoded(pair, x, sums);
    } else {
      float part[4] = {};
      multiply_words(low, high, x, part);
      const float factor[2] = {factor_of(low_scale, chunk), factor_of(high_scale, chunk)};
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[v] = fmaf(factor[v / 2], part[v], sums[v]);
    }
  }
  /// @param pair  eight decoded codes of each of the lane's two rows
  __device__ __forceinline__ static void multiply_decoded(const std::uint32_t (&pair)[2][4], const std::uint32_t (&x)[4],
                                                          float (&sums)[4]) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const std::uint32_t a[4] = {pair[0][2 * step], pair[1][2 * step], pair[0][2 * step + 1], pair[1][2 * step + 1]};
      const std::uint32_t b[2] = {x[2 * step], x[2 * step + 1]};
      sm80::MmaM16N8K16Instruction<core::F16>::mma(sums, a, b, sums);
    }
  }
  /// multiply_decoded() of the codes as they lie.
  __device__ __forceinline__ static void multiply_words(std::uint32_t low, std::uint32_t high, const std::uint32_t (&x)[4],
                                                        float (&sums)[4]) {
    std::uint32_t pair[2][4];
    sm80::e2m1_to_f16(low, pair[0]);
    sm80::e2m1_to_f16(high, pair[1]);
    multiply_decoded(pair, x, sums);
  }
  /// A chunk's scale out of what load_scales() gives, for sums.
  __device__ __forceinline__ static float factor_of(const std::uint32_t (&scale)[2], int chunk) {
    if constexpr (kNvfp4) {
      const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&scale[chunk % 2]));
      return chunk < 2 ? both.x : both.y;
    } else {
      return sm80::e8m0_exact(scale[0], chunk);
    }
  }

  /// A row's scales of a stage, as a lane uses them: its eight codes of each of the four chunks have one scale.
  /// @param at     of the word that they begin in
  /// @param shift  bits that they begin behind its start
  __device__ __forceinline__ void load_scales(std::uint32_t at, int shift, int t, std::uint32_t (&out)[2]) const {
    std::uint32_t words[2];
#pragma unroll
    for (int w = 0; w < kScaleBytes / 4; ++w) words[w] = exec_.template load_shared<std::uint32_t>(lane_, at + 4 * w);
    if (shift != 0) {
      const auto behind = exec_.template load_shared<std::uint32_t>(lane_, at + kScaleBytes);
      if constexpr (kNvfp4) {
        words[0] = __funnelshift_r(words[0], words[1], shift);
        words[1] = __funnelshift_r(words[1], behind, shift);
      } else {
        words[0] = __funnelshift_r(words[0], behind, shift);
      }
    }
    if constexpr (kNvfp4) {
      // Two scales a chunk: lanes 0 and 1 of a row take the first, 2 and 3 the second.
      const std::uint32_t mine = __byte_perm(words[0], words[1], t < 2 ? 0x6240 : 0x7351) & 0x7f7f7f7fu;
      out[0] = sm80::e4m3_to_f16(mine);
      out[1] = sm80::e4m3_to_f16(mine >> 16);
    } else {
      out[0] = words[0];
      out[1] = 0;
    }
  }

  int code_row_;        // the warp's first, of all weights
  std::uint32_t full_;  // its barriers: a slot of its ring has come
  float sums_[kTiles][4];
};

}  // namespace fp4pa::sm90
