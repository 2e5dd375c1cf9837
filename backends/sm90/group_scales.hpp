// E8M0 scales in f16 operands of wgmma, whatever their range.
//
// A decoded code is e 2^-14. Multiplied by 2^(byte - top + 15) it is exact in f16 for scales in the window of 25
// binades that ends at `top`; the operand is then the value times 2^(128 - top). Scales lie that close together in
// practice, so that the factor is one integer multiply-add. A tile with scales outside of the window is multiplied once
// for each window that it needs, the lowest first, with its scales replaced by the exponent fields of the window at
// hand: 0, for those of other windows, is a factor of 0. Slow, rare and exact; also the way of tiles that end before
// their last key. NaN is an infinite factor of codes that become 0.
#pragma once

#include <cstdint>

#include "backends/sm80/key_product.hpp"
#include "backends/sm90/group_layout.hpp"

namespace fp4pa::sm90 {

inline constexpr int kWindowBinades = 25;
/// f16's exponent field of the factor of a window's largest scale.
inline constexpr int kTopField = 30;
/// Where a window lies before scales have moved it.
inline constexpr int kFirstTop = 136;
/// Of a window that scales have moved, for larger scales in later tiles.
inline constexpr int kTopRoom = 3;

[[nodiscard]] FP4PA_FN constexpr bool has_windows(KvKind kind) { return kind == KvKind::kMxfp4; }
/// Operands of a window's scales are values times 2^-window_log2.
[[nodiscard]] FP4PA_FN constexpr int window_log2(int top) { return top - 128; }

/// What turns two bytes, one in each half, times 2^10 into two factors by a sum.
[[nodiscard]] FP4PA_FN constexpr std::uint32_t factor_bias(int top) {
  return static_cast<std::uint32_t>(kTopField - top) * 0x04000400u;
}
[[nodiscard]] FP4PA_FN constexpr std::uint32_t factor_pair(std::uint32_t bytes, std::uint32_t bias) {
  return bytes * 0x400u + bias;
}

/// Byte `index` of a word in both halves.
FP4PA_FN std::uint32_t spread_byte(std::uint32_t word, int index) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, 0x4040 + 0x0101 * index);
#else
  return ((word >> (8 * index)) & 0xffu) * 0x00010001u;
#endif
}

/// Whether one of four scales lies outside of the window; no scale at all, byte 0, does.
[[nodiscard]] FP4PA_FN constexpr bool leaves_window(std::uint32_t word, int top) {
  // A difference below zero shows in the sign of its half. A borrow comes only from such a half.
  const std::uint32_t high = static_cast<std::uint32_t>(top) * 0x00010001u;
  const std::uint32_t low = static_cast<std::uint32_t>(top - kWindowBinades + 1) * 0x00010001u;
  const std::uint32_t even = word & 0x00ff00ffu;
  const std::uint32_t odd = (word >> 8) & 0x00ff00ffu;
  return (((high - even) | (even - low) | (high - odd) | (odd - low)) & 0x80008000u) != 0;
}

/// The exponent field of a scale's factor in the window that ends at `top`. Each scale has a place in one of a tile's
/// windows.
[[nodiscard]] FP4PA_FN constexpr int field_of(int byte, int top, bool last) {
  if (byte == 255) return last ? 31 : 0;
  const bool inside = byte != 0 && byte <= top && byte > top - kWindowBinades;
  return inside ? byte - top + kTopField : 0;
}

/// The scales of a staged tile that count: neither 0 nor NaN.
struct ScaleSpan {
  int largest;  // 0: none counts
  int least;
};

/// The scales of a staged MXFP4 tensor, 64 keys of four blocks, as the four warps of a block see them.
/// @param kIsKey  K's; V's otherwise
template <core::SimtConfig kConfig, bool kIsKey, class E>
class StagedScaleWords {
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr core::TileLayout kTile = GroupLayout<kConfig>::kTile;
  static constexpr KvKind kKind = kIsKey ? kConfig.k[0] : kConfig.v[0];
  static constexpr int kOwned = 16;  // keys of a warp
  static_assert(kConfig.head_dim == 128 && kConfig.tile_keys == kOwned * kGroupWarps && kConfig.warps == kGroupWarps);

 public:
  FP4PA_FN StagedScaleWords(E& exec, std::uint32_t tile) : exec_(exec), tile_(tile) {}

  [[nodiscard]] FP4PA_FN std::uint32_t word(Lane lane, int key) const {
    const int at =
        kIsKey ? kTile.k_scales + 4 * key : kTile.v_scales + GroupScales::raw_offset(kKind, kConfig.head_dim, key);
    return exec_.template load_shared<std::uint32_t>(lane, tile_ + static_cast<std::uint32_t>(at));
  }

  /// Of the tile; each warp finds it by itself.
  [[nodiscard]] FP4PA_FN ScaleSpan span() const {
    PerLane<std::uint32_t> largest;
    PerLane<std::uint32_t> least;  // 255 less it
    exec_.each_lane([&](Lane lane) {
      largest[lane] = least[lane] = 0;
      FP4PA_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t scales = word(lane, lane.id + 32 * i);
        FP4PA_UNROLL
        for (int b = 0; b < 4; ++b) {
          const std::uint32_t byte = sm80::byte_of(scales, b);
          if (byte == 0 || byte == 255) continue;
          largest[lane] = byte > largest[lane] ? byte : largest[lane];
          least[lane] = 255 - byte > least[lane] ? 255 - byte : least[lane];
        }
      }
    });
    return {static_cast<int>(exec_.reduce_max(largest)), 255 - static_cast<int>(exec_.reduce_max(least))};
  }

  /// Words of the keys that this warp writes to, before it does.
  FP4PA_FN void keep() {
    exec_.each_lane([&](Lane lane) { own_[lane] = lane.id < kOwned ? word(lane, own_key(lane)) : 0; });
  }

  /// Puts the factors' fields for a window in the scales' places; a barrier of the block before and after.
  /// @param last  of the tile's windows
  FP4PA_FN void enter_window(int top, bool last) {
    exec_.each_lane([&](Lane lane) {
      if (lane.id >= kOwned) return;
      const int key = own_key(lane);
      std::uint32_t fields = 0;
      FP4PA_UNROLL
      for (int b = 0; b < 4; ++b) {
        const int byte = static_cast<int>(sm80::byte_of(own_[lane], b));
        const int field = field_of(byte, top, last);
        fields |= static_cast<std::uint32_t>(field) << (8 * b);
        if (!kIsKey) {
          const int at = GroupScales::value_offset(kKind, kConfig.head_dim, key / 32, b, key % 8 / 2) +
                         key / 8 % 4 * 4 + key % 2 * 2;
          exec_.template store_shared<std::uint16_t>(lane, tile_ + static_cast<std::uint32_t>(kTile.v_scales + at),
                                                     static_cast<std::uint16_t>(field));
        }
        if (byte == 255 && last) {
          const std::uint32_t codes = tile_ + static_cast<std::uint32_t>(kIsKey ? 0 : kTile.v_codes);
          const std::uint32_t at = sm80::chunk_offset(sm80::row_offset(codes, key, kTile.k_chunks), b);
          FP4PA_UNROLL
          for (int i = 0; i < 4; ++i)
            exec_.template store_shared<std::uint32_t>(lane, at + 4 * static_cast<std::uint32_t>(i), 0u);
        }
      }
      if (kIsKey) {
        exec_.template store_shared<std::uint32_t>(lane, tile_ + static_cast<std::uint32_t>(kTile.k_scales + 4 * key),
                                                   fields);
      }
    });
  }

 private:
  [[nodiscard]] FP4PA_FN int own_key(Lane lane) const { return exec_.warp() * kOwned + lane.id; }

  E& exec_;
  std::uint32_t tile_;
  PerLane<std::uint32_t> own_;
};

}  // namespace fp4pa::sm90
