// A query for keys that enter the matrix core as they lie in the cache.
//
// The instruction wants E4M3 (MXFP4 and MXFP8 keys) or E2M1 (NVFP4 keys) with a scale per group of dims. One such operand
// would be a coarse query; but a sum of operands is as good as one wishes, for the price of one more instruction each, and
// nothing of the keys is read or moved again. Each term is what the terms before it left over, with scales of its own:
//
//   E4M3   four significant bits, and the sign of the rest is a fifth: two terms are a bf16 exactly, three an f16 (of elements
//          within 2^-13 and 2^-14 of their group's largest; below that the error is 2^-21 and 2^-18 of that largest, or less)
//   E2M1   a term leaves at most a sixth of its group's largest element. A score may be the small difference of large products: four
//          terms were as good as contracts ask for where logits are flat, five where they are steep
//
// In shared memory, for a query row n of a row tile, which is the instruction's column n, lane 4n + t:
//   codes   [row tile][term][step][lane], two words each: registers of B
//   scales  [row tile][term / 4][word][lane]: lane 4n + t holds the scales of term t or 4 + t, so that the thread-id selects the term
#pragma once

#include <cstdint>

#include "backends/sm120/atoms.hpp"
#include "core/simt/query.hpp"
#include "core/simt/shared_layout.hpp"

namespace fp4pa::sm120 {

using core::KvKind;

/// Where a format's keys meet the instruction. A step is one instruction's depth.
template <KvKind kKind, int kHeadDim>
struct KeyForm {
  static constexpr bool kPacked = kKind == KvKind::kNvfp4;  // E2M1 in nibbles against E2M1; else in bytes against E4M3
  static constexpr bool kBytes = core::is_e4m3(kKind);      // bytes in the cache, too
  static constexpr bool kAsTheyLie = kPacked || kBytes;     // words of keys are registers of A; else nibbles spread into bytes
  using Atom = std::conditional_t<kPacked, MmaMxf4nvf4Ue4m3M16N8K64,
                                  MmaMxf8f6f4M16N8K32<std::conditional_t<kBytes, core::E4M3, core::E2M1>, core::E4M3>>;
  static constexpr int kDepth = Atom::kK;
  static constexpr int kChunks = kDepth / (kBytes ? 16 : 32);  // of a row and step
  static constexpr int kSteps = kHeadDim / kDepth;
  static constexpr int kGroup = Atom::kScaleGroup;  // dims of a query's scale
  static constexpr int kGroups = kHeadDim / kGroup;
  static constexpr int kTerms = kPacked ? 5 : 3;    // at most, of a query
  static constexpr int kScaleWords = kPacked ? kSteps : (kSteps + 3) / 4;  // of a query row and term
  static constexpr int kKeyScaleWords = core::round_up_to(core::key_scale_bytes(kKind, kHeadDim), 4) / 4;

  /// Which word of a key's scales a step reads, and from which byte on.
  static constexpr int key_word(int step) { return kPacked ? step : kKind == KvKind::kPerToken ? 0 : step / 4; }
  static constexpr int key_byte(int step) { return kPacked || kKind == KvKind::kPerToken ? 0 : step % 4; }
  static constexpr int query_word(int step) { return kPacked ? step : step / 4; }
  static constexpr int query_byte(int step) { return kPacked ? 0 : step % 4; }
};

template <class Form, int kRowTiles>
struct QueryLayout {
  FP4PA_FN static constexpr std::uint32_t code(int tile, int term, int step, int lane) {
    return static_cast<std::uint32_t>((((tile * Form::kTerms + term) * Form::kSteps + step) * 32 + lane) * 8);
  }
  /// @param word  of those of terms 0 to 3, and behind them of term 4
  FP4PA_FN static constexpr std::uint32_t scale(int tile, int word, int lane) {
    return code(kRowTiles, 0, 0, 0) + static_cast<std::uint32_t>(((tile * kScaleWords + word) * 32 + lane) * 4);
  }
  static constexpr int kScaleWords = (Form::kTerms + 3) / 4 * Form::kScaleWords;  // of a lane and row tile
  static constexpr int kBytes = kRowTiles * (Form::kTerms * Form::kSteps * 256 + kScaleWords * 128);
};

/// One term of four neighbouring elements: their codes, the group's scale, and what is left of them.
struct QueryTerm {
  std::uint32_t code[4];
  std::uint32_t scale;
};

/// E4M3 with E8M0: the largest element falls into [128, 256).
FP4PA_FN QueryTerm round_to_e4m3(float (&x)[4], std::uint32_t amax) {
  int exponent = static_cast<int>(amax >> 23) - 127 - 7;
  exponent = exponent < -100 ? -100 : exponent;  // the row's largest element is about 1
  const float up = core::exp2_exact(-exponent);
  const float down = core::exp2_exact(exponent);
  QueryTerm term;
  term.scale = static_cast<std::uint32_t>(exponent + 127);
  FP4PA_UNROLL
  for (int i = 0; i < 4; ++i) {
    // An infinity would saturate.
    const bool finite = core::magnitude_bits(x[i]) < core::kFloatInfBits;
    const std::uint8_t code = finite ? core::E4M3::encode(x[i] * up) : std::uint8_t{0x7f};
    term.code[i] = code;
    x[i] -= core::E4M3::decode(code) * down;
  }
  return term;
}

/// E2M1 with UE4M3: the largest element becomes 6, to the scale's precision.
FP4PA_FN QueryTerm round_to_e2m1(float (&x)[4], std::uint32_t amax) {
  QueryTerm term;
  // E2M1 has no NaN: the scale carries it, to the whole row of scores as it would go anyway.
  const bool finite = amax < core::kFloatInfBits;
  const std::uint8_t scale = finite ? core::UE4M3::encode(core::float_from_bits(amax) / 6.0f) : std::uint8_t{0x7f};
  const float unit = core::UE4M3::decode(scale);
  term.scale = scale;
  FP4PA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::uint8_t code = unit > 0.0f ? core::E2M1::encode(x[i] / unit) : std::uint8_t{0};
    term.code[i] = code;
    x[i] -= core::E2M1::decode(code) * unit;
  }
  return term;
}

/// Rounds dims base + 4l .. base + 4l + 3 of a row, which lane l holds, to `terms` operands; the terms that are not asked for are
/// zeros.
template <class Form, int kRowTiles, class E>
FP4PA_FN void store_native_quads(E& exec, std::uint32_t query, int row, int base, int head_dim,
                                 typename E::template PerLane<float[4]> x, int terms) {
  using Lane = typename E::Lane;
  using Layout = QueryLayout<Form, kRowTiles>;
  const int tile = row / 8;
  const int column = row % 8;
  for (int term = 0; term < Form::kTerms; ++term) {
    const auto amax = core::largest_of_quads<Form::kGroup / 4>(exec, x);
    exec.each_lane([&](Lane lane) {
      const int dim = base + 4 * lane.id;
      if (dim >= head_dim) return;
      // A lane of B has four neighbouring dims of either half of 32 bytes, or eight neighbouring nibbles.
      const int t = Form::kBytes ? dim % 16 / 4 : dim % 32 / 8;
      const int upper = Form::kBytes ? dim % 32 / 16 : dim % 8 / 4;
      QueryTerm q{{0, 0, 0, 0}, 0};
      if (term < terms) {
        if constexpr (Form::kPacked) {
          q = round_to_e2m1(x[lane], amax[lane]);
        } else {
          q = round_to_e4m3(x[lane], amax[lane]);
        }
      }
      const std::uint32_t codes = query + Layout::code(tile, term, dim / Form::kDepth, 4 * column + t);
      const std::uint32_t at = codes + 2 * upper;
      if constexpr (Form::kBytes) {
        exec.template store_shared<std::uint32_t>(lane, codes + 4 * upper,
                                                  q.code[0] | q.code[1] << 8 | q.code[2] << 16 | q.code[3] << 24);
      } else if constexpr (Form::kPacked) {
        const std::uint32_t nibbles = q.code[0] | q.code[1] << 4 | q.code[2] << 8 | q.code[3] << 12;
        exec.template store_shared<std::uint16_t>(lane, at + 4 * (dim % 64 / 32), static_cast<std::uint16_t>(nibbles));
      } else {
        // The lower nibbles of the keys' bytes become the first half of k, the upper ones the second.
        exec.template store_shared<std::uint16_t>(lane, at, static_cast<std::uint16_t>(q.code[0] | q.code[2] << 8));
        exec.template store_shared<std::uint16_t>(lane, at + 4, static_cast<std::uint16_t>(q.code[1] | q.code[3] << 8));
      }
      if (dim % Form::kGroup == 0) {
        const int group = dim / Form::kGroup;
        const int word = term / 4 * Form::kScaleWords + group / 4;
        exec.template store_shared<std::uint8_t>(lane, query + Layout::scale(tile, word, 4 * column + term % 4) + group % 4,
                                                 static_cast<std::uint8_t>(q.scale));
      }
    });
  }
}

/// The same of a whole row in shared memory, in f32.
template <class Form, int kRowTiles, class E>
FP4PA_FN void store_native_row(E& exec, std::uint32_t scratch, std::uint32_t query, int row, int head_dim, float multiplier,
                               int terms) {
  for (int base = 0; base < head_dim; base += 4 * E::kLanes) {
    typename E::template PerLane<float[4]> x;
    exec.each_lane([&](auto lane) {
      const int dim = base + 4 * lane.id;
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) {
        x[lane][i] = dim < head_dim ? exec.template load_shared<float>(lane, scratch + 4 * (dim + i)) * multiplier : 0.0f;
      }
    });
    store_native_quads<Form, kRowTiles>(exec, query, row, base, head_dim, x, terms);
  }
}

/// A lane's share of the query: in registers for a whole segment, or read when it is needed.
template <class Form, int kRowTiles, bool kInRegisters>
struct NativeQuery {
  using Layout = QueryLayout<Form, kRowTiles>;
  std::uint32_t codes[kInRegisters ? kRowTiles : 1][kInRegisters ? Form::kTerms : 1][kInRegisters ? Form::kSteps : 1][2];
  std::uint32_t scales[kRowTiles][Layout::kScaleWords];
  std::uint32_t query;  // offset in shared memory

  template <class E>
  FP4PA_FN void load(E& exec, typename E::Lane lane, std::uint32_t from) {
    query = from;
    FP4PA_UNROLL
    for (int tile = 0; tile < kRowTiles; ++tile) {
      if constexpr (kInRegisters) {
        FP4PA_UNROLL
        for (int i = 0; i < Form::kTerms * Form::kSteps; ++i) {
          const int term = i / Form::kSteps;
          read(exec, lane, tile, term, i % Form::kSteps, codes[tile][term][i % Form::kSteps]);
        }
      }
      FP4PA_UNROLL
      for (int w = 0; w < Layout::kScaleWords; ++w) {
        // Lane 4n + t has the scales of term t or 4 + t, which may not exist.
        const int lane_of_term = w / Form::kScaleWords * 4 + lane.id % 4 < Form::kTerms ? lane.id : lane.id & ~3;
        const std::uint32_t at = query + Layout::scale(tile, w, lane_of_term);
        if constexpr (Form::kGroups % 4 == 0) {
          scales[tile][w] = exec.template load_shared<std::uint32_t>(lane, at);
        } else {
          static_assert(Form::kGroups == 2);
          scales[tile][w] = exec.template load_shared<std::uint16_t>(lane, at);
        }
      }
    }
  }
  template <class E>
  FP4PA_FN void code(E& exec, typename E::Lane lane, int tile, int term, int step, std::uint32_t (&out)[2]) const {
    if constexpr (kInRegisters) {
      out[0] = codes[tile][term][step][0];
      out[1] = codes[tile][term][step][1];
    } else {
      read(exec, lane, tile, term, step, out);
    }
  }

 private:
  template <class E>
  FP4PA_FN void read(E& exec, typename E::Lane lane, int tile, int term, int step, std::uint32_t (&out)[2]) const {
    const auto both = exec.template load_shared<std::uint64_t>(lane, query + Layout::code(tile, term, step, lane.id));
    out[0] = static_cast<std::uint32_t>(both);
    out[1] = static_cast<std::uint32_t>(both >> 32);
  }
};

}  // namespace fp4pa::sm120
