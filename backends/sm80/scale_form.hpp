// How scales lie in shared memory for the products of sm_80: decoded as far as can be, and in the order in which lanes take them.
//
// A scale is stored once and read by every lane that holds part of its group, so that what can be done before the store is
// done there. Lane (g, t) = (lane / 4, lane % 4) of a strip of 32 keys wants:
//
//   K, E8M0    key 8o + g: a float per block of 32 dims            [key][block]           float
//   K, E4M3    the same, per group of 16 dims, two halves alike    [key][half][block]     f16 x 2, times 2^7
//   V, E8M0    keys 8o + 2t and the next, per block                [block][t][o][2]       the byte in 16 bits
//   V, E4M3    the same, per group of 16 dims                      [group][t][o][2]       f16, times 2^7
//
// so that V's scales of four octets o are one 16-byte load. Before V's E8M0 scales of a strip lie the words they came from, key
// by key: a glance at them tells how far apart the scales of a tile are.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::sm80 {

using core::KvKind;

/// NVFP4's operands are value * 2^-7: decoded at 2^-14, and the scale at 2^7, the most that keeps 448 in f16.
inline constexpr int kNvfp4Log2 = -7;
inline constexpr std::uint32_t kNvfp4ScaleUnit = 0x58005800u;  // 2^7 in both halves

struct OperandScales {
  /// Scales of a key: blocks of 32 dims or groups of 16, or one.
  [[nodiscard]] FP4PA_FN static constexpr int count(KvKind k, int head_dim) { return core::key_scale_bytes(k, head_dim); }
  /// From K's first half of groups to its second; even, so that two neighbours are one load.
  [[nodiscard]] FP4PA_FN static constexpr int half_pitch(int head_dim) { return core::round_up_to(head_dim / 32, 2); }

  [[nodiscard]] FP4PA_FN static constexpr int key_bytes(KvKind k, int head_dim) {
    if (k == KvKind::kNvfp4) return 8 * half_pitch(head_dim);
    return 4 * core::round_up_to(count(k, head_dim), 2);
  }
  [[nodiscard]] FP4PA_FN static constexpr int value_bytes(KvKind k, int head_dim) {
    return raw_bytes(k, head_dim) + 2 * count(k, head_dim);
  }
  /// The words of V's E8M0 scales as they were, of a key.
  [[nodiscard]] FP4PA_FN static constexpr int raw_bytes(KvKind k, int head_dim) {
    return k == KvKind::kNvfp4 ? 0 : core::round_up_to(count(k, head_dim), 4);
  }
  /// Offset of those of key `key`.
  [[nodiscard]] FP4PA_FN static constexpr int raw_offset(KvKind k, int head_dim, int key) {
    return key / 32 * 32 * value_bytes(k, head_dim) + key % 32 * raw_bytes(k, head_dim);
  }
  /// Where the words of V's key `key` lie, as they come from the cache, before store_value.
  [[nodiscard]] FP4PA_FN static constexpr int copied_offset(KvKind k, int head_dim, int key) {
    return k == KvKind::kNvfp4 ? key * count(k, head_dim) : raw_offset(k, head_dim, key);
  }
  /// Offset of scale `index` of V's keys 8o + 2t and the next of a strip, o from 0 to 3.
  [[nodiscard]] FP4PA_FN static constexpr int value_offset(KvKind k, int head_dim, int strip, int index, int t) {
    return 32 * (strip * value_bytes(k, head_dim) + raw_bytes(k, head_dim)) + (index * 4 + t) * 16;
  }

  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_key(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                 const std::uint32_t (&words)[kWords]) {
    const std::uint32_t to = at + key * key_bytes(k, head_dim);
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      if (4 * w >= count(k, head_dim)) continue;
      if (k == KvKind::kNvfp4) {
        std::uint32_t two[2];
        e4m3_factors(words[w], kNvfp4ScaleUnit, two);
        const std::uint32_t factor[4] = {twice_low(two[0]), twice_high(two[0]), twice_low(two[1]), twice_high(two[1])};
        // Groups 4w to 4w + 3: blocks 2w and 2w + 1, first and second half.
        FP4PA_UNROLL
        for (int half = 0; half < 2; ++half) {
          store_pair(exec, lane, to + 4 * (half * half_pitch(head_dim) + 2 * w), factor[half], factor[half + 2]);
        }
      } else {
        FP4PA_UNROLL
        for (int i = 0; i < 4; i += 2) {
          if (4 * w + i >= count(k, head_dim)) continue;
          store_pair(exec, lane, to + 4 * (4 * w + i), std::bit_cast<std::uint32_t>(e8m0_to_f32(words[w], i)),
                     std::bit_cast<std::uint32_t>(e8m0_to_f32(words[w], i + 1)));
        }
      }
    }
  }

  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_value(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                   const std::uint32_t (&words)[kWords]) {
    if (k != KvKind::kNvfp4) store_words(exec, lane, k, head_dim, at, key, words);
    form_value(exec, lane, k, head_dim, at + value_place(k, head_dim, key), words);
  }
  /// Stores the words of V's E8M0 scales as they are.
  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_words(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                   const std::uint32_t (&words)[kWords]) {
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      if (4 * w >= count(k, head_dim)) continue;
      exec.template store_shared<std::uint32_t>(lane, at + raw_offset(k, head_dim, key) + 4 * w, words[w]);
    }
  }
  /// Offset of the first of a key's scales in operand form; those that follow are 64 bytes apart.
  [[nodiscard]] FP4PA_FN static constexpr std::uint32_t value_place(KvKind k, int head_dim, int key) {
    return static_cast<std::uint32_t>(value_offset(k, head_dim, key / 32, 0, key % 8 / 2) + key / 8 % 4 * 4 + key % 2 * 2);
  }
  /// Stores the scales of a key of V from `to` on, where their words lie in the tile already.
  template <class E, class Lane, int kWords>
  FP4PA_FN static void form_value(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t to, const std::uint32_t (&words)[kWords]) {
    form_value_times(exec, lane, k, head_dim, to, words, kNvfp4ScaleUnit);
  }

 protected:
  /// @param unit  of E4M3 scales, in both halves
  /// @return      the bits that any of their factors has
  template <class E, class Lane, int kWords>
  FP4PA_FN static std::uint32_t form_value_times(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t to,
                                                 const std::uint32_t (&words)[kWords], std::uint32_t unit) {
    const int scales = count(k, head_dim);
    std::uint32_t bits = 0;
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      if (4 * w >= scales) continue;
      std::uint32_t factors[2] = {};
      if (k == KvKind::kNvfp4) e4m3_factors(words[w], unit, factors);
      bits |= factors[0] | factors[1];
      FP4PA_UNROLL
      for (int i = 0; i < 4; i += 2) {
        if (4 * w + i >= scales) continue;
        const std::uint32_t low = k == KvKind::kNvfp4 ? factors[i / 2] : byte_of(words[w], i);
        const std::uint32_t high = k == KvKind::kNvfp4 ? factors[i / 2] >> 16 : byte_of(words[w], i + 1);
        exec.template store_shared<std::uint16_t>(lane, to + (4 * w + i) * 64, static_cast<std::uint16_t>(low));
        if (4 * w + i + 1 < scales) {
          exec.template store_shared<std::uint16_t>(lane, to + (4 * w + i + 1) * 64, static_cast<std::uint16_t>(high));
        }
      }
    }
    return bits;
  }

  /// Four E4M3 scales as operands are multiplied by them, two a word.
  FP4PA_FN static void e4m3_factors(std::uint32_t word, std::uint32_t unit, std::uint32_t (&two)[2]) {
    e4m3_to_f16(word & 0x7f7f7f7fu, two);
    two[0] = multiply_f16(two[0], unit);
    two[1] = multiply_f16(two[1], unit);
  }
  template <class E, class Lane>
  FP4PA_FN static void store_pair(E& exec, Lane lane, std::uint32_t to, std::uint32_t low, std::uint32_t high) {
    exec.template store_shared<std::uint64_t>(lane, to, std::uint64_t{low} | std::uint64_t{high} << 32);
  }
};

/// The same where V's E8M0 scales stay words until the product makes factors of P of them (scale_window.hpp), in the place of the bytes.
struct ProductScales : OperandScales {
  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_value(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                   const std::uint32_t (&words)[kWords]) {
    if (k == KvKind::kNvfp4) {
      OperandScales::store_value(exec, lane, k, head_dim, at, key, words);
    } else {
      store_words(exec, lane, k, head_dim, at, key, words);
    }
  }
  template <class E, class Lane, int kWords>
  FP4PA_FN static void form_value(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t to, const std::uint32_t (&words)[kWords]) {
    if (k == KvKind::kNvfp4) OperandScales::form_value(exec, lane, k, head_dim, to, words);
  }
};

/// NVFP4's where groups stand side by side: K's multiply sums, as floats in the place of their two halves, and V's P.
///
/// P may be 2^15, so that factors of it must be less than 2. Scales have 18 binades, f16 has 14 of normal numbers below that: were 448
/// the top for all, P would lose to small scales what it could keep. The top therefore follows the largest scale that a stream has met.
struct GroupScales : OperandScales {
  template <class E, class Lane, int kWords>
  FP4PA_FN static void store_key(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t at, int key,
                                 const std::uint32_t (&words)[kWords]) {
    const std::uint32_t to = at + key * key_bytes(k, head_dim);
    FP4PA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      std::uint32_t two[2];
      e4m3_factors(words[w], kNvfp4ScaleUnit, two);
      FP4PA_UNROLL
      for (int half = 0; half < 2; ++half) {
        store_pair(exec, lane, to + 4 * (half * half_pitch(head_dim) + 2 * w), std::bit_cast<std::uint32_t>(f16_to_f32(two[0], half)),
                   std::bit_cast<std::uint32_t>(f16_to_f32(two[1], half)));
      }
    }
  }

  /// Factors are scales times 2^-top, the top as in these:
  static constexpr int kLeastTopLog2 = -8;
  static constexpr int kMostTopLog2 = 8;
  /// @return  whether the top is too low for any of these scales
  template <class E, class Lane, int kWords>
  [[nodiscard]] FP4PA_FN static bool form_value_below(E& exec, Lane lane, KvKind k, int head_dim, std::uint32_t to,
                                                      const std::uint32_t (&words)[kWords], int top_log2) {
    const std::uint32_t unit = static_cast<std::uint32_t>(15 - top_log2) * 0x04000400u;
    constexpr std::uint32_t kTwoOrMore = 0x40004000u;  // infinity and NaN, too
    return (form_value_times(exec, lane, k, head_dim, to, words, unit) & kTwoOrMore) != 0;
  }
  /// The largest of these scales' bytes, but NaN's.
  template <int kWords>
  [[nodiscard]] FP4PA_FN static std::uint32_t largest(const std::uint32_t (&words)[kWords]) {
    std::uint32_t most = 0;
    FP4PA_UNROLL
    for (int i = 0; i < 4 * kWords; ++i) {
      const std::uint32_t byte = byte_of(words[i / 4], i % 4) & 0x7fu;
      if (byte != 0x7fu && byte > most) most = byte;
    }
    return most;
  }
  /// The top for a largest byte, with room for larger scales in later tiles; never below what it was.
  [[nodiscard]] FP4PA_FN static int top_for(std::uint32_t byte, int before) {
    constexpr int kRoom = 3;
    const int top = static_cast<int>(byte >> 3) - 7;  // the scale is less than 2^(top + 1)
    if (top <= before) return before;
    return top + kRoom < kMostTopLog2 ? top + kRoom : kMostTopLog2;
  }
};

}  // namespace fp4pa::sm80
