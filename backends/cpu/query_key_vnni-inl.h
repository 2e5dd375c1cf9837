// S = Q K^T for E2M1 keys in integers: AVX-512 VNNI, four products and a sum in every lane of one instruction.
//
// Twice an E2M1 value is an integer from -12 to 12, so a key's block is exactly integers times its scale. The query is
// rounded once per item to 16 bits against the largest magnitude of each group (no worse than an f16 query, see docs/cpu.md;
// a query that would be worse off stays in f32) and split into two signed bytes; the key, biased by 12 into unsigned bytes, is the other operand of vpdpbusd, and the bias
// is taken out by starting from -12 * (sum of the group's query). Sixteen keys sit in the sixteen lanes, so a lane's sum is
// a score: no horizontal sums. That needs the sixteen rows transposed, 16 bytes (a group of 32 codes) at a time.
// Compiled for AVX3_DL and better: include only through tile_ops.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "backends/cpu/products-inl.h"

#if defined(FP4PA_CPU_QUERY_KEY_VNNI_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_QUERY_KEY_VNNI_INL_H_
#undef FP4PA_CPU_QUERY_KEY_VNNI_INL_H_
#else
#define FP4PA_CPU_QUERY_KEY_VNNI_INL_H_
#endif

#if HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kVnniKeys = 16;
inline constexpr int kBias = 12;             // makes twice an E2M1 value a byte from 0 to 24
inline constexpr float kQueryLevels = 32512.0f;  // 127 * 256: both bytes of a level stay in range

/// A query in operand form. Per group of 32 elements and word w of 8: the signed high bytes of elements 0 2 4 6, of
/// elements 1 3 5 7, then the low bytes likewise, each four to a 32-bit word.
struct VnniQuery {
  std::int32_t words[kMaxRows][kMaxHeadDim / 32][4][4];  // [row][group][word][high even, high odd, low even, low odd]
  std::int32_t bias[kMaxRows][kMaxHeadDim / 16];         // -12 * sum of the levels of each 16 elements
  float step[kMaxRows][kMaxHeadDim / 32];                // value of a level, see kStepScale
  bool in_use;                                           // false: `fallback` holds the f32 query instead
  alignas(64) float fallback[kMaxRows * kMaxHeadDim];
};
static_assert(sizeof(VnniQuery) <= kQueryOperandBytes);

/// Keys are doubled, hence a half; and sums of levels reach 2^24, so a step is stored times 2^16 and a key's scale is taken
/// times 2^-16: neither a large scale nor a large query can overflow a product that the score itself does not.
inline constexpr float kStepScale = 0.5f * 0x1p16f;
inline constexpr float kFactorScale = 0x1p-16f;

/// A group whose small elements (at most a quarter of the largest) are this much smaller than the largest would lose more
/// in levels than in f16.
inline constexpr float kMaxSpread = 32.0f;

/// Whether a group of 32 can be rounded to levels of amax / kQueryLevels; NaN and Inf cannot.
HWY_INLINE bool fits_levels(const float* q, float amax) {
  float sum = 0.0f;
  std::int32_t count = 0;
  for (std::int32_t d = 0; d < 32; ++d) {
    if (!(std::fabs(q[d]) <= amax) || !std::isfinite(amax)) return false;
    const float x = std::fabs(q[d]) / amax;
    if (x <= 0.25f && x > 0.0f) {
      sum += x * x;
      ++count;
    }
  }
  return count == 0 || sum * (kMaxSpread * kMaxSpread) >= static_cast<float>(count);
}

/// False when the query must stay in f32.
inline bool prepare_query_vnni(const float* query, std::int32_t rows, std::int32_t head_dim, VnniQuery& out) {
  for (std::int32_t r = 0; r < rows; ++r) {
    std::memset(out.bias[r], 0, sizeof(out.bias[r]));
    for (std::int32_t g = 0; g < head_dim / 32; ++g) {
      const float* q = query + r * head_dim + 32 * g;
      float amax = 0.0f;
      for (std::int32_t d = 0; d < 32; ++d) amax = std::max(amax, std::fabs(q[d]));
      if (amax > 0.0f && !fits_levels(q, amax)) return false;
      // An amax so small that its inverse overflows has no levels to speak of: f32 keeps its bits.
      const float inverse = amax > 0.0f ? kQueryLevels / amax : 0.0f;
      if (!std::isfinite(inverse) || !std::isfinite(kStepScale * amax)) return false;
      out.step[r][g] = kStepScale * (amax / kQueryLevels);
      for (std::int32_t d = 0; d < 32; ++d) {
        if (q[d] != q[d]) return false;
        const std::int32_t level = static_cast<std::int32_t>(std::lrintf(q[d] * inverse));
        const std::int32_t high = (level + 128) >> 8;
        const std::int32_t low = level - 256 * high;
        auto* const bytes = reinterpret_cast<std::int8_t*>(out.words[r][g][d / 8]);
        const std::int32_t at = 4 * (d & 1) + d % 8 / 2;
        bytes[at] = static_cast<std::int8_t>(high);
        bytes[8 + at] = static_cast<std::int8_t>(low);
        out.bias[r][2 * g + d / 16] -= kBias * level;
      }
    }
  }
  return true;
}

/// The codes of one group of 32, of sixteen keys: word w (8 codes) of key i in lane i, split into biased bytes.
struct VnniCodes {
  __m512i even[4];
  __m512i odd[4];
};

HWY_INLINE VnniCodes load_codes(const std::uint8_t* const (&row)[kVnniKeys], std::int32_t byte) {
  // Keys 4b + j in 128-bit block b of vector j ...
  __m512i v[4];
  for (int j = 0; j < 4; ++j) {
    const auto block = [&](int b) HWY_ATTR {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row[4 * b + j] + byte));
    };
    v[j] = _mm512_castsi128_si512(block(0));
    v[j] = _mm512_inserti32x4(v[j], block(1), 1);
    v[j] = _mm512_inserti32x4(v[j], block(2), 2);
    v[j] = _mm512_inserti32x4(v[j], block(3), 3);
  }
  // ... and a four-by-four transposition of words inside every block leaves key 4b + j in lane 4b + j.
  const __m512i ab_low = _mm512_unpacklo_epi32(v[0], v[1]);
  const __m512i ab_high = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i cd_low = _mm512_unpacklo_epi32(v[2], v[3]);
  const __m512i cd_high = _mm512_unpackhi_epi32(v[2], v[3]);
  const __m512i word[4] = {_mm512_unpacklo_epi64(ab_low, cd_low), _mm512_unpackhi_epi64(ab_low, cd_low),
                           _mm512_unpacklo_epi64(ab_high, cd_high), _mm512_unpackhi_epi64(ab_high, cd_high)};
  // Biased doubled values by code: 12 + {0, 1, 2, 3, 4, 6, 8, 12} and 12 - the same.
  const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  VnniCodes codes;
  for (int w = 0; w < 4; ++w) {
    codes.even[w] = _mm512_shuffle_epi8(table, _mm512_and_si512(word[w], low_nibbles));
    codes.odd[w] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi32(word[w], 4), low_nibbles));
  }
  return codes;
}

/// acc += the four products of each lane: unsigned bytes of `codes` by the four signed bytes at `word`, the same for all
/// lanes. vpdpbusd with an embedded broadcast, written out because Highway 1.0's attributes for this target, which does
/// require the instruction of the CPU, do not name it to the compiler.
HWY_INLINE void multiply_add(__m512i& acc, __m512i codes, const std::int32_t& word) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(codes), "m"(word));
}

/// Adds words [kFirst, kFirst + kCount) of a group: sixteen scores' worth of 256 * high + low.
template <int kFirst, int kCount>
HWY_INLINE __m512i group_sum(const VnniCodes& codes, const std::int32_t (&query)[4][4], __m512i start) {
  __m512i high = _mm512_setzero_si512();
  __m512i low = start;
  for (int w = kFirst; w < kFirst + kCount; ++w) {
    multiply_add(high, codes.even[w], query[w][0]);
    multiply_add(low, codes.even[w], query[w][2]);
    multiply_add(high, codes.odd[w], query[w][1]);
    multiply_add(low, codes.odd[w], query[w][3]);
  }
  return _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
}

/// Bytes [first, first + 4) of sixteen scale rows of `bytes` bytes, a key to a lane; never reads past a row's end.
HWY_INLINE __m512i load_scale_words(const std::uint8_t* const (&scale)[kVnniKeys], std::int32_t first, std::int32_t bytes) {
  const auto word = [&](int i) HWY_ATTR {
    std::int32_t w = 0;
    if (bytes - first >= 4) {
      std::memcpy(&w, scale[i] + first, 4);
    } else {
      for (std::int32_t b = first; b < bytes; ++b) w |= scale[i][b] << (8 * (b - first));
    }
    return w;
  };
  return _mm512_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7), word(8), word(9),
                           word(10), word(11), word(12), word(13), word(14), word(15));
}

template <ChunkScale kScale>
void multiply_query_key_vnni(const TileInput& in, const VnniQuery& query, std::int32_t rows, float* scores) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const TileRows& keys = *in.rows;
  const std::int32_t groups = in.head_dim / 32;
  Prefetcher prefetcher(in);
  for (std::int32_t t = 0; t < keys.count; t += kVnniKeys) {
    // A ragged tile repeats its last key; the surplus scores are never read.
    const std::uint8_t* row[kVnniKeys];
    const std::uint8_t* scale[kVnniKeys];
    for (int i = 0; i < kVnniKeys; ++i) {
      row[i] = keys.row[std::min(t + i, keys.count - 1)];
      scale[i] = keys.scale[std::min(t + i, keys.count - 1)];
    }
    __m512 sum[kMaxRows];
    for (std::int32_t r = 0; r < rows; ++r) sum[r] = _mm512_setzero_ps();
    __m512i words = _mm512_setzero_si512();
    const auto next_factor = [&]() HWY_ATTR {
      const hn::Vec<decltype(du)> bytes{_mm512_and_si512(words, _mm512_set1_epi32(255))};
      words = _mm512_srli_epi32(words, 8);
      const auto scales = decode_scales<kScale != ChunkScale::kNvfp4>(df, bytes);
      return _mm512_mul_ps(scales.raw, _mm512_set1_ps(kFactorScale));
    };
    __m512 factor = _mm512_setzero_ps();
    if constexpr (kScale == ChunkScale::kPerToken) {
      words = load_scale_words(scale, 0, 1);
      factor = next_factor();
    }
    for (std::int32_t g = 0; g < groups; ++g) {
      const VnniCodes codes = load_codes(row, 16 * g);
      // Four groups to a cache line: a quarter of the sixteen keys' lines at each.
      for (int i = 0; i < 4; ++i) prefetcher.line();
      if constexpr (kScale == ChunkScale::kNvfp4) {
        if (g % 2 == 0) words = load_scale_words(scale, 2 * g, 2 * groups);
        const __m512 first = next_factor();
        const __m512 second = next_factor();
        for (std::int32_t r = 0; r < rows; ++r) {
          const __m512 step = _mm512_set1_ps(query.step[r][g]);
          const __m512i a = group_sum<0, 2>(codes, query.words[r][g], _mm512_set1_epi32(query.bias[r][2 * g]));
          const __m512i b = group_sum<2, 2>(codes, query.words[r][g], _mm512_set1_epi32(query.bias[r][2 * g + 1]));
          const __m512 both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(b), second, _mm512_mul_ps(_mm512_cvtepi32_ps(a), first));
          sum[r] = _mm512_fmadd_ps(both, step, sum[r]);
        }
      } else {
        if constexpr (kScale == ChunkScale::kMxfp4) {
          if (g % 4 == 0) words = load_scale_words(scale, g, groups);
          factor = next_factor();
        }
        for (std::int32_t r = 0; r < rows; ++r) {
          const __m512i start = _mm512_set1_epi32(query.bias[r][2 * g] + query.bias[r][2 * g + 1]);
          const __m512 levels = _mm512_cvtepi32_ps(group_sum<0, 4>(codes, query.words[r][g], start));
          sum[r] = _mm512_fmadd_ps(_mm512_mul_ps(levels, factor), _mm512_set1_ps(query.step[r][g]), sum[r]);
        }
      }
    }
    for (std::int32_t r = 0; r < rows; ++r) _mm512_storeu_ps(scores + r * kTileKeys + t, sum[r]);
  }
}

}  // namespace fp4pa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // AVX3_DL
#endif
