// O += P V on a staged tile: dims of V are the rows of A, queries the columns of B, tokens the depth.
//
// V lies token by token and A wants two tokens in a register: a transposing ldmatrix of 16-bit elements moves four E2M1
// codes of a token at a time, and its word, dims 4g .. 4g+3 of tokens 2t and 2t+1, decodes straight into A. What that does to
// the order of an output's dims (output_dim) is settled at the store. P comes out of the first product as
// accumulators with tokens along the rows; rounded to 16 bits, one movmatrix per eight tokens makes B of it.
//
//   E2M1, E8M0 along head_dim   the scale of a block of 32 dims is multiplied into P, relative to the output's unit. P and V are
//                               f16 where the tile's scales lie within kWindow binades of each other and of the unit, which
//                               is what real caches are like. They are bf16 elsewhere, whose range holds P times any scale:
//                               P is then raised by a power of two that keeps sums of decoded codes (2^-126) in range.
//   E2M1, E4M3                  f16; the scale is multiplied into V, exactly (scale_form.hpp)
//   E2M1, scales along tokens   f16; the f32 sum of 16 tokens is multiplied by the scale of its column
//   E4M3, f16, bf16             as they are
// Probabilities come raised by 2^14 (kProbabilityLog2), so that in f16 what is 2^-38 of a row's largest is the least that counts.
#pragma once

#include <cstdint>

#include "backends/sm80/key_product.hpp"

namespace fp4pa::sm80 {

inline constexpr int kProbabilityLog2 = 14;

/// Values whose block scales are multiplied into P.
[[nodiscard]] FP4PA_FN constexpr bool scales_probability(KvKind kind) {
  return kind == KvKind::kMxfp4 || kind == KvKind::kPerToken;
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
    if constexpr (scales_probability(kKind)) {
      if (choose_f16_unit<kKind>(exec, backend, stream, output)) {
        multiply_strips<kKind, false>(exec, backend, stream, p, 1.0f, output);
      } else {
        const float raise = choose_bf16_unit<kKind>(exec, backend, stream, output);
        multiply_strips<kKind, true>(exec, backend, stream, p, raise, output);
      }
    } else {
      constexpr int kLog2 = kKind == KvKind::kNvfp4 ? -kNvfp4Log2 - kProbabilityLog2
                            : core::along_tokens(kKind) ? 0
                                                        : -kProbabilityLog2;
      backend.set_unit(output, kKind == KvKind::kBf16 ? 1.0f : stream.v_global(), kLog2);
      multiply_strips<kKind, kKind == KvKind::kBf16>(exec, backend, stream, p, 1.0f, output);
    }
  }

 private:
  template <KvKind kKind, bool kBf16, class Backend, class Stream, class Scores>
  FP4PA_FN static void multiply_strips(E& exec, const Backend& backend, const Stream& stream, const Scores& p, float raise,
                                       typename Backend::Output& output) {
    backend.adopt_order(output, core::per_halfword(kKind));
    FP4PA_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      multiply_strip<kKind, kBf16>(exec, stream, strip, p, raise, output.unit_log2, output.value);
    }
  }

  // E8M0 scales in f16. With `top` the largest scale's byte that the output's unit is made for, P * 2^14 is multiplied by
  // 2^(byte - top + 1): at most 2^15, and a normal number for the kWindow binades below. The unit is then 2^(top - 128).

  static constexpr int kWindow = 15;
  [[nodiscard]] FP4PA_FN static int top_of(int unit_log2) { return unit_log2 + 128; }

  /// Whether P times this tile's scales will do in f16; the output then has a unit for it.
  template <KvKind kKind, class Backend, class Stream>
  FP4PA_FN static bool choose_f16_unit(E& exec, const Backend& backend, const Stream& stream,
                                       typename Backend::Output& output) {
    const int top = top_of(output.unit_log2);
    // Halves of 16 bits: a difference below zero shows in the half's sign. A borrow comes only from such a half.
    const std::uint32_t high = static_cast<std::uint32_t>(top) * 0x00010001u;
    const std::uint32_t low = static_cast<std::uint32_t>(top - kWindow) * 0x00010001u;
    const bool outside = exec.any([&](Lane lane) {
      std::uint32_t signs = 0;
      each_raw_word<kKind>(exec, lane, stream, [&](std::uint32_t word, int bytes) {
        const std::uint32_t even = word & 0x00ff00ffu;
        const std::uint32_t odd = (word >> 8) & 0x00ff00ffu;
        // Bytes that are no scales count for nothing.
        signs |= ((high - even) | (even - low)) & (bytes >= 3 ? 0xffffffffu : 0xffffu);
        signs |= ((high - odd) | (odd - low)) & (bytes >= 4 ? 0xffffffffu : bytes >= 2 ? 0xffffu : 0u);
      });
      return (signs & 0x80008000u) != 0;
    });
    if (!outside && output.unit == 1.0f && top < 255) return true;
    return change_f16_unit<kKind>(exec, backend, stream, output);
  }

  template <KvKind kKind, class Backend, class Stream>
  FP4PA_FN static bool change_f16_unit(E& exec, const Backend& backend, const Stream& stream,
                                       typename Backend::Output& output) {
    const core::KeyRange keys = stream.keys();
    if (keys.end - keys.begin != kConfig.tile_keys) return false;  // keys that do not exist have scales of 0
    const int largest = extreme_scale<kKind, 0>(exec, stream);
    const int smallest = 255 - extreme_scale<kKind, 255>(exec, stream);
    constexpr int kRoom = 3;  // for larger ones in later tiles
    if (largest == 255 || largest - smallest > kWindow - kRoom) return false;
    const int top = largest + kRoom < 254 ? largest + kRoom : 254;
    // What is there may only shrink: f32 ends where a unit falls by 2^128.
    if (output.order != 0 && output.unit == 1.0f && top < top_of(output.unit_log2)) return false;
    backend.set_unit(output, 1.0f, top - 128);
    return true;
  }

  /// Sets the output's unit for bf16; returns what probabilities are to be multiplied by.
  template <KvKind kKind, class Backend, class Stream>
  FP4PA_FN static float choose_bf16_unit(E& exec, const Backend& backend, const Stream& stream,
                                         typename Backend::Output& output) {
    const int byte = extreme_scale<kKind, 0>(exec, stream);
    const int largest = (byte < 254 ? byte : 254) - 127;  // NaN counts as the largest there is
    int raise = -kE2m1Bf16Log2 - output.unit_log2;
    if (output.unit != 1.0f || largest + raise > 127 || raise > 126) {
      raise = 124 - largest;
      raise = raise > 126 ? 126 : raise;
      backend.set_unit(output, 1.0f, -kE2m1Bf16Log2 - raise);
    }
    return core::exp2_exact(raise - kProbabilityLog2);
  }

  /// Calls f(word, scales in it) for the scale words of the keys that are this lane's.
  template <KvKind kKind, class Stream, class F>
  FP4PA_FN static void each_raw_word(E& exec, Lane lane, const Stream& stream, F&& f) {
    constexpr int kWords = OperandScales::raw_bytes(kKind, kConfig.head_dim) / 4;
    const int count = OperandScales::count(kKind, stream.head_dim());
    FP4PA_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) {
      FP4PA_UNROLL
      for (int w = 0; w < kWords; ++w) {
        if (4 * w >= count) continue;
        const int at = OperandScales::raw_offset(kKind, stream.head_dim(), strip * 32 + lane.id) + 4 * w;
        f(exec.template load_shared<std::uint32_t>(lane, stream.tile_offset() + stream.layout().v_scales + at), count - 4 * w);
      }
    }
  }

  /// The largest byte ^ kFlip of the tile's E8M0 scales of V.
  template <KvKind kKind, std::uint32_t kFlip, class Stream>
  FP4PA_FN static int extreme_scale(E& exec, const Stream& stream) {
    PerLane<std::uint32_t> largest;
    exec.each_lane([&](Lane lane) {
      largest[lane] = 0;
      each_raw_word<kKind>(exec, lane, stream, [&](std::uint32_t word, int bytes) {
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t byte = ((word >> (8 * i)) & 0xffu) ^ kFlip;
          if (i < bytes && byte > largest[lane]) largest[lane] = byte;
        }
      });
    });
    return static_cast<int>(exec.reduce_max(largest));
  }

  /// Scales of a block of dims, of the tokens whose probabilities a lane holds in B: 2t and 2t + 1 of octets 0 to 3.
  template <KvKind kKind, class Stream>
  FP4PA_FN static void load_scales(E& exec, Lane lane, const Stream& stream, int strip, int index,
                                   std::uint32_t (&scales)[4]) {
    const int at = OperandScales::value_offset(kKind, stream.head_dim(), strip, index, lane.id % 4);
    exec.load_shared_16(lane, stream.tile_offset() + stream.layout().v_scales + at, scales);
  }

  template <KvKind kKind, bool kBf16, class Stream, class Scores, class Values>
  FP4PA_FN static void multiply_strip(E& exec, const Stream& stream, int strip, const Scores& p, float raise, int unit_log2,
                                      Values& output) {
    using Element = std::conditional_t<kBf16, core::BF16, core::F16>;
    constexpr int kChunks = 4 / core::per_halfword(kKind);
    const core::TileLayout layout = stream.layout();
    const std::uint32_t tile = stream.tile_offset() + layout.v_codes;

    PerLane<std::uint32_t[4][kRowTiles]> weight;  // [octet]: P of tokens 2t, 2t+1 of query g
    PerLane<std::uint32_t> row;
    exec.each_lane([&](Lane lane) {
      row[lane] = row_offset(tile, strip * 32 + lane.id, layout.v_chunks);
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          const auto& pair = p[lane][2 * strip + o / 2][nt];
          const float first = pair[o % 2 * 2];
          const float second = pair[o % 2 * 2 + 1];
          weight[lane][o][nt] = kBf16 ? pack_bf16(first * raise, second * raise) : pack_f16(first, second);
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
    if constexpr (kKind == KvKind::kPerToken) scale_weights<kKind, kBf16>(exec, stream, strip, 0, unit_log2, weight, weight);

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
      if constexpr (kKind == KvKind::kNvfp4) scale_pairs(exec, stream, strip, block, pairs);

      PerLane<std::uint32_t[4][kRowTiles]> scaled;
      if constexpr (kKind == KvKind::kMxfp4) {
        scale_weights<kKind, kBf16>(exec, stream, strip, block, unit_log2, weight, scaled);
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

  /// Probabilities times the E8M0 scales of one block of dims. A pair of bytes becomes a pair of numbers in one operation: they
  /// are shifted to the place of the exponent, and moved to f16's bias and the output's unit by a sum.
  template <KvKind kKind, bool kBf16, class Stream, class Weights>
  FP4PA_FN static void scale_weights(E& exec, const Stream& stream, int strip, int block, int unit_log2, const Weights& weight,
                                     Weights& scaled) {
    const std::uint32_t bias = static_cast<std::uint32_t>(16 - top_of(unit_log2)) * 0x04000400u;
    exec.each_lane([&](Lane lane) {
      std::uint32_t scales[4];
      load_scales<kKind>(exec, lane, stream, strip, block, scales);
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          if constexpr (kBf16) {
            scaled[lane][o][nt] = scale_bf16(weight[lane][o][nt], scales[o] * 128u);
          } else {
            scaled[lane][o][nt] = multiply_f16(weight[lane][o][nt], scales[o] * 1024u + bias);
          }
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
