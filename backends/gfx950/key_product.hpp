// S = Q K^T by block-scaled products: keys enter the matrix core as they lie in the cache, with their own scales.
//
// Keys are the rows of A (E2M1, or E4M3 of MXFP8), queries the columns of B (E4M3). Lane (m = lane % 16, g = lane / 16) of A
// holds of an instruction's 128 dims, of key slot m:
//   E2M1   32 g .. 32 g + 31                              the 16 bytes of chunk g of the key's row, one load
//   E4M3   16 g .. 16 g + 15 and 64 + 16 g .. 64 + 16 g + 15   chunks g and g + 4, two loads
// Lane m + 16 b supplies the scale of block b of slot m: a byte of the tile's. Nothing is decoded, shifted or moved.
//
// With head_dim 64 the upper half of the depth is zeros.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/gfx950/atoms.hpp"
#include "backends/gfx950/query.hpp"
#include "backends/gfx942/staging.hpp"

namespace fp4pa::gfx950 {

using core::KvKind;

/// Keys whose scales are E8M0 of 32 dims or more.
[[nodiscard]] FP4PA_FN constexpr bool native_key(KvKind kind) {
  return kind == KvKind::kMxfp4 || kind == KvKind::kPerToken || kind == KvKind::kMxfp8;
}

template <class Shim>
struct NativeKeyProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Query = NativeQuery<Shim>;
  template <KvKind kKind>
  using Atom = MfmaScaleF32_16x16x128_F8f6f4<std::conditional_t<core::is_e4m3(kKind), core::E4M3, core::E2M1>, core::E4M3>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kScaleBlocks = kConfig.head_dim / 32;

  /// @tparam kTerms  of the query
  template <KvKind kKind, int kTerms, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Stream& stream, PerLane<typename Query::Registers>& query, Scores& scores) {
    FP4PA_UNROLL
    for (int tile = 0; tile < kConfig.tile_keys / 16; ++tile) {
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kRowTiles * 4; ++i) scores[lane][tile][i / 4][i % 4] = 0.0f;
      });
      FP4PA_UNROLL
      for (int group = 0; group < Query::kGroups; ++group) multiply_keys<kKind, kTerms>(exec, stream, tile, group, query, scores);
    }
  }

 private:
  /// 16 keys, 128 dims.
  template <KvKind kKind, int kTerms, class Stream, class Scores>
  FP4PA_FN static void multiply_keys(E& exec, const Stream& stream, int tile, int group,
                                     PerLane<typename Query::Registers>& query, Scores& scores) {
    const core::TileLayout layout = stream.layout();
    constexpr int kRegisters = Atom<kKind>::kRegistersA;
    constexpr int kLoads = kRegisters / 4;
    PerLane<std::uint32_t[kRegisters]> codes;
    PerLane<std::uint32_t> scale;
    exec.each_lane([&](Lane same) {
      const Lane lane = address_lane<kConfig>(exec, same);
      const int token = Shim::token_of_slot(16 * tile + lane.id % 16);
      FP4PA_UNROLL
      for (int load = 0; load < kLoads; ++load) {
        std::uint32_t words[4] = {0, 0, 0, 0};
        const int chunk = 4 * (kLoads * group + load) + lane.id / 16;
        if (kConfig.head_dim % 128 == 0 || chunk < kLoads * kScaleBlocks) {
          exec.load_shared_16(lane, gfx942::byte_offset(true, stream.tile_offset(), token, layout.k_chunks, 16 * chunk), words);
        }
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) codes[lane][4 * load + i] = words[i];
      }
      scale[lane] = kUnitScale;
      const int block = 4 * group + lane.id / 16;
      if (kScaleBlocks % 4 != 0 && block >= kScaleBlocks) return;
      scale[lane] = exec.template load_shared<std::uint8_t>(lane, stream.tile_offset() + layout.k_scales +
                                                                      token * layout.k_scale_pitch +
                                                                      (kKind == KvKind::kPerToken ? 0 : block));
    });
    FP4PA_UNROLL
    for (int term = 0; term < kTerms; ++term) {
      FP4PA_UNROLL
      for (int nt = 0; nt < kRowTiles; ++nt) {
        PerLane<std::uint32_t[8]> b;
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int i = 0; i < 8; ++i) {
            const int half = 2 * group + i / 4;
            b[lane][i] = half < Query::kHalves ? query[lane].code[term][nt][half < Query::kHalves ? half : 0][i % 4] : 0;
          }
        });
        exec.template multiply_scaled<Atom<kKind>, core::ScaleSelect{}, core::ScaleSelect{}>(
            [&](Lane lane) -> auto& { return scores[lane][tile][nt]; }, [&](Lane lane) -> auto& { return codes[lane]; },
            [&](Lane lane) -> auto& { return b[lane]; }, [&](Lane lane) { return scale[lane]; },
            [&](Lane lane) { return query[lane].scale[term][nt][group]; });
      }
    }
  }
};

}  // namespace fp4pa::gfx950
