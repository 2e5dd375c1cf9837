// What the matrix product of sm_80 and later is given, and the sizes that its launching side must know. No device code.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::sm80 {

/// Of a block with `x_tiles` eights of rows of X. Few rows: small blocks, so that clusters of eight leave no multiprocessor of
/// a GPC without work. Many: large ones, so that X is read less often.
[[nodiscard]] FP4PA_FN constexpr int gemm_warps(int x_tiles) { return x_tiles <= 2 ? 4 : 8; }
/// Rows of W of a block.
[[nodiscard]] FP4PA_FN constexpr int gemm_rows(int x_tiles) { return 32 * gemm_warps(x_tiles); }
inline constexpr int kGemmStage = 128;             // columns
inline constexpr int kCodeBytes = kGemmStage / 2;  // of a row and a stage

struct GemmParams {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  const float* w_globals;  // null: w_global
  float w_global;
  std::int64_t code_batch, scale_batch;  // bytes between weights; 0 when one serves all
  std::int64_t row_bytes;
  std::int32_t n, groups;
  ScaleLayout scale_layout;

  const std::uint16_t* x;  // f16, or bf16 for kernels of sm_90 that take it; rows 16-byte aligned
  std::int64_t x_row;      // elements
  std::int32_t x_cols;     // elements that a row has, a multiple of 8
  const float* x_inverse;  // null, or what brings each row back to its size
  const float* x_globals;  // null: 1

  void* out;
  const void* bias;
  DType out_dtype, bias_dtype;
  std::int32_t m;

  std::int32_t stages, splits, row_tiles;
};

/// Stages.
[[nodiscard]] FP4PA_FN constexpr int gemm_ring(int x_tiles) { return x_tiles <= 2 ? 4 : 3; }
inline constexpr int kGemmMaxSplits = 8;  // a cluster's blocks that every device of sm_90 takes
/// Blocks that a multiprocessor of sm_90 is to hold at once.
[[nodiscard]] constexpr int gemm_resident(int x_tiles) { return x_tiles <= 2 ? 4 : 2; }
/// Bytes of a row's scales of a stage, and a word more: linear scales need not start at a word.
[[nodiscard]] FP4PA_FN constexpr int gemm_scale_pitch(bool nvfp4) { return nvfp4 ? 12 : 8; }
[[nodiscard]] FP4PA_FN constexpr int gemm_stage_bytes(bool nvfp4, int x_tiles) {
  return gemm_rows(x_tiles) * (kCodeBytes + gemm_scale_pitch(nvfp4)) + x_tiles * 8 * kGemmStage * 2;
}
/// Floats; puts a lane group's sums into different banks.
[[nodiscard]] FP4PA_FN constexpr int gemm_sum_pitch(int x_tiles) { return gemm_rows(x_tiles) + 4; }
[[nodiscard]] constexpr int gemm_shared_bytes(bool nvfp4, int x_tiles) {
  const int ring = gemm_ring(x_tiles) * gemm_stage_bytes(nvfp4, x_tiles);
  const int sums = x_tiles * 8 * gemm_sum_pitch(x_tiles) * 4;
  return ring > sums ? ring : sums;
}

}  // namespace fp4pa::sm80
