// Which E8M0 scales f16 operands take: a code times its scale is exact in f16 as long as scales lie in a window of 22 (E4M3)
// or 25 (E2M1) binades, and practically they do. f16 costs an instruction for two codes where bf16, which has a scale's
// range, costs several; P of f16 has three more bits. A tile with a scale outside of the window is decoded to bf16, slow, rare
// and exact.
//
// A decoded code times 2^(field - 15) is the value times 2^-kUnitLog2, where field, f16's exponent of the factor, is the
// scale's byte less kZeroField. A byte of 0 becomes a factor of 0; NaN lies outside.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/tile_decode.hpp"
#include "core/simt/kv_kind.hpp"

namespace fp4pa::sm90 {

using core::KvKind;

/// Kinds whose scales have one.
[[nodiscard]] FP4PA_FN constexpr bool has_window(KvKind kind) {
  return kind == KvKind::kMxfp4 || kind == KvKind::kPerToken || kind == KvKind::kMxfp8 || kind == KvKind::kMxfp4Tokens;
}

template <KvKind kKind>
struct F16Window {
  static_assert(has_window(kKind));
  static constexpr bool kE4m3 = kKind == KvKind::kMxfp8;
  // Fields: E4M3's least code, 2^-9, must not fall below 2^-24, nor its largest, 448, leave f16. E2M1 comes out of the decoding
  // times 2^-14, and its least code is 2^-1.
  static constexpr int kLowField = kE4m3 ? 1 : 6;
  static constexpr int kHighField = kE4m3 ? 22 : 30;
  /// Largest magnitudes of a group from 2^-11 to 2^11 (E4M3), 2^-15 to 2^10 (E2M1).
  static constexpr int kZeroField = kE4m3 ? 107 : 104;
  static constexpr int kUnitLog2 = kZeroField + 15 - 127 - (kE4m3 ? 0 : sm80::kE2m1F16Log2);

  /// Whether f16 takes the four scales of a word.
  [[nodiscard]] FP4PA_FN static constexpr bool holds(std::uint32_t word) {
    bool all = true;
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t byte = (word >> (8 * i)) & 0xffu;
      all = all & ((byte == 0) | (byte - (kZeroField + kLowField) <= kHighField - kLowField));
    }
    return all;
  }
  /// The fields of four scales that f16 takes.
  [[nodiscard]] FP4PA_FN static constexpr std::uint32_t fields(std::uint32_t word) {
    const std::uint32_t exist = ((word >> 6) | (word >> 7)) & 0x01010101u;  // bytes in the window are at least 64
    return word - exist * kZeroField;
  }
  /// Factor `index` of four, in both halves.
  /// @param four  their fields
  [[nodiscard]] FP4PA_FN static std::uint32_t factor(std::uint32_t four, int index) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(four, 0, 0x4040 + 0x0101 * index) << 10;
#else
    return ((four >> (8 * index)) & 0xffu) * 0x04000400u;
#endif
  }
  static_assert(kZeroField + kLowField >= 64);
  /// Factors of elements p and p + 4 of eight, whose fields are byte p of two words.
  [[nodiscard]] FP4PA_FN static std::uint32_t factors(std::uint32_t low, std::uint32_t high, int p) {
    const std::uint32_t both = p < 2 ? (low & 0xffffu) | high << 16 : low >> 16 | (high & 0xffff0000u);
    return (p % 2 == 0 ? both << 10 : both << 2) & 0x7c007c00u;
  }

  /// 16 bytes of codes to chunks of operands.
  template <int kOut>
  FP4PA_FN static void decode(const std::uint32_t (&codes)[4], std::uint32_t by, sm80::Chunk (&out)[kOut]) {
    FP4PA_UNROLL
    for (int w = 0; w < 4; ++w) {
      if constexpr (kE4m3) {
        std::uint32_t pairs[2];
        sm80::e4m3_to_f16(codes[w], pairs);
        FP4PA_UNROLL
        for (int i = 0; i < 2; ++i) out[w / 2].word[w % 2 * 2 + i] = sm80::multiply_f16(pairs[i], by);
      } else {
        sm80::e2m1_to_f16(codes[w], out[w].word);
        FP4PA_UNROLL
        for (int p = 0; p < 4; ++p) out[w].word[p] = sm80::multiply_f16(out[w].word[p], by);
      }
    }
  }
};

/// Whether a kind's operands are bf16 throughout.
[[nodiscard]] FP4PA_FN constexpr bool operands_are_bf16(KvKind kind) {
  return sm80::decodes_to_bf16(kind) && !has_window(kind);
}

}  // namespace fp4pa::sm90
