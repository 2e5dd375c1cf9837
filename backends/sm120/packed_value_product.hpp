// O += P V with block-scaled instructions, for V in NVFP4 with scales along tokens: V enters as it lies in the cache, with its
// own scales; P becomes FP4 too, in several terms.
//
// The instruction is 64 deep and takes four scales for it. Both halves of the depth are the same 32 tokens: A has V twice, and
// its scales twice; B has one term of P in each half. So a pair of terms costs one instruction, and a tile of 32 keys is enough.
//
// Dims are the rows of A, as everywhere. A lane's eight nibbles of a register are eight tokens of one dim, and the instruction's
// scale groups want them from the same 16 tokens: in lanes with t < 2 from the first of a strip, else from the second. The
// lanes of a transposing ldmatrix name its rows, so that V comes that way round for nothing (v_token). P has, after its
// movmatrix, tokens of both groups in every lane: lanes t and t ^ 2 exchange half of their codes, one shuffle a term.
//
//   nibble i of a lane   part i % 2, byte p = i / 2: octet p / 2 of the lane's group, token p % 2 of two
//     part 0             as the lane had it: tokens 2t + {0, 1} of an octet
//     part 1             as lane t ^ 2 had it
//
// P's terms: the first has a scale of 1/6.5 of the largest of its 16 tokens, every further one 1/6.5 of the one before, and
// each multiplies what is left of P by then. 6.5 because E2M1 ends at 6 but what is as large as 7 is off by no more than what
// lies between 4 and 6, and because UE4M3 rounds it by a sixteenth. UE4M3 has 18 binades and four terms use 8 of them: first P
// is brought to [2^10, 2^11), by the largest of its query's 32 tokens, and the f32 sums of these tokens are brought back.
//
// Four terms leave 2^-12.8 of a group's largest, which is all of a token 13 binades below it. That is nothing beside the largest's
// own value, but models have keys with most of the weight and next to no value: what the rest of their group adds is then lost, where
// O is what all other keys add. So where a group has no more than kFew tokens that the first two terms can tell from nothing, what
// four terms left is brought up and rounded to four terms more. A warp decides it for all of its queries.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/sm120/convert.hpp"
#include "backends/sm80/value_product.hpp"
#include "core/math.hpp"
#include "core/simt/peers.hpp"

namespace fp4pa::sm120 {

/// Which token of a strip lane l names as its row of the transposing ldmatrix: row l % 8 of matrix l / 8. Eight rows of a
/// matrix differ in their lowest three bits, as the swizzle of rows wants it.
[[nodiscard]] FP4PA_FN constexpr int v_token(int lane) {
  const int matrix = lane / 8;
  const int group = lane / 4 % 2;
  return 16 * group + 8 * (matrix % 2) + 4 * (group ^ (matrix / 2)) + lane % 4;
}

/// Rounds eight halves, four each of two groups, to a term. What is left of them replaces them.
/// @param x        lower halves of the one group, upper halves of the other
/// @param largest  of both groups, or the scales of the term before; becomes this term's
/// @param more     whether x is needed any more
/// @param scales   its lower or upper `half` receives the codes of both scales
/// @return byte p: the codes of x[p]
FP4PA_FN std::uint32_t round_term(std::uint32_t (&x)[4], std::uint32_t& largest, bool more, std::uint32_t& scales, int half) {
  constexpr std::uint32_t kShrink = 0x30ec30ecu;      // 1/6.5
  constexpr std::uint32_t kSmallest = 0x18001800u;    // 2^-9, the least UE4M3: where a scale is 0, codes do not matter
  const std::uint32_t codes = f16_to_e4m3(sm80::multiply_f16(largest, kShrink));
  scales |= codes << (16 * half);
  largest = sm80::e4m3_to_f16(codes);
  const std::uint32_t up = reciprocal_f16(sm80::max_halves(largest, kSmallest));
  std::uint32_t term = 0;
  FP4PA_UNROLL
  for (int p = 0; p < 4; ++p) {
    const std::uint32_t byte = f16_to_e2m1(sm80::multiply_f16(x[p], up));
    term |= byte << (8 * p);
    if (more) x[p] = fma_f16(e2m1_pair_to_f16(byte), largest ^ 0x80008000u, x[p]);
  }
  return term;
}

/// Both halves without their signs.
FP4PA_FN constexpr std::uint32_t absolute(std::uint32_t x) { return x & 0x7fff7fffu; }

FP4PA_FN std::uint32_t count_bits(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(x));
#else
  return static_cast<std::uint32_t>(std::popcount(x));
#endif
}

template <class Shim>
struct PackedValueProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Atom = MmaMxf4nvf4Ue4m3M16N8K64;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kBlocks = kConfig.head_dim / core::kDimBlock;
  static constexpr int kTerms = Shim::kTerms.probability;
  static constexpr int kPairs = (kTerms + 1) / 2;

  template <class Backend, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                typename Backend::Output& output) {
    backend.set_unit(output, stream.v_global(), 0);
    backend.adopt_order(output, core::per_halfword(core::KvKind::kNvfp4Tokens));
    FP4PA_UNROLL
    for (int strip = 0; strip < kConfig.tile_keys / 32; ++strip) multiply_strip(exec, stream, strip, p, output.value);
  }

 private:
  /// Whether what the terms leave may be rounded again. Fewer terms are an experiment (tests/emulator).
  static constexpr bool kMayRoundAgain = kTerms == 4;
  /// It is brought up by a power of two that keeps the first scale within UE4M3: a term leaves at most its scale, so that four leave
  /// 2^0.6 or so.
  static constexpr int kAgainLog2 = 10;
  /// Most tokens of a group beside which the others would be lost.
  static constexpr std::uint32_t kFew = 3;

  /// What terms are to express of one row tile: [byte p of the codes], lower halves of the first 16 tokens, upper of the second. The
  /// unit is that of queries 2t and 2t + 1, whose sums a lane has.
  struct Rest {
    std::uint32_t x[4];
    float unit[2];
  };
  /// B of one row tile.
  struct Probabilities {
    std::uint32_t code[2 * kPairs];
    std::uint32_t scale[kPairs];
  };

  template <class Stream, class Scores, class Values>
  FP4PA_FN static void multiply_strip(E& exec, const Stream& stream, int strip, const Scores& p, Values& output) {
    const core::TileLayout layout = stream.layout();
    PerLane<Rest[kRowTiles]> rest;
    FP4PA_UNROLL
    for (int nt = 0; nt < kRowTiles; ++nt) take_probabilities(exec, strip, nt, p, rest);

    PerLane<std::uint32_t> row;
    PerLane<std::uint32_t[kBlocks]> scales;  // of dim 4g + t of a block, so that the thread-id is the dim tile
    exec.each_lane([&](Lane lane) {
      row[lane] = sm80::row_offset(stream.tile_offset() + layout.v_codes, strip * 32 + v_token(lane.id), layout.v_chunks);
      FP4PA_UNROLL
      for (int block = 0; block < kBlocks; ++block) {
        const std::uint32_t at = stream.tile_offset() + layout.v_scales + 2 * strip * layout.v_scale_pitch +
                                 block * core::kDimBlock + lane.id / 4 * 4;
        scales[lane][block] = bytes_twice(exec.template load_shared<std::uint32_t>(lane, at),
                                          exec.template load_shared<std::uint32_t>(lane, at + layout.v_scale_pitch), lane.id % 4);
      }
    });

    FP4PA_NO_UNROLL
    for (bool first = true;; first = false) {
      PerLane<Probabilities[kRowTiles]> probability;
      PerLane<bool> few;
      exec.each_lane([&](Lane lane) { few[lane] = false; });
      FP4PA_UNROLL
      for (int nt = 0; nt < kRowTiles; ++nt) round_terms(exec, nt, rest, probability, few);
      multiply_terms(exec, row, scales, probability, rest, output);
      if (!kMayRoundAgain || !first || !exec.any([&](Lane lane) { return few[lane]; })) break;
      bring_up(exec, rest);
    }
  }

  FP4PA_FN static void bring_up(E& exec, PerLane<Rest[kRowTiles]>& rest) {
    constexpr std::uint32_t kUp = (15u + kAgainLog2) * 0x04000400u;
    constexpr float kDown = 1.0f / (1 << kAgainLog2);
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int nt = 0; nt < kRowTiles; ++nt) {
        Rest& r = rest[lane][nt];
        FP4PA_UNROLL
        for (int c = 0; c < 4; ++c) r.x[c] = sm80::multiply_f16(r.x[c], kUp);
        FP4PA_UNROLL
        for (int i = 0; i < 2; ++i) r.unit[i] *= kDown;
      }
    });
  }

  /// O += V times the terms, of all dims.
  template <class Values>
  FP4PA_FN static void multiply_terms(E& exec, const PerLane<std::uint32_t>& row, const PerLane<std::uint32_t[kBlocks]>& scales,
                                      const PerLane<Probabilities[kRowTiles]>& probability, const PerLane<Rest[kRowTiles]>& rest,
                                      Values& output) {
    for_constants<kBlocks>([&](auto block) {
      PerLane<std::uint32_t[4]> words;
      exec.template load_matrix<true>([&](Lane lane) { return sm80::chunk_offset(row[lane], block.value); },
                                      [&](Lane lane) -> auto& { return words[lane]; });
      for_constants<2>([&](auto m) {
        PerLane<std::uint32_t[4]> a;
        exec.each_lane([&](Lane lane) {
          const auto& w = words[lane];
          const std::uint32_t first = every_other_byte<m.value == 1>(w[0], w[1]);
          const std::uint32_t second = every_other_byte<m.value == 1>(w[2], w[3]);
          a[lane][0] = a[lane][2] = nibbles_of(first, second << 4);
          a[lane][1] = a[lane][3] = nibbles_of(first >> 4, second);
        });
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          PerLane<float[4]> sum;
          exec.each_lane([&](Lane lane) {
            FP4PA_UNROLL
            for (int v = 0; v < 4; ++v) sum[lane][v] = 0.0f;
          });
          for_constants<kPairs>([&](auto pair) {
            PerLane<std::uint32_t[2]> b;
            exec.each_lane([&](Lane lane) {
              b[lane][0] = probability[lane][nt].code[2 * pair.value];
              b[lane][1] = probability[lane][nt].code[2 * pair.value + 1];
            });
            exec.template multiply_scaled<Atom, core::ScaleSelect{0, m.value}, core::ScaleSelect{}>(
                [&](Lane lane) -> auto& { return sum[lane]; }, [&](Lane lane) -> auto& { return a[lane]; },
                [&](Lane lane) -> auto& { return b[lane]; }, [&](Lane lane) { return scales[lane][block.value]; },
                [&](Lane lane) { return probability[lane][nt].scale[pair.value]; });
          });
          exec.each_lane([&](Lane lane) {
            FP4PA_UNROLL
            for (int v = 0; v < 4; ++v) {
              float& out = output[lane][2 * block.value + m.value][nt][v];
              out = core::math::fma(sum[lane][v], rest[lane][nt].unit[v % 2], out);
            }
          });
        }
      });
    });
  }

  /// 32 tokens' probabilities of one row tile: brought to a common range, moved to B's lanes as f16.
  template <class Scores>
  FP4PA_FN static void take_probabilities(E& exec, int strip, int nt, const Scores& p, PerLane<Rest[kRowTiles]>& rest) {
    constexpr std::uint32_t kOne = 0x00010001u;
    PerLane<std::uint32_t[4]> weight;  // [octet]: of queries 2t, 2t+1 and token g
    PerLane<std::uint32_t> largest;
    exec.each_lane([&](Lane lane) {
      auto& w = weight[lane];
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        const auto& four = p[lane][2 * strip + o / 2][nt];
        w[o] = sm80::pack_f16(four[o % 2 * 2], four[o % 2 * 2 + 1]);
      }
      largest[lane] = sm80::max_halves(sm80::max_halves(w[0], w[1]), sm80::max_halves(w[2], w[3]));
    });
    core::combine_peers<28>(exec, largest, sm80::max_halves);
    exec.each_lane([&](Lane lane) {
      // f16 exponent fields. Below 2^-5 a factor of 2^15 is the most there is, and it is enough: the terms of what is 2^-10
      // still have normal scales.
      const std::uint32_t exponent = sm80::max_halves(largest[lane] & 0x7c00 * kOne, 10 * 0x400 * kOne);
      const std::uint32_t factor = 40 * 0x400 * kOne - exponent;  // 2^(25 - field): [2^10, 2^11)
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) weight[lane][o] = sm80::multiply_f16(weight[lane][o], factor);
      // 2^(field - 25) as f32, less the power of two that P comes raised by.
      constexpr std::uint32_t kBias = 127 - 25 - Shim::kProbabilityLog2;
      auto& unit = rest[lane][nt].unit;
      unit[0] = std::bit_cast<float>((((exponent >> 10) & 0x1f) + kBias) << 23);
      unit[1] = std::bit_cast<float>((((exponent >> 26) & 0x1f) + kBias) << 23);
    });
    FP4PA_UNROLL
    for (int o = 0; o < 4; ++o) {
      exec.transpose([&](Lane lane) -> auto& { return weight[lane][o]; });
    }

    exec.each_lane([&](Lane lane) {
      const auto& w = weight[lane];
      auto& mine = rest[lane][nt].x;
      FP4PA_UNROLL
      for (int c = 0; c < 2; ++c) {
        mine[2 * c] = halves_of<false>(w[c], w[c + 2]);
        mine[2 * c + 1] = halves_of<true>(w[c], w[c + 2]);
      }
    });
  }

  /// Rounds what `rest` has of one row tile, term by term, and leaves there what they do not express.
  /// @param few  becomes true where a group has few tokens that the first two terms tell from nothing
  FP4PA_FN static void round_terms(E& exec, int nt, PerLane<Rest[kRowTiles]>& rest,
                                   PerLane<Probabilities[kRowTiles]>& probability, PerLane<bool>& few) {
    PerLane<std::uint32_t> group;
    exec.each_lane([&](Lane lane) {
      const auto& x = rest[lane][nt].x;
      group[lane] = sm80::max_halves(sm80::max_halves(absolute(x[0]), absolute(x[1])),
                                     sm80::max_halves(absolute(x[2]), absolute(x[3])));
    });
    core::combine_peers<3>(exec, group, sm80::max_halves);

    PerLane<std::uint32_t> told;
    exec.each_lane([&](Lane lane) { told[lane] = 0; });
    FP4PA_UNROLL
    for (int term = 0; term < 2 * kPairs; ++term) {
      PerLane<std::uint32_t> code;
      exec.each_lane([&](Lane lane) {
        Probabilities& b = probability[lane][nt];
        if (term % 2 == 0) b.scale[term / 2] = 0;
        code[lane] = 0;
        if (term >= kTerms) return;
        code[lane] = round_term(rest[lane][nt].x, group[lane], kMayRoundAgain || term + 1 < kTerms, b.scale[term / 2], term % 2);
        if (term < 2) told[lane] |= code[lane];
      });
      const auto peer = exec.shuffle_xor(code, 2);
      exec.each_lane([&](Lane lane) {
        const int second = lane.id % 4 / 2;  // this lane's group of tokens
        const std::uint32_t own = code[lane] >> (4 * second);
        const std::uint32_t other = peer[lane] << (4 - 4 * second);
        probability[lane][nt].code[term] = nibbles_of(own, other);
      });
    }
    if constexpr (kMayRoundAgain) {
      exec.each_lane([&](Lane lane) {
        const std::uint32_t any_bit = told[lane] | told[lane] >> 1 | told[lane] >> 2;  // of a magnitude, in its lowest
        told[lane] = count_bits(any_bit & 0x01010101u) | count_bits(any_bit & 0x10101010u) << 16;
      });
      core::combine_peers<3>(exec, told, [](std::uint32_t a, std::uint32_t b) { return a + b; });
      exec.each_lane([&](Lane lane) {
        const auto is_few = [](std::uint32_t count) { return count - 1 < kFew; };  // a group of nothing leaves nothing
        few[lane] |= is_few(told[lane] & 0xffffu) || is_few(told[lane] >> 16);
      });
    }
  }
};

}  // namespace fp4pa::sm120
