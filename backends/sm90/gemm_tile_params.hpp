// What the matrix product with decoded tiles is given on sm_90a, and where things lie in a block's shared memory. No device code.
#pragma once

#include <cstdint>

#include "backends/sm90/gemm_many_params.hpp"
#include "backends/sm90/operand_tile.hpp"

namespace fp4pa::sm90 {

using TileParams = ManyParams;

/// A block: sizes, and offsets in its shared memory.
struct TileLayout {
  static constexpr int kXRows = 128;
  static constexpr int kWRows = 128;

  /// The warps that multiply come first. Teams of four decode, and take turns at the stages.
  static constexpr int kMultipliers = kXRows / 16;
  static constexpr int kTeams = 2;
  static constexpr int kTeam = 4;
  static constexpr int kDecoders = kTeams * kTeam;
  static constexpr int kThreads = 32 * (kMultipliers + kDecoders);

  /// A slot holds 64 columns of both operands in f16, X in front. A team has two of its own, for the halves of a stage.
  static constexpr int kSlots = 2 * kTeams;
  static constexpr int kXBytes = kXRows * kPanelRowBytes;
  static constexpr int kSlotBytes = (kXRows + kWRows) * kPanelRowBytes;
  /// Codes, as they lie in memory, in stages of 128 columns. A team has four of its own.
  static constexpr int kDepth = 4;
  static constexpr int kStages = kDepth * kTeams;
  static constexpr int kCodes = kSlots * kSlotBytes;
  static constexpr int kStageBytes = kWRows * sm80::kCodeBytes;
  /// What a decoding warp keeps: scales in f16 of its 64 rows, up to four groups each.
  static constexpr int kScales = kCodes + kStages * kStageBytes;
  static constexpr int kScaleBytes = 64 * 4 * 2;
  /// A word: whether there are scales that f16 does not hold.
  static constexpr int kOutside = kScales + kDecoders * kScaleBytes;
  static constexpr int kBarriers = kOutside + 8;
  static constexpr int kSharedBytes = kBarriers + 16 * (kSlots + kStages);
};

/// The block's part of the product.
struct TilePart {
  std::int64_t batch;
  int first_row, first_x;  // of W and of X
  int first_stage, stages;
};

}  // namespace fp4pa::sm90
