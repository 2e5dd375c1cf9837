// What lies where in shared memory of the kernels for a few dozen query rows. No device code.
//
//   rows       four numbers per query row, and room for the warps to exchange as many
//   query      B of Q K^T: rows of head_dim elements, K-major
//   P          B of P V: rows of a tile's keys, K-major
//   addresses  of the rows of the tile that is being staged
//   stages     tiles in their 4-bit form
#pragma once

#include <cstdint>

#include "backends/sm80/scale_form.hpp"
#include "backends/sm80/value_product.hpp"
#include "backends/sm90/operand_tile.hpp"
#include "core/simt/config.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

/// K's E8M0 scales as they lie in the cache: a lane needs those of two keys, and makes operands of them itself. The
/// others as sm_80's products take them.
struct GroupScales : sm80::OperandScales {
  [[nodiscard]] FP4PA_FN static constexpr int key_bytes(KvKind k, int head_dim) {
    return k == KvKind::kNvfp4 ? OperandScales::key_bytes(k, head_dim) : core::CacheScales::key_bytes(k, head_dim);
  }
  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_key(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                 const std::uint32_t (&words)[kWords]) {
    if (k == KvKind::kNvfp4) {
      OperandScales::store_key(exec, lane, k, head_dim, at, key, words);
    } else {
      core::CacheScales::store_key(exec, lane, k, head_dim, at, key, words);
    }
  }
};

template <core::SimtConfig kConfig>
struct GroupLayout {
  static constexpr int kRows = core::tile_rows(kConfig, 8);
  using Query = OperandTile<kRows, kConfig.head_dim>;
  using Probability = OperandTile<kRows, kConfig.tile_keys>;
  static constexpr core::TileLayout kTile =
      core::tile_layout<GroupScales>(kConfig.k[0], kConfig.v[0], kConfig.head_dim, kConfig.tile_keys);

  // Per row: the factor of its scores, as the query brought it; { factor, less the maximum } as probabilities are made
  // with; the sum of products that leaves the headroom; the maximum.
  static constexpr int kFactors = 0;
  static constexpr int kExponents = kFactors + 4 * kRows;
  static constexpr int kLimits = kExponents + 8 * kRows;
  static constexpr int kMaxima = kLimits + 4 * kRows;
  static constexpr int kExchange = kMaxima + 4 * kRows;  // [warp][row]
  static constexpr int kQuery = core::round_up_to(kExchange + 4 * kRows * kConfig.warps, kSwizzleBytes);
  static constexpr int kProbability = kQuery + Query::kBytes;
  static constexpr int kAddresses = kProbability + Probability::kBytes;
  static constexpr int kStages = kAddresses + core::round_up_to(kConfig.tile_keys * 16, 128);
  static constexpr int kBytes = kStages + kConfig.stages[0] * kTile.bytes;
};

/// The same for those who know the instance at run time.
[[nodiscard]] FP4PA_FN constexpr int group_bytes(const core::SimtConfig& c) {
  const int rows = core::tile_rows(c, 8);
  const int row_bytes = core::round_up_to(rows * (20 + 4 * c.warps), kSwizzleBytes);
  const int operand_bytes = rows * 2 * (c.head_dim + c.tile_keys);
  const int tile_bytes = core::tile_layout<GroupScales>(c.k[0], c.v[0], c.head_dim, c.tile_keys).bytes;
  return row_bytes + operand_bytes + core::round_up_to(c.tile_keys * 16, 128) + c.stages[0] * tile_bytes;
}

}  // namespace fp4pa::sm90
