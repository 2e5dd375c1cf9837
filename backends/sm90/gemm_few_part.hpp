// A block's part of a matrix product with few rows of X on sm_90 (gemm_few.hpp, gemm_sixteen.hpp): which rows of W, which stages of K,
// and their scales on their way into shared memory.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/exec.hpp"
#include "backends/sm90/cluster.hpp"
#include "backends/sm90/gemm_bias.hpp"
#include "backends/sm90/gemm_few_params.hpp"
#include "backends/sm90/tensor_copy.hpp"
#include "core/formats/scale_layout.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::sm90 {

/// @tparam kTiles  sixteens of rows of W of a warp
template <bool kNvfp4, FewForm kForm, int kTiles = kFewTiles>
class FewPart {
 protected:
  static constexpr bool kPlain = kForm != FewForm::kAny;
  static constexpr bool kDivided = kForm != FewForm::kPlain;  // K may be

  /// @param scales_at     where scales begin in shared memory
  /// @param scales_there  and their barrier, and behind it that of what other blocks give
  __device__ __forceinline__ FewPart(const FewParams& params, std::uint8_t* shared, int scales_at, int scales_there)
      : f_(params),
        p_(params.gemm),
        exec_(shared),
        shared_(shared),
        base_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared))),
        thread_(static_cast<int>(threadIdx.x)),
        lane_{static_cast<int>(threadIdx.x % 32)},
        batch_(blockIdx.z),
        rows_(few_rows(row_groups(params), kTiles)),
        row_group_(exec_.warp() & (row_groups(params) - 1)),
        turn_(exec_.warp() >> few_row_groups_log2(row_groups(params))),
        turns_(kFewWarps >> few_row_groups_log2(row_groups(params))),
        scale_pitch_(few_scale_pitch(kNvfp4, params.block_stages)),
        scales_at_(scales_at),
        scales_there_(base_ + static_cast<std::uint32_t>(scales_there)) {
    first_row_ = cluster_index() * rows_;
    // The last block begins early enough for all of its rows to exist: those that the one before has, too, both write, and the same.
    if (kTiles != kFewTiles && first_row_ > p_.n - rows_) first_row_ = p_.n - rows_;
    first_ = 0;
    last_ = p_.stages;
    if constexpr (kForm != FewForm::kPlain) {
      first_ = rank_in_cluster() * params.block_stages;
      if (first_ + params.block_stages < last_) last_ = first_ + params.block_stages;
    }
    codes_ = p_.codes + batch_ * p_.code_batch;
    scales_ = p_.scales + batch_ * p_.scale_batch;
  }

  __device__ __forceinline__ static int row_groups(const FewParams& params) {
    return few_one_group(kForm) ? 1 : params.row_groups;
  }

  static constexpr int kScaleBytes = kNvfp4 ? 8 : 4;  // of a row and a stage

  __device__ __forceinline__ float w_global() const {
    return p_.w_globals != nullptr ? p_.w_globals[p_.code_batch == 0 ? 0 : batch_] : p_.w_global;
  }

  /// Bytes between the start of a piece and that of a row's scales, of the block's stages. Rows 8 apart have the same.
  __device__ __forceinline__ int misalignment(int row) const {
    if constexpr (kPlain) return 0;
    const std::uint32_t at = static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(p_.groups) +
                             static_cast<std::uint32_t>(first_ * kScaleBytes);
    return static_cast<int>((static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(scales_)) + at) &
                            static_cast<std::uint32_t>(f_.scale_mask));
  }

  /// A warp's ring: the barriers of its slots, and where a slot lies.
  __device__ __forceinline__ void set_up_ring(std::uint32_t full) const {
    if (lane_.id == 0) {
#pragma unroll
      for (int slot = 0; slot < kFewRing; ++slot) barrier_init(full + 8 * slot, 1);
      barrier_init_fence();
    }
    __syncwarp();
  }
  template <int kSlotRows>
  __device__ __forceinline__ std::uint32_t slot_offset(int slot) const {
    return static_cast<std::uint32_t>((exec_.warp() * kFewRing + slot) * (kSlotRows * sm80::kCodeBytes));
  }
  /// From the start of a slot, whose rows' chunks lie as the copy engine's 64-byte swizzle has them.
  __device__ __forceinline__ static std::uint32_t code_offset(int row, int chunk) {
    return static_cast<std::uint32_t>(row * sm80::kCodeBytes + ((chunk ^ (row >> 1)) & 3) * 16);
  }
  /// Asks for a slot of a stage, by the warp's first lane. Columns past the end are zeros; rows past the end may be the next weight's: what
  /// they give is not written.
  /// @param row  the warp's first, of all weights
  template <int kSlotRows>
  __device__ __forceinline__ void fetch_slot(std::uint32_t full, int stage, int slot, int row) const {
    barrier_expect(full + 8 * slot, kSlotRows * sm80::kCodeBytes);
    copy_box(base_ + slot_offset<kSlotRows>(slot), f_.w, stage * sm80::kCodeBytes, row + (kSlotRows < kFewWarpRows ? slot * kSlotRows : 0),
             full + 8 * slot);
  }
  [[nodiscard]] __device__ __forceinline__ int code_row() const {
    return (p_.code_batch == 0 ? 0 : static_cast<int>(batch_)) * p_.n + first_row_ + row_group_ * kFewWarpRows;
  }

  /// Makes the barriers of the block's scales and of what other blocks give. All threads of the block meet, so that what they wrote before
  /// is there.
  __device__ __forceinline__ void set_up_barriers() const {
    if (thread_ == 0) {
      barrier_init(scales_there_, kPlain ? kFewWarps : kFewThreads);
      if constexpr (kDivided) barrier_init(given_there(), 1);
      barrier_init_fence();
    }
    __syncthreads();
  }
  /// Asks for all scales of the block; zeros past the last. A linear row that starts within a piece brings its neighbour's bytes along.
  __device__ __forceinline__ void fetch_scales() const {
    if constexpr (kPlain) {
      if (lane_.id == 0) copy_scale_rows();
    } else {
      ask_for_scales();
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(scales_there_) : "memory");
    }
  }
  __device__ __forceinline__ void wait_for_scales() const { barrier_wait(scales_there_, 0); }

  /// Blocks that divide K give each other sums where their operands were. This block's have been read.
  __device__ __forceinline__ void done_with_operands() const {
    if (kDivided && p_.splits > 1) arrive_at_cluster();
  }
  /// All of the cluster's have. Announces what the block will be given.
  __device__ __forceinline__ void ready_to_give(int bytes) const {
    if (thread_ == 0) barrier_expect(given_there(), static_cast<std::uint32_t>(bytes));
    wait_for_cluster();
  }
  __device__ __forceinline__ void wait_for_given() const { sm90::wait_for_given(given_there()); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t given_there() const { return scales_there_ + 8; }

  /// All warps of a turn.
  __device__ __forceinline__ void turn_barrier() const {
    if (row_groups(f_) == 1) {
      __syncwarp();
    } else {
      asm volatile("barrier.sync %0, %1;" ::"r"(1 + turn_), "r"(32 * row_groups(f_)) : "memory");
    }
  }

  const FewParams& f_;
  const sm80::GemmParams& p_;
  sm80::WarpExec exec_;
  std::uint8_t* shared_;
  std::uint32_t base_;
  int thread_;
  sm80::WarpExec::Lane lane_;
  std::int64_t batch_;
  int rows_, row_group_, turn_, turns_, scale_pitch_, scales_at_;
  std::uint32_t scales_there_;
  int first_row_, first_, last_;  // stages
  const std::uint8_t* codes_;
  const std::uint8_t* scales_;

 private:
  /// A warp's rows, of a plain product.
  __device__ __forceinline__ void copy_scale_rows() const {
    const int bytes = (last_ - first_) * kScaleBytes;
    barrier_expect(scales_there_, static_cast<std::uint32_t>(rows_ / kFewWarps * bytes));
    const std::uint8_t* from = scales_ + std::int64_t{first_row_ + exec_.warp()} * p_.groups + first_ * kScaleBytes;
    std::uint32_t to = base_ + static_cast<std::uint32_t>(scales_at_ + exec_.warp() * scale_pitch_);
#pragma unroll 1
    for (int row = exec_.warp(); row < rows_; row += kFewWarps) {
      copy_bytes(to, from, bytes, scales_there_);
      from += std::int64_t{kFewWarps} * p_.groups;
      to += static_cast<std::uint32_t>(kFewWarps * scale_pitch_);
    }
  }
  __device__ __forceinline__ void ask_for_scales() const {
    if (f_.scale_mask == 15) {
      ask_for_pieces<16>(p_.groups % 16 == 0 ? misalignment(0) : 14);
    } else {
      ask_for_pieces<4>(f_.scale_mask);
    }
  }
  /// Zeros past a row's last, which may end the memory, within a piece.
  /// @param before  most that a row has
  template <int kPiece>
  __device__ __forceinline__ void ask_for_pieces(int before) const {
    const int from = first_ * kScaleBytes;
    const int bytes = (last_ - first_) * kScaleBytes;
    each_scale_piece((before + bytes + kPiece - 1) / kPiece, [&](int row, int piece, std::uint32_t to) {
      const int group = from - misalignment(first_row_ + row) + kPiece * piece;
      const int left = p_.groups - group;
      const std::uint8_t* const at =
          scales_ + (kPiece == 4 && p_.scale_layout == ScaleLayout::kBlocked
                         ? static_cast<std::int64_t>(core::blocked_scale_offset(first_row_ + row, group, p_.groups))
                         : std::int64_t{first_row_ + row} * p_.groups + group);
      copy_async<kPiece>(base_ + to + kPiece * piece, at, left < 0 ? 0 : left < kPiece ? left : kPiece);
    });
  }
  /// The first `bytes` of a piece, and zeros.
  template <int kPiece>
  __device__ __forceinline__ static void copy_async(std::uint32_t to, const std::uint8_t* from, int bytes) {
    if constexpr (kPiece == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    }
  }
  /// f(row, piece, offset of the row) for `pieces` pieces of all rows.
  template <class F>
  __device__ __forceinline__ void each_scale_piece(int pieces, F&& f) const {
    const int log2 = pieces > 16 ? 5 : pieces > 8 ? 4 : pieces > 4 ? 3 : 2;  // of the threads that share a row
    for (int row = thread_ >> log2; row < rows_ && first_row_ + row < p_.n; row += kFewThreads >> log2) {
      const auto to = static_cast<std::uint32_t>(scales_at_ + row * scale_pitch_);
      for (int piece = thread_ & ((1 << log2) - 1); piece < pieces; piece += 1 << log2) f(row, piece, to);
    }
  }
};

}  // namespace fp4pa::sm90
