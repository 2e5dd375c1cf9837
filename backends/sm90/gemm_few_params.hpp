// What the matrix product for few rows of X is given on sm_90, and the sizes that its launching side must know. No device code.
#pragma once

#include <cstdint>

#include "backends/sm80/gemm_params.hpp"
#include "backends/sm90/gemm_given.hpp"
#include "backends/sm90/tensor_copy.hpp"
#include "core/macros.hpp"

namespace fp4pa::sm90 {

inline constexpr int kFewWarps = 16;
inline constexpr int kFewThreads = 32 * kFewWarps;
inline constexpr int kFewTiles = 4;      // sixteens of rows of W of a warp, mostly: kFewOtherTiles
inline constexpr int kFewWarpRows = 16 * kFewTiles;
inline constexpr int kFewRing = 2;       // slots of a warp: stages, or halves of one
inline constexpr int kFewMostX = 8;      // rows of X
inline constexpr int kFewMostRowGroups = 8;
inline constexpr int kFewMostStages = 1024;  // of a block: one row of X alone fills a multiprocessor's shared memory

/// A block's warps: `row_groups` of them side by side, each with its rows of W, and as many groups of these as there are warps for, which
/// take turns at the stages of K. More row groups: X is read by fewer blocks.
struct FewParams {
  TensorMap w;  // all rows of codes by their bytes, in boxes of few_box_rows() with the 64-byte swizzle
  sm80::GemmParams gemm;
  std::int32_t row_groups;    // 1, 2, 4 or 8
  std::int32_t block_stages;  // most stages that a block has
  std::int32_t scale_mask;    // few_scale_mask()
  bool early;                 // W is read before the kernel before has ended
};

/// What a kernel of up to 16 rows of X knows. A product is plain if stages are whole, and blocks of 64 rows a warp, scales linear in whole
/// pieces of 16 bytes, X is multiplied as it lies, and the result and a bias have 16 bits. Kernels that know nothing else have much less code
/// that runs once: docs/gemm_log.md, "Plain products".
enum class FewForm {
  kAny,
  kPlain,       // a block has 64 rows of W, or other tiles (kFewOtherTiles), and all of K
  kHalves,      // a block has 64 rows of W, and two blocks divide K
  kWideHalves,  // with 5 rows of X and more: a block has 128 rows of W or more, and two blocks divide K
};
/// Whether a block's warps are one group, which have the same rows of W.
[[nodiscard]] FP4PA_FN constexpr bool few_one_group(FewForm form) { return form == FewForm::kPlain || form == FewForm::kHalves; }

/// Not std::countr_zero, of which nvcc 13.0 makes 32 in device code.
[[nodiscard]] FP4PA_FN constexpr int few_row_groups_log2(int row_groups) { return row_groups == 8 ? 3 : row_groups / 2; }
[[nodiscard]] FP4PA_FN constexpr int few_rows(int row_groups, int tiles = kFewTiles) { return row_groups * 16 * tiles; }
/// Scales come in pieces of which this is the size less one: 16 bytes, which begin before a row's part as it lies, if then rows 8 apart lie
/// alike and a weight's first piece is its own; else words. Blocked scales are words, and none begins before.
[[nodiscard]] constexpr int few_scale_mask(const sm80::GemmParams& p) {
  if (p.scale_layout == ScaleLayout::kBlocked) return 0;
  return p.groups % 2 == 0 && reinterpret_cast<std::uintptr_t>(p.scales) % 16 == 0 ? 15 : 3;
}
/// Bytes from row to row of a block's scales: an odd number of 16-byte pieces, so that eight rows lie in different banks, with room for what
/// linear scales share with those before.
[[nodiscard]] FP4PA_FN constexpr int few_scale_pitch(bool nvfp4, int stages) {
  return ((stages * (nvfp4 ? 8 : 4) + 15 + 15) / 16 | 1) * 16;
}
/// Bytes from row to row of a block's X; even and odd rows lie in different halves of the banks.
[[nodiscard]] FP4PA_FN constexpr int few_x_pitch(int stages) { return stages * sm80::kGemmStage * 2 + 64; }
/// Floats; puts a lane group's sums into different banks.
[[nodiscard]] FP4PA_FN constexpr int few_sum_pitch(int row_groups, int tiles = kFewTiles) {
  return few_rows(row_groups, tiles) + 4;
}

/// With one or two rows of X a ring has one stage, in two halves of its rows, and a thread 64 registers: a multiprocessor can hold a block
/// of this product and one of the next, which comes in while this one ends.
inline constexpr int kFewPairedX = 2;
inline constexpr int kFewHalfRows = kFewWarpRows / kFewRing;
[[nodiscard]] FP4PA_FN constexpr int few_slot_rows(int m) { return m <= kFewPairedX ? kFewHalfRows : kFewWarpRows; }
/// What warps may have in place of kFewTiles, since blocks of 48, 80 or 96 rows of W may fill a device best: FewForm::kPlain with up to
/// kFewPairedX rows of X. A ring has one stage in two parts, of which the first may have a tile more.
inline constexpr int kFewOtherTiles[] = {3, 5, 6};
[[nodiscard]] FP4PA_FN constexpr int few_ring_rows(int m, int tiles) {
  return tiles == kFewTiles ? kFewRing * few_slot_rows(m) : 16 * tiles;
}
/// Rows of W that the copy engine brings at once.
[[nodiscard]] constexpr int few_box_rows(int m, int tiles) {
  return m > kFewMostX ? kFewHalfRows : tiles == kFewTiles ? few_slot_rows(m) : 16;
}
[[nodiscard]] FP4PA_FN constexpr int few_scales(int m, int tiles = kFewTiles) {  // where they begin: behind the rings
  return kFewWarps * few_ring_rows(m, tiles) * sm80::kCodeBytes;
}
[[nodiscard]] FP4PA_FN constexpr int few_x(bool nvfp4, int row_groups, int stages, int m, int tiles = kFewTiles) {
  return few_scales(m, tiles) + few_rows(row_groups, tiles) * few_scale_pitch(nvfp4, stages);
}
/// Behind X: zeros, a barrier of the scales, one of what other blocks give, and one of each stage of the rings.
[[nodiscard]] FP4PA_FN constexpr int few_zeros(bool nvfp4, int row_groups, int stages, int m, int tiles = kFewTiles) {
  return few_x(nvfp4, row_groups, stages, m, tiles) + m * few_x_pitch(stages);
}
inline constexpr int kFewZeros = 64;             // bytes
inline constexpr int kFewFull = kFewZeros + 16;  // from the zeros to the rings' barriers
[[nodiscard]] FP4PA_FN constexpr int few_shared_bytes(bool nvfp4, int row_groups, int stages, int m, int tiles = kFewTiles) {
  return few_zeros(nvfp4, row_groups, stages, m, tiles) + kFewFull + 8 * kFewWarps * kFewRing;
}
// Sums take the rings' place: of all rows, X's eights and groups of warps. Behind them lies what other blocks give: of two blocks sums of
// half of the rows, [m][rows / 2]; of any number of them, for each of the block's turns and each block, a sum of each thread.
inline constexpr int kFewGivenBytes = most_given(kFewMostX) * kFewThreads * 4;
inline constexpr int kFewGiven = few_scales(1) - kFewGivenBytes;
static_assert(kFewGivenBytes >= kFewMostX * few_rows(kFewMostRowGroups) / 2 * 4);
static_assert(kFewWarps / kFewMostRowGroups * kFewMostX * few_sum_pitch(kFewMostRowGroups) * 4 <= kFewGiven);
static_assert(kFewWarps * kFewMostX * few_sum_pitch(1) * 4 <= kFewGiven);

// With 9 to 16 rows (gemm_sixteen.hpp) X leaves room for rings of halves, too; scales, then X, follow.
inline constexpr int kSixteenX = 16;
inline constexpr int kSixteenScales = kFewWarps * kFewRing * kFewHalfRows * sm80::kCodeBytes;
inline constexpr int kSixteenSums = kFewWarps * kFewWarpRows * kSixteenX * 4;  // which take the operands' place
inline constexpr int kSixteenUnitBytes = 16 * 8 * 4;  // sums of 16 rows of W by 8 of X
/// Behind them, what other blocks give: of two blocks sums of half of the rows, of any number of them the block's units by all.
[[nodiscard]] FP4PA_FN constexpr int sixteen_given_bytes(int row_groups) {
  return few_rows(row_groups) * kSixteenX * 4 + (sm80::kGemmMaxSplits - 1) * kSixteenUnitBytes;  // no loop: kernels ask, too
}
/// Whether a weight has all rows of a block, and they are counted in 32 bits of bytes.
[[nodiscard]] constexpr bool sixteen_takes(int row_groups, std::int64_t rows, std::int64_t cols) {
  return few_rows(row_groups) <= rows && cols <= std::int64_t{1} << 23;
}
[[nodiscard]] FP4PA_FN constexpr int sixteen_x_pitch(int stages) { return stages * sm80::kGemmStage * 2; }
[[nodiscard]] FP4PA_FN constexpr int sixteen_x(bool nvfp4, int row_groups, int stages) {
  return kSixteenScales + few_rows(row_groups) * few_scale_pitch(nvfp4, stages);
}
/// Behind operands and sums: of X in bf16, the upper half of what each warp found largest in a row, or of what brings the row back; the
/// barriers of the scales and of what other blocks give, and those of the rings.
[[nodiscard]] FP4PA_FN constexpr int sixteen_rows(bool nvfp4, int row_groups, int stages, int m) {
  const int operands = sixteen_x(nvfp4, row_groups, stages) + m * sixteen_x_pitch(stages);
  const int sums = kSixteenSums + sixteen_given_bytes(row_groups);
  return operands > sums ? operands : sums;
}
inline constexpr int kSixteenScalesThere = 2 * kSixteenX * kFewWarps;
inline constexpr int kSixteenFull = kSixteenScalesThere + 16;
[[nodiscard]] FP4PA_FN constexpr int sixteen_shared_bytes(bool nvfp4, int row_groups, int stages, int m) {
  return sixteen_rows(nvfp4, row_groups, stages, m) + kSixteenFull + 8 * kFewWarps * kFewRing;
}

}  // namespace fp4pa::sm90
