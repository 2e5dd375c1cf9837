// What the matrix product for many rows of X is given on sm_90a, and the sizes that its launching side must know. No device code.
#pragma once

#include "backends/sm80/gemm_params.hpp"
#include "backends/sm90/tensor_copy.hpp"
#include "core/macros.hpp"

namespace fp4pa::sm90 {

struct ManyParams {
  TensorMap x;  // all rows of X by its columns in f16, in boxes of 64 columns with the 128-byte swizzle
  TensorMap w;  // all rows of codes by their bytes, in boxes of 64 bytes with the 64-byte swizzle
  sm80::GemmParams gemm;
  bool prepared;  // X, by the kernel just before
};

/// Rows of W of a block with `groups` warpgroups.
[[nodiscard]] FP4PA_FN constexpr int many_rows(int groups) { return 64 * groups; }
/// X in two panels of 64 columns, and codes.
[[nodiscard]] FP4PA_FN constexpr int many_stage_bytes(int groups, int x_rows) {
  return x_rows * sm80::kGemmStage * 2 + many_rows(groups) * sm80::kCodeBytes;
}
/// Stages.
[[nodiscard]] FP4PA_FN constexpr int many_ring(int groups, int x_rows) {
  const int fit = 225 * 1024 / many_stage_bytes(groups, x_rows);
  return fit < 8 ? fit : 8;
}
/// Floats from row to row of X in the sums; puts a lane group's into different banks.
[[nodiscard]] FP4PA_FN constexpr int many_sum_pitch(int groups) { return many_rows(groups) + 4; }
[[nodiscard]] constexpr int many_shared_bytes(int groups, int x_rows) {
  const int ring = many_ring(groups, x_rows) * (many_stage_bytes(groups, x_rows) + 16);  // with two barriers a stage
  const int sums = x_rows * many_sum_pitch(groups) * 4;
  return ring > sums ? ring : sums;
}

}  // namespace fp4pa::sm90
