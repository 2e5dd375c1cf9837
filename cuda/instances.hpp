// The attention kernels of this library, in one list: what is compiled, and which of them serves a configuration.
//
// People serve a few combinations, and those are compiled for; the last rows serve every other one with formats and head_dim
// decided at run time, at a fraction of the speed. Rows are tried in order, so that a special one must stand before a
// general one. Each row costs a few seconds of compilation per architecture: add one with a measurement that it pays.
//
// Plain C++: the tests run the same list on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "backends/sm80/key_product.hpp"
#include "backends/sm80/scale_form.hpp"
#include "backends/sm80/tile_decode.hpp"
#include "core/simt/page_runs.hpp"
#include "core/simt/query.hpp"
#include "core/simt/shared_layout.hpp"
#include "fp4pa/attention.hpp"

namespace fp4pa::simt {

using core::KvKind;
using core::SimtConfig;
using core::WarpsDivide;

namespace instance {

/// Decode: 8 query rows a tile (16 with two row tiles), every warp on keys of its own.
constexpr SimtConfig decode(KvKind k, KvKind v, int head_dim, int row_tiles, int warps, int blocks, int stages, int tile_keys = 32) {
  return {{k, k}, {v, v}, 1, head_dim, true, row_tiles, WarpsDivide::kKeys, warps, blocks, tile_keys, {stages, stages}, false};
}
/// A few query tokens: 16 query rows a tile (32 with two row tiles), in A.
constexpr SimtConfig few_rows(KvKind kind, int row_tiles, int warps, int blocks, int stages, int head_dim = 128, int tile_keys = 32) {
  SimtConfig c = decode(kind, kind, head_dim, row_tiles, warps, blocks, stages, tile_keys);
  c.plain = true;
  c.query_is_a = true;
  return c;
}
/// Prefill: four warps with 32 query rows each share the keys, which the block decodes once.
constexpr SimtConfig prefill(KvKind k, KvKind v, int head_dim, int tile_keys) {
  return {{k, k}, {v, v}, 1, head_dim, true, 2, WarpsDivide::kRows, 4, 2, tile_keys, {2, 2}, true};
}
/// The same configuration with a recent tier behind it. Its few tokens are hardly more than a tile for each warp, so that
/// one stage will do.
constexpr SimtConfig with_recent(SimtConfig c, KvKind recent) {
  c.segments = 2;
  c.k[1] = c.v[1] = recent;
  c.stages[1] = 1;
  return c;
}
/// The same configuration for the calls that most engines make, see SimtConfig::plain.
constexpr SimtConfig plain(SimtConfig c, int terms = 1) {
  c.plain = true;
  c.terms = terms;
  return c;
}
/// Plain, of queries of two terms in at most 4 rows, which one multiplication takes.
constexpr SimtConfig side_by_side(SimtConfig c) {
  c = plain(c, 2);
  c.side_by_side = core::SideBySide::kTerms;
  return c;
}
/// Plain, of queries of one term in at most 4 rows: NVFP4's groups stand apart.
constexpr SimtConfig groups_apart(SimtConfig c) {
  c = plain(c);
  c.side_by_side = core::SideBySide::kGroups;
  return c;
}
/// Any formats, any head_dim, one tier or two. prefill_any: four warps with 16 query rows each share the keys.
constexpr SimtConfig any(int row_tiles, int warps) {
  return {{KvKind::kAny, KvKind::kAnyRecent}, {KvKind::kAny, KvKind::kAnyRecent}, 2, 256, false, row_tiles,
          WarpsDivide::kKeys, warps, 2, 32, {2, 1}, false};
}
constexpr SimtConfig prefill_any() {
  SimtConfig c = any(1, 4);
  c.divide = WarpsDivide::kRows;
  c.decode_tiles = true;
  return c;
}

}  // namespace instance

/// Compiled by four rows a translation unit, three of which have an option that CMakeLists.txt gives by their first row.
inline constexpr SimtConfig kInstances[] = {
    instance::plain(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 1, 4, 4, 2)),
    instance::plain(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 1, 4, 4, 2)),
    instance::plain(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 1, 4, 4, 2)),
    instance::plain(instance::decode(KvKind::kFp8, KvKind::kFp8, 128, 1, 4, 2, 3)),
    instance::plain(instance::decode(KvKind::kBf16, KvKind::kBf16, 128, 1, 6, 1, 2)),
    instance::plain(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 64, 1, 4, 4, 2, 64)),
    instance::plain(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 256, 1, 4, 2, 2)),
    instance::plain(instance::with_recent(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 1, 4, 4, 2), KvKind::kBf16)),
    instance::few_rows(KvKind::kMxfp4, 1, 4, 3, 3),
    instance::few_rows(KvKind::kNvfp4, 1, 4, 3, 2),
    instance::plain(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 64, 1, 4, 4, 2, 64)),
    instance::plain(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 256, 1, 4, 2, 2)),
    instance::plain(instance::decode(KvKind::kFp8, KvKind::kFp8, 64, 1, 4, 3, 4)),
    instance::plain(instance::decode(KvKind::kBf16, KvKind::kBf16, 64, 1, 4, 2, 3)),
    instance::plain(instance::decode(KvKind::kFp8, KvKind::kFp8, 256, 1, 6, 1, 2)),
    instance::plain(instance::decode(KvKind::kBf16, KvKind::kBf16, 256, 1, 3, 1, 2)),
    instance::plain(instance::decode(KvKind::kMxfp8, KvKind::kMxfp8, 128, 1, 4, 2, 3)),
    instance::plain(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 1, 4, 4, 2), 2),
    instance::plain(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 1, 4, 4, 2), 2),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 1, 4, 2, 4),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 1, 4, 3, 3),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 1, 4, 2, 4),
    instance::decode(KvKind::kFp8, KvKind::kFp8, 128, 1, 4, 2, 3),
    instance::decode(KvKind::kBf16, KvKind::kBf16, 128, 1, 6, 1, 2),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 64, 1, 4, 3, 4),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 64, 1, 4, 3, 4),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 256, 1, 4, 2, 2),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 256, 1, 4, 2, 2),
    instance::with_recent(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 1, 4, 2, 4), KvKind::kBf16),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 2, 4, 2, 3),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 2, 4, 2, 3),
    instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4, 128, 64),
    instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4, 128, 64),
    instance::prefill(KvKind::kBf16, KvKind::kBf16, 128, 64),
    instance::decode(KvKind::kFp8, KvKind::kFp8, 64, 1, 4, 3, 4),
    instance::decode(KvKind::kBf16, KvKind::kBf16, 64, 1, 4, 2, 3),
    instance::decode(KvKind::kFp8, KvKind::kFp8, 256, 1, 6, 1, 2),
    instance::decode(KvKind::kBf16, KvKind::kBf16, 256, 1, 3, 1, 2),
    instance::decode(KvKind::kMxfp8, KvKind::kMxfp8, 128, 1, 4, 2, 3),
    instance::prefill(KvKind::kMxfp8, KvKind::kMxfp8, 128, 64),
    instance::plain(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4Tokens, 128, 1, 4, 4, 2)),
    instance::plain(instance::with_recent(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 1, 4, 4, 2), KvKind::kBf16)),
    instance::few_rows(KvKind::kMxfp4, 2, 4, 2, 3),
    instance::few_rows(KvKind::kNvfp4, 2, 4, 2, 3),
    instance::few_rows(KvKind::kFp8, 1, 4, 3, 2),
    instance::few_rows(KvKind::kFp8, 2, 4, 2, 3),
    instance::few_rows(KvKind::kBf16, 1, 6, 1, 2),
    instance::few_rows(KvKind::kBf16, 2, 6, 1, 2),
    instance::few_rows(KvKind::kMxfp4, 1, 4, 4, 2, 64, 64),
    instance::few_rows(KvKind::kMxfp4, 2, 4, 3, 3, 64),
    instance::few_rows(KvKind::kNvfp4, 1, 4, 4, 2, 64, 64),
    instance::few_rows(KvKind::kNvfp4, 2, 4, 3, 3, 64),
    instance::few_rows(KvKind::kFp8, 2, 4, 3, 4, 64),
    instance::few_rows(KvKind::kBf16, 2, 4, 2, 3, 64),
    instance::side_by_side(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 1, 4, 4, 2)),
    instance::side_by_side(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 1, 4, 4, 2)),
    instance::groups_apart(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 1, 4, 4, 2)),
    instance::groups_apart(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 64, 1, 4, 4, 2, 64)),
    instance::groups_apart(instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 256, 1, 4, 2, 2)),
    instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 64),
    instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4Tokens, 128, 64),
    instance::with_recent(instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4, 128, 64), KvKind::kBf16),
    instance::with_recent(instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4, 128, 64), KvKind::kBf16),
    instance::prefill(KvKind::kFp8, KvKind::kFp8, 128, 64),
    instance::prefill(KvKind::kBf16, KvKind::kBf16, 64, 64),
    instance::plain(instance::decode(KvKind::kF16, KvKind::kF16, 128, 1, 6, 1, 2)),
    instance::prefill(KvKind::kF16, KvKind::kF16, 128, 64),
    instance::prefill(KvKind::kBf16, KvKind::kBf16, 128, 32),
    instance::prefill(KvKind::kF16, KvKind::kF16, 128, 32),
    instance::decode(KvKind::kFp8, KvKind::kNvfp4, 128, 1, 4, 3, 3),
    instance::decode(KvKind::kFp8, KvKind::kNvfp4, 128, 2, 4, 2, 3),
    instance::prefill(KvKind::kFp8, KvKind::kNvfp4, 128, 64),
    instance::decode(KvKind::kPerToken, KvKind::kPerToken, 128, 1, 4, 3, 3),
    instance::decode(KvKind::kPerToken, KvKind::kPerToken, 128, 2, 4, 2, 3),
    instance::prefill(KvKind::kPerToken, KvKind::kPerToken, 128, 64),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 96, 1, 4, 3, 3),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 96, 1, 4, 3, 3),
    instance::decode(KvKind::kFp8, KvKind::kFp8, 96, 1, 4, 2, 3),
    instance::decode(KvKind::kBf16, KvKind::kBf16, 96, 1, 6, 1, 2),
    instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4, 96, 64),
    instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4, 96, 64),
    instance::prefill(KvKind::kFp8, KvKind::kFp8, 96, 64),
    instance::prefill(KvKind::kBf16, KvKind::kBf16, 96, 64),
    instance::any(1, 4),
    instance::prefill_any(),
};
inline constexpr int kNumInstances = static_cast<int>(std::size(kInstances));

/// Query rows that an instance's atoms take, and that its tiles have.
[[nodiscard]] constexpr int atom_queries(const SimtConfig& c) {
  return (c.decode_tiles || c.query_is_a ? 16 : 8) / core::rows_of_query(c);
}
[[nodiscard]] constexpr int rows_of(const SimtConfig& c) { return core::tile_rows(c, atom_queries(c)); }

[[nodiscard]] inline KvKind kind_of(const KvTensorDesc& tensor) {
  return core::kv_kind(tensor.format, core::token_group_shift(tensor.format, tensor.scale_axis) != 0);
}

/// Operands that a query is the sum of, in the tier that needs most.
[[nodiscard]] inline int terms_of(const AttentionConfig& c) {
  const auto terms = [&](const KvCacheDesc& tier) {
    return core::query_terms(c.q_dtype, c.cache.rotation, sm80::key_query_form(kind_of(tier.k)).bf16);
  };
  return c.two_tier ? std::max(terms(c.cache), terms(c.recent)) : terms(c.cache);
}
/// The same in an instance: beside keys decoded to bf16, f16 queries are a sum too.
[[nodiscard]] inline int terms_of(const SimtConfig& i, const AttentionConfig& c) {
  if (!i.decode_tiles) return terms_of(c);
  const bool bf16 = sm80::decodes_to_bf16(kind_of(c.cache.k)) || (c.two_tier && sm80::decodes_to_bf16(kind_of(c.recent.k)));
  return core::query_terms(c.q_dtype, c.cache.rotation, bf16);
}
/// Whether an instance that stages tiles by runs alone finds them in these pages.
[[nodiscard]] inline bool fits_runs(const KvCacheDesc& cache) {
  const auto fits = [&](const KvTensorDesc& t) { return core::fits_runs(core::make_view(t), kind_of(t), cache.head_dim); };
  return core::fits_runs(cache.page_size) && fits(cache.k) && fits(cache.v) &&
         core::lie_alike(core::make_view(cache.k), core::make_view(cache.v), kind_of(cache.k) == kind_of(cache.v));
}
/// Whether a call needs nothing that a plain instance is compiled without.
[[nodiscard]] inline bool is_plain(const SimtConfig& i, const AttentionConfig& c) {
  return c.softcap == 0.0f && !c.alibi && !c.tree_mask && terms_of(i, c) == i.terms && (i.decode_tiles || fits_runs(c.cache));
}

/// Whether an instance computes this configuration at all.
[[nodiscard]] inline bool serves(const SimtConfig& i, const AttentionConfig& c) {
  const auto fits = [](KvKind mine, const KvTensorDesc& tensor) {
    if (mine == KvKind::kAnyRecent) return !is_fp4(tensor.format);
    return mine == KvKind::kAny || mine == kind_of(tensor);
  };
  if (i.plain && !is_plain(i, c)) return false;
  if (c.tree_mask && c.sliding_window > 0 && !core::takes_tree_windows(i)) return false;
  // Warps that decode beside the products know rows of scales along tokens by whole pieces of a page.
  if (i.producers > 0 && core::along_tokens(i.v[0]) && c.cache.page_size % core::kScalePiece != 0) return false;
  if (i.exact_head_dim ? i.head_dim != c.cache.head_dim : i.head_dim < c.cache.head_dim) return false;
  if (!fits(i.k[0], c.cache.k) || !fits(i.v[0], c.cache.v)) return false;
  if (!c.two_tier) return i.segments == 1 || i.k[0] == KvKind::kAny;
  return i.segments == 2 && fits(i.k[1], c.recent.k) && fits(i.v[1], c.recent.v);
}

/// How often the tiles of an instance walk the keys of a sequence.
[[nodiscard]] inline std::int64_t passes(const SimtConfig& i, const AttentionConfig& c) {
  const std::int64_t rows = std::int64_t{c.max_q_len} * (c.num_q_heads / c.cache.num_kv_heads);
  return (rows + rows_of(i) - 1) / rows_of(i);
}

/// What the passes cost, in tenths of one of 8 or 16 rows: measured at 15 for 32 rows (20 where keys of 16 bits are read more than
/// once) and 16 for two row tiles beside FP8 keys, and where warps divide the rows, so that every warp waits for keys that one block alone
/// brings in, at 45 with a few dozen rows (66 where queries of two terms meet decoded keys), 32 on wgmma. Tiles of 64 rows are for whom one
/// suffices.
[[nodiscard]] inline std::int64_t pass_cost(const SimtConfig& i, const AttentionConfig& c) {
  const std::int64_t n = passes(i, c);
  if (!core::divides_rows(i)) {
    if (i.row_tiles == 1) return 10 * n;
    if (i.query_is_a) return n * (n > 1 && i.k[0] == KvKind::kBf16 ? 20 : 15);
    return n * (i.k[0] == KvKind::kFp8 ? 16 : 10);
  }
  if (i.producers == 0) return (i.decode_tiles && terms_of(i, c) > 1 ? 66 : 40) * n;
  return n == 1 && rows_of(i) == 64 ? 30 : 32 * n;
}

/// Of the first in a list that serve a configuration and have its formats, the one whose tiles its rows fill best; -1 if none.
/// @param shape  from a row of the list to its shape
/// @param fits   whether a row has room on the device
template <class Shape, class Fits>
[[nodiscard]] int select_among(const AttentionConfig& c, int count, Shape&& shape, Fits&& fits) {
  int best = -1;
  for (int i = 0; i < count; ++i) {
    const SimtConfig* const candidate = shape(i);
    if (!serves(*candidate, c) || !fits(i)) continue;
    if (best < 0) {
      best = i;
      continue;
    }
    const SimtConfig& taken = *shape(best);
    if (taken.exact_head_dim && !candidate->exact_head_dim) continue;
    // Least time for the passes over the keys; then fewest idle rows.
    const std::int64_t cost = pass_cost(*candidate, c);
    const bool better = cost < pass_cost(taken, c) || (cost == pass_cost(taken, c) && rows_of(*candidate) < rows_of(taken));
    if (better) best = i;
  }
  return best;
}
template <class Shape>
[[nodiscard]] int select_among(const AttentionConfig& c, int count, Shape&& shape) {
  return select_among(c, count, shape, [](int) { return true; });
}
[[nodiscard]] inline int select_instance(const AttentionConfig& c) {
  return select_among(c, kNumInstances, [](int i) { return &kInstances[i]; });
}

/// What an instance that decodes tiles for the block keeps of them in shared memory.
struct DecodedTiles {
  [[nodiscard]] static constexpr int bytes(const SimtConfig& i) {
    return sm80::decoded_bytes(i.k[0], i.head_dim, i.tile_keys) + sm80::decoded_bytes(i.v[0], i.head_dim, i.tile_keys);
  }
};

/// Bytes of a team's stages of one segment.
/// @tparam ScaleForm  of the instance's shim
template <class ScaleForm = sm80::OperandScales>
[[nodiscard]] constexpr int segment_bytes(const SimtConfig& i, KvKind k, KvKind v, int head_dim, int stages) {
  return stages * (i.decode_tiles ? core::tile_layout(k, v, head_dim, i.tile_keys)
                                  : core::tile_layout<ScaleForm>(k, v, head_dim, i.tile_keys)).bytes;
}

/// Bytes of a team's stages, what the segment that needs most needs, and of its decoded tiles.
/// @tparam ScaleForm, Decoded  of the instance's shim
template <class ScaleForm = sm80::OperandScales, class Decoded = DecodedTiles>
[[nodiscard]] int stage_bytes(const SimtConfig& i, const AttentionConfig& c) {
  const auto bytes = [&](const KvCacheDesc& tier, int stages) {
    return segment_bytes<ScaleForm>(i, kind_of(tier.k), kind_of(tier.v), tier.head_dim, stages);
  };
  const int decoded = i.decode_tiles ? Decoded::bytes(i) : 0;
  const int old_tier = bytes(c.cache, i.stages[0]) + decoded;
  // A recent tier of a fixed format lies in its stages as operands.
  const bool fixed = !core::is_any(i.k[1]);
  return c.two_tier ? std::max(old_tier, bytes(c.recent, i.stages[1]) + (fixed ? 0 : decoded)) : old_tier;
}

/// Of what a block knows of its items, see cuda/worker.cuh; where warps of its own decode, they know it (backends/sm90/items.hpp).
inline constexpr int kAsideBytes = 224;

/// Shared memory of a block of `warps` warps.
template <class ScaleForm = sm80::OperandScales, class Decoded = DecodedTiles>
[[nodiscard]] core::SharedLayout shared_layout_of(const SimtConfig& i, const AttentionConfig& c, int warps) {
  const int terms = i.decode_tiles ? terms_of(i, c)
                    : std::is_same_v<ScaleForm, sm80::OperandScales> ? terms_of(c)
                                                                     : 2;
  const int aside = i.producers == 0 ? kAsideBytes : 0;
  return core::shared_layout(i, atom_queries(i), c.cache.head_dim, warps, stage_bytes<ScaleForm, Decoded>(i, c), terms, aside);
}

/// Blocks of a row of kInstances that registers are allotted for: as many as it is made for, or as many as fit into the shared
/// memory of a multiprocessor, where that is less. Registers that nobody else could use would be spilled for nothing.
/// @param compute_capability  of the machine code, 90 for 9.0
[[nodiscard]] constexpr int blocks_of(const SimtConfig& i, int compute_capability) {
  if (core::is_any(i.k[0])) return i.blocks;
  constexpr int kReserved = 1024;  // of a block, by the system
  const int shared = (compute_capability >= 90 ? 228 : 164) * 1024;  // 8.6 and 8.9 have less
  int stages = segment_bytes(i, i.k[0], i.v[0], i.head_dim, i.stages[0]);
  if (i.decode_tiles) stages += DecodedTiles::bytes(i);
  if (i.segments == 2) stages = std::max(stages, segment_bytes(i, i.k[1], i.v[1], i.head_dim, i.stages[1]));
  const int block = core::shared_layout(i, atom_queries(i), i.head_dim, i.warps, stages, i.terms, kAsideBytes).bytes;
  return std::clamp(shared / (core::round_up_to(block, 1024) + kReserved), 1, i.blocks);
}

/// Warps of a block of a row of kInstances at most, and how many such blocks registers are allotted for: where warps divide the keys,
/// a launch may have all warps of a multiprocessor in one block.
[[nodiscard]] constexpr int most_warps(const SimtConfig& i, int compute_capability) {
  return core::divides_rows(i) ? i.warps : i.warps * blocks_of(i, compute_capability);
}
[[nodiscard]] constexpr int least_blocks(const SimtConfig& i, int compute_capability) {
  return core::divides_rows(i) ? blocks_of(i, compute_capability) : 1;
}

}  // namespace fp4pa::simt
