// S = Q K^T for E2M1 keys in integers: AVX-512 VNNI, four products and a sum in every lane of one instruction.
//
// Twice an E2M1 value is an integer from -12 to 12, so a key's block is exactly integers times its scale. The query is
// rounded once per item to 16 bits against the largest magnitude of each group (no worse than an f16 query, see docs/cpu.md;
// a query that would be worse off stays in f32) and split into two signed bytes; the key, biased by 12 into unsigned bytes,
// is the other operand of vpdpbusd, and the bias is taken out by starting from -12 * (sum of the group's query). Sixteen keys
// sit in the sixteen lanes, so a lane's sum is a score: no horizontal sums. That needs the sixteen rows transposed, 16 bytes
// (a group of 32 codes) at a time.
//
// How far rounding the query may move a score follows from the query's steps and the key: sixteen keys of which one could be
// moved by as much as the contract's LSE error are multiplied in f32 instead (kMaxNoise).
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
  float noise[kMaxHeadDim / 32];                         // see kMaxNoise
  bool has_levels;                                       // false: `exact` is all there is
  mutable bool in_decode_order;                          // `exact` is, as products-inl.h wants it; else as it came
  alignas(64) mutable float exact[kMaxRows * kMaxHeadDim];  // the f32 query
};
static_assert(sizeof(VnniQuery) <= kQueryOperandBytes);

/// Keys are doubled, hence a half; and sums of levels reach 2^24, so a step is stored times 2^16 and a key's scale is taken
/// times 2^-16: neither a large scale nor a large query can overflow a product that the score itself does not.
inline constexpr float kStepScale = 0.5f * 0x1p16f;
inline constexpr float kFactorScale = 0x1p-16f;

/// A group whose small elements (at most a quarter of the largest) are this much smaller than the largest would lose more
/// in levels than in f16.
inline constexpr float kMaxSpread = 32.0f;

/// Rounding leaves query element d an error of up to half a step, and a score is off by sum_d error[d] * key[d]. The errors
/// are as good as uniform and independent, so that sum has a standard deviation of
///   noise = sqrt(sum_d (step[d] * key[d])^2 / 12)
/// and no heavier tails than a normal one. LSE moves by a mean of its scores' errors; levels are used while six times the
/// noise of every key is below the LSE error that DESIGN allows, 1e-3, here in log2 units.
///
/// That |key[d]| is at most kMaxCode times its scale bounds the noise without a look at the codes. Codes have a root mean square of
/// 4 at most but for contrived keys, so that a bound of 1.5 kMaxNoise still leaves six standard deviations, and four were all codes
/// 6 or -6.
inline constexpr float kMaxNoise = 1e-3f * 1.44269504f / 6.0f;
inline constexpr float kMaxCode = 6.0f;
inline constexpr float kMaxBound = 1.5f;  // in units of kMaxNoise

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

/// For every group of 32: the noise of `elements` codes of kMaxCode whose scale is 1 / kFactorScale, in units of kMaxNoise and
/// of the noisiest row.
inline void prepare_noise(std::int32_t rows, std::int32_t groups, std::int32_t elements, VnniQuery& out) {
  const float unit = 2.0f * kMaxCode * std::sqrt(static_cast<float>(elements) / 12.0f) / kMaxNoise;  // a step is halved
  for (std::int32_t g = 0; g < groups; ++g) {
    out.noise[g] = 0.0f;
    for (std::int32_t r = 0; r < rows; ++r) out.noise[g] = std::max(out.noise[g], out.step[r][g] * unit);
  }
}

/// False when the query must stay in f32. `elements`: those of a group of 32 that share a scale in the keys.
inline bool prepare_query_vnni(const float* query, std::int32_t rows, std::int32_t head_dim, std::int32_t elements,
                               VnniQuery& out) {
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
  prepare_noise(rows, head_dim / 32, elements, out);
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

/// The same, with bytes that differ from lane to lane.
HWY_INLINE void multiply_add(__m512i& acc, __m512i codes, __m512i bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(bytes));
}

/// Mean square of words [kFirst, kFirst + kCount) of a group, over that of codes of kMaxCode.
template <int kFirst, int kCount>
HWY_INLINE __m512 mean_square(const VnniCodes& codes) {
  __m512i sum = _mm512_setzero_si512();
  for (int w = kFirst; w < kFirst + kCount; ++w) {
    for (const __m512i biased : {codes.even[w], codes.odd[w]}) {
      const __m512i magnitude = _mm512_abs_epi8(_mm512_sub_epi8(biased, _mm512_set1_epi8(kBias)));
      multiply_add(sum, magnitude, magnitude);
    }
  }
  return _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(1.0f / (8 * kCount * 4 * kMaxCode * kMaxCode)));
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

/// Their scales times kFactorScale, a key to a lane, group of 32 by group of 32 (NVFP4: two to a group).
template <ChunkScale kScale>
class VnniFactors {
 public:
  static constexpr int kPerGroup = kScale == ChunkScale::kNvfp4 ? 2 : 1;

  HWY_INLINE VnniFactors(const VnniKeys& keys, std::int32_t groups)
      : scale_(keys.scale), count_(kScale == ChunkScale::kPerToken ? 1 : kPerGroup * groups) {
    if constexpr (kScale == ChunkScale::kPerToken) of[0] = decode(load_scale_words(scale_, 0, 1));
  }
  /// Brings those of group g into `of`; groups in order.
  HWY_INLINE void load(std::int32_t g) {
    if constexpr (kScale != ChunkScale::kPerToken) {
      if (g % (4 / kPerGroup) == 0) words_ = load_scale_words(scale_, kPerGroup * g, count_);
      for (int i = 0; i < kPerGroup; ++i) {
        of[i] = decode(words_);
        words_ = _mm512_srli_epi32(words_, 8);
      }
    }
  }
  __m512 of[kPerGroup];

 private:
  static HWY_INLINE __m512 decode(__m512i words) {
    const hn::CappedTag<float, 16> df;
    const hn::RebindToUnsigned<decltype(df)> du;
    const hn::Vec<decltype(du)> bytes{_mm512_and_si512(words, _mm512_set1_epi32(255))};
    return _mm512_mul_ps(decode_scales<kScale != ChunkScale::kNvfp4>(df, bytes).raw, _mm512_set1_ps(kFactorScale));
  }

  const std::uint8_t* const* scale_;
  std::int32_t count_;
  __m512i words_ = _mm512_setzero_si512();
};

/// The largest scales of a tile's keys, byte by byte of sixteen rows' words: scale codes grow with their scales, NaN last.
struct LargestScales {
  __m512i word[kMaxHeadDim / 64];
  std::int32_t count;

  HWY_INLINE explicit LargestScales(std::int32_t scales) : count(scales) {
    for (std::int32_t i = 0; i < (scales + 3) / 4; ++i) word[i] = _mm512_setzero_si512();
  }
  HWY_INLINE void add(std::int32_t i, __m512i words) { word[i] = _mm512_max_epu8(word[i], words); }
};

/// The bound of the noise of a tile's keys, squared, in units of kMaxNoise.
template <ChunkScale kScale>
HWY_NOINLINE float noise_bound(const LargestScales& largest, const VnniQuery& query, std::int32_t groups) {
  std::uint8_t codes[kMaxHeadDim / 16];
  for (std::int32_t i = 0; i < largest.count; i += 4) {
    const __m512i keys = largest.word[i / 4];
    const __m256i eight = _mm256_max_epu8(_mm512_castsi512_si256(keys), _mm512_extracti64x4_epi64(keys, 1));
    const __m128i four = _mm_max_epu8(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epu8(four, _mm_srli_si128(four, 8));
    const std::int32_t word = _mm_cvtsi128_si32(_mm_max_epu8(two, _mm_srli_si128(two, 4)));
    std::memcpy(codes + i, &word, 4);
  }
  float sum = 0.0f;
  for (std::int32_t i = 0; i < groups * VnniFactors<kScale>::kPerGroup; ++i) {
    const std::uint8_t code = codes[kScale == ChunkScale::kPerToken ? 0 : i];
    const float scale = kScale == ChunkScale::kNvfp4 ? core::UE4M3::decode(code) : core::E8M0::decode(code);
    const float noise = scale * kFactorScale * query.noise[i / VnniFactors<kScale>::kPerGroup];
    sum += noise * noise;
  }
  return sum;
}

/// The squared noise itself.
template <ChunkScale kScale>
HWY_NOINLINE __m512 noise_of(const VnniKeys& keys, const VnniQuery& query, std::int32_t groups) {
  VnniFactors<kScale> factors(keys, groups);
  __m512 sum = _mm512_setzero_ps();
  for (std::int32_t g = 0; g < groups; ++g) {
    factors.load(g);
    const VnniCodes codes = load_codes(keys.row, 16 * g);
    const auto add = [&](__m512 factor, __m512 mean) HWY_ATTR {
      const __m512 n = _mm512_mul_ps(factor, _mm512_set1_ps(query.noise[g]));
      sum = _mm512_fmadd_ps(_mm512_mul_ps(n, n), mean, sum);
    };
    if constexpr (factors.kPerGroup == 2) {
      add(factors.of[0], mean_square<0, 2>(codes));
      add(factors.of[1], mean_square<2, 2>(codes));
    } else {
      add(factors.of[0], mean_square<0, 4>(codes));
    }
  }
  return sum;
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

/// Keys t to t + 15 of the tile in f32.
template <ChunkScale kScale>
HWY_NOINLINE void multiply_exactly(const TileInput& in, std::int32_t t, const VnniQuery& query, std::int32_t rows,
                                   float* scores) {
  TileRows some;
  some.count = std::min(kVnniKeys, in.rows->count - t);
  std::copy_n(in.rows->row + t, some.count, some.row);
  std::copy_n(in.rows->scale + t, some.count, some.scale);
  TileInput part = in;
  part.rows = &some;
  part.ahead = nullptr;  // the next tile's lines are left to the hardware's prefetcher
  float exact[kMaxRows * kTileKeys];
  multiply_query_key<DecodeE2M1, kScale>(part, exact_query(query, rows, in.head_dim), rows, exact);
  for (std::int32_t r = 0; r < rows; ++r) std::copy_n(exact + r * kTileKeys, kVnniKeys, scores + r * kTileKeys + t);
}

/// In f32, whichever of the tile's keys levels are too coarse for.
template <ChunkScale kScale>
HWY_NOINLINE void mend_scores(const TileInput& in, const VnniQuery& query, std::int32_t rows, float* scores) {
  for (std::int32_t t = 0; t < in.rows->count; t += kVnniKeys) {
    const __m512 noise = noise_of<kScale>(VnniKeys(*in.rows, t), query, in.head_dim / 32);
    // A NaN, of a scale that is NaN, is too coarse as well.
    if (_mm512_cmp_ps_mask(noise, _mm512_set1_ps(1.0f), _CMP_NLE_UQ) != 0) {
      multiply_exactly<kScale>(in, t, query, rows, scores);
    }
  }
}

template <ChunkScale kScale>
void multiply_query_key_vnni(const TileInput& in, const VnniQuery& query, std::int32_t rows, float* scores) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const TileRows& keys = *in.rows;
  const std::int32_t groups = in.head_dim / 32;
  Prefetcher prefetcher(in);
  LargestScales largest(kScale == ChunkScale::kPerToken ? 1 : VnniFactors<kScale>::kPerGroup * groups);
  for (std::int32_t t = 0; t < keys.count; t += kVnniKeys) {
    const VnniKeys some(keys, t);
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
      words = load_scale_words(some.scale, 0, 1);
      largest.add(0, words);
      factor = next_factor();
    }
    for (std::int32_t g = 0; g < groups; ++g) {
      const VnniCodes codes = load_codes(some.row, 16 * g);
      // Four groups to a cache line: a quarter of the sixteen keys' lines at each.
      for (int i = 0; i < 2; ++i) prefetcher.lines();
      if constexpr (kScale == ChunkScale::kNvfp4) {
        if (g % 2 == 0) {
          words = load_scale_words(some.scale, 2 * g, 2 * groups);
          largest.add(g / 2, _mm512_and_si512(words, _mm512_set1_epi8(127)));
        }
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
          if (g % 4 == 0) {
            words = load_scale_words(some.scale, g, groups);
            largest.add(g / 4, words);
          }
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
  prefetcher.pause();
  if (!(noise_bound<kScale>(largest, query, groups) <= kMaxBound * kMaxBound)) mend_scores<kScale>(in, query, rows, scores);
}

}  // namespace fp4pa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // AVX3_DL
#endif
