// The attention kernels of the HIP build, in one list: what is compiled, and which of them serves a configuration.
//
// As cuda/instances.hpp. An instance with tiles of 128 keys is native (docs/gfx950.md): its keys enter the matrix core as they
// lie in the cache, and it exists on gfx950 alone. The others decode to 16 bits; those that need more LDS than gfx942 has are
// gfx950's alone too, and the rest is the same on both chips.
//
// Plain C++: the tests run the same list on the host.
#pragma once

#include <cstdint>
#include <iterator>

#include "backends/gfx942/scale_form.hpp"
#include "core/simt/shared_layout.hpp"
#include "fp4pa/attention.hpp"

namespace fp4pa::hip {

using core::KvKind;
using core::SimtConfig;
using core::WarpsDivide;

inline constexpr int kNativeTileKeys = 128;
[[nodiscard]] constexpr bool is_native(const SimtConfig& c) { return c.tile_keys == kNativeTileKeys; }

/// Query rows of a tile that an instance's rows of 16 (the atoms' queries) make.
inline constexpr int kAtomQueries = 16;
[[nodiscard]] constexpr int rows_of(const SimtConfig& c) { return core::tile_rows(c, kAtomQueries); }

/// Of gfx950 alone: native ones, and those that with all their waves take more LDS than gfx942 has.
[[nodiscard]] constexpr bool needs_gfx950(const SimtConfig& c) {
  constexpr int kGfx942SharedBytes = 64 << 10;
  if (is_native(c)) return true;
  if (!c.exact_head_dim) return false;  // these do with as many waves as there is room for
  const int tile_bytes = core::tile_layout<gfx942::HalfScales>(c.k[0], c.v[0], c.head_dim, c.tile_keys).bytes;
  return core::shared_layout(c, kAtomQueries, c.head_dim, c.warps, c.stages[0] * tile_bytes).bytes > kGfx942SharedBytes;
}

namespace instance {

/// Every wave on keys of its own, 16 query rows a tile. `terms` are the operands that a query may be the sum of: all queries are
/// three at most, and bf16 as it comes is two.
constexpr SimtConfig native(KvKind k, KvKind v, int head_dim, int waves) {
  return {{k, k}, {v, v}, 1, head_dim, true, 1, WarpsDivide::kKeys, waves, 1, kNativeTileKeys, {2, 2}, false, 0, false, 3};
}
/// Waves with 16 query rows each share the keys.
constexpr SimtConfig native_prefill(KvKind k, KvKind v, int head_dim, int waves = 4, int terms = 3) {
  return {{k, k}, {v, v}, 1, head_dim, true, 1, WarpsDivide::kRows, waves, 1, kNativeTileKeys, {2, 2}, false, 0, false, terms};
}
constexpr SimtConfig decode(KvKind k, KvKind v, int head_dim, int waves, int tile_keys, int stages) {
  return {{k, k}, {v, v}, 1, head_dim, true, 1, WarpsDivide::kKeys, waves, 1, tile_keys, {stages, stages}, false};
}
constexpr SimtConfig prefill(KvKind k, KvKind v, int head_dim) {
  return {{k, k}, {v, v}, 1, head_dim, true, 1, WarpsDivide::kRows, 4, 1, 64, {2, 2}, false};
}
/// The same configuration with a recent tier behind it.
constexpr SimtConfig with_recent(SimtConfig c, KvKind recent) {
  c.segments = 2;
  c.k[1] = c.v[1] = recent;
  c.stages[1] = 1;
  return c;
}
/// Any formats, any head_dim, one tier or two.
constexpr SimtConfig any(int waves, int stages = 2) {
  return {{KvKind::kAny, KvKind::kAnyRecent}, {KvKind::kAny, KvKind::kAnyRecent}, 2, 256, false, 1,
          WarpsDivide::kKeys, waves, 1, 32, {stages, 1}, false};
}

}  // namespace instance

/// Native instances come first: where a call leaves the path open they are chosen. Then come the others of gfx950 alone, and the rest
/// is gfx942's list. A wave's 64 lanes find where the rows of 64 keys lie in the time of 32.
///
/// MXFP8 with 256 dims has a native one that serves decode too: two tiles of 128 keys take 132 KiB of LDS, which leaves waves none of
/// their own, and no query of three terms any room.
///
/// The last stands in for all others in 64 KiB of LDS: one wave with one tile, which it waits for. Two tiles of 32 keys in 16 bits
/// with more than 128 dims leave no room for the query. It is chosen where nothing else fits (select_fitting).
inline constexpr SimtConfig kInstances[] = {
    instance::native(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 4),
    instance::native(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 64, 4),
    instance::native(KvKind::kMxfp4, KvKind::kMxfp4, 128, 4),
    instance::native_prefill(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128),
    instance::native(KvKind::kMxfp8, KvKind::kMxfp8, 128, 2),
    instance::native_prefill(KvKind::kMxfp8, KvKind::kMxfp8, 128),
    instance::native(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 256, 2),
    instance::native(KvKind::kMxfp4, KvKind::kMxfp4, 256, 2),
    instance::with_recent(instance::native(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 2), KvKind::kBf16),
    instance::with_recent(instance::native(KvKind::kMxfp4, KvKind::kMxfp4, 128, 2), KvKind::kBf16),
    instance::native_prefill(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 256),
    instance::native(KvKind::kPerToken, KvKind::kPerToken, 128, 4),
    instance::native_prefill(KvKind::kMxfp4, KvKind::kMxfp4, 128),
    instance::native_prefill(KvKind::kPerToken, KvKind::kPerToken, 128),
    instance::native(KvKind::kMxfp8, KvKind::kMxfp8, 64, 4),
    instance::native_prefill(KvKind::kMxfp8, KvKind::kMxfp8, 64),
    instance::native_prefill(KvKind::kMxfp8, KvKind::kMxfp8, 256, 2, 2),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 4, 64, 2),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 256, 4, 32, 2),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 4, 32, 2),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 4, 32, 2),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 64, 4, 64, 2),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 4, 32, 2),
    instance::decode(KvKind::kFp8, KvKind::kFp8, 128, 2, 32, 2),
    instance::decode(KvKind::kBf16, KvKind::kBf16, 128, 2, 32, 1),
    instance::decode(KvKind::kFp8, KvKind::kNvfp4, 128, 2, 32, 2),
    instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4, 128),
    instance::any(2),
    instance::any(1, 1),
};
inline constexpr int kNumInstances = static_cast<int>(std::size(kInstances));
/// The first that both chips have, all others following it: gfx942's list.
inline constexpr int kFirstShared = [] {
  int i = 0;
  while (needs_gfx950(kInstances[i])) ++i;
  return i;
}();
static_assert([] {
  for (int i = kFirstShared; i < kNumInstances; ++i) {
    if (needs_gfx950(kInstances[i])) return false;
  }
  return true;
}());

[[nodiscard]] inline KvKind kind_of(const KvTensorDesc& tensor) {
  return core::kv_kind(tensor.format, core::token_group_shift(tensor.format, tensor.scale_axis) != 0);
}

/// Operands of E4M3 that a query of this configuration is the sum of (gfx950/query.hpp).
[[nodiscard]] inline int native_query_terms(const AttentionConfig& c) {
  return c.q_dtype == DType::kBF16 && c.cache.rotation == Rotation::kNone ? 2 : 3;
}

/// Whether an instance computes this configuration at all.
[[nodiscard]] inline bool serves(const SimtConfig& i, const AttentionConfig& c) {
  const auto fits = [](KvKind mine, const KvTensorDesc& tensor) {
    if (mine == KvKind::kAnyRecent) return !has_scales(tensor.format);
    return mine == KvKind::kAny || mine == kind_of(tensor);
  };
  if (c.tree_mask && c.sliding_window > 0 && !core::takes_tree_windows(i)) return false;
  if (i.exact_head_dim ? i.head_dim != c.cache.head_dim : i.head_dim < c.cache.head_dim) return false;
  if (!fits(i.k[0], c.cache.k) || !fits(i.v[0], c.cache.v)) return false;
  // The matrix core applies one scale to 32 tokens: none of its blocks may lie in two rows of scales.
  if (is_native(i) && i.v[0] == KvKind::kMxfp4Tokens && c.cache.page_size % 32 != 0) return false;
  if (is_native(i) && i.terms < native_query_terms(c)) return false;
  if (!c.two_tier) return i.segments == 1 || i.k[0] == KvKind::kAny;
  return i.segments == 2 && fits(i.k[1], c.recent.k) && fits(i.v[1], c.recent.v);
}

/// The instance for a configuration: of the first that serve it and have its formats, the one whose tiles its rows fill best.
/// @param gfx950  whether those that only gfx950 has may be chosen
[[nodiscard]] inline int select_instance(const AttentionConfig& c, bool gfx950) {
  const std::int64_t rows = std::int64_t{c.max_q_len} * (c.num_q_heads / c.cache.num_kv_heads);
  int best = -1;
  for (int i = 0; i < kNumInstances; ++i) {
    if (!serves(kInstances[i], c) || (needs_gfx950(kInstances[i]) && !gfx950)) continue;
    if (is_native(kInstances[i]) && c.matrix_path == MatrixPath::kDecode) continue;
    if (best < 0) {
      best = i;
      continue;
    }
    if (kInstances[best].exact_head_dim && !kInstances[i].exact_head_dim) continue;
    if (is_native(kInstances[best]) && !is_native(kInstances[i])) continue;
    // Fewest passes over the keys; then fewest idle rows.
    const auto passes = [&](int x) { return (rows + rows_of(kInstances[x]) - 1) / rows_of(kInstances[x]); };
    const bool better = passes(i) < passes(best) ||
                        (passes(i) == passes(best) && rows_of(kInstances[i]) < rows_of(kInstances[best]));
    if (better) best = i;
  }
  return best;
}

/// Bytes of a team's stages: what the segment that needs most needs.
[[nodiscard]] inline int stage_bytes(const SimtConfig& i, const AttentionConfig& c) {
  const auto bytes = [&](const KvCacheDesc& tier, int stages) {
    return stages * core::tile_layout<gfx942::HalfScales>(kind_of(tier.k), kind_of(tier.v), tier.head_dim, i.tile_keys).bytes;
  };
  const int old_tier = bytes(c.cache, i.stages[0]);
  const int recent = c.two_tier ? bytes(c.recent, i.stages[1]) : 0;
  return recent > old_tier ? recent : old_tier;
}

/// Room for a row of queries, in terms of 16 bits an element. Native keys take operands of 8 bits an element, and beside them
/// their scales, one for each 32 dims of whole 128s.
struct QueryRoom {
  int terms, elements;
};
[[nodiscard]] constexpr QueryRoom query_room(const SimtConfig& i, int head_dim) {
  if (!is_native(i) || i.segments > 1) return {2, head_dim};
  return {1, i.terms * (head_dim + core::round_up_to(head_dim / 32, 4)) / 2};
}

/// Shared memory of a block of `waves` waves.
[[nodiscard]] inline core::SharedLayout shared_layout_of(const SimtConfig& i, const AttentionConfig& c, int waves) {
  const QueryRoom room = query_room(i, c.cache.head_dim);
  return core::shared_layout(i, kAtomQueries, room.elements, waves, stage_bytes(i, c), room.terms);
}

struct Launch {
  int warps;
  core::SharedLayout layout;
};
/// As many waves as the instance was made for, or fewer where the device's shared memory ends.
/// @param shared_bytes  that a block may ask for
[[nodiscard]] inline Launch launch_of(const SimtConfig& shape, const AttentionConfig& config, int shared_bytes) {
  int warps = shape.warps;
  core::SharedLayout layout = shared_layout_of(shape, config, warps);
  while (layout.bytes > shared_bytes && warps > 1 && !core::divides_rows(shape)) {
    layout = shared_layout_of(shape, config, --warps);
  }
  return {warps, layout};
}

/// The instance for a configuration on a device: the best one, or where a block of it needs more shared memory than there is, the
/// best of those that both chips have (gfx950's own have large tiles), and then the last of the list. Where none fits it is the one
/// that needs least.
[[nodiscard]] inline int select_fitting(const AttentionConfig& c, bool gfx950, int shared_bytes) {
  int chosen = -1;
  for (const int i : {select_instance(c, gfx950), select_instance(c, false), kNumInstances - 1}) {
    if (i < 0 || !serves(kInstances[i], c)) continue;
    chosen = i;
    if (launch_of(kInstances[i], c, shared_bytes).layout.bytes <= shared_bytes) break;
  }
  return chosen;
}

}  // namespace fp4pa::hip
