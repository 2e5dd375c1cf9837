// E4M3 to f32 lanes by table: AVX-512 VBMI, whose look-ups have 128 bytes.
//
// Every E4M3 value is a bf16 whose bytes are functions of the code's low seven bits, and the sign. Two look-ups and a merge of the sign
// make 64 codes' bytes, NaN and subnormals among them, and interleaved they are pairs of bf16, of which f32 lanes are a shift or a mask:
// nine instructions for 64 codes, where arithmetic in f32 lanes takes fourteen for sixteen.
// Compiled for AVX3_DL and better: include only through tile_ops.cpp.
#include <cstdint>

#include "backends/cpu/decode-inl.h"

#if defined(FP4PA_CPU_DECODE_E4M3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_DECODE_E4M3_INL_H_
#undef FP4PA_CPU_DECODE_E4M3_INL_H_
#else
#define FP4PA_CPU_DECODE_E4M3_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86

/// One byte of the bf16 of each magnitude.
struct E4M3Table {
  std::uint8_t byte[128];
  constexpr explicit E4M3Table(int shift) : byte{} {
    for (int code = 0; code < 128; ++code) {
      byte[code] = static_cast<std::uint8_t>(core::float_bits(core::E4M3::decode(static_cast<std::uint8_t>(code))) >> shift);
    }
  }
};

/// Chunks of 64: a 32-bit word is a pair of neighbouring codes; pairs 0 to 3 of each 16 codes come in parts 0 and 1, pairs 4 to 7 in parts
/// 2 and 3. What is left of a row comes in narrower vectors, and word by word: through wide ones GCC 12 misaligned its stack there under
/// AddressSanitizer with detect_stack_use_after_return.
struct DecodeE4M3 {
  static constexpr int kParts = 4;
  static constexpr int kBitsPerElement = 8;
  static constexpr int element(int lanes, int lane, int part) {
    if (lanes < 16) return DecodeE4M3Words::element(lanes, lane, part);
    return 16 * (lane / 4) + 8 * (part / 2) + 2 * (lane % 4) + part % 2;
  }

  template <int J, class D>
  static HWY_INLINE hn::Vec<D> part(D df, const std::uint8_t* chunk) {
    if constexpr (hn::MaxLanes(D()) == 16) {
      return hn::Vec<D>{pairs<J>(chunk)};
    } else {
      return DecodeE4M3Words::part<J>(df, chunk);
    }
  }

 private:
  template <int J>
  static HWY_INLINE __m512 pairs(const std::uint8_t* chunk) {
    alignas(64) static constexpr E4M3Table kHigh(24);
    alignas(64) static constexpr E4M3Table kLow(16);
    const __m512i codes = _mm512_loadu_si512(chunk);
    const __m512i low = look_up(kLow, codes);
    const __m512i magnitude = look_up(kHigh, codes);
    const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, _mm512_set1_epi8(-128), 0xf8);  // a | (b & c)
    const __m512i words = J < 2 ? _mm512_unpacklo_epi8(low, high) : _mm512_unpackhi_epi8(low, high);
    const __m512i bits = J % 2 == 0 ? _mm512_slli_epi32(words, 16) : _mm512_and_si512(words, _mm512_set1_epi32(-65536));
    return _mm512_castsi512_ps(bits);
  }
  /// Bit 7 of an index is not looked at.
  static HWY_INLINE __m512i look_up(const E4M3Table& table, __m512i codes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table.byte), codes, _mm512_load_si512(table.byte + 64));
  }
};

#else
using DecodeE4M3 = DecodeE4M3Words;
#endif

}  // namespace fp4pa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
