// O += P V on a staged tile for 16 and 32 query rows: queries are the rows of A, dims of V the columns of B.
//
// P goes from the first product's accumulators to A without leaving its lane. What a lane holds of values is what it holds of
// them as A (value_product.hpp), which is B's for twice as many dims: place i of a block of 32 dims is an instruction of its own, of
// eight dims.
#pragma once

#include <cstdint>

#include "backends/sm80/value_product.hpp"

namespace fp4pa::sm80 {

/// Dim, within 32, of accumulator v of place i, for values with `order` elements in 16 bits.
[[nodiscard]] FP4PA_FN constexpr int rows_output_dim(int order, int i, int lane, int v) {
  const int column = 2 * (lane % 4) + v % 2;
  return value_output_dim(order, i / 2, 4 * column, i % 2 * 2);
}

/// FourDims where queries are the rows of A: of four places, each time the same accumulator.
struct RowsFourDims {
  static constexpr int kOrder = 4;
  static constexpr int kTiles = 4;
  static constexpr int kFours = 4;
  [[nodiscard]] FP4PA_FN static constexpr int tile(int k) { return k; }
  [[nodiscard]] FP4PA_FN static constexpr int value(int four, int) { return four; }
};

template <class Shim>
struct RowsValueProduct {
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
    static_assert(!core::along_tokens(kKind) && kKind != KvKind::kPerToken);
    if constexpr (scales_probability(kKind)) {
      if (!Window::template form<kKind>(exec, stream, output)) {
        Window::template move<kKind>(exec, backend, stream, output);
        backend.adopt_order(output, core::per_halfword(kKind));
        add_outside<kKind>(exec, backend, stream, p, output);
      }
      stream.team_barrier();
    } else {
      backend.set_unit(output, kKind == KvKind::kBf16 ? 1.0f : stream.v_global(),
                       (kKind == KvKind::kNvfp4 ? -kNvfp4Log2 : 0) - Shim::kProbabilityLog2);
    }
    backend.adopt_order(output, core::per_halfword(kKind));
    FP4PA_UNROLL
    for (int strip = 0; strip < kStrips; ++strip) multiply_strip<kKind>(exec, stream, strip, p, output.value);
  }

 private:
  using Weights = PerLane<std::uint32_t[2][kRowTiles][4]>;  // A of two steps of 16 tokens

  template <KvKind kKind, class Stream, class Scores, class Values>
  FP4PA_FN static void multiply_strip(E& exec, const Stream& stream, int strip, const Scores& p, Values& output) {
    constexpr bool kBf16 = kKind == KvKind::kBf16;
    using Element = std::conditional_t<kBf16, core::BF16, core::F16>;
    Weights weight;
    PerLane<std::uint32_t> row;
    exec.each_lane([&](Lane lane) {
      row[lane] = row_of_key(stream, lane, stream.tile_offset() + stream.layout().v_codes, strip, stream.layout().v_chunks);
      FP4PA_UNROLL
      for (int i = 0; i < 8 * kRowTiles; ++i) {
        const int step = i / (4 * kRowTiles), nt = i / 4 % kRowTiles, r = i % 4;
        const auto& pair = p[lane][4 * strip + 2 * step + r / 2][nt];
        const float first = pair[r % 2 * 2];
        const float second = pair[r % 2 * 2 + 1];
        weight[lane][step][nt][r] = kBf16 ? pack_bf16(first, second) : pack_f16(first, second);
      }
    });
    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      PerLane<std::uint32_t[4][4]> pairs;  // [octet][place]
      load_value_pairs<kKind>(exec, row, block, pairs);
      Weights scaled = weight;
      if constexpr (kKind == KvKind::kNvfp4 || scales_blocks(kKind)) {
        exec.each_lane([&](Lane lane) {
          const int index = kKind == KvKind::kNvfp4 ? 2 * block + lane.id / 16 : block;
          std::uint32_t scales[4];  // of tokens 2t and 2t + 1 of the octets
          exec.load_shared_16(lane,
                              stream.tile_offset() + stream.layout().v_scales +
                                  OperandScales::value_offset(kKind, kConfig.head_dim, strip, index, lane.id % 4),
                              scales);
          FP4PA_UNROLL
          for (int i = 0; i < (kKind == KvKind::kNvfp4 ? 16 : 8 * kRowTiles); ++i) {
            if constexpr (kKind == KvKind::kNvfp4) {
              pairs[lane][i / 4][i % 4] = multiply_f16(pairs[lane][i / 4][i % 4], scales[i / 4]);
            } else {
              auto& w = scaled[lane][i / (4 * kRowTiles)][i / 4 % kRowTiles][i % 4];
              w = multiply_f16(w, scales[i / (4 * kRowTiles) * 2 + i % 4 / 2]);
            }
          }
        });
      }
      FP4PA_UNROLL
      for (int step = 0; step < 2; ++step) {
        FP4PA_UNROLL
        for (int place = 0; place < 4; ++place) {
          PerLane<std::uint32_t[2]> b;
          exec.each_lane([&](Lane lane) {
            b[lane][0] = pairs[lane][2 * step][place];
            b[lane][1] = pairs[lane][2 * step + 1][place];
          });
          FP4PA_UNROLL
          for (int nt = 0; nt < kRowTiles; ++nt) {
            exec.template multiply<Element>([&](Lane lane) -> auto& { return output[lane][4 * block + place][nt]; },
                                            [&](Lane lane) -> auto& { return scaled[lane][step][nt]; },
                                            [&](Lane lane) -> auto& { return b[lane]; });
          }
        }
      }
    }
  }

  /// What the window leaves out, NaN included: eight rows of P at a time through the warp's scratch, key by key.
  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void add_outside(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                   typename Backend::Output& output) {
    const std::uint32_t scratch = backend.scratch_offset();
    if (!Window::template any_outside<kKind>(exec, stream, output)) return;  // keys that do not exist, and no others
    FP4PA_UNROLL
    for (int i = 0; i < kStrips * kRowTiles * 2; ++i) {
      const int strip = i / (2 * kRowTiles), nt = i / 2 % kRowTiles, half = i % 2;
      exec.warp_barrier();
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int j = 0; j < 8; ++j) {
          const int key = 8 * (j / 2) + lane.id % 4 * 2 + j % 2;
          exec.template store_shared<float>(lane, scratch + 4 * (8 * key + lane.id / 4), p[lane][4 * strip + j / 2][nt][2 * half + j % 2]);
        }
      });
      exec.warp_barrier();
      FP4PA_NO_UNROLL
      for (int k = 0; k < 32; ++k) {
        FP4PA_UNROLL
        for (int block = 0; block < kBlocks; ++block) {
          exec.each_lane([&](Lane lane) {
            float scale;
            if (!Window::template outside_scale<kKind>(exec, lane, stream, output, strip * 32 + k, block, scale)) return;
            const float weight = exec.template load_shared<float>(lane, scratch + 4 * (8 * k + lane.id / 4)) * scale;
            FP4PA_UNROLL
            for (int v = 0; v < 8; ++v) {
              const int dim = block * core::kDimBlock + rows_output_dim(core::per_halfword(kKind), v / 2, lane.id, v % 2);
              float& sum = output.value[lane][4 * block + v / 2][nt][2 * half + v % 2];
              sum = ::fmaf(weight, Window::template value_at<kKind>(exec, lane, stream, strip * 32 + k, dim), sum);
            }
          });
        }
      }
    }
  }
};

}  // namespace fp4pa::sm80
