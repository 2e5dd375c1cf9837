// O += P V with block-scaled instructions, for V in MXFP4 with scales along tokens: V enters as it lies in the cache, with
// its own scales; P is rounded to E4M3 with E8M0 scales.
//
// Dims are the rows of A, queries the columns of B, 32 tokens the depth: one scale of V each. A transposing ldmatrix of 16-bit
// elements gives lane (g, t) dims 4g .. 4g+3 of tokens 2t and 2t+1 of an octet, in nibbles. Two octets' words make, by byte,
// the tokens 2t, 2t+1, 8+2t, 8+2t+1 of two dims, and those, spread into containers, are the rows g and g+8 of dim tile m:
// dims 4g+2m and 4g+2m+1, the order of outputs that decoded values have on sm_80. P is brought to B's lanes as there, by
// one movmatrix per octet, and its four tokens are the same ones.
//
// P's scale is that of its query and 32 tokens: the largest of them falls into [128, 256), so that a tile whose
// probabilities are all small is as exact as any other. It is found after the movmatrix, when a query lies in the four lanes
// of a quad, which are also the lanes that B's scales are read from. What one E4M3 leaves of P, at most 2^-4 of it, is a
// second term, 2^5 times larger and with its own scale in the next byte; two terms make P good to 2^-9.
#pragma once

#include <cstdint>

#include "backends/sm120/convert.hpp"
#include "backends/sm120/copies.hpp"
#include "backends/sm80/value_product.hpp"
#include "core/simt/peers.hpp"

namespace fp4pa::sm120 {

template <class Shim>
struct NativeValueProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Atom = MmaMxf8f6f4M16N8K32<core::E2M1, core::E4M3>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kBlocks = kConfig.head_dim / core::kDimBlock;
  static constexpr int kTerms = Shim::kTerms.probability < 2 ? 1 : 2;
  static constexpr int kSecondTermLog2 = 5;  // half an ulp in [128, 256) is 8: 256 at most, which E4M3 holds

  template <class Backend, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                typename Backend::Output& output) {
    backend.set_unit(output, stream.segment().v.global(stream.kv_head()), 0);
    backend.adopt_order(output, core::per_halfword(core::KvKind::kMxfp4Tokens));
    FP4PA_UNROLL
    for (int strip = 0; strip < kConfig.tile_keys / 32; ++strip) multiply_strip(exec, stream, strip, p, output.value);
  }

 private:
  /// B of one row tile, and its scales: byte i is term i's.
  struct Probabilities {
    std::uint32_t code[kTerms][2];
    std::uint32_t scale;
  };

  template <class Stream, class Scores, class Values>
  FP4PA_FN static void multiply_strip(E& exec, const Stream& stream, int strip, const Scores& p, Values& output) {
    const core::TileLayout layout = stream.layout();
    PerLane<Probabilities[kRowTiles]> probability;
    FP4PA_UNROLL
    for (int nt = 0; nt < kRowTiles; ++nt) round_probabilities(exec, strip, nt, p, probability);

    PerLane<std::uint32_t> row;
    PerLane<std::uint32_t[(kBlocks + 1) / 2]> scales;  // of blocks 2i and 2i + 1, in the lanes of thread-id 0 and 1
    exec.each_lane([&](Lane lane) {
      row[lane] = sm80::row_offset(stream.tile_offset() + layout.v_codes, strip * 32 + lane.id, layout.v_chunks);
      const int t = lane.id % 4;
      FP4PA_UNROLL
      for (int i = 0; i < (kBlocks + 1) / 2; ++i) {
        const int block = 2 * i + (2 * i + 1 < kBlocks ? t / 2 : 0);
        // Both pieces of 16 tokens have the same row of scales: the tile begins where a group does.
        const std::uint32_t at = stream.tile_offset() + layout.v_scales + 2 * strip * layout.v_scale_pitch +
                                 block * core::kDimBlock + lane.id / 4 * 4;
        scales[lane][i] = exec.template load_shared<std::uint32_t>(lane, at) >> (8 * (t % 2));
      }
    });

    for_constants<kBlocks>([&](auto block) {
      PerLane<std::uint32_t[4]> words;
      exec.template load_matrix<true>([&](Lane lane) { return sm80::chunk_offset(row[lane], block.value); },
                                      [&](Lane lane) -> auto& { return words[lane]; });
      for_constants<2>([&](auto m) {
        PerLane<std::uint32_t[4]> a;
        exec.each_lane([&](Lane lane) {
          FP4PA_UNROLL
          for (int half = 0; half < 2; ++half) {
            const std::uint32_t codes = every_other_byte<m.value == 1>(words[lane][2 * half], words[lane][2 * half + 1]);
            a[lane][2 * half] = even_containers(codes);
            a[lane][2 * half + 1] = odd_containers(codes);
          }
        });
        FP4PA_UNROLL
        for (int nt = 0; nt < kRowTiles; ++nt) {
          for_constants<kTerms>([&](auto term) {
            constexpr core::ScaleSelect kSelectA{2 * m.value, block.value % 2};
            constexpr core::ScaleSelect kSelectB{term.value, 0};
            exec.template multiply_scaled<Atom, kSelectA, kSelectB>(
                [&](Lane lane) -> auto& { return output[lane][2 * block.value + m.value][nt]; },
                [&](Lane lane) -> auto& { return a[lane]; },
                [&](Lane lane) -> auto& { return probability[lane][nt].code[term.value]; },
                [&](Lane lane) { return scales[lane][block.value / 2]; },
                [&](Lane lane) { return probability[lane][nt].scale; });
          });
        }
      });
    });
  }

  /// 32 tokens' probabilities of one row tile: moved to B's lanes as f16, scaled, rounded.
  template <class Scores>
  FP4PA_FN static void round_probabilities(E& exec, int strip, int nt, const Scores& p,
                                           PerLane<Probabilities[kRowTiles]>& probability) {
    PerLane<std::uint32_t[4]> weight;  // [octet]: of tokens 2t, 2t+1 of query g
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) {
        const auto& four = p[lane][2 * strip + o / 2][nt];
        weight[lane][o] = sm80::pack_f16(four[o % 2 * 2], four[o % 2 * 2 + 1]);
      }
    });
    FP4PA_UNROLL
    for (int o = 0; o < 4; ++o) {
      exec.transpose([&](Lane lane) -> auto& { return weight[lane][o]; });
    }

    PerLane<std::uint32_t> largest;
    exec.each_lane([&](Lane lane) {
      const auto& w = weight[lane];
      const std::uint32_t both = sm80::max_halves(sm80::max_halves(w[0], w[1]), sm80::max_halves(w[2], w[3]));
      largest[lane] = sm80::max_halves(both, swap_halves(both));
    });
    core::combine_peers<3>(exec, largest, sm80::max_halves);

    exec.each_lane([&](Lane lane) {
      constexpr std::uint32_t kOne = 0x00010001u;
      // f16 exponent fields, in both halves. Below 2^-8 a factor of 2^15 is the most there is, and it is enough: the least
      // of an f16, 2^-24, becomes E4M3's.
      const std::uint32_t exponent = sm80::max_halves(largest[lane] & 0x7c00 * kOne, 7 * 0x400 * kOne);
      const std::uint32_t factor = 37 * 0x400 * kOne - exponent;  // 2^(22 - field): [128, 256)
      Probabilities& b = probability[lane][nt];
      std::uint32_t x[4];
      FP4PA_UNROLL
      for (int o = 0; o < 4; ++o) x[o] = sm80::multiply_f16(weight[lane][o], factor);
      b.code[0][0] = f16_to_e4m3(x[0], x[1]);
      b.code[0][1] = f16_to_e4m3(x[2], x[3]);
      // E8M0 of 2^(field - 22), times 2^-14 for what P comes raised by.
      const std::uint32_t scale = 127 - 22 - Shim::kProbabilityLog2 + ((exponent >> 10) & 0x1f);
      b.scale = scale;
      if constexpr (kTerms == 2) {
        constexpr std::uint32_t kUp = (15u + kSecondTermLog2) * 0x400 * kOne;
        constexpr std::uint32_t kDown = kUp | 0x8000 * kOne;
        FP4PA_UNROLL
        for (int o = 0; o < 4; ++o) {
          const std::uint32_t first = sm80::e4m3_to_f16(b.code[0][o / 2] >> (16 * (o % 2)));
          x[o] = fma_f16(first, kDown, sm80::multiply_f16(x[o], kUp));
        }
        b.code[1][0] = f16_to_e4m3(x[0], x[1]);
        b.code[1][1] = f16_to_e4m3(x[2], x[3]);
        b.scale |= (scale - kSecondTermLog2) << 8;
      }
    });
  }
};

}  // namespace fp4pa::sm120
