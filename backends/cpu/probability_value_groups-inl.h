// O += P V for E2M1 values on sixteen lanes: a vector never leaves its scale group.
//
// The other order (decode-inl.h) keeps a word of eight codes in its lane, so one vector spans several groups and every
// probability must be multiplied by a vector of scales, per row and key. Here the words of one group (four of MXFP4, two of
// NVFP4) are repeated over the vector and each lane shifts its own nibble down: the same two instructions a vector, and the
// scale becomes one number per key and group. Probabilities times scales are then made for a whole tile at once, sixteen
// keys to an instruction, and the inner loop is decode and multiply-add and nothing else.
// Compiled for AVX-512 targets: include only through tile_ops.cpp.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/products-inl.h"

#if defined(FP4PA_CPU_PROBABILITY_VALUE_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP4PA_CPU_PROBABILITY_VALUE_GROUPS_INL_H_
#undef FP4PA_CPU_PROBABILITY_VALUE_GROUPS_INL_H_
#else
#define FP4PA_CPU_PROBABILITY_VALUE_GROUPS_INL_H_
#endif

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fp4pa::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sixteen lanes over groups of kWords words: lane l of vector n holds element `element(n, l)` of its group.
template <int kWords>
struct GroupLanes {
  static constexpr int kGroup = 8 * kWords;
  static constexpr int kVectors = kGroup / 16;
  static constexpr int kNibbles = 16 / kWords;  // nibbles of each word in one vector
  static constexpr int element(int vector, int lane) { return 8 * (lane % kWords) + lane / kWords + kNibbles * vector; }

  struct Shifts {
    std::uint32_t bits[kVectors][16];
    constexpr Shifts() : bits{} {
      for (int n = 0; n < kVectors; ++n) {
        for (int l = 0; l < 16; ++l) bits[n][l] = static_cast<std::uint32_t>(4 * (element(n, l) % 8));
      }
    }
  };
  HWY_ALIGN static constexpr Shifts kShifts{};

  template <class DU>
  static HWY_INLINE hn::Vec<DU> load(DU du, const std::uint8_t* codes) {
    if constexpr (kWords == 4) {
      return hn::LoadDup128(du, reinterpret_cast<const std::uint32_t*>(codes));
    } else {
      std::uint64_t words;
      std::memcpy(&words, codes, sizeof(words));
      return hn::BitCast(du, hn::Set(hn::Repartition<std::uint64_t, DU>(), words));
    }
  }
};

inline constexpr std::int32_t kMaxGroups = kMaxHeadDim / 16;

/// Scales of a tile: [group][key], in the order of head_dim; one row when a key has one scale.
template <ChunkScale kScale>
HWY_INLINE void tile_scales(const TileInput& in, float* scales) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  constexpr std::int32_t kGroup = kScale == ChunkScale::kMxfp4 ? 32 : kScale == ChunkScale::kNvfp4 ? 16 : 256;
  const std::int32_t groups = std::max(in.head_dim / kGroup, 1);
  const std::int32_t last = in.rows->count - 1;
  for (std::int32_t t = 0; t <= last; t += 16) {
    for (std::int32_t first = 0; first < groups; first += 4) {
      HWY_ALIGN std::uint32_t words[16];
      for (int i = 0; i < 16; ++i) {
        const std::uint8_t* row = in.rows->scale[std::min(t + i, last)];
        std::uint32_t w = 0;
        if (groups - first >= 4) {
          std::memcpy(&w, row + first, 4);
        } else {  // never past the end of a row's scales: they may be the last bytes of the pool
          for (std::int32_t g = first; g < groups; ++g) w |= std::uint32_t{row[g]} << (8 * (g - first));
        }
        words[i] = w;
      }
      auto rest = hn::Load(du, words);
      for (std::int32_t g = first; g < std::min(first + 4, groups); ++g) {
        const auto codes = hn::And(rest, hn::Set(du, 255u));
        rest = hn::ShiftRight<8>(rest);
        hn::Store(decode_scales<kScale != ChunkScale::kNvfp4>(df, codes), df, scales + g * kTileKeys + t);
      }
    }
  }
}

/// One row block over kUnits groups: keys [first, last), accumulators in registers. `weights[r][u]` are the probabilities of
/// row r times the scales of unit u, kTileKeys apart by key.
template <int kWords, int kRows, int kUnits, class DF>
HWY_INLINE void value_groups(DF df, const TileInput& in, Prefetcher& shared, bool prefetch, std::int32_t first,
                             std::int32_t last, std::int32_t d, const float* const (&weights)[kRows][kUnits],
                             hn::Vec<DF> (&acc)[kRows][kUnits * GroupLanes<kWords>::kVectors]) {
  using Lanes = GroupLanes<kWords>;
  const hn::RebindToUnsigned<DF> du;
  HWY_ALIGN static constexpr float kTable[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  const auto table = hn::Load(df, kTable);
  Prefetcher prefetcher = shared;
  for (std::int32_t t = first; t < last; ++t) {
    if (prefetch && t % 2 == 0) prefetcher.lines();
    const std::uint8_t* row = in.rows->row[t] + d / 2;
    const auto unit = [&]<int U>(std::integral_constant<int, U>) HWY_ATTR {
      const auto words = Lanes::load(du, row + U * 4 * kWords);
      hn::Vec<DF> value[Lanes::kVectors];
      for (int n = 0; n < Lanes::kVectors; ++n) {
        const auto index = hn::Shr(words, hn::Load(du, Lanes::kShifts.bits[n]));
        value[n] = hn::TableLookupLanes(table, hn::IndicesFromVec(df, lookup_index<16>(du, index)));
      }
      for (int r = 0; r < kRows; ++r) {
        const auto weight = hn::Set(df, weights[r][U][t]);
        for (int n = 0; n < Lanes::kVectors; ++n) {
          auto& a = acc[r][U * Lanes::kVectors + n];
          a = hn::MulAdd(weight, value[n], a);
        }
      }
    };
    unroll<kUnits>(unit);
  }
  shared = prefetcher;
}

template <ChunkScale kScale, bool kAlongTokens>
void multiply_probability_value_groups(const TileInput& in, const float* probability, std::int32_t rows, float* output) {
  constexpr int kWords = kScale == ChunkScale::kNvfp4 && !kAlongTokens ? 2 : 4;
  using Lanes = GroupLanes<kWords>;
  const hn::CappedTag<float, 16> df;
  HWY_ALIGN float scales[std::max(kMaxGroups * kTileKeys, (kTileKeys / 16 + 1) * kMaxHeadDim)];
  HWY_ALIGN float weights[4][4][kTileKeys];  // [row][unit][key]
  if constexpr (kAlongTokens) {
    token_axis_factors<kScale == ChunkScale::kMxfp4>(in, scales, [](std::int32_t position) {
      return position / 32 * 32 + Lanes::element(position % 32 / 16, position % 16);
    });
  } else {
    tile_scales<kScale>(in, scales);
  }
  Prefetcher prefetcher(in);

  // kUnits groups at a time: 64 elements, or the 32 that are left.
  const auto pass = [&]<int kUnits>(std::integral_constant<int, kUnits>, std::int32_t d) HWY_ATTR {
    constexpr int kVectors = kUnits * Lanes::kVectors;
    const auto block = [&]<int kRows>(std::integral_constant<int, kRows>, std::int32_t r0) HWY_ATTR {
      const float* factor[kRows][kUnits];
      for (int r = 0; r < kRows; ++r) {
        const float* const p = probability + (r0 + r) * kTileKeys;
        for (int u = 0; u < kUnits; ++u) {
          factor[r][u] = p;
          if constexpr (!kAlongTokens) {
            if (kScale == ChunkScale::kPerToken && u > 0) {
              factor[r][u] = weights[r][0];
              continue;
            }
            const float* const s = scales + (kScale == ChunkScale::kPerToken ? 0 : d / Lanes::kGroup + u) * kTileKeys;
            for (std::int32_t t = 0; t < kTileKeys; t += 16) {
              hn::Store(hn::Mul(hn::LoadU(df, p + t), hn::Load(df, s + t)), df, weights[r][u] + t);
            }
            factor[r][u] = weights[r][u];
          }
        }
      }
      hn::Vec<decltype(df)> acc[kRows][kVectors];
      const auto clear = [&]() HWY_ATTR {
        for (int r = 0; r < kRows; ++r) {
          for (int n = 0; n < kVectors; ++n) acc[r][n] = hn::Zero(df);
        }
      };
      // As in products-inl.h, the tile's sum begins at zero and is added to the output once.
      if constexpr (!kAlongTokens) {
        clear();
        value_groups<kWords, kRows, kUnits>(df, in, prefetcher, r0 == 0, 0, in.rows->count, d, factor, acc);
      } else {
        // Along tokens a group's sum is scaled once, column by column.
        hn::Vec<decltype(df)> sum[kRows][kVectors];
        for (int r = 0; r < kRows; ++r) {
          for (int n = 0; n < kVectors; ++n) sum[r][n] = hn::Zero(df);
        }
        std::int32_t group = 0;
        for (std::int32_t first = 0; first < in.rows->count; ++group) {
          const std::int32_t in_group = (in.first_in_group + first) % in.token_group;
          const std::int32_t last = std::min(first + in.token_group - in_group, in.rows->count);
          clear();
          value_groups<kWords, kRows, kUnits>(df, in, prefetcher, r0 == 0, first, last, d, factor, acc);
          for (int r = 0; r < kRows; ++r) {
            for (int n = 0; n < kVectors; ++n) {
              const auto scale = hn::LoadU(df, scales + group * in.head_dim + d + 16 * n);
              sum[r][n] = hn::MulAdd(acc[r][n], scale, sum[r][n]);
            }
          }
          first = last;
        }
        for (int r = 0; r < kRows; ++r) {
          for (int n = 0; n < kVectors; ++n) acc[r][n] = sum[r][n];
        }
      }
      float* const base = output + r0 * in.head_dim + d;
      for (int r = 0; r < kRows; ++r) {
        for (int n = 0; n < kVectors; ++n) add_to(df, acc[r][n], base + r * in.head_dim + 16 * n);
      }
    };
    for_each_row_block(rows, block);
  };
  std::int32_t d = 0;
  for (; d + 64 <= in.head_dim; d += 64) pass(std::integral_constant<int, 64 / Lanes::kGroup>(), d);
  if (d < in.head_dim) pass(std::integral_constant<int, 32 / Lanes::kGroup>(), d);
  prefetcher.finish();
}

/// Position of element d of a row in the order above.
template <int kWords>
HWY_INLINE void group_lane_order(std::int32_t head_dim, std::int32_t* order) {
  using Lanes = GroupLanes<kWords>;
  for (std::int32_t position = 0; position < head_dim; ++position) {
    const std::int32_t in_group = position % Lanes::kGroup;
    order[position - in_group + Lanes::element(in_group / 16, in_group % 16)] = position;
  }
}

}  // namespace fp4pa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // AVX-512
#endif
