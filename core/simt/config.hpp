// The shape of one instance of the SIMT back end, as one structural constant: what a kernel is compiled for.
#pragma once

#include "core/simt/kv_kind.hpp"

namespace fp4pa::core {

/// How the warps of a block share the work.
enum class WarpsDivide : std::int32_t {
  kKeys,  // decode: every warp sees all rows and its own tiles of keys; no block barrier until the end
  kRows,  // prefill: every warp has its own rows; tiles of keys are staged once for the block
};

/// Warps of the smallest worker that a launch chooses, where it does (cuda/launch_shape.hpp), unless shared memory has room for one alone.
inline constexpr int kLeastWorkerWarps = 2;

/// What takes the columns of a multiplication that query rows leave, where a KV head has at most half as many rows as the atom. A tile has
/// as many rows fewer, so that an item begins and ends sooner, and from the scores on the atom's rows behind a tile's mirror them.
enum class SideBySide : std::int32_t {
  kNothing,
  kTerms,   // the second term of the query: one multiplication sums both
  kGroups,  // the dims of every second group of 16: sums of a group are apart, and NVFP4's scales multiply sums and P, not codes
};

struct SimtConfig {
  KvKind k[2];         // per segment
  KvKind v[2];
  int segments;
  int head_dim;        // the only one, or with exact_head_dim false the largest
  bool exact_head_dim;
  int row_tiles;       // query tiles of the atom that a warp holds
  WarpsDivide divide;
  int warps;           // of a block; when keys are divided, the most
  int blocks;          // resident on a multiprocessor, for which registers are allotted
  int tile_keys;       // keys of a tile of scores, a multiple of 32
  int stages[2];       // per segment: tiles in shared memory, the current one included
  bool decode_tiles = false;  // the block decodes each tile once, in shared memory, for all its warps; else every warp for itself
  int producers = 0;   // warps beside those, which stage and decode tiles and multiply nothing
  bool plain = false;  // compiled without what few calls ask for: softcap, ALiBi, tree masks, pages that are no power of two.
                       // Instructions that never run still part those that do, and the cache of instructions is small
  int terms = 1;       // of a plain instance's queries: 2 for f32 and rotated ones, see query.hpp. Of gfx950's native ones the most
  bool query_is_a = false;  // sm_80: warps that divide the keys have queries in A, 16 rows a tile, and not keys, with 8 rows a tile
  SideBySide side_by_side = SideBySide::kNothing;  // of a plain instance's queries
};

/// Whether a score is the sum of its columns.
[[nodiscard]] FP4PA_FN constexpr bool parts_sums(const SimtConfig& c) { return c.side_by_side != SideBySide::kNothing; }
/// Rows of the atom that a query row takes.
[[nodiscard]] FP4PA_FN constexpr int rows_of_query(const SimtConfig& c) { return c.side_by_side == SideBySide::kNothing ? 1 : 2; }

/// Whether an instance computes trees under a sliding window: those for any head_dim do.
[[nodiscard]] FP4PA_FN constexpr bool takes_tree_windows(const SimtConfig& c) { return !c.exact_head_dim; }

[[nodiscard]] FP4PA_FN constexpr bool divides_rows(const SimtConfig& c) { return c.divide == WarpsDivide::kRows; }

/// Query rows of a work item, for `atom_queries` query rows an atom.
[[nodiscard]] FP4PA_FN constexpr int tile_rows(const SimtConfig& c, int atom_queries) {
  return c.row_tiles * atom_queries * (divides_rows(c) ? c.warps : 1);
}

/// head_dim is handled in blocks of this many elements: MXFP4's group, and the divisor of every head_dim.
inline constexpr int kDimBlock = 32;

}  // namespace fp4pa::core
