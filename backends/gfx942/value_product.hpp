// O += P V on a staged tile by 16-bit matrix products: the decode path of gfx942 and gfx950.
//
// Dims of V are the rows of A, queries the columns of B, tokens the depth. Probabilities are where they are needed
// (staging.hpp). V lies token by token: lane (r = lane % 16, g = lane / 16) reads the W = kDimsPerLane neighbouring dims
// W r .. W r + W-1, of a block of 16 W, of its eight tokens, and makes of them its row of W tiles of dims, two tokens a
// register. So dim tile m of a block has dims W r + m in its rows, for every format alike.
//
//   E2M1 or E4M3, E8M0          P and V in bf16, whose range holds P times any scale; the scale of a block of 32 dims is
//                               multiplied into P, whose exponent it is added to. What P is raised by is held in the
//                               output's unit: chosen from the first tile's largest scale and again only if a later one
//                               is 2^30 times as large. A scale that is NaN makes NaN of its dims beside that.
//   E2M1, E4M3                  f16; the scale is multiplied into V, exactly (key_product.hpp), also along tokens: a lane's
//                               eight tokens share theirs
//   E2M1, E8M0 along tokens     f16; the f32 sum of 16 tokens is multiplied by the scale of its dim: two products, in each
//                               of which the other 16 tokens' probabilities are zeros
//   E4M3, f16, bf16             as they are
// P in f16 is raised by 2^14: what is 2^-38 of a row's largest probability is the least that counts.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "backends/gfx942/key_product.hpp"

namespace fp4pa::gfx942 {

inline constexpr int kProbabilityF16Log2 = 14;

/// Where block scales are multiplied into P: P is raised by 2^90, and the largest scale of the tile that the output's unit was chosen for
/// lowers it by 2^30, which leaves room for larger ones and 186 binades below.
inline constexpr int kProbabilityBf16Log2 = 90;
inline constexpr int kScaleRoomLog2 = 30;

/// Values whose block scales are multiplied into P in bf16.
[[nodiscard]] FP4PA_FN constexpr bool scales_probability(KvKind kind) {
  return scales_blocks(kind) || kind == KvKind::kPerToken;
}
[[nodiscard]] FP4PA_FN constexpr bool value_is_bf16(KvKind kind) {
  return scales_probability(kind) || kind == KvKind::kBf16;
}

template <class Shim>
struct ValueProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kDims = Shim::kDimsPerLane;
  static constexpr int kBlockDims = 16 * kDims;
  static constexpr int kBlocks = kConfig.head_dim / kBlockDims;
  static constexpr int kSteps = kConfig.tile_keys / 32;

  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                typename Backend::Output& output) {
    // With four dims a lane a tile of dims meets two blocks of scales.
    static_assert(kDims == 2 || !(core::is_fp4(kKind) || scales_blocks(kKind)));
    static_assert(!Shim::kWide || kKind != KvKind::kMxfp4Tokens);
    const Raise raise = choose_unit<kKind>(exec, backend, stream, output);
    backend.adopt_order(output, Shim::dim_order(kKind));
    PerLane<Rows> rows;
    exec.each_lane([&](Lane same) {
      const Lane lane = core::lane_anew<E>(same);
      const core::TileLayout layout = stream.layout();
      constexpr int kBytes = kBits<kKind> / 8;
      const std::uint32_t first = byte_offset(Shim::kWide, 0, first_token(Shim::kWide, 0, lane.id / 16), layout.v_chunks,
                                              lane.id % 16 * kBytes);
      // A block is bits of its own in a row's chunks.
      FP4PA_UNROLL
      for (int block = 0; block < kBlocks; ++block) {
        rows[lane].at[block] = (first ^ static_cast<std::uint32_t>(16 * kBytes * block)) + (stream.tile_offset() + layout.v_codes);
      }
    });
    FP4PA_UNROLL
    for (int step = 0; step < kSteps; ++step) multiply_step<kKind>(exec, stream, step, rows, p, raise, output.value);
    if constexpr (scales_probability(kKind)) {
      if (raise.has_nan) add_nan<kKind>(exec, stream, output.value);
    }
  }

 private:
  template <KvKind kKind>
  static constexpr int kScaleWords = kStagedScaleWords<kKind, kConfig.head_dim>;

  template <KvKind kKind>
  static constexpr int kWordRoom = kScaleWords<kKind> > 0 ? kScaleWords<kKind> : 1;

  /// Bits of a token's dims that are a lane's, of a block.
  template <KvKind kKind>
  static constexpr int kBits = 16 / core::per_halfword(kKind) * kDims;

  /// Where a lane's dims of the blocks lie in the row of its first token, in shared memory.
  struct Rows {
    std::uint32_t at[kBlocks];
  };
  /// From there to the row of token `t` of a step: rows of a lane's tokens are swizzled alike.
  [[nodiscard]] FP4PA_FN static std::uint32_t row_distance(int step, int t, int chunks) {
    return static_cast<std::uint32_t>((first_token(Shim::kWide, step, 0) + t) * chunks * core::kChunkBytes);
  }
  static_assert(rows_of_lane_agree(Shim::kWide, kConfig.tile_keys));

  /// What probabilities are multiplied by.
  struct Raise {
    float factor;
    std::uint32_t top;  // of scale_bf16, where block scales are multiplied into P
    bool has_nan;       // among these scales
  };

  /// Sets the output's unit for this format.
  template <KvKind kKind, class Backend, class Stream>
  FP4PA_FN static Raise choose_unit(E& exec, const Backend& backend, const Stream& stream, typename Backend::Output& output) {
    const float global = stream.v_global();
    if constexpr (kKind == KvKind::kBf16) {
      backend.set_unit(output, 1.0f, 0);
      return {1.0f, 0, false};
    } else if constexpr (!scales_probability(kKind)) {
      backend.set_unit(output, global, -kProbabilityF16Log2);
      return {static_cast<float>(1 << kProbabilityF16Log2), 0, false};
    } else {
      // The unit is 2^-raise; sums of 2^34 products of the largest there may be stay in range.
      const int byte = static_cast<int>(largest_scale<kKind>(exec, stream));
      const int largest = (byte < 254 ? byte : 254) - 127;
      int raise = -output.unit_log2;
      if (output.order == 0 || output.unit != global || largest + raise > kProbabilityBf16Log2) {
        raise = kProbabilityBf16Log2 - kScaleRoomLog2 - largest;
        raise = raise > 126 ? 126 : raise;
        backend.set_unit(output, global, -raise);
      }
      const auto top = static_cast<std::uint32_t>(kProbabilityBf16Log2 + 127 - raise);
      return {core::exp2_exact(kProbabilityBf16Log2), (top << 7) * 0x10001u, byte == 255};
    }
  }

  /// The tile's largest E8M0 scale of V, as a byte; 255 if one is NaN.
  template <KvKind kKind, class Stream>
  FP4PA_FN static std::uint32_t largest_scale(E& exec, const Stream& stream) {
    PerLane<std::uint32_t> largest;
    exec.each_lane([&](Lane lane) {
      largest[lane] = 0;
      each_scale_word<kKind>(exec, lane, stream, [&](std::uint32_t word, int) {
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) {
          const std::uint32_t byte = (word >> (8 * i)) & 0xffu;
          largest[lane] = byte > largest[lane] ? byte : largest[lane];
        }
      });
    });
    return exec.reduce_max(largest);
  }

  /// Makes NaN of all outputs of blocks of which a key's scale is.
  template <KvKind kKind, class Stream, class Values>
  FP4PA_FN static void add_nan(E& exec, const Stream& stream, Values& output) {
    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      const int index = kKind == KvKind::kPerToken ? 0 : block;
      const bool here = exec.any([&](Lane lane) {
        bool mine = false;
        each_scale_word<kKind>(exec, lane, stream, [&](std::uint32_t word, int w) {
          mine = mine || (w == index / 4 && (word >> (8 * (index % 4)) & 0xffu) == 255);
        });
        return mine;
      });
      if (!here) continue;
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kDims * kRowTiles * 4; ++i) {
          output[lane][kDims * block + i / (4 * kRowTiles)][i / 4 % kRowTiles][i % 4] = std::numeric_limits<float>::quiet_NaN();
        }
      });
    }
  }

  /// Calls f(word, index) for the words of scales of the keys that are a lane's.
  template <KvKind kKind, class Stream, class F>
  FP4PA_FN static void each_scale_word(E& exec, Lane lane, const Stream& stream, F&& f) {
    const core::TileLayout layout = stream.layout();
    FP4PA_UNROLL
    for (int first = 0; first < kConfig.tile_keys; first += E::kLanes) {
      const int key = first + lane.id;
      if (key >= kConfig.tile_keys) continue;
      FP4PA_UNROLL
      for (int w = 0; w < kScaleWords<kKind>; ++w) {
        if (!kConfig.exact_head_dim && 4 * w >= layout.v_scale_pitch) continue;
        f(scale_word(exec, lane, stream, layout, key, w), w);
      }
    }
  }

  template <class Stream>
  FP4PA_FN static std::uint32_t scale_word(E& exec, Lane lane, const Stream& stream, const core::TileLayout& layout, int key,
                                           int w) {
    return exec.template load_shared<std::uint32_t>(
        lane, stream.tile_offset() + layout.v_scales + key * layout.v_scale_pitch + 4 * w);
  }

  /// 32 tokens: those whose probabilities a lane holds are eight neighbours.
  template <KvKind kKind, class Stream, class Scores, class Values>
  FP4PA_FN static void multiply_step(E& exec, const Stream& stream, int step, const PerLane<Rows>& rows, const Scores& p,
                                     const Raise& raise, Values& output) {
    constexpr bool kBf16 = value_is_bf16(kKind);
    using Element = std::conditional_t<kBf16, core::BF16, core::F16>;
    const core::TileLayout layout = stream.layout();

    PerLane<std::uint32_t[kRowTiles][4]> weight;
    PerLane<std::uint32_t[8][kWordRoom<kKind>]> scales;  // of the lane's tokens
    exec.each_lane([&](Lane lane) {
      const int first = first_token(Shim::kWide, step, lane.id / 16);
      if constexpr (scales_probability(kKind) || kKind == KvKind::kNvfp4) {
        FP4PA_UNROLL
        for (int t = 0; t < 8; ++t) {
          const std::uint32_t at = stream.tile_offset() + layout.v_scales + (first + t) * layout.v_scale_pitch;
          load_scales<kConfig.exact_head_dim>(exec, lane, at, layout.v_scale_pitch, scales[lane][t]);
        }
      }
      FP4PA_UNROLL
      for (int i = 0; i < 4 * kRowTiles; ++i) {
        const int nt = i / 4;
        const int j = i % 4;
        const auto& four = p[lane][2 * step + j / 2][nt];
        const float low = four[j % 2 * 2] * raise.factor;
        const float high = four[j % 2 * 2 + 1] * raise.factor;
        weight[lane][nt][j] = kBf16 ? pack_bf16(low, high) : pack_f16(low, high);
      }
      if constexpr (kKind == KvKind::kPerToken) scale_weights(scales[lane], 0, raise.top, weight[lane], weight[lane]);
    });

    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      if (!kConfig.exact_head_dim && block * kBlockDims >= stream.head_dim()) break;
      PerLane<std::uint32_t[kDims][4]> values;  // [dim tile][pair of tokens]
      PerLane<std::uint32_t[kRowTiles][4]> scaled = weight;
      exec.each_lane([&](Lane lane) {
        load_values<kKind>(exec, lane, rows[lane].at[block], step, layout.v_chunks, values[lane]);
        if constexpr (kKind == KvKind::kNvfp4) scale_by_group(lane, scales[lane], block, values[lane]);
        if constexpr (kKind == KvKind::kNvfp4Tokens) {
          scale_by_dim(exec, lane, stream, layout, first_token(Shim::kWide, step, lane.id / 16), block, values[lane]);
        }
        if constexpr (scales_blocks(kKind)) scale_weights(scales[lane], block, raise.top, weight[lane], scaled[lane]);
      });
      if constexpr (kKind == KvKind::kMxfp4Tokens) {
        multiply_pieces(exec, stream, layout, step, block, values, weight, output);
      } else {
        FP4PA_UNROLL
        for (int m = 0; m < kDims; ++m) {
          FP4PA_UNROLL
          for (int nt = 0; nt < kRowTiles; ++nt) {
            Shim::template multiply_16<Element>(
                exec, [&](Lane lane) -> auto& { return output[lane][kDims * block + m][nt]; },
                [&](Lane lane) -> auto& { return values[lane][m]; }, [&](Lane lane) -> auto& { return scaled[lane][nt]; });
          }
        }
      }
    }
  }

  /// A lane's dims of a block, of its eight tokens, decoded but for their scales.
  /// @param row  of Rows
  template <KvKind kKind>
  FP4PA_FN static void load_values(E& exec, Lane lane, std::uint32_t row, int step, int chunks, std::uint32_t (&pairs)[kDims][4]) {
    constexpr int kWidth = kBits<kKind>;
    using Raw = std::conditional_t<
        kWidth == 8, std::uint8_t,
        std::conditional_t<kWidth == 16, std::uint16_t, std::conditional_t<kWidth == 32, std::uint32_t, std::uint64_t>>>;
    Raw raw[8];
    FP4PA_UNROLL
    for (int t = 0; t < 8; ++t) raw[t] = exec.template load_shared<Raw>(lane, row + row_distance(step, t, chunks));
    if constexpr (core::is_fp4(kKind) && Shim::kConvertsBytes) {
      // A byte is a token's two dims.
      using Element = std::conditional_t<value_is_bf16(kKind), core::BF16, core::F16>;
      FP4PA_UNROLL
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t even = Shim::template convert_byte<Element>(raw[2 * j]);
        const std::uint32_t odd = Shim::template convert_byte<Element>(raw[2 * j + 1]);
        pairs[0][j] = permute_bytes(odd, even, 0x05040100u);
        pairs[1][j] = permute_bytes(odd, even, 0x07060302u);
      }
    } else if constexpr (core::is_fp4(kKind)) {
      // A byte is a token's two dims. Of four, in this order, decoding makes pairs of neighbours.
      FP4PA_UNROLL
      for (int j = 0; j < 4; j += 2) {
        const std::uint32_t even = permute_bytes(raw[2 * j + 2], raw[2 * j], 0x0c0c0400u);
        const std::uint32_t odd = permute_bytes(raw[2 * j + 3], raw[2 * j + 1], 0x0c0c0400u);
        const std::uint32_t codes = permute_bytes(odd, even, 0x05040100u);
        std::uint32_t decoded[4];
        if constexpr (value_is_bf16(kKind)) {
          e2m1_to_bf16(codes, decoded);
        } else {
          e2m1_to_f16(codes, decoded);
        }
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) pairs[i % 2][j + i / 2] = decoded[i];
      }
    } else if constexpr (core::is_e4m3(kKind)) {
      FP4PA_UNROLL
      for (int i = 0; i < 4 * (kDims / 2); ++i) {
        const int j = i % 4;
        const int m = i / 4 * 2;
        // Dim m of both tokens, then dim m + 1.
        const std::uint32_t codes = permute_bytes(raw[2 * j + 1], raw[2 * j], m == 0 ? 0x05010400u : 0x07030602u);
        pairs[m][j] = value_is_bf16(kKind) ? e4m3_to_bf16<0>(codes) : e4m3_to_f16<0>(codes);
        pairs[m + 1][j] = value_is_bf16(kKind) ? e4m3_to_bf16<1>(codes) : e4m3_to_f16<1>(codes);
      }
    } else {
      FP4PA_UNROLL
      for (int i = 0; i < 4 * kDims; ++i) {
        const int j = i % 4;
        const int m = i / 4;
        const auto low = static_cast<std::uint32_t>(raw[2 * j] >> (32 * (m / 2)));
        const auto high = static_cast<std::uint32_t>(raw[2 * j + 1] >> (32 * (m / 2)));
        pairs[m][j] = permute_bytes(high, low, m % 2 == 0 ? 0x05040100u : 0x07060302u);
      }
    }
  }

  /// Probabilities times E8M0 scales, which are in byte block % 4 of word block / 4 of a token's.
  template <int kWords>
  FP4PA_FN static void scale_weights(const std::uint32_t (&scales)[8][kWords], int block, std::uint32_t top,
                                     const std::uint32_t (&weight)[kRowTiles][4], std::uint32_t (&scaled)[kRowTiles][4]) {
    FP4PA_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t bytes = permute_bytes(scales[2 * j + 1][block / 4], scales[2 * j][block / 4],
                                                0x0c040c00u + 0x00010001u * static_cast<std::uint32_t>(block % 4));
      FP4PA_UNROLL
      for (int nt = 0; nt < kRowTiles; ++nt) scaled[nt][j] = scale_bf16(weight[nt][j], bytes, top);
    }
  }

  /// NVFP4 along head_dim: each token's scale of the 16 dims that a lane's lie in, of a block's two.
  template <int kWords>
  FP4PA_FN static void scale_by_group(Lane lane, const std::uint32_t (&scales)[8][kWords], int block,
                                      std::uint32_t (&pairs)[kDims][4]) {
    static_assert(kBlockDims == 32);
    const std::uint32_t bytes = lane.id % 16 < 8 ? 0x05040100u : 0x07060302u;
    FP4PA_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t factor = permute_bytes(scales[2 * j + 1][block], scales[2 * j][block], bytes);
      FP4PA_UNROLL
      for (int m = 0; m < kDims; ++m) pairs[m][j] = multiply_f16(pairs[m][j], factor);
    }
  }

  /// NVFP4 along tokens: each dim's E4M3 scale of the 16 tokens that a lane's eight lie in.
  template <class Stream>
  FP4PA_FN static void scale_by_dim(E& exec, Lane lane, const Stream& stream, const core::TileLayout& layout, int first,
                                    int block, std::uint32_t (&pairs)[kDims][4]) {
    const std::uint32_t at = stream.tile_offset() + layout.v_scales + first / core::kScalePiece * layout.v_scale_pitch +
                             block * kBlockDims + lane.id % 16 * kDims;
    FP4PA_UNROLL
    for (int m = 0; m < kDims; ++m) {
      const std::uint32_t sf = exec.template load_shared<std::uint8_t>(lane, at + m) & 0x7fu;
      const std::uint32_t factor = e4m3_to_f16<0>(sf | sf << 8);
      FP4PA_UNROLL
      for (int j = 0; j < 4; ++j) pairs[m][j] = multiply_f16(pairs[m][j], factor);
    }
  }

  /// MXFP4 along tokens: lanes 0 to 31 hold the first 16 tokens of a step (narrow order), the others the second.
  template <class Stream, class Scale, class Weights, class Values>
  FP4PA_FN static void multiply_pieces(E& exec, const Stream& stream, const Scale& layout, int step, int block,
                                       PerLane<std::uint32_t[kDims][4]>& values, const Weights& weight, Values& output) {
    FP4PA_UNROLL
    for (int piece = 0; piece < 2; ++piece) {
      PerLane<std::uint32_t[kRowTiles][4]> own;
      PerLane<std::uint64_t> scales;  // byte 2i + m: of dim m of row 4g + i
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kRowTiles * 4; ++i) {
          own[lane][i / 4][i % 4] = lane.id / 32 == piece ? weight[lane][i / 4][i % 4] : 0;
        }
        scales[lane] = exec.template load_shared<std::uint64_t>(
            lane, stream.tile_offset() + layout.v_scales + (2 * step + piece) * layout.v_scale_pitch + block * kBlockDims +
                      lane.id / 16 * 8);
      });
      FP4PA_UNROLL
      for (int m = 0; m < kDims; ++m) {
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          PerLane<float[4]> part;
          exec.each_lane([&](Lane lane) {
            FP4PA_UNROLL
            for (int v = 0; v < 4; ++v) part[lane][v] = 0.0f;
          });
          Shim::template multiply_16<core::F16>(exec, [&](Lane lane) -> auto& { return part[lane]; },
                                                [&](Lane lane) -> auto& { return values[lane][m]; },
                                                [&](Lane lane) -> auto& { return own[lane][nt]; });
          exec.each_lane([&](Lane lane) {
            FP4PA_UNROLL
            for (int v = 0; v < 4; ++v) {
              const int byte = kDims * v + m;
              const float s = e8m0_to_f32(static_cast<std::uint32_t>(scales[lane] >> (32 * (byte / 4))), byte % 4);
              float& sum = output[lane][kDims * block + m][nt][v];
              sum = __builtin_fmaf(s, part[lane][v], sum);
            }
          });
        }
      }
    }
  }
};

}  // namespace fp4pa::gfx942
