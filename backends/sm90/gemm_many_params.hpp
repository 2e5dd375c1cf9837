// What the matrix product for many rows of X is given on sm_90a, and where things lie in a block's shared memory. No device code.
#pragma once

#include <cstdint>

#include "backends/sm80/gemm_params.hpp"
#include "backends/sm90/tensor_copy.hpp"
#include "core/macros.hpp"

namespace fp4pa::sm90 {

struct ManyParams {
  TensorMap x;  // all rows of X by its columns, in boxes of 64 columns and block_rows rows with the 128-byte swizzle
  TensorMap w;  // all rows of codes by their bytes, in boxes of 64 bytes with the 64-byte swizzle
  sm80::GemmParams gemm;
  std::int32_t block_stages;  // most stages that a block has
  // Rows of X that a block has, but for the last: blocks share them evenly. What lies outside of a matrix takes the copy engine longer than
  // what lies in it: a block with 64 rows left of 192 took twice as long as one with all of them.
  std::int32_t block_rows;
  bool early;                 // W is read before the kernel before has ended
};

/// The block's part of the product.
struct ManyPart {
  std::int64_t batch;
  int first_row, first_x;  // of W and of X
  int rows;                // of X
  int first_stage, stages;
};

/// A block: sizes, and offsets in its shared memory.
struct ManyLayout {
  int x_rows;
  bool nvfp4;
  bool bf16;  // X and decoded W are, else f16

  static constexpr int kRows = 128;  // of W, 64 for each of two warpgroups that multiply
  static constexpr int kMultipliers = 2 * kRows;
  static constexpr int kFetchers = 128;
  static constexpr int kArrangers = 128;
  /// Whether warps of their own arrange codes as lanes take them. With more rows of X there are no registers for these warps, and products
  /// take longer than decoding.
  [[nodiscard]] FP4PA_FN constexpr bool arranged() const { return x_rows <= 128; }
  [[nodiscard]] FP4PA_FN constexpr int threads() const { return kMultipliers + kFetchers + (arranged() ? kArrangers : 0); }

  /// A stage of the ring has X, in two panels of 64 columns, and codes. Of X as many rows are brought as blocks have; what products make of
  /// the others nobody looks at.
  [[nodiscard]] FP4PA_FN constexpr int x_bytes() const { return x_rows * sm80::kGemmStage * 2; }
  [[nodiscard]] FP4PA_FN constexpr int code_bytes() const { return kRows * sm80::kCodeBytes; }
  [[nodiscard]] FP4PA_FN constexpr int stage_bytes() const { return x_bytes() + code_bytes(); }
  /// Scales have a ring of their own: of a row and a stage, a factor of 16 bits for each group.
  [[nodiscard]] FP4PA_FN constexpr int factor_row_bytes() const { return nvfp4 ? 16 : 8; }
  [[nodiscard]] FP4PA_FN constexpr int factor_bytes() const { return kRows * factor_row_bytes(); }

  // Stages. Factors are further ahead, or as far.
  [[nodiscard]] FP4PA_FN constexpr int factor_ring() const { return x_rows > 192 ? 4 : 8; }
  [[nodiscard]] FP4PA_FN constexpr int ring() const {
    const int fit = (kMost - factor_ring() * factor_bytes()) / stage_bytes();
    return fit < factor_ring() ? fit : factor_ring();
  }
  // Behind the stages lie the factors, two or three barriers for each of their places, one of each multiplying warp for the sums that it is
  // given, and a word: whether there are scales that factors do not hold.
  [[nodiscard]] FP4PA_FN constexpr int place_bytes() const { return arranged() ? 24 : 16; }
  [[nodiscard]] FP4PA_FN constexpr int factors() const { return ring() * stage_bytes(); }
  [[nodiscard]] FP4PA_FN constexpr int barriers() const { return factors() + factor_ring() * factor_bytes(); }
  [[nodiscard]] FP4PA_FN constexpr int given() const { return barriers() + place_bytes() * factor_ring(); }
  [[nodiscard]] FP4PA_FN constexpr int outside() const { return given() + 8 * (kMultipliers / 32); }
  [[nodiscard]] FP4PA_FN constexpr int shared_bytes() const { return outside() + 8; }

  static constexpr int kMost = 227 * 1024 - 512;  // of shared memory for the rings
};

}  // namespace fp4pa::sm90
