// The kernels for sm_90a, on wgmma: prefill. Everything else runs there in the kernels of instances.hpp.
//
// Plain C++: the tests run the same list on the host.
#pragma once

#include "backends/sm90/prefill_shim.hpp"
#include "cuda/instances.hpp"

namespace fp4pa::sm90 {

namespace instance {
/// Two warpgroups of 64 query rows share the keys, which a third and the values, which a fourth decodes. With 128 keys a tile
/// there is no room for queries of two terms at head_dim 128: these are plain.
constexpr core::SimtConfig prefill(KvKind kind, int head_dim, int tile_keys) {
  const bool plain = head_dim == 128 && tile_keys == 128;
  return {{kind, kind}, {kind, kind}, 1, head_dim, true, 1, core::WarpsDivide::kRows, 8, 1, tile_keys, {0, 0}, true, 8, plain};
}
/// Twice the dims: sums of 256 leave registers for tiles of 64 keys, which one warpgroup decodes.
constexpr core::SimtConfig prefill_256(KvKind kind, bool plain) {
  core::SimtConfig c = prefill(kind, 256, 64);
  c.producers = 4;
  c.plain = plain;
  return c;
}
/// With keys and values in different formats.
constexpr core::SimtConfig mixed(KvKind k, KvKind v, int tile_keys) {
  core::SimtConfig c = prefill(k, 128, tile_keys);
  c.v[0] = c.v[1] = v;
  return c;
}
/// With values scaled along tokens, of which a warp decodes no more rows than share scales.
constexpr core::SimtConfig prefill_tokens(KvKind k, KvKind v) { return mixed(k, v, 64); }
/// One warpgroup of 64 query rows, and one whose warps share decoding: two blocks fit on a multiprocessor.
constexpr core::SimtConfig prefill_64(KvKind kind) {
  return {{kind, kind}, {kind, kind}, 1, 128, true, 1, core::WarpsDivide::kRows, 4, 2, 64, {0, 0}, true, 4, true};
}
/// The same with a recent tier behind it, of which nothing is decoded.
constexpr core::SimtConfig with_recent(core::SimtConfig c, KvKind recent) {
  c.segments = 2;
  c.k[1] = c.v[1] = recent;
  return c;
}
}  // namespace instance

inline constexpr core::SimtConfig kInstances[] = {
    instance::prefill(KvKind::kMxfp4, 128, 128),
    instance::prefill(KvKind::kNvfp4, 128, 128),
    instance::prefill(KvKind::kMxfp8, 128, 128),
    instance::prefill(KvKind::kFp8, 128, 128),
    instance::prefill(KvKind::kMxfp4, 128, 64),
    instance::prefill(KvKind::kNvfp4, 128, 64),
    instance::prefill(KvKind::kMxfp8, 128, 64),
    instance::prefill(KvKind::kFp8, 128, 64),
    instance::prefill(KvKind::kBf16, 128, 64),
    instance::prefill(KvKind::kMxfp4, 64, 128),
    instance::prefill(KvKind::kNvfp4, 64, 128),
    instance::prefill_64(KvKind::kMxfp4),
    instance::prefill_64(KvKind::kNvfp4),
    instance::prefill_64(KvKind::kFp8),
    instance::prefill_64(KvKind::kBf16),
    instance::with_recent(instance::prefill(KvKind::kMxfp4, 128, 128), KvKind::kBf16),
    instance::with_recent(instance::prefill(KvKind::kNvfp4, 128, 128), KvKind::kBf16),
    instance::with_recent(instance::prefill(KvKind::kMxfp4, 128, 64), KvKind::kBf16),
    instance::with_recent(instance::prefill(KvKind::kNvfp4, 128, 64), KvKind::kBf16),
    instance::prefill_tokens(KvKind::kMxfp4, KvKind::kMxfp4Tokens),
    instance::prefill_tokens(KvKind::kNvfp4, KvKind::kNvfp4Tokens),
    instance::prefill(KvKind::kFp8, 64, 128),
    instance::prefill(KvKind::kBf16, 64, 128),
    instance::prefill(KvKind::kF16, 128, 64),
    instance::prefill_256(KvKind::kMxfp4, true),
    instance::prefill_256(KvKind::kNvfp4, true),
    instance::prefill_256(KvKind::kFp8, true),
    instance::prefill_256(KvKind::kBf16, true),
    instance::prefill_256(KvKind::kMxfp4, false),
    instance::prefill_256(KvKind::kNvfp4, false),
    instance::prefill_256(KvKind::kFp8, false),
    instance::prefill_256(KvKind::kBf16, false),
    instance::mixed(KvKind::kFp8, KvKind::kNvfp4, 128),
    instance::prefill(KvKind::kPerToken, 128, 128),
    instance::prefill(KvKind::kPerToken, 128, 64),
};
/// Of a block.
[[nodiscard]] constexpr int threads_of(const core::SimtConfig& c) { return 32 * (c.warps + c.producers); }
inline constexpr int kNumInstances = static_cast<int>(std::size(kInstances));

/// As simt::DecodedTiles.
struct DecodedTiles {
  [[nodiscard]] static constexpr int bytes(const core::SimtConfig& c) { return ring_bytes(c); }
};

}  // namespace fp4pa::sm90
