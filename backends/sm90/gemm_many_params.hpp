// What the matrix product for many rows of X is given on sm_90a, and the sizes that its launching side must know. No device code.
#pragma once

#include "backends/sm80/gemm_params.hpp"
#include "backends/sm90/tensor_copy.hpp"
#include "core/macros.hpp"

namespace fp4pa::sm90 {

inline constexpr int kManyGroups = 3;  // warpgroups, each with 64 rows of W
inline constexpr int kManyThreads = 128 * kManyGroups;
inline constexpr int kManyRows = 64 * kManyGroups;
inline constexpr int kManyCodes = kManyRows * sm80::kCodeBytes;

struct ManyParams {
  TensorMap x;  // all rows of X by its columns, in boxes of 64 columns with the 128-byte swizzle
  sm80::GemmParams gemm;
};

/// Stages. Two of them are being multiplied, the others on their way.
[[nodiscard]] FP4PA_FN constexpr int many_ring(int x_rows) { return x_rows <= 64 ? 6 : 4; }
/// Bytes of a stage: rows of X in panels of 64 columns, codes, scales, to a whole number of the swizzle's pieces.
[[nodiscard]] FP4PA_FN constexpr int many_stage_bytes(bool nvfp4, int x_rows) {
  const int bytes = x_rows * sm80::kGemmStage * 2 + kManyCodes + kManyRows * sm80::gemm_scale_pitch(nvfp4);
  return (bytes + 1023) / 1024 * 1024;
}
/// Floats from row to row of X in the sums; puts a lane group's into different banks.
inline constexpr int kManySumPitch = kManyRows + 4;
[[nodiscard]] constexpr int many_shared_bytes(bool nvfp4, int x_rows) {
  const int ring = many_ring(x_rows) * many_stage_bytes(nvfp4, x_rows);
  const int sums = x_rows * kManySumPitch * 4;
  return ring + 8 * many_ring(x_rows) > sums ? ring + 8 * many_ring(x_rows) : sums;  // barriers lie behind
}

}  // namespace fp4pa::sm90
