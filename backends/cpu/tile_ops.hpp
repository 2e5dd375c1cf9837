// The CPU's matrix core: a table of tile operations, one table per instruction set.
//
// A fragment of the CPU back end is a whole tile in first-level cache, and an operation on it is a SIMD loop that is
// compiled once per instruction set (tile_ops.cpp, through Highway) and chosen at run time. The kernel body itself is
// compiled once, for the baseline; it calls into this table a few times per tile of 64 keys, so the calls cost nothing.
//
// Queries are brought into an operand form once per item, and outputs are kept in the *lane order* of the values they sum:
// the order in which a format's packed words fall into SIMD lanes without a single shuffle (a 32-bit word of eight codes
// stays in its lane and is shifted eight times). Only the output's store knows about it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4pa/types.hpp"

namespace fp4pa::cpu {

inline constexpr std::int32_t kMaxRows = 16;   // query rows of a tile
inline constexpr std::int32_t kTileKeys = 64;  // keys of a tile
inline constexpr std::int32_t kMaxHeadDim = 256;

/// Room for a tile's query in any operand form.
inline constexpr std::size_t kQueryOperandBytes = sizeof(float) * kMaxRows * kMaxHeadDim + 20 * 1024;

/// Rows of K or V of one tile.
struct TileRows {
  const std::uint8_t* row[kTileKeys];
  const std::uint8_t* scale[kTileKeys];  // along tokens: the scale row of the token's group
  std::int32_t count;
  const std::uint8_t* after;  // first row of the tile that follows, null at the end
};

/// How far the rows of a tile have been prefetched (see Prefetcher in products-inl.h).
struct PrefetchCursor {
  const TileRows* rows = nullptr;
  std::int32_t row_bytes = 0;
  std::int32_t key = -1;             // -1: not begun
  const std::uint8_t* at = nullptr;  // the next line
  const std::uint8_t* end = nullptr;
  std::ptrdiff_t step = 0;
};

/// One side (K or V) of a tile of keys.
struct TileInput {
  const TileRows* rows;
  PrefetchCursor* ahead;  // K and V of the next tile, which both products prefetch; null at the end
  std::int32_t row_bytes;
  std::int32_t head_dim;
  std::int32_t first_in_group;  // along tokens: position of row 0 within its scale group
  std::int32_t token_group;     // along tokens: 32 or 16; else 1
};

struct TileOps {
  const char* name;

  /// Brings `rows` queries [rows, head_dim], times `scale`, into the form that the product with keys of `format` wants:
  /// `operand` has kQueryOperandBytes, aligned to 64. The scale is apart because queries of 16 bits, which it would turn into
  /// arbitrary f32, may have an exact form without it.
  void (*prepare_query)(KvFormat format, const float* query, std::int32_t rows, std::int32_t head_dim, float scale,
                        void* operand);

  /// scores[r * kTileKeys + t] = scale * sum_d query[r][d] * key[t][d], block scales applied, for `rows` rows and all keys of the
  /// tile. Positions past the last key hold anything.
  void (*multiply_query_key)(KvFormat format, const TileInput& keys, const void* operand, std::int32_t rows,
                             float* scores);

  /// Lane order of an output that is summed over values of `format`, scaled along tokens or not: element i of a row stands
  /// at position order[i].
  void (*lane_order)(KvFormat format, bool along_tokens, std::int32_t head_dim, std::int32_t* order);

  /// output[r * head_dim + d] += multiplier * sum_t probability[r * kTileKeys + t] * value[t][d]; the output is in the
  /// format's lane order.
  void (*multiply_probability_value)(KvFormat format, const TileInput& values, float multiplier,
                                     const float* probability, std::int32_t rows, float* output);

  /// max[r] = max(before[r], scores of row r), kTileKeys a row.
  void (*row_max)(const float* scores, std::int32_t rows, const float* before, float* max);
  /// scores = 2^(scores - max[r]); 0 in rows whose max is -inf. NaN stays NaN.
  void (*exp2_minus)(float* scores, std::int32_t rows, const float* max);
  /// sum[r] += the scores of row r.
  void (*add_row_sums)(const float* scores, std::int32_t rows, float* sum);
  /// output row r *= factor[r].
  void (*scale_rows)(float* output, std::int32_t rows, std::int32_t head_dim, const float* factor);
};

/// The table for the best instruction set of this CPU (FP4PA_CPU_TARGET=AVX2 and the like lowers it; see tile_ops.cpp).
const TileOps& tile_ops() noexcept;
/// The same operations compiled without SIMD, to compare with.
const TileOps& scalar_tile_ops() noexcept;

}  // namespace fp4pa::cpu
