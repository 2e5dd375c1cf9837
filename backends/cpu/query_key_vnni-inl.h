// S = Q K^T for E2M1 keys in integers: AVX-512 VNNI, four products and a sum in every lane of one instruction.
//
// Twice an E2M1 value is an integer from -12 to 12, so a key's block is exactly integers times its scale. The query is
// rounded once per item to 16-bit levels, group by group, and split into two signed bytes; the key, biased by 12 into
// unsigned bytes, is the other operand of vpdpbusd, and the bias is taken out by starting from -12 * (sum of the group's
// query). Sixteen keys sit in the sixteen lanes, so a lane's sum is a score: no horizontal sums. That needs the sixteen rows
// transposed, 16 bytes (a group of 32 codes) at a time.
//
// How far rounding the query may move a score at most follows from the rounding errors and the keys' scales. Where that is
// more than the contract's LSE error, a third byte, the levels' remainders, takes part; where even that is not enough, and
// for queries that have no levels, the tile is multiplied in f32 (kMaxError).
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
/// elements 1 3 5 7, then the low bytes likewise, each four to a 32-bit word; and the same of the remainders.
struct VnniQuery {
  std::int32_t words[kMaxRows][kMaxHeadDim / 32][4][4];       // [row][group][word][high even, high odd, low even, low odd]
  std::int32_t remainders[kMaxRows][kMaxHeadDim / 32][4][2];  // [row][group][word][even, odd], see kRemainders
  std::int32_t bias[kMaxRows][kMaxHeadDim / 16];              // -12 * sum of the levels of each 16 elements
  std::int32_t remainder_bias[kMaxRows][kMaxHeadDim / 16];    // and of their remainders
  float step[kMaxRows][kMaxHeadDim / 32];                     // value of a level, see kStepScale
  alignas(64) float error[2][kMaxHeadDim / 16][kMaxRows];     // without and with remainders, see kMaxError
  bool has_levels;                                            // false: `exact` is all there is
  mutable bool in_decode_order;                               // `exact` is, as products-inl.h wants it; else as it came
  alignas(64) mutable float exact[kMaxRows * kMaxHeadDim];    // the f32 query
};
static_assert(sizeof(VnniQuery) <= kQueryOperandBytes);

/// Keys are doubled, hence a half; and sums of levels reach 2^24, so a step is stored times 2^16 and a key's scale is taken
/// times 2^-16: neither a large scale nor a large query can overflow a product that the score itself does not.
inline constexpr float kStepScale = 0.5f * 0x1p16f;
inline constexpr float kFactorScale = 0x1p-16f;

/// What an element is off by is a signed byte in units of this part of a level. It is half a level at most, or 0.504 where the
/// quotient itself was rounded: 127 units.
inline constexpr float kRemainders = 252.0f;

/// Rounding leaves query element d an error e[d], and a score is off by sum_d e[d] * key[d]. Nothing is assumed of how errors
/// and keys go together - equal elements have equal errors, and keys of one sign add them up - but that |key[d]| is at most
/// kMaxCode times its scale:
///   |error of the score| <= sum over scales of scale * kMaxCode * sum_d |e[d]|
/// LSE moves by a mean of its scores' errors, so while that is below the LSE error that DESIGN allows, 1e-3, here in log2
/// units, a tile's scores are good enough. What f32 sums lose is counted as an error, too: it keeps scores that f32 could not
/// resolve to 1e-3 either, and with them all overflow, to the f32 path.
inline constexpr float kMaxError = 1e-3f * 1.44269504f;
inline constexpr float kMaxCode = 6.0f;
static_assert(kMaxRows == 16);  // a row's error to a lane

/// Queries below have no levels: the level itself, or its inverse, might be none of f32's normal numbers.
inline constexpr float kMinMagnitude = 0x1p-100f;
/// Nor do queries whose largest magnitude, with the softmax scale and kStepScale, is below: beside the largest scales of keys,
/// levels might leave f32 where the score does not.
inline constexpr float kMinValue = 0x1p-97f;

/// How often f32 may round a score of so many groups: values of levels, scales, and half of the running sums.
HWY_INLINE float roundings_of(std::int32_t groups) { return static_cast<float>(groups / 2 + 3); }

/// The errors of a group of 32 elements rounded to multiples of `step`.
struct VnniErrors {
  __m512 of[2];
  __m512i level[2];

  HWY_INLINE VnniErrors(const float* q, float step) {
    for (int i = 0; i < 2; ++i) {
      const __m512 x = _mm512_loadu_ps(q + 16 * i);
      level[i] = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(1.0f / step)));
      of[i] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(level[i]), _mm512_set1_ps(step), x);
    }
  }
  [[nodiscard]] HWY_INLINE float sum() const {
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_abs_ps(of[0]), _mm512_abs_ps(of[1])));
  }
};

/// The value of a level for a group whose largest magnitude is amax. A power of two leaves elements of bf16 and f16 that are
/// not much smaller than the largest no error at all; for any others amax / kQueryLevels is the finer step.
HWY_INLINE float level_value(const float* q, float amax) {
  const float finest = amax / kQueryLevels;
  float power = std::ldexp(1.0f, std::ilogb(amax) - 14);
  if (amax > kQueryLevels * power) power *= 2.0f;
  return VnniErrors(q, power).sum() < VnniErrors(q, finest).sum() ? power : finest;
}

/// Bytes of sixteen elements in the order of VnniQuery: of each word of eight, the even ones and the odd ones.
HWY_INLINE void store_query_bytes(__m512i bytes, std::int32_t* word0, std::int32_t* word1) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m128i words = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(bytes), order);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(word0), words);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(word1), _mm_unpackhi_epi64(words, words));
}

/// Levels of `query` times `scale`. False when the query must stay in f32: NaN, infinities, and what is so small or so large
/// that its levels are not numbers of f32. `elements`: those of a group of 32 that share a scale in the keys.
inline bool prepare_query_vnni(const float* query, std::int32_t rows, std::int32_t head_dim, float scale,
                               std::int32_t elements, VnniQuery& out) {
  std::memset(out.error, 0, sizeof(out.error));
  const float weight = std::fabs(scale) * (kMaxCode / kMaxError);
  for (std::int32_t r = 0; r < rows; ++r) {
    float sizes[kMaxHeadDim / 16] = {};  // of what shares a scale
    float rounded = 0.0f;                // off by the first two bytes, over the row
    for (std::int32_t g = 0; g < head_dim / 32; ++g) {
      const float* q = query + r * head_dim + 32 * g;
      float amax = 0.0f;
      for (std::int32_t d = 0; d < 32; ++d) {
        if (!std::isfinite(q[d])) return false;
        amax = std::max(amax, std::fabs(q[d]));
      }
      float step = 1.0f;  // of zeros, any; their value is 0 whatever the scale
      out.step[r][g] = 0.0f;
      if (amax > 0.0f) {
        if (amax < kMinMagnitude) return false;
        step = level_value(q, amax);
        const float largest = kStepScale * amax * std::fabs(scale);
        if (!(largest >= kMinValue && std::isfinite(largest))) return false;
        out.step[r][g] = kStepScale * step * scale;
      }
      const VnniErrors errors(q, step);
      for (std::int32_t half = 0; half < 2; ++half) {
        const __m512i level = errors.level[half];
        const __m512 error = errors.of[half];
        const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(level, _mm512_set1_epi32(128)), 8);
        std::int32_t(*const words)[4] = out.words[r][g] + 2 * half;
        store_query_bytes(high, words[0], words[1]);
        store_query_bytes(_mm512_sub_epi32(level, _mm512_slli_epi32(high, 8)), words[0] + 2, words[1] + 2);
        const __m512 unit = _mm512_set1_ps(step / kRemainders);
        const __m512i remainder = _mm512_cvtps_epi32(_mm512_mul_ps(error, _mm512_set1_ps(kRemainders / step)));
        store_query_bytes(remainder, out.remainders[r][g][2 * half], out.remainders[r][g][2 * half + 1]);
        out.bias[r][2 * g + half] = -kBias * _mm512_reduce_add_epi32(level);
        out.remainder_bias[r][2 * g + half] = -kBias * _mm512_reduce_add_epi32(remainder);

        const std::int32_t at = elements == 16 ? 2 * g + half : g;
        const __m512 left = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(remainder), unit, error);
        const float size = 0x1p-24f * _mm512_reduce_add_ps(_mm512_abs_ps(_mm512_loadu_ps(q + 16 * half)));
        const float off = _mm512_reduce_add_ps(_mm512_abs_ps(error));
        out.error[0][at][r] += weight * (off + size);
        out.error[1][at][r] += weight * (_mm512_reduce_add_ps(_mm512_abs_ps(left)) + size);
        sizes[at] += size;
        rounded += off;
      }
    }
    // Where two bytes lose something, what f32 loses as well comes on top of it; where they lose nothing, a third gains nothing.
    if (rounded == 0.0f) continue;
    for (std::int32_t i = 0; i < head_dim / elements; ++i) {
      out.error[0][i][r] += weight * (roundings_of(head_dim / 32) - 1.0f) * sizes[i];
    }
  }
  return true;
}

/// The codes of one group of 32, of sixteen keys: word w (8 codes) of key i in lane i, split into biased bytes.
struct VnniCodes {
  __m512i even[4];
  __m512i odd[4];
};

HWY_INLINE VnniCodes load_codes(const std::uint8_t* const* row, std::int32_t byte) {
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

/// The same of the remainders, in levels.
template <int kFirst, int kCount>
HWY_INLINE __m512 remainder_sum(const VnniCodes& codes, const std::int32_t (&remainders)[4][2], std::int32_t bias) {
  __m512i sum = _mm512_set1_epi32(bias);
  for (int w = kFirst; w < kFirst + kCount; ++w) {
    multiply_add(sum, codes.even[w], remainders[w][0]);
    multiply_add(sum, codes.odd[w], remainders[w][1]);
  }
  return _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(1.0f / kRemainders));
}

/// Bytes [first, first + 4) of sixteen scale rows of `bytes` bytes, a key to a lane; never reads past a row's end.
HWY_INLINE __m512i load_scale_words(const std::uint8_t* const* scale, std::int32_t first, std::int32_t bytes) {
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

/// Sixteen keys of a tile: rows where they stand in it, or a ragged tile's last ones, of which the last is repeated; its
/// surplus scores are never read.
class VnniKeys {
 public:
  HWY_INLINE VnniKeys(const TileRows& keys, std::int32_t t) : row(keys.row + t), scale(keys.scale + t) {
    if (t + kVnniKeys <= keys.count) return;
    for (int i = 0; i < kVnniKeys; ++i) {
      ragged_[0][i] = keys.row[std::min(t + i, keys.count - 1)];
      ragged_[1][i] = keys.scale[std::min(t + i, keys.count - 1)];
    }
    row = ragged_[0];
    scale = ragged_[1];
  }
  VnniKeys(const VnniKeys&) = delete;
  const std::uint8_t* const* row;
  const std::uint8_t* const* scale;

 private:
  const std::uint8_t* ragged_[2][kVnniKeys];
};

/// The scales of a tile's keys: four bytes of sixteen keys to a vector, a key to a lane.
template <ChunkScale kScale>
struct VnniScales {
  static constexpr bool kE8m0 = kScale != ChunkScale::kNvfp4;
  static constexpr int kPerGroup = kScale == ChunkScale::kNvfp4 ? 2 : 1;
  static constexpr int kGroupsPerWord = 4 / kPerGroup;
  std::int32_t count;  // of a key
  __m512i words[kTileKeys / kVnniKeys][kMaxHeadDim / 64];

  HWY_INLINE VnniScales(const TileRows& keys, std::int32_t groups)
      : count(kScale == ChunkScale::kPerToken ? 1 : kPerGroup * groups) {
    for (std::int32_t t = 0; t < keys.count; t += kVnniKeys) {
      const VnniKeys some(keys, t);
      for (std::int32_t i = 0; i < count; i += 4) words[t / kVnniKeys][i / 4] = load_scale_words(some.scale, i, count);
    }
  }

  /// The largest of each scale, decoded: codes grow with their scales, NaN last.
  HWY_INLINE void largest(std::int32_t keys, float (&scale)[kMaxHeadDim / 16]) const {
    alignas(16) std::uint8_t codes[kMaxHeadDim / 16] = {};
    for (std::int32_t i = 0; i < count; i += 4) {
      __m512i most = _mm512_setzero_si512();
      for (std::int32_t t = 0; t < keys; t += kVnniKeys) {
        const __m512i word = words[t / kVnniKeys][i / 4];
        // NVFP4's scales have a sign bit that means nothing.
        most = _mm512_max_epu8(most, kE8m0 ? word : _mm512_and_si512(word, _mm512_set1_epi8(127)));
      }
      const __m256i eight = _mm256_max_epu8(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1));
      const __m128i four = _mm_max_epu8(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
      const __m128i two = _mm_max_epu8(four, _mm_srli_si128(four, 8));
      const std::int32_t one = _mm_cvtsi128_si32(_mm_max_epu8(two, _mm_srli_si128(two, 4)));
      std::memcpy(codes + i, &one, 4);
    }
    _mm512_storeu_ps(scale, decode(_mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes)))));
  }

  static HWY_INLINE __m512 decode(__m512i bytes) {
    const hn::CappedTag<float, 16> df;
    const hn::RebindToUnsigned<decltype(df)> du;
    return decode_scales<kE8m0>(df, hn::Vec<decltype(du)>{bytes}).raw;
  }
};

/// Whether no row's scores can be off by more than kMaxError, given the errors of its elements; no if a scale is NaN.
HWY_INLINE bool small_error(const float (&scale)[kMaxHeadDim / 16], std::int32_t scales,
                            const float (&error)[kMaxHeadDim / 16][kMaxRows]) {
  __m512 sum = _mm512_setzero_ps();  // a row to a lane
  for (std::int32_t i = 0; i < scales; ++i) sum = _mm512_fmadd_ps(_mm512_set1_ps(scale[i]), _mm512_load_ps(error[i]), sum);
  return _mm512_cmp_ps_mask(sum, _mm512_set1_ps(1.0f), _CMP_NLE_UQ) == 0;
}

/// The f32 query in the order of the decoder; rarely wanted, so brought into it when it is.
inline const float* exact_query(const VnniQuery& query, std::int32_t rows, std::int32_t head_dim) {
  if (!query.in_decode_order) {
    std::int32_t order[kMaxHeadDim];
    DecodeOrder(KvFormat::kMxfp4, head_dim, order);
    for (std::int32_t r = 0; r < rows; ++r) {
      float natural[kMaxHeadDim];
      std::copy_n(query.exact + r * head_dim, head_dim, natural);
      for (std::int32_t d = 0; d < head_dim; ++d) query.exact[r * head_dim + order[d]] = natural[d];
    }
    query.in_decode_order = true;
  }
  return query.exact;
}

/// Scores of levels, with their remainders or without.
template <ChunkScale kScale, bool kRemainder>
void multiply_levels(const TileInput& in, const VnniScales<kScale>& scales, const VnniQuery& query, std::int32_t rows,
                     float* scores) {
  using Scales = VnniScales<kScale>;
  const TileRows& keys = *in.rows;
  const std::int32_t groups = in.head_dim / 32;
  Prefetcher prefetcher(in);
  for (std::int32_t t = 0; t < keys.count; t += kVnniKeys) {
    const VnniKeys some(keys, t);
    __m512 sum[kMaxRows];
    for (std::int32_t r = 0; r < rows; ++r) sum[r] = _mm512_setzero_ps();
    __m512i words = scales.words[t / kVnniKeys][0];
    const auto next_factor = [&]() HWY_ATTR {
      const __m512 scale = Scales::decode(_mm512_and_si512(words, _mm512_set1_epi32(255)));
      words = _mm512_srli_epi32(words, 8);
      return _mm512_mul_ps(scale, _mm512_set1_ps(kFactorScale));
    };
    __m512 factor = _mm512_setzero_ps();
    if constexpr (kScale == ChunkScale::kPerToken) factor = next_factor();
    for (std::int32_t g = 0; g < groups; ++g) {
      const VnniCodes codes = load_codes(some.row, 16 * g);
      // Four groups to a cache line: a quarter of the sixteen keys' lines at each.
      for (int i = 0; i < 2; ++i) prefetcher.lines();
      if constexpr (kScale != ChunkScale::kPerToken) {
        if (g % Scales::kGroupsPerWord == 0) words = scales.words[t / kVnniKeys][g / Scales::kGroupsPerWord];
        factor = next_factor();
      }
      if constexpr (kScale == ChunkScale::kNvfp4) {
        const __m512 second = next_factor();
        for (std::int32_t r = 0; r < rows; ++r) {
          const __m512 step = _mm512_set1_ps(query.step[r][g]);
          const std::int32_t* const bias = query.bias[r] + 2 * g;
          __m512 a = _mm512_cvtepi32_ps(group_sum<0, 2>(codes, query.words[r][g], _mm512_set1_epi32(bias[0])));
          __m512 b = _mm512_cvtepi32_ps(group_sum<2, 2>(codes, query.words[r][g], _mm512_set1_epi32(bias[1])));
          if constexpr (kRemainder) {
            const std::int32_t* const start = query.remainder_bias[r] + 2 * g;
            a = _mm512_add_ps(a, remainder_sum<0, 2>(codes, query.remainders[r][g], start[0]));
            b = _mm512_add_ps(b, remainder_sum<2, 2>(codes, query.remainders[r][g], start[1]));
          }
          sum[r] = _mm512_fmadd_ps(_mm512_fmadd_ps(b, second, _mm512_mul_ps(a, factor)), step, sum[r]);
        }
      } else {
        for (std::int32_t r = 0; r < rows; ++r) {
          const __m512i start = _mm512_set1_epi32(query.bias[r][2 * g] + query.bias[r][2 * g + 1]);
          __m512 levels = _mm512_cvtepi32_ps(group_sum<0, 4>(codes, query.words[r][g], start));
          if constexpr (kRemainder) {
            const std::int32_t bias = query.remainder_bias[r][2 * g] + query.remainder_bias[r][2 * g + 1];
            levels = _mm512_add_ps(levels, remainder_sum<0, 4>(codes, query.remainders[r][g], bias));
          }
          sum[r] = _mm512_fmadd_ps(_mm512_mul_ps(levels, factor), _mm512_set1_ps(query.step[r][g]), sum[r]);
        }
      }
    }
    for (std::int32_t r = 0; r < rows; ++r) _mm512_storeu_ps(scores + r * kTileKeys + t, sum[r]);
  }
  prefetcher.pause();
}

template <ChunkScale kScale>
void multiply_query_key_vnni(const TileInput& in, const VnniQuery& query, std::int32_t rows, float* scores) {
  const VnniScales<kScale> scales(*in.rows, in.head_dim / 32);
  float largest[kMaxHeadDim / 16];
  scales.largest(in.rows->count, largest);
  // A key with one scale has one for every group.
  if constexpr (kScale == ChunkScale::kPerToken) std::fill_n(largest + 1, in.head_dim / 32 - 1, largest[0]);
  const std::int32_t count = VnniScales<kScale>::kPerGroup * (in.head_dim / 32);
  if (small_error(largest, count, query.error[0])) return multiply_levels<kScale, false>(in, scales, query, rows, scores);
  if (small_error(largest, count, query.error[1])) return multiply_levels<kScale, true>(in, scales, query, rows, scores);
  multiply_query_key<DecodeE2M1, kScale>(in, exact_query(query, rows, in.head_dim), rows, scores);
}

}  // namespace fp4pa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // AVX3_DL
#endif
