// What an instance fixes about its stream of keys (key_stream.hpp): who copies how much, and whether by runs.
#pragma once

#include <cstdint>

#include "core/simt/exec.hpp"
#include "core/simt/page_runs.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::core {

template <class Shim, std::int32_t S>
struct StreamShape {
  static constexpr SimtConfig kConfig = Shim::kConfig;
  static constexpr bool kBlockTeam = divides_rows(kConfig);
  using ScaleForm = typename ScaleFormOf<Shim>::type;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;

  static constexpr int kTileKeys = kConfig.tile_keys;
  static constexpr int kStages = kConfig.stages[S];
  static constexpr int kThreads = E::kLanes * (kBlockTeam ? kConfig.warps : 1);
  static constexpr int kOwned = (kTileKeys + kThreads - 1) / kThreads;  // keys that a thread looks up
  static constexpr KvKind kKKind = kConfig.k[S];
  static constexpr KvKind kVKind = kConfig.v[S];
  static constexpr int at_least_one(int n) { return n > 0 ? n : 1; }

  // Scale words of a key at most; and words of a thread's share of the rows along tokens.
  static constexpr int words_of(KvKind k) {
    return k == KvKind::kAny ? round_up_to(kConfig.head_dim / 16, 4) / 4
                             : round_up_to(key_scale_bytes(k, kConfig.head_dim), 4) / 4;  // none in a recent tier
  }
  static constexpr int kTokenWords =
      kVKind == KvKind::kAny || along_tokens(kVKind)
          ? (kTileKeys / kScalePiece * kConfig.head_dim / 4 + kThreads - 1) / kThreads
          : 0;
  static constexpr int kKWords = words_of(kKKind);
  static constexpr int kVWords = words_of(kVKind);
  // Bytes of a key's scales, where the instance fixes them.
  static constexpr int kKBytes = key_scale_bytes(kKKind, kConfig.head_dim);
  static constexpr int kVBytes = key_scale_bytes(kVKind, kConfig.head_dim);

  /// A tile's scales reach shared memory one release after its codes were asked for. With one stage they would find their tile used
  /// by then: they are written when the tile is waited for.
  static constexpr bool kHasScales = kKWords > 0 || kVWords > 0 || kTokenWords > 0;
  static constexpr bool kScalesInWait = kStages == 1 && kHasScales;

  // Runs: full tiles of pages of a power of two of tokens, see key_runs.hpp.
  // A swizzle that tells rows eight apart from each other has no part in it, nor has the recent tier, whose pages are a ring.
  static constexpr bool kFarRows = requires { requires Shim::kSwizzlesFarRows; };
  static constexpr bool kHasRuns = S == 0 && !kFarRows && kConfig.exact_head_dim && !kConfig.decode_tiles &&
                                   !is_any(kKKind) && !is_any(kVKind) &&
                                   code_bytes(kKKind, kConfig.head_dim) == code_bytes(kVKind, kConfig.head_dim) &&
                                   kThreads * code_bytes(kKKind, kConfig.head_dim) >= kChunkBytes * kChunkBytes &&
                                   kThreads * kChunkBytes <= kTileKeys * code_bytes(kKKind, kConfig.head_dim) &&
                                   (!along_tokens(kVKind) || kThreads == kConfig.head_dim / 4);
  /// Nothing but runs: whoever selects a plain instance has looked at the pages (simt::is_plain).
  static constexpr bool kOnlyRuns = kConfig.plain && !kConfig.decode_tiles && S == 0;
  static_assert(kHasRuns || !kOnlyRuns);
  static_assert(!kHasRuns || !kScalesInWait);  // the short way has two stages
  /// Scales and page ids are copied as codes are.
  static constexpr bool kCopiesAll = kOnlyRuns && !kBlockTeam;
  static constexpr int kRunChunks = kHasRuns ? code_bytes(kKKind, kConfig.head_dim) / kChunkBytes : 1;  // of a row
  static constexpr int kRunPitch = power_of_two_at_least(kRunChunks);
  static constexpr int kRunRows = at_least_one(kThreads / kRunPitch);  // rows that the team's threads copy side by side
  static constexpr int kRuns = kTileKeys / (kRunRows > kRunKeys ? kRunRows : kRunKeys);  // that a thread copies from
  static constexpr int kRunSteps = kTileKeys / kRunRows / at_least_one(kRuns);  // a thread's copies from a run, K's and again V's
  static constexpr bool kAllRuns = kRunRows <= kRunKeys;   // a thread copies from every run of the tile

  // A thread's share of a tile on its way.
  struct Pages {
    std::int32_t of_key[kOwned];
    std::int32_t of_run[at_least_one(kRuns)];
  };
  struct Scales {
    std::uint32_t k[kOwned][at_least_one(kKWords)];
    std::uint32_t v[kOwned][at_least_one(kVWords)];
    std::uint32_t tokens[at_least_one(kTokenWords)];
  };
  /// First rows of K and of V of the runs that a thread copies from.
  struct RunRows {
    const std::uint8_t* of[at_least_one(kRuns)][2];
  };
};

}  // namespace fp4pa::core
