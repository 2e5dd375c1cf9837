// How the scales of a staged tile lie, for gfx942 and gfx950: as in the cache, but for NVFP4's along head_dim. Those become f16 when
// they are staged, once each, where every lane that multiplies by one would convert it for itself.
#pragma once

#include <cstdint>

#include "backends/gfx942/convert.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::gfx942 {

using core::KvKind;

/// A form of scales; see core::CacheScales.
struct HalfScales : core::CacheScales {
  [[nodiscard]] FP4PA_FN static constexpr int key_bytes(KvKind k, int head_dim) {
    return (k == KvKind::kNvfp4 ? 2 : 1) * CacheScales::key_bytes(k, head_dim);
  }
  [[nodiscard]] FP4PA_FN static constexpr int value_bytes(KvKind k, int head_dim) { return key_bytes(k, head_dim); }

  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_key(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                 const std::uint32_t (&words)[kWords]) {
    if (k != KvKind::kNvfp4) return CacheScales::store_key(exec, lane, k, head_dim, at, key, words);
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      if (4 * w >= core::key_scale_bytes(k, head_dim)) continue;
      const std::uint32_t codes = words[w] & 0x7f7f7f7fu;  // E4M3 scales have no sign
      exec.template store_shared<std::uint64_t>(lane, at + key * key_bytes(k, head_dim) + 8 * w,
                                                e4m3_to_f16<0>(codes) | std::uint64_t{e4m3_to_f16<1>(codes)} << 32);
    }
  }
  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_value(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                   const std::uint32_t (&words)[kWords]) {
    store_key(exec, lane, k, head_dim, at, key, words);
  }
};

/// Words of a key's staged scales.
template <KvKind kKind, int kHeadDim>
inline constexpr int kStagedScaleWords = HalfScales::key_bytes(kKind, kHeadDim) / 4;

/// Loads a key's staged scales from `at`, of whose words `pitch` bytes exist.
/// @tparam kAll  all words do
template <bool kAll, class E, class Lane, int kWords>
FP4PA_FN void load_scales(E& exec, Lane lane, std::uint32_t at, int pitch, std::uint32_t (&words)[kWords]) {
  if constexpr (kAll && kWords == 4) {
    exec.load_shared_16(lane, at, words);
  } else {
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) words[w] = kAll || 4 * w < pitch ? exec.template load_shared<std::uint32_t>(lane, at + 4 * w) : 0;
  }
}

}  // namespace fp4pa::gfx942
