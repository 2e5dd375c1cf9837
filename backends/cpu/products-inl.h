// The two products of the kernel body on a tile in cache: S = Q K^T and O += P V.
//
// Both read the packed rows of a page exactly once per block of four query rows, decode them in registers (decode-inl.h)
// and keep sixteen accumulators in flight. S sums over lanes, four rows by four keys at a time, so that the sixteen
// horizontal sums share one tree. O runs along lanes and sums over keys, so it needs none.
// Compiled once per instruction set: include only through tile_ops.cpp.
#include <algorithm>
#include <cstdint>

#include "backends/cpu/decode-inl.h"
#include "backends/cpu/decode_e4m3-inl.h"
#include "backends/cpu/tile_ops.hpp"
#include "hwy/highway.h"

#if defined(FP4PA_CPU_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_PRODUCTS_INL_H_
#undef FP4PA_CPU_PRODUCTS_INL_H_
#else
#define FP4PA_CPU_PRODUCTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kKeysPerStep = 4;

/// Asks second-level cache for the rows that the next tile will read. What keeps memory busy, found by measuring:
/// - A line of K and a line of V in turn, each in the order of addresses: two streams, so that the hardware's own prefetcher
///   has two 4 KiB pages to run ahead in.
/// - Sixteen rows ahead (the next page, of a pool of such pages) a few lines are touched early: the page walk is done and
///   the hardware has begun by the time the rest is asked for.
/// - A steady pace over both products. Line buffers are few, and asking faster than memory answers stalls the loads of this
///   tile.
/// The products keep a copy while they loop: through the reference, every step would go through memory.
class Prefetcher {
 public:
  HWY_INLINE explicit Prefetcher(const TileInput& in) : shared_(in.ahead) {
    if (shared_ == nullptr) {
      stop(k_);
      stop(v_);
      return;
    }
    k_ = shared_[0];
    v_ = shared_[1];
    if (k_.key < 0) {
      next_row(k_);
      next_row(v_);
    }
  }

  /// A line of K and a line of V.
  HWY_INLINE void lines() {
    line(k_);
    line(v_);
  }
  /// The first product's end: a few lines to be on their way during the softmax, and the second goes on from there.
  HWY_INLINE void pause() {
    if (shared_ == nullptr) return;
    for (int i = 0; i < 8; ++i) lines();
    shared_[0] = k_;
    shared_[1] = v_;
  }
  /// The second product's end: whatever is left.
  HWY_INLINE void finish() {
    while (k_.step != 0 || v_.step != 0) lines();
  }

 private:
  static constexpr std::int32_t kRowsAhead = 16;
  static constexpr int kLinesAhead = 3;

  static HWY_INLINE void line(PrefetchCursor& c) {
    __builtin_prefetch(c.at, 0, 2);
    c.at += c.step;
    if (c.at == c.end) next_row(c);
  }
  /// From here on `line` asks for the same line, which costs less than a question whether there are more.
  static HWY_INLINE void stop(PrefetchCursor& c) {
    static constexpr std::uint8_t kAnywhere = 0;
    c.at = &kAnywhere;
    c.end = nullptr;
    c.step = 0;
  }
  static HWY_INLINE void next_row(PrefetchCursor& c) {
    const TileRows& rows = *c.rows;
    if (++c.key >= rows.count) return stop(c);
    c.at = rows.row[c.key];
    c.end = c.at + (c.row_bytes + 63) / 64 * 64;
    c.step = 64;
    if (rows.scale[c.key] != nullptr) __builtin_prefetch(rows.scale[c.key], 0, 2);
    if (c.key % kRowsAhead != 0) return;
    const std::uint8_t* const ahead = c.key + kRowsAhead < rows.count ? rows.row[c.key + kRowsAhead] : rows.after;
    if (ahead == nullptr) return;
    for (int i = 0; i < kLinesAhead; ++i) __builtin_prefetch(ahead + 64 * i, 0, 2);
  }

  PrefetchCursor* shared_;
  PrefetchCursor k_;
  PrefetchCursor v_;
};

/// Calls f(tag, first element) chunk by chunk.
template <class Decode, class F>
HWY_INLINE void for_each_chunk(std::int32_t head_dim, F&& f) {
  for_each_range<Decode, false>(head_dim, [&](auto df, std::int32_t d, std::int32_t) HWY_ATTR { f(df, d); });
}

/// Calls f with the decoder of a format.
template <class F>
HWY_INLINE void with_decoder(KvFormat format, F&& f) {
  switch (format) {
    case KvFormat::kMxfp4:
    case KvFormat::kNvfp4:
    case KvFormat::kE8m0PerToken: return f(DecodeE2M1());
    case KvFormat::kFp8E4m3:
    case KvFormat::kMxfp8: return f(DecodeE4M3());
    case KvFormat::kBf16: return f(DecodeBf16());
    case KvFormat::kF16: return f(DecodeF16());
  }
}

/// The order of decode-inl.h.
inline void DecodeOrder(KvFormat format, std::int32_t head_dim, std::int32_t* order) {
  with_decoder(format, [&](auto decoder) HWY_ATTR {
    using Decode = decltype(decoder);
    for_each_chunk<Decode>(head_dim, [&](auto df, std::int32_t d) HWY_ATTR {
      constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(df));
      for (int j = 0; j < Decode::kParts; ++j) {
        for (std::int32_t i = 0; i < kLanes; ++i) order[d + Decode::element(kLanes, i, j)] = d + j * kLanes + i;
      }
    });
  });
}

/// Scales that a key's chunk is multiplied with, by format. kNone: nothing to do.
enum class ChunkScale { kNone, kMxfp4, kNvfp4, kPerToken, kMxfp8 };

/// Whether the scale is multiplied into each decoded key and not into a chunk's sums. E4M3 has few words a group, so the
/// sums are as many as the products; and the order of additions is then that of unscaled E4M3.
constexpr bool scales_keys(ChunkScale scale) { return scale == ChunkScale::kMxfp8; }

template <ChunkScale kScale, class D>
HWY_INLINE hn::Vec<D> key_scales(D df, const std::uint8_t* scales, std::int32_t first_element) {
  if constexpr (kScale == ChunkScale::kMxfp4) {
    return chunk_scales<4, true>(df, scales + first_element / 32);
  } else if constexpr (kScale == ChunkScale::kNvfp4) {
    return chunk_scales<2, false>(df, scales + first_element / 16);
  } else if constexpr (kScale == ChunkScale::kMxfp8) {
    return chunk_scales<8, true>(df, scales + first_element / 32);
  } else {
    const hn::RebindToUnsigned<D> du;
    return e8m0_to_f32(df, hn::Set(du, std::uint32_t{scales[0]}));
  }
}

/// Sums of four rows by four keys: acc[row][key] -> four scores of each row.
template <int kRows, class D>
HWY_INLINE void add_horizontal_sums(D df, const hn::Vec<D> (&acc)[4][kKeysPerStep], float* scores) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
#if HWY_TARGET == HWY_SCALAR
  static_assert(kLanes == 1);
  (void)df;
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kKeysPerStep; ++t) scores[r * kTileKeys + t] += hn::GetLane(acc[r][t]);
  }
#else
  if constexpr (kLanes == 16) {
    // Fold the four 128-bit blocks of four rows into one block each: block r of sum[t] is row r.
    hn::Vec<D> sum[kKeysPerStep];
    for (int t = 0; t < kKeysPerStep; ++t) {
      const auto rows02 = hn::Add(hn::ConcatLowerLower(df, acc[2][t], acc[0][t]), hn::ConcatUpperUpper(df, acc[2][t], acc[0][t]));
      const auto rows13 = hn::Add(hn::ConcatLowerLower(df, acc[3][t], acc[1][t]), hn::ConcatUpperUpper(df, acc[3][t], acc[1][t]));
      sum[t] = hn::Add(hn::OddEvenBlocks(rows13, rows02), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(rows02, rows13)));
    }
    const auto result = transpose_add(df, sum[0], sum[1], sum[2], sum[3]);
    const hn::CappedTag<float, 4> d4;
    const hn::CappedTag<float, 8> d8;
    const auto low = hn::LowerHalf(d8, result);
    const auto high = hn::UpperHalf(d8, result);
    add_to(d4, hn::LowerHalf(d4, low), scores);
    if constexpr (kRows > 1) add_to(d4, hn::UpperHalf(d4, low), scores + kTileKeys);
    if constexpr (kRows > 2) add_to(d4, hn::LowerHalf(d4, high), scores + 2 * kTileKeys);
    if constexpr (kRows > 3) add_to(d4, hn::UpperHalf(d4, high), scores + 3 * kTileKeys);
  } else if constexpr (kLanes == 8) {
    const hn::CappedTag<float, 4> d4;
    for (int r = 0; r < kRows; r += 2) {
      hn::Vec<D> sum[kKeysPerStep];
      for (int t = 0; t < kKeysPerStep; ++t) {
        sum[t] = hn::Add(hn::ConcatLowerLower(df, acc[r + 1][t], acc[r][t]), hn::ConcatUpperUpper(df, acc[r + 1][t], acc[r][t]));
      }
      const auto result = transpose_add(df, sum[0], sum[1], sum[2], sum[3]);
      add_to(d4, hn::LowerHalf(d4, result), scores + r * kTileKeys);
      if (r + 1 < kRows) add_to(d4, hn::UpperHalf(d4, result), scores + (r + 1) * kTileKeys);
    }
  } else {
    for (int r = 0; r < kRows; ++r) {
      add_to(df, transpose_add(df, acc[r][0], acc[r][1], acc[r][2], acc[r][3]), scores + r * kTileKeys);
    }
  }
#endif
}

/// One row block of S = Q K^T over the chunks of [begin, end): kRows query rows against every key of the tile. With scales
/// that change within a row the range is one chunk, because a lane's scale is the chunk's own.
template <class Decode, ChunkScale kScale, int kRows, class D>
HWY_INLINE void query_key_range(D df, const TileInput& in, Prefetcher& shared, const float* query,
                                std::int32_t begin, std::int32_t end, float* scores) {
  constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(D()));
  const TileRows& keys = *in.rows;
  Prefetcher prefetcher = shared;
  for (std::int32_t t = 0; t < keys.count; t += kKeysPerStep) {
    // The last step of a ragged tile repeats its last key; the surplus scores are never read.
    const std::uint8_t* row[kKeysPerStep];
    for (int i = 0; i < kKeysPerStep; ++i) row[i] = keys.row[std::min(t + i, keys.count - 1)];
    hn::Vec<D> acc[4][kKeysPerStep];
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < kKeysPerStep; ++i) acc[r][i] = hn::Zero(df);
    }
    for (std::int32_t d = begin; d < end; d += Decode::kParts * kLanes) {
      const std::int32_t byte = d * Decode::kBitsPerElement / 8;
      [[maybe_unused]] hn::Vec<D> scale[kKeysPerStep];
      if constexpr (scales_keys(kScale)) {
        for (int i = 0; i < kKeysPerStep; ++i) scale[i] = key_scales<kScale>(df, keys.scale[std::min(t + i, keys.count - 1)], d);
      }
      const auto step = [&]<int J>(std::integral_constant<int, J>) HWY_ATTR {
        hn::Vec<D> key[kKeysPerStep];
        for (int i = 0; i < kKeysPerStep; ++i) {
          key[i] = Decode::template part<J>(df, row[i] + byte);
          if constexpr (scales_keys(kScale)) key[i] = hn::Mul(key[i], scale[i]);
        }
        for (int r = 0; r < kRows; ++r) {
          const auto q = hn::LoadU(df, query + r * in.head_dim + d + J * kLanes);
          for (int i = 0; i < kKeysPerStep; ++i) acc[r][i] = hn::MulAdd(q, key[i], acc[r][i]);
        }
      };
      unroll<Decode::kParts>(step);
      // Five eighths of the next tile in this product, which takes the longer, and three in the other.
      for (int i = 0; i < kKeysPerStep / 2; ++i) prefetcher.lines();
      if (d / (Decode::kParts * kLanes) % 2 == 1) prefetcher.lines();
    }
    if constexpr (kScale != ChunkScale::kNone && !scales_keys(kScale)) {
      for (int i = 0; i < kKeysPerStep; ++i) {
        const auto scale = key_scales<kScale>(df, keys.scale[std::min(t + i, keys.count - 1)], begin);
        for (int r = 0; r < kRows; ++r) acc[r][i] = hn::Mul(acc[r][i], scale);
      }
    }
    add_horizontal_sums<kRows>(df, acc, scores + t);
  }
  shared = prefetcher;
}

template <class Decode, ChunkScale kScale>
void multiply_query_key(const TileInput& in, const float* query, std::int32_t rows, float* scores) {
  std::fill(scores, scores + rows * kTileKeys, 0.0f);
  constexpr bool kOneScale = kScale == ChunkScale::kNone || kScale == ChunkScale::kPerToken || scales_keys(kScale);
  // Elements that lanes add up one behind the other, 32 of them each: f32 keeps more of sums of sums.
  constexpr std::int32_t kMost = 32 * static_cast<std::int32_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  Prefetcher prefetcher(in);
  const auto block = [&]<int kRows>(std::integral_constant<int, kRows>, std::int32_t r) HWY_ATTR {
    const auto range = [&](auto df, std::int32_t begin, std::int32_t end) HWY_ATTR {
      query_key_range<Decode, kScale, kRows>(df, in, prefetcher, query + r * in.head_dim, begin, end, scores + r * kTileKeys);
    };
    if constexpr (kOneScale && kMost <= 128) {
      for (std::int32_t d = 0; d < in.head_dim; d += kMost) range(hn::CappedTag<float, 4>(), d, std::min(d + kMost, in.head_dim));
    } else {
      for_each_range<Decode, kOneScale>(in.head_dim, range);
    }
  };
  for_each_row_block(rows, block);
  prefetcher.pause();
}

/// One row block of O += P V over kParts vectors' worth of head_dim: all keys from `first` to `last`, accumulators in
/// registers. `factors` [keys][lanes] holds each key's scales for this chunk (null: none).
template <class Decode, int kRows, int kFirstPart, int kNumParts, class D>
HWY_INLINE void value_part(D df, const TileInput& in, Prefetcher& shared, std::int32_t first, std::int32_t last, const float* factors,
                           const float* probability, std::int32_t d, hn::Vec<D> (&acc)[kRows][kNumParts]) {
  constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(D()));
  const std::int32_t byte = d * Decode::kBitsPerElement / 8;
  Prefetcher prefetcher = shared;
  for (std::int32_t t = first; t < last; ++t) {
    const std::uint8_t* row = in.rows->row[t] + byte;
    if (kFirstPart == 0 && t % 8 < 3) prefetcher.lines();
    hn::Vec<D> p[kRows];
    for (int r = 0; r < kRows; ++r) p[r] = hn::Set(df, probability[r * kTileKeys + t]);
    if (factors != nullptr) {
      const auto scale = hn::LoadU(df, factors + t * kLanes);
      for (int r = 0; r < kRows; ++r) p[r] = hn::Mul(p[r], scale);
    }
    const auto step = [&]<int J>(std::integral_constant<int, J>) HWY_ATTR {
      const auto value = Decode::template part<kFirstPart + J>(df, row);
      for (int r = 0; r < kRows; ++r) acc[r][J] = hn::MulAdd(p[r], value, acc[r][J]);
    };
    unroll<kNumParts>(step);
  }
  shared = prefetcher;
}

/// One row block of O += P V over one chunk. The tile's sum begins at zero and is added to the output once: a key added to
/// a long sequence's sum would be rounded to the steps of that sum, and equal values would all be rounded the same way.
template <class Decode, ChunkScale kScale, bool kAlongTokens, int kRows, class D>
HWY_INLINE void value_chunk(D df, const TileInput& in, Prefetcher& prefetcher, const float* factors, const float* probability, std::int32_t d,
                            float* output) {
  constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(D()));
  // Eight parts by four rows would need every register there is: half a chunk at a time.
  constexpr int kNumParts = Decode::kParts > 4 ? 4 : Decode::kParts;
  const auto half = [&]<int H>(std::integral_constant<int, H>) HWY_ATTR {
    constexpr int kFirst = H * kNumParts;
    hn::Vec<D> acc[kRows][kNumParts];
    const auto clear = [&]() HWY_ATTR {
      for (int r = 0; r < kRows; ++r) {
        for (int j = 0; j < kNumParts; ++j) acc[r][j] = hn::Zero(df);
      }
    };
    if constexpr (!kAlongTokens) {
      clear();
      value_part<Decode, kRows, kFirst, kNumParts>(df, in, prefetcher, 0, in.rows->count, factors, probability, d, acc);
    } else {
      // Along tokens a group's sum is scaled once, column by column. `factors` is [groups][head_dim] in lane order.
      hn::Vec<D> sum[kRows][kNumParts];
      for (int r = 0; r < kRows; ++r) {
        for (int j = 0; j < kNumParts; ++j) sum[r][j] = hn::Zero(df);
      }
      std::int32_t group = 0;
      for (std::int32_t first = 0; first < in.rows->count; ++group) {
        const std::int32_t in_group = (in.first_in_group + first) % in.token_group;
        const std::int32_t last = std::min(first + in.token_group - in_group, in.rows->count);
        clear();
        value_part<Decode, kRows, kFirst, kNumParts>(df, in, prefetcher, first, last, nullptr, probability, d, acc);
        const float* scale = factors + group * in.head_dim + d + kFirst * kLanes;
        for (int r = 0; r < kRows; ++r) {
          for (int j = 0; j < kNumParts; ++j) sum[r][j] = hn::MulAdd(acc[r][j], hn::LoadU(df, scale + j * kLanes), sum[r][j]);
        }
        first = last;
      }
      for (int r = 0; r < kRows; ++r) {
        for (int j = 0; j < kNumParts; ++j) acc[r][j] = sum[r][j];
      }
    }
    float* const base = output + d + kFirst * kLanes;
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kNumParts; ++j) add_to(df, acc[r][j], base + r * in.head_dim + j * kLanes);
    }
  };
  unroll<Decode::kParts / kNumParts>(half);
}

/// Scales along tokens of every group that the tile touches: [groups][head_dim], `element(position)` being the element of
/// head_dim at a position of the output's lane order.
template <bool kE8m0, class Element>
HWY_INLINE void token_axis_factors(const TileInput& in, float* factors, Element&& element) {
  std::int32_t group = 0;
  for (std::int32_t first = 0; first < in.rows->count; ++group) {
    const std::int32_t in_group = (in.first_in_group + first) % in.token_group;
    const std::uint8_t* scales = in.rows->scale[first];
    float* out = factors + group * in.head_dim;
    for (std::int32_t i = 0; i < in.head_dim; ++i) {
      const std::uint8_t code = scales[element(i)];
      out[i] = kE8m0 ? core::E8M0::decode(code) : core::UE4M3::decode(code);
    }
    first += in.token_group - in_group;
  }
}

template <class Decode, ChunkScale kScale, bool kAlongTokens>
void multiply_probability_value(const TileInput& in, const float* probability, std::int32_t rows, float* output) {
  // Along head_dim: one vector of scales per key. Along tokens: groups of 16 that a tile can touch, a row of scales each.
  HWY_ALIGN float factors[std::max(kTileKeys * 16, (kTileKeys / 16 + 1) * kMaxHeadDim)];
  Prefetcher prefetcher(in);
  if constexpr (kAlongTokens) {
    std::int32_t element[kMaxHeadDim];
    for_each_chunk<Decode>(in.head_dim, [&](auto df, std::int32_t d) HWY_ATTR {
      constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(df));
      for (std::int32_t i = 0; i < Decode::kParts * kLanes; ++i) {
        element[d + i] = d + Decode::element(kLanes, i % kLanes, i / kLanes);
      }
    });
    token_axis_factors<kScale == ChunkScale::kMxfp4>(in, factors, [&](std::int32_t i) { return element[i]; });
  }
  for_each_chunk<Decode>(in.head_dim, [&](auto df, std::int32_t d) HWY_ATTR {
    constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(df));
    if constexpr (kScale != ChunkScale::kNone && !kAlongTokens) {
      for (std::int32_t t = 0; t < in.rows->count; ++t) {
        hn::StoreU(key_scales<kScale>(df, in.rows->scale[t], d), df, factors + t * kLanes);
      }
    }
    const auto block = [&]<int kRows>(std::integral_constant<int, kRows>, std::int32_t r) HWY_ATTR {
      value_chunk<Decode, kScale, kAlongTokens, kRows>(df, in, prefetcher, kScale == ChunkScale::kNone ? nullptr : factors,
                                                       probability + r * kTileKeys, d, output + r * in.head_dim);
    };
    for_each_row_block(rows, block);
  });
  prefetcher.finish();
}

}  // namespace fp4pa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
