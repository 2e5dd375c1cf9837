// What lies where in a block's shared memory.
//
//   scratch      per warp    one row of queries in f32, or a 32-dim block of a query tile on its way to another order
//   row factors  per block   one float per query row
//   aside        per block   what is known of the block's items and would otherwise be in registers; of some launches
//   query        per block (keys divided) or per warp (rows divided), in operand form, twice: see query.hpp on terms
//   addresses    per team    where the rows of the tile that is being staged lie; of a warp's own team, in its scratch
//   stages       per team    tiles: K codes, V codes, K scales, V scales; behind them, in plain instances, page ids
//
// A team is who stages a tile together: a warp when keys are divided, else the block. The stages are reused at the end of an
// item to merge the warps' results. Rows of codes are cut into 16-byte chunks at a power-of-two pitch, so that the shim's
// swizzle can permute a row's chunks.
#pragma once

#include "core/simt/config.hpp"

namespace fp4pa::core {

inline constexpr int kChunkBytes = 16;
/// Tokens of the smallest run that one row of scales along tokens covers: NVFP4's group, and the depth of 16-bit atoms.
inline constexpr int kScalePiece = 16;
inline constexpr int kScratchBytes = 1024;

[[nodiscard]] FP4PA_FN constexpr int power_of_two_at_least(int x) {
  int p = 1;
  while (p < x) p *= 2;
  return p;
}
[[nodiscard]] FP4PA_FN constexpr int round_up_to(int x, int multiple) { return (x + multiple - 1) / multiple * multiple; }

/// How the scales of keys lie in a staged tile: word by word as in the cache, key by key. A shim whose products want them
/// otherwise names a form of its own (Shim::ScaleForm) with the same members; staging then converts each scale once, where the
/// products would do it in every lane that needs it. Scales along tokens always lie as in the cache.
struct CacheScales {
  /// Bytes of a tile's scales per key.
  [[nodiscard]] FP4PA_FN static constexpr int key_bytes(KvKind k, int head_dim) {
    return round_up_to(key_scale_bytes(k, head_dim), 4);
  }
  [[nodiscard]] FP4PA_FN static constexpr int value_bytes(KvKind k, int head_dim) {
    return round_up_to(key_scale_bytes(k, head_dim), 4);
  }
  /// Stores the scales of key `key` of a tile, `words` as in the cache, into the tile's scales at `at`.
  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_key(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                 const std::uint32_t (&words)[kWords]) {
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      if (4 * w < key_scale_bytes(k, head_dim)) {
        exec.template store_shared<std::uint32_t>(lane, at + key * key_bytes(k, head_dim) + 4 * w, words[w]);
      }
    }
  }
  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_value(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                   const std::uint32_t (&words)[kWords]) {
    store_key(exec, lane, k, head_dim, at, key, words);
  }
};

template <class Shim>
struct ScaleFormOf {
  using type = CacheScales;
};
template <class Shim>
  requires requires { typename Shim::ScaleForm; }
struct ScaleFormOf<Shim> {
  using type = typename Shim::ScaleForm;
};

/// One tile in shared memory; K codes are at its start.
struct TileLayout {
  int k_chunks;  // chunks of a row's pitch
  int v_chunks;
  int v_codes;   // offsets in bytes
  int k_scales;
  int v_scales;
  int k_scale_pitch;  // bytes per key
  int v_scale_pitch;  // the same, or along tokens from piece to piece
  int bytes;
};

template <class ScaleForm = CacheScales>
[[nodiscard]] FP4PA_FN constexpr TileLayout tile_layout(KvKind k, KvKind v, int head_dim, int tile_keys) {
  TileLayout t{};
  t.k_chunks = power_of_two_at_least(code_bytes(k, head_dim) / kChunkBytes);
  t.v_chunks = power_of_two_at_least(code_bytes(v, head_dim) / kChunkBytes);
  t.k_scale_pitch = ScaleForm::key_bytes(k, head_dim);
  t.v_scale_pitch = along_tokens(v) ? head_dim : ScaleForm::value_bytes(v, head_dim);
  t.v_codes = tile_keys * t.k_chunks * kChunkBytes;
  t.k_scales = t.v_codes + tile_keys * t.v_chunks * kChunkBytes;
  t.v_scales = round_up_to(t.k_scales + tile_keys * t.k_scale_pitch, kChunkBytes);
  const int v_scale_rows = along_tokens(v) ? tile_keys / kScalePiece : tile_keys;
  t.bytes = round_up_to(t.v_scales + v_scale_rows * t.v_scale_pitch, 128);
  return t;
}

struct SharedLayout {
  int row_factors;
  int aside;
  int query;
  int query_bytes;      // of one copy
  int addresses;
  int address_bytes;    // of one team
  int stages;
  int team_bytes;       // of one team's stages
  int bytes;
};

/// A warp's result while those that divided the keys are merged: rows of f32 at a pitch that keeps rows apart in the banks.
[[nodiscard]] FP4PA_FN constexpr int result_pitch(int head_dim) { return head_dim + 4; }
[[nodiscard]] FP4PA_FN constexpr int result_bytes(const SimtConfig& c, int atom_queries) {
  return c.row_tiles * atom_queries * result_pitch(c.head_dim) * 4;
}

/// Page ids, a word a lane, which plain instances copy to behind each tile.
inline constexpr int kPageIdBytes = 128;
[[nodiscard]] FP4PA_FN constexpr bool copies_page_ids(const SimtConfig& c) { return c.plain && c.divide == WarpsDivide::kKeys; }

/// @param stage_bytes   of a team's stages in the segment that needs most
/// @param query_terms   operands that a query is the sum of, see query.hpp
[[nodiscard]] FP4PA_FN constexpr SharedLayout shared_layout(const SimtConfig& c, int atom_queries, int head_dim, int warps,
                                                            int stage_bytes, int query_terms = 2, int aside_bytes = 0) {
  const int teams = divides_rows(c) ? 1 : warps;
  SharedLayout s{};
  s.row_factors = warps * kScratchBytes;
  // Where a block's warps share operands these may be swizzled over 1024 bytes.
  s.aside = round_up_to(s.row_factors + tile_rows(c, atom_queries) * 4, 16);
  s.query = round_up_to(s.aside + aside_bytes, divides_rows(c) ? 1024 : 128);
  const int query_operands = c.side_by_side == SideBySide::kNothing ? query_terms : rows_of_query(c);
  s.query_bytes = query_operands * c.row_tiles * atom_queries * head_dim * 2;
  const int behind_query = s.query + s.query_bytes * (divides_rows(c) ? warps : 1);
  // Per key two addresses, per piece of a scale row one more.
  s.address_bytes = round_up_to(c.tile_keys * 16 + c.tile_keys / kScalePiece * 8, 128);
  const bool in_scratch = !divides_rows(c) && s.address_bytes <= kScratchBytes;
  s.addresses = in_scratch ? 0 : behind_query;
  if (in_scratch) s.address_bytes = kScratchBytes;
  s.stages = behind_query + (in_scratch ? 0 : s.address_bytes * teams);
  s.team_bytes = stage_bytes + (copies_page_ids(c) ? c.stages[0] * kPageIdBytes : 0);
  const int result = result_bytes(c, atom_queries);
  if (!divides_rows(c)) s.team_bytes = round_up_to(s.team_bytes > result ? s.team_bytes : result, 128);
  s.bytes = s.stages + s.team_bytes * teams;
  return s;
}

}  // namespace fp4pa::core
