// The attention kernels for SM120 and SM121 in which FP4 enters the matrix core as it is, and which of them serves a
// configuration. Everything else runs there in the decoding kernels of instances.hpp.
//
// Plain C++: the tests run the same list on the host.
#pragma once

#include "backends/sm120/prefill_shim.hpp"
#include "cuda/instances.hpp"

namespace fp4pa::sm120 {

namespace instance {
using simt::instance::decode;
using simt::instance::with_recent;
/// Prefill: four warps with 16 query rows each share the keys. Nothing is decoded, so that nothing is shared but the stages.
constexpr core::SimtConfig prefill(KvKind k, KvKind v, int head_dim, int tile_keys) {
  return {{k, k}, {v, v}, 1, head_dim, true, 2, core::WarpsDivide::kRows, 4, 2, tile_keys, {2, 2}, false};
}
/// Prefill with a V that is decoded: eight warps with 16 query rows each share the keys, and the block decodes V once. Queries in
/// bf16, which two terms of 8 bits are exactly. With 32 rows a warp the registers do not suffice.
constexpr core::SimtConfig prefill_decoded(KvKind k, KvKind v, int head_dim, int tile_keys) {
  return simt::instance::plain({{k, k}, {v, v}, 1, head_dim, true, 1, core::WarpsDivide::kRows, 8, 1, tile_keys, {2, 2}, true});
}
}  // namespace instance

// K and V native: V scaled along tokens, in MXFP4 for two head_dims and for prefill at 128, in NVFP4 for few rows and prefill at both. K
// native and V decoded: what engines write today, scales along head_dim, and a scale per token; MXFP8 at both head_dims. MXFP4 at 128 also
// with a recent tier in bf16 behind it, whose few keys are decoded; two tiers of other formats are served by the decoding kernels.
//
// A multiprocessor has 100 KB of shared memory here, less than half of an H200's: two tiles a warp, so that two blocks fit. A tile of
// the recent tier is four of MXFP4: one block, in whose room there are three of these.
inline constexpr core::SimtConfig kInstances[] = {
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 1, 4, 2, 2),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 64, 1, 4, 3, 2),
    instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 1, 4, 2, 2),
    instance::decode(KvKind::kPerToken, KvKind::kPerToken, 128, 1, 4, 2, 2),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4, 128, 1, 4, 2, 2),
    instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 32),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4Tokens, 128, 1, 4, 2, 2),
    instance::decode(KvKind::kMxfp8, KvKind::kMxfp8, 128, 1, 4, 1, 2),
    instance::prefill_decoded(KvKind::kMxfp8, KvKind::kMxfp8, 128, 64),
    instance::prefill_decoded(KvKind::kMxfp4, KvKind::kMxfp4, 128, 64),
    instance::prefill_decoded(KvKind::kPerToken, KvKind::kPerToken, 128, 64),
    instance::with_recent(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4Tokens, 128, 1, 4, 1, 3), KvKind::kBf16),
    instance::with_recent(instance::decode(KvKind::kMxfp4, KvKind::kMxfp4, 128, 1, 4, 1, 3), KvKind::kBf16),
    instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4Tokens, 128, 32),
    instance::decode(KvKind::kNvfp4, KvKind::kNvfp4Tokens, 64, 1, 4, 3, 2),
    instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4Tokens, 64, 32),
    instance::decode(KvKind::kMxfp8, KvKind::kMxfp8, 64, 1, 4, 2, 2),
    instance::prefill_decoded(KvKind::kMxfp8, KvKind::kMxfp8, 64, 64),
};
inline constexpr int kNumInstances = static_cast<int>(std::size(kInstances));

/// Shared memory of a block of `warps` warps.
[[nodiscard]] inline core::SharedLayout shared_layout_of(const core::SimtConfig& i, const AttentionConfig& c, int warps) {
  if (!i.decode_tiles) return simt::shared_layout_of<NativeScales>(i, c, warps);
  // Values alone are decoded. A query is two terms of 8 bits, and a scale for each 32 dims of both.
  const int stages = i.stages[0] * core::tile_layout(i.k[0], i.v[0], i.head_dim, i.tile_keys).bytes;
  return core::shared_layout(i, simt::atom_queries(i), i.head_dim + i.head_dim / 32, warps,
                             stages + sm80::decoded_bytes(i.v[0], i.head_dim, i.tile_keys), 1);
}

}  // namespace fp4pa::sm120
