// O += P V on a staged tile: dims of V are the rows of A, queries the columns of B, tokens the depth.
//
// V lies token by token and A wants two tokens in a register: a transposing ldmatrix of 16-bit elements moves four E2M1
// codes of a token at a time, and its word, dims 4g .. 4g+3 of tokens 2t and 2t+1, decodes straight into A. What that does to
// the order of an output's dims (output_dim) is settled at the store. P comes out of the first product as
// accumulators with tokens along the rows; rounded to 16 bits, one movmatrix per eight tokens makes B of it.
//
//   E8M0 along head_dim         f16; the scale of a block of 32 dims is multiplied into P, relative to the output's unit. Scales
//                               far apart are left to f32, see scale_window.hpp
//   E2M1, E4M3                  f16; the scale is multiplied into V, exactly (scale_form.hpp), or where groups stand side by side into
//                               P: its column c has the scales of every first group of 16 dims, c + 4 of every second, so that of either
//                               column's sums those of the one group are the output's, and the others nobody's
//   E2M1, scales along tokens   f16; the f32 sum of 16 tokens, or of 32 where tiles are whole groups, is multiplied by the scale of its column
//   E4M3, f16, bf16             as they are
// Probabilities come raised by 2^6 (kProbabilityLog2), and may be 2^9 more (kHeadroomLog2): in f16 what is 2^-30 of a row's
// largest is the least that counts, and eleven bits of what is more than 2^-20, or 2^-6 where a block's scale is the window's least;
// a tile's largest scale is at most six binades below the window's top.
// Of NVFP4's groups side by side the least that counts is 2^-27 of a row's largest where the scale is the largest so far, and as much
// more as a scale is less, see GroupScales.
#pragma once

#include <cstdint>

#include "backends/sm80/key_product.hpp"
#include "backends/sm80/scale_window.hpp"

namespace fp4pa::sm80 {

/// Dim, within 32, of accumulator v of dim tile m, for values with `order` elements in 16 bits (0: nothing there yet).
[[nodiscard]] FP4PA_FN constexpr int value_output_dim(int order, int m, int lane, int v) {
  const int g = lane / 4;
  const int upper = v / 2;
  if (order == 2) return 16 * m + 2 * g + upper;
  if (order == 1) return 16 * m + 8 * upper + g;
  return 4 * g + 2 * m + upper;
}

/// Which accumulators of a lane are four neighbouring dims of a query, for values of four bits: of two dim tiles, lower and upper.
struct FourDims {
  static constexpr int kOrder = 4;
  static constexpr int kTiles = 2;  // dim tiles that the four are of
  static constexpr int kFours = 2;  // fours of those tiles in a lane
  [[nodiscard]] FP4PA_FN static constexpr int tile(int k) { return k / 2; }
  [[nodiscard]] FP4PA_FN static constexpr int value(int four, int k) { return four + k % 2 * 2; }
};

/// Decodes a block of 32 dims of a strip's values: [octet][place], each the tokens 2t and 2t + 1 of a dim.
/// @param row  from a lane to the row whose address it gives, see row_of_key
template <KvKind kKind, class E>
FP4PA_FN void load_value_pairs(E& exec, const typename E::template PerLane<std::uint32_t>& row, int block,
                               typename E::template PerLane<std::uint32_t[4][4]>& pairs) {
  using Lane = typename E::Lane;
  constexpr int kChunks = 4 / core::per_halfword(kKind);
  FP4PA_UNROLL
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    typename E::template PerLane<std::uint32_t[4]> words;
    exec.template load_matrix<true>([&](Lane lane) { return chunk_offset(row[lane], block * kChunks + chunk); },
                                    [&](Lane lane) -> auto& { return words[lane]; });
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) decode_word<kKind>(words[lane][o], chunk, true, pairs[lane][o]);
    });
  }
}

template <class Shim>
struct ValueProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kBlocks = kConfig.head_dim / core::kDimBlock;
  static constexpr int kStrips = kConfig.tile_keys / 32;
  using Window = ScaleWindow<Shim>;

  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                typename Backend::Output& output) {
    if constexpr (scales_probability(kKind)) {
      if (!Window::template form<kKind>(exec, stream, output)) {
        Window::template move<kKind>(exec, backend, stream, output);
        backend.adopt_order(output, core::per_halfword(kKind));
        Window::template add_outside<kKind>(exec, backend, stream, p, output);
      }
      stream.team_barrier();
    } else if constexpr (sums_groups(kConfig, kKind)) {
      backend.set_unit(output, stream.v_global(), stream.top_log2() - kE2m1F16Log2 - Shim::kProbabilityLog2);
    } else {
      backend.set_unit(output, unit<kKind>(stream), kUnitLog2<kKind>);
    }
    backend.adopt_order(output, core::per_halfword(kKind));
    multiply_strips<kKind>(exec, stream, p, output.value);
  }

 private:
  template <KvKind kKind, class Stream, class Scores, class Values>
  FP4PA_FN static void multiply_strips(E& exec, const Stream& stream, const Scores& p, Values& output) {
    FP4PA_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      multiply_strip<kKind>(exec, stream, strip, p, output);
    }
  }

  /// Whether a strip's 32 tokens have one row of scales along tokens.
  template <KvKind kKind>
  static constexpr bool kOneGroup = kKind == KvKind::kMxfp4Tokens && Shim::kTokenAlignment == 32;

  // The output's unit for values whose scales are not multiplied into P.
  template <KvKind kKind>
  static constexpr int kUnitLog2 = kKind == KvKind::kNvfp4      ? -kNvfp4Log2 - Shim::kProbabilityLog2
                                   : core::along_tokens(kKind) ? -kE2m1F16Log2 - Shim::kProbabilityLog2
                                                               : -Shim::kProbabilityLog2;
  template <KvKind kKind, class Stream>
  [[nodiscard]] FP4PA_FN static float unit(const Stream& stream) {
    return kKind == KvKind::kBf16 ? 1.0f : stream.v_global();
  }

  /// Scales of a block of dims, of the tokens whose probabilities a lane holds in B: 2t and 2t + 1 of octets 0 to 3.
  template <KvKind kKind, class Stream>
  FP4PA_FN static void load_scales(E& exec, Lane lane, const Stream& stream, int strip, int index,
                                   std::uint32_t (&scales)[4]) {
    const int at = OperandScales::value_offset(kKind, stream.head_dim(), strip, index, lane.id % 4);
    exec.load_shared_16(lane, stream.tile_offset() + stream.layout().v_scales + at, scales);
  }

  using Weights = PerLane<std::uint32_t[4][kRowTiles]>;  // [octet]: P of tokens 2t, 2t+1 of query g, B's

  /// B of a strip's probabilities.
  template <bool kBf16, class Scores>
  FP4PA_FN static void take_weights(E& exec, int strip, const Scores& p, Weights& weight) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          const auto& pair = p[lane][2 * strip + o / 2][nt];
          const float first = pair[o % 2 * 2];
          const float second = pair[o % 2 * 2 + 1];
          weight[lane][o][nt] = kBf16 ? pack_bf16(first, second) : pack_f16(first, second);
        }
      }
    });
    FP4PA_UNROLL
    for (int o = 0; o < 4; ++o) {
      FP4PA_UNROLL
      for (int nt = 0; nt < kRowTiles; ++nt) {
        exec.transpose([&](Lane lane) -> auto& { return weight[lane][o][nt]; });
      }
    }
  }

  /// The scales along tokens of a group's row of them: of a lane's rows of a block's two dim tiles.
  template <KvKind kKind, class Stream>
  FP4PA_FN static void load_columns(E& exec, const Stream& stream, int row, int block, PerLane<float[2][2]>& column) {
    exec.each_lane([&](Lane lane) {
      const std::uint32_t at = stream.tile_offset() + stream.layout().v_scales + row * stream.layout().v_scale_pitch +
                               block * core::kDimBlock + lane.id / 4 * 4;
      const std::uint32_t word = exec.template load_shared<std::uint32_t>(lane, at);
      FP4PA_UNROLL
      for (int i = 0; i < 4; ++i) {
        column[lane][i / 2][i % 2] = kKind == KvKind::kMxfp4Tokens ? e8m0_to_f32(word, i) : ue4m3_to_f32(word, i);
      }
    });
  }

  template <KvKind kKind, class Stream, class Scores, class Values>
  FP4PA_FN static void multiply_strip(E& exec, const Stream& stream, int strip, const Scores& p, Values& output) {
    constexpr bool kBf16 = kKind == KvKind::kBf16;
    using Element = std::conditional_t<kBf16, core::BF16, core::F16>;
    PerLane<std::uint32_t> row;
    exec.each_lane([&](Lane lane) {
      row[lane] = row_of_key(stream, lane, stream.tile_offset() + stream.layout().v_codes, strip, stream.layout().v_chunks);
    });
    Weights weight;
    take_weights<kBf16>(exec, strip, p, weight);
    if constexpr (kKind == KvKind::kPerToken) scale_weights<kKind>(exec, stream, strip, 0, weight, weight);

    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      if (!kConfig.exact_head_dim && block * core::kDimBlock >= stream.head_dim()) break;
      PerLane<std::uint32_t[4][4]> pairs;  // dims of places 2m, 2m+1 are rows g, g+8 of dim tile m
      load_value_pairs<kKind>(exec, row, block, pairs);
      if constexpr (kKind == KvKind::kNvfp4 && !sums_groups(kConfig, kKind)) scale_pairs(exec, stream, strip, block, pairs);

      Weights scaled;
      if constexpr (scales_blocks(kKind) || sums_groups(kConfig, kKind)) {
        scale_weights<kKind>(exec, stream, strip, block, weight, scaled);
      } else {
        scaled = weight;
      }

      PerLane<float[2][2]> column;  // [dim tile][g, g+8], along tokens
      PerLane<float[2][kRowTiles][4]> part;
      FP4PA_UNROLL
      for (int step = 0; step < 2; ++step) {
        const bool begins = step == 0 || !kOneGroup<kKind>;  // a group along tokens
        const bool ends = step == 1 || !kOneGroup<kKind>;
        if (core::along_tokens(kKind) && begins) load_columns<kKind>(exec, stream, 2 * strip + step, block, column);
        FP4PA_UNROLL
        for (int m = 0; m < 2; ++m) {
          PerLane<std::uint32_t[4]> a;
          exec.each_lane([&](Lane lane) {
            FP4PA_UNROLL
            for (int i = 0; i < 4; ++i) a[lane][i] = pairs[lane][2 * step + i / 2][2 * m + i % 2];
          });
          FP4PA_UNROLL
          for (int nt = 0; nt < kRowTiles; ++nt) {
            PerLane<std::uint32_t[2]> b;
            exec.each_lane([&](Lane lane) {
              b[lane][0] = scaled[lane][2 * step][nt];
              b[lane][1] = scaled[lane][2 * step + 1][nt];
            });
            const auto a_of = [&](Lane lane) -> auto& { return a[lane]; };
            const auto b_of = [&](Lane lane) -> auto& { return b[lane]; };
            if constexpr (core::along_tokens(kKind)) {
              exec.each_lane([&](Lane lane) {
                FP4PA_UNROLL
                for (int v = 0; v < 4; ++v) part[lane][m][nt][v] = begins ? 0.0f : part[lane][m][nt][v];
              });
              exec.template multiply<Element>([&](Lane lane) -> auto& { return part[lane][m][nt]; }, a_of, b_of);
              if (!ends) continue;
              exec.each_lane([&](Lane lane) {
                FP4PA_UNROLL
                for (int v = 0; v < 4; ++v) {
                  float& sum = output[lane][2 * block + m][nt][v];
                  sum = ::fmaf(column[lane][m][v / 2], part[lane][m][nt][v], sum);
                }
              });
            } else {
              exec.template multiply<Element>([&](Lane lane) -> auto& { return output[lane][2 * block + m][nt]; }, a_of,
                                              b_of);
            }
          }
        }
      }
    }
  }

  /// Probabilities times the factors that the scales of one block of dims have become, see scale_window.hpp; of NVFP4 of the group that
  /// the lane's column is for.
  template <KvKind kKind, class Stream>
  FP4PA_FN static void scale_weights(E& exec, const Stream& stream, int strip, int block, const Weights& weight, Weights& scaled) {
    exec.each_lane([&](Lane lane) {
      std::uint32_t scales[4];
      load_scales<kKind>(exec, lane, stream, strip, kKind == KvKind::kNvfp4 ? 2 * block + lane.id / 16 : block, scales);
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          scaled[lane][o][nt] = multiply_f16(weight[lane][o][nt], scales[o]);
        }
      }
    });
  }

  /// Values times the E4M3 scales of their group of 16 dims, which is the same for all four dims of a lane.
  template <class Stream>
  FP4PA_FN static void scale_pairs(E& exec, const Stream& stream, int strip, int block, PerLane<std::uint32_t[4][4]>& pairs) {
    exec.each_lane([&](Lane lane) {
      std::uint32_t scales[4];
      load_scales<KvKind::kNvfp4>(exec, lane, stream, strip, 2 * block + lane.id / 16, scales);
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) pairs[lane][o][i] = multiply_f16(pairs[lane][o][i], scales[o]);
      }
    });
  }
};

}  // namespace fp4pa::sm80
