// O += P V on a staged tile: dims of V are the rows of A, queries the columns of B, tokens the depth.
//
// V lies token by token and A wants two tokens in a register: a transposing ldmatrix of 16-bit elements moves four E2M1
// codes of a token at a time, and its word, dims 4g .. 4g+3 of tokens 2t and 2t+1, decodes straight into A. What that does to
// the order of an output's dims (output_dim) is settled at the store. P comes out of the first product as
// accumulators with tokens along the rows; rounded to 16 bits, one movmatrix per eight tokens makes B of it.
//
//   E8M0 along head_dim         P and V in bf16, whose range holds P times any scale; the scale of a block of 32 dims is
//                               multiplied into P. P is raised by a power of two, held in the output's unit, that keeps sums
//                               of decoded codes (2^-126, E4M3 2^-120) in range: it is chosen from the first tile's largest scale
//                               and again only if a later one is 2^24 times as large.
//   E2M1, E4M3                  f16; the scale is multiplied into V, exactly (key_product.hpp)
//   E2M1, scales along tokens   f16; the f32 sum of 16 tokens is multiplied by the scale of its column
//   E4M3, f16, bf16             as they are
// P in f16 is raised by 2^14: what is 2^-38 of a row's largest probability is the least that counts.
#pragma once

#include <cstdint>

#include "backends/sm80/key_product.hpp"

namespace fp4pa::sm80 {

inline constexpr int kProbabilityF16Log2 = 14;

/// Values whose block scales are multiplied into P in bf16.
[[nodiscard]] FP4PA_FN constexpr bool scales_probability(KvKind kind) {
  return scales_blocks(kind) || kind == KvKind::kPerToken;
}
/// What values decoded to bf16 are multiplied by, as a power of two.
[[nodiscard]] FP4PA_FN constexpr int value_bf16_log2(KvKind kind) {
  return core::is_e4m3(kind) ? kE4m3Bf16Log2 : kE2m1Bf16Log2;
}
[[nodiscard]] FP4PA_FN constexpr bool value_is_bf16(KvKind kind) {
  return scales_probability(kind) || kind == KvKind::kBf16;
}

/// Dim, within 32, of accumulator v of dim tile m, for values with `order` elements in 16 bits (0: nothing there yet).
[[nodiscard]] FP4PA_FN constexpr int value_output_dim(int order, int m, int lane, int v) {
  const int g = lane / 4;
  const int upper = v / 2;
  if (order == 2) return 16 * m + 2 * g + upper;
  if (order == 1) return 16 * m + 8 * upper + g;
  return 4 * g + 2 * m + upper;
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

  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                typename Backend::Output& output) {
    const float raise = choose_unit<kKind>(exec, backend, stream, output);
    backend.adopt_order(output, core::per_halfword(kKind));
    FP4PA_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      multiply_strip<kKind>(exec, stream, strip, p, raise, output.value);
    }
  }

 private:
  template <KvKind kKind>
  static constexpr int kScaleWords = core::round_up_to(core::key_scale_bytes(kKind, kConfig.head_dim), 4) / 4;
  template <KvKind kKind>
  static constexpr int kWordRoom = kScaleWords<kKind> > 0 ? kScaleWords<kKind> : 1;

  /// Sets the output's unit for this format; returns what probabilities are to be multiplied by.
  template <KvKind kKind, class Backend, class Stream>
  FP4PA_FN static float choose_unit(E& exec, const Backend& backend, const Stream& stream,
                                    typename Backend::Output& output) {
    const float global = stream.segment().v.global(stream.kv_head());
    if constexpr (kKind == KvKind::kBf16) {
      backend.set_unit(output, 1.0f, 0);
      return 1.0f;
    } else if constexpr (!scales_probability(kKind)) {
      const int log2 = kKind == KvKind::kNvfp4 ? -kNvfp4Log2 - kProbabilityF16Log2
                       : core::along_tokens(kKind) ? 0
                                                   : -kProbabilityF16Log2;
      backend.set_unit(output, global, log2);
      return static_cast<float>(1 << kProbabilityF16Log2);
    } else {
      const int largest = largest_scale<kKind>(exec, stream);
      int raise = -value_bf16_log2(kKind) - output.unit_log2;
      if (output.unit != 1.0f || largest + raise > 124) {
        raise = 100 - largest;
        raise = raise > 126 ? 126 : raise;
        backend.set_unit(output, 1.0f, -value_bf16_log2(kKind) - raise);
      }
      return core::exp2_exact(raise);
    }
  }

  /// log2 of the tile's largest E8M0 scale of V, NaN counting as the largest there is.
  template <KvKind kKind, class Stream>
  FP4PA_FN static int largest_scale(E& exec, const Stream& stream) {
    const core::TileLayout layout = stream.layout();
    PerLane<std::uint32_t> largest;
    exec.each_lane([&](Lane lane) {
      largest[lane] = 0;
      FP4PA_UNROLL
      for (int strip = 0; strip < kStrips; ++strip) {
        FP4PA_UNROLL
        for (int w = 0; w < kScaleWords<kKind>; ++w) {
          if (!kConfig.exact_head_dim && 4 * w >= layout.v_scale_pitch) continue;
          const std::uint32_t word = scale_word(exec, lane, stream, layout, strip * 32 + lane.id, w);
          FP4PA_UNROLL
          for (int i = 0; i < 4; ++i) {
            const std::uint32_t byte = (word >> (8 * i)) & 0xffu;
            largest[lane] = byte > largest[lane] ? byte : largest[lane];
          }
        }
      }
    });
    const int byte = static_cast<int>(exec.reduce_max(largest));
    return (byte < 254 ? byte : 254) - 127;
  }

  template <class Stream>
  FP4PA_FN static std::uint32_t scale_word(E& exec, Lane lane, const Stream& stream, const core::TileLayout& layout,
                                           int key, int w) {
    return exec.template load_shared<std::uint32_t>(
        lane, stream.tile_offset() + layout.v_scales + key * layout.v_scale_pitch + 4 * w);
  }

  /// Words of the tokens whose probabilities a lane holds in B: 2t and 2t + 1 of octets 0 to 3.
  template <KvKind kKind>
  struct Scales {
    std::uint32_t word[4][2][kWordRoom<kKind>];
  };

  template <KvKind kKind, class Stream, class Scores, class Values>
  FP4PA_FN static void multiply_strip(E& exec, const Stream& stream, int strip, const Scores& p, float raise,
                                      Values& output) {
    constexpr bool kBf16 = value_is_bf16(kKind);
    using Element = std::conditional_t<kBf16, core::BF16, core::F16>;
    constexpr int kChunks = 4 / core::per_halfword(kKind);
    const core::TileLayout layout = stream.layout();
    const std::uint32_t tile = stream.tile_offset() + layout.v_codes;

    PerLane<std::uint32_t[4][kRowTiles]> weight;  // [octet]: P of tokens 2t, 2t+1 of query g
    PerLane<std::uint32_t> row;
    PerLane<Scales<kKind>> scales;
    exec.each_lane([&](Lane lane) {
      row[lane] = row_offset(tile, strip * 32 + lane.id, layout.v_chunks);
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          const auto& pair = p[lane][2 * strip + o / 2][nt];
          const float first = pair[o % 2 * 2] * raise;
          const float second = pair[o % 2 * 2 + 1] * raise;
          weight[lane][o][nt] = kBf16 ? pack_bf16(first, second) : pack_f16(first, second);
        }
        FP4PA_UNROLL
        for (int i = 0; i < 2 * kScaleWords<kKind>; ++i) {
          const int w = i / 2;
          const int key = strip * 32 + 8 * o + 2 * (lane.id % 4) + i % 2;
          const bool there = kConfig.exact_head_dim || 4 * w < layout.v_scale_pitch;
          scales[lane].word[o][i % 2][w] = there ? scale_word(exec, lane, stream, layout, key, w) : 0;
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
    if constexpr (kKind == KvKind::kPerToken) scale_weights<kKind>(exec, scales, 0, weight, weight);

    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      if (!kConfig.exact_head_dim && block * core::kDimBlock >= stream.head_dim()) break;
      PerLane<std::uint32_t[4][4]> pairs;  // [octet][place]: dims of places 2m, 2m+1 are rows g, g+8 of dim tile m
      FP4PA_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        PerLane<std::uint32_t[4]> words;
        exec.template load_matrix<true>([&](Lane lane) { return chunk_offset(row[lane], block * kChunks + chunk); },
                                        [&](Lane lane) -> auto& { return words[lane]; });
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int o = 0; o < 4; ++o) decode_word<kKind, kBf16>(words[lane][o], chunk, true, pairs[lane][o]);
        });
      }
      if constexpr (kKind == KvKind::kNvfp4) scale_pairs(exec, scales, block, pairs);

      PerLane<std::uint32_t[4][kRowTiles]> scaled;
      if constexpr (scales_blocks(kKind)) {
        scale_weights<kKind>(exec, scales, block, weight, scaled);
      } else {
        scaled = weight;
      }

      PerLane<float[2][2]> column;  // [dim tile][g, g+8], along tokens
      FP4PA_UNROLL
      for (int step = 0; step < 2; ++step) {
        if constexpr (core::along_tokens(kKind)) {
          exec.each_lane([&](Lane lane) {
            const std::uint32_t at = stream.tile_offset() + layout.v_scales + (2 * strip + step) * layout.v_scale_pitch +
                                     block * core::kDimBlock + lane.id / 4 * 4;
            const std::uint32_t word = exec.template load_shared<std::uint32_t>(lane, at);
            FP4PA_UNROLL
            for (int i = 0; i < 4; ++i) {
              column[lane][i / 2][i % 2] = kKind == KvKind::kMxfp4Tokens ? e8m0_to_f32(word, i) : ue4m3_to_f32(word, i);
            }
          });
        }
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
              PerLane<float[4]> part;
              exec.each_lane([&](Lane lane) {
                FP4PA_UNROLL
                for (int v = 0; v < 4; ++v) part[lane][v] = 0.0f;
              });
              exec.template multiply<Element>([&](Lane lane) -> auto& { return part[lane]; }, a_of, b_of);
              exec.each_lane([&](Lane lane) {
                FP4PA_UNROLL
                for (int v = 0; v < 4; ++v) {
                  float& sum = output[lane][2 * block + m][nt][v];
                  sum = ::fmaf(column[lane][m][v / 2], part[lane][v], sum);
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

  /// Probabilities times the E8M0 scales of one block of dims.
  template <KvKind kKind, class Weights>
  FP4PA_FN static void scale_weights(E& exec, const PerLane<Scales<kKind>>& scales, int block, const Weights& weight,
                                     Weights& scaled) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        const auto& word = scales[lane].word[o];
        const std::uint32_t scale = e8m0_to_bf16(word[0][block / 4], word[1][block / 4], block % 4);
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) scaled[lane][o][nt] = scale_bf16(weight[lane][o][nt], scale);
      }
    });
  }

  /// Values times the E4M3 scales of their group of 16 dims, which is the same for all four dims of a lane.
  FP4PA_FN static void scale_pairs(E& exec, const PerLane<Scales<KvKind::kNvfp4>>& scales, int block,
                                   PerLane<std::uint32_t[4][4]>& pairs) {
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        const int shift = 16 * (block % 2);
        const std::uint32_t first = scales[lane].word[o][0][block / 2] >> shift;
        const std::uint32_t second = scales[lane].word[o][1][block / 2] >> shift;
        const int group = lane.id / 16 * 8;
        const std::uint32_t sf = ((first >> group) & 0x7fu) | ((second >> group) & 0x7fu) << 8;
        const std::uint32_t factor = multiply_f16(e4m3_to_f16(sf), kNvfp4ScaleUnit);
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) pairs[lane][o][i] = multiply_f16(pairs[lane][o][i], factor);
      }
    });
  }
};

}  // namespace fp4pa::sm80
