// The prefill kernels for sm_90a, on wgmma, and which of them serves a configuration. Everything else runs there in the kernels of
// instances.hpp.
//
// Plain C++: the tests run the same list on the host.
#pragma once

#include "backends/sm90/prefill_shim.hpp"
#include "cuda/instances.hpp"

namespace fp4pa::sm90 {

namespace instance {
/// Two warpgroups of 64 query rows share the keys, which a third decodes. With 128 keys a tile there is no room for queries of
/// two terms: these are plain.
constexpr core::SimtConfig prefill(KvKind k, KvKind v, int head_dim, int tile_keys, int stages) {
  const bool plain = tile_keys == 128;
  return {{k, k}, {v, v}, 1, head_dim, true, 1, core::WarpsDivide::kRows, 8, 1, tile_keys, {stages, stages}, true, 4, plain};
}
}  // namespace instance

inline constexpr core::SimtConfig kInstances[] = {
    instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4, 128, 128, 3),
    instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4, 128, 128, 3),
    instance::prefill(KvKind::kMxfp8, KvKind::kMxfp8, 128, 128, 2),
    instance::prefill(KvKind::kFp8, KvKind::kFp8, 128, 128, 2),
    instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4, 128, 64, 3),
    instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4, 128, 64, 3),
    instance::prefill(KvKind::kMxfp8, KvKind::kMxfp8, 128, 64, 3),
    instance::prefill(KvKind::kFp8, KvKind::kFp8, 128, 64, 3),
    instance::prefill(KvKind::kBf16, KvKind::kBf16, 128, 64, 3),
    instance::prefill(KvKind::kMxfp4, KvKind::kMxfp4, 64, 128, 3),
    instance::prefill(KvKind::kNvfp4, KvKind::kNvfp4, 64, 128, 3),
};
/// Of a block.
[[nodiscard]] constexpr int threads_of(const core::SimtConfig& c) { return 32 * (c.warps + c.producers); }
inline constexpr int kNumInstances = static_cast<int>(std::size(kInstances));

/// As simt::DecodedTiles.
struct DecodedTiles {
  [[nodiscard]] static constexpr int bytes(const core::SimtConfig& c) { return ring_bytes(c); }
};

}  // namespace fp4pa::sm90
