// O += P V by block-scaled products: values with scales along tokens enter the matrix core with those scales.
//
// Dims of V are the rows of A (E2M1), queries the columns of B, tokens the depth. P is E4M3 and lies where the first product
// left it (staging.hpp, wide order): four scores of a lane are a register of B.
//
// P's scale is that of its query and 32 tokens: the largest of them falls into [128, 256), so that a tile whose probabilities
// are all small beside another tile's is as exact as any. A lane's 32 tokens are half of two blocks: of tokens 32 (g / 2) and of
// 64 beyond, the other halves being in lane ^ 16. What one E4M3 leaves of P, at most 2^-4 of it, is a second operand, 2^5 times
// larger and with a scale of its own: two terms make P good to 2^-9, down to 2^-13 of its block's largest.
//
// Lane (r = lane % 16, g = lane / 16) of A must hold row r's dim of tokens 32 g .. 32 g + 31, but V lies token by token. Two ways
// across (ValueReads):
//   kColumns16  ds_read_b64_tr_b16: 16 lanes bring four tokens' 32 bytes and get a column of 16 bits each, four dims;
//               eight loads are 32 tokens of four dims, which separate_dims sorts: 12 operations an instruction. Dim
//               tile m of a block of 64 has dims 4 r + m.
//   kColumns4   ds_read_b64_tr_b4: sixteen tokens' 8 bytes become a column of one dim; two loads are an operand. Dim
//               tile m of a block of 64 has dims 16 m + r. Nothing is left to do, but see docs/gfx950.md on what is known
//               of this load.
// Lane m + 16 b supplies the scale of row m's dim for tokens 32 b .. 32 b + 31.
#pragma once

#include <cstdint>

#include "backends/gfx950/atoms.hpp"
#include "backends/gfx950/convert.hpp"
#include "backends/gfx950/query.hpp"
#include "backends/gfx942/staging.hpp"
#include "core/simt/peers.hpp"

namespace fp4pa::gfx950 {

using core::KvKind;

enum class ValueReads { kColumns16, kColumns4 };

/// Which accumulators of a lane are four neighbouring dims of a query after a native product: one of each of four tiles, or all of one.
template <ValueReads kReads>
struct NativeFourDims {
  static constexpr bool kAcross = kReads == ValueReads::kColumns16;
  static constexpr int kOrder = 1;
  static constexpr int kTiles = kAcross ? 4 : 1;  // dim tiles that the four are of
  static constexpr int kFours = kAcross ? 4 : 1;  // fours of those tiles in a lane
  [[nodiscard]] FP4PA_FN static constexpr int tile(int k) { return kAcross ? k : 0; }
  [[nodiscard]] FP4PA_FN static constexpr int value(int four, int k) { return kAcross ? four : k; }
};

template <class Shim>
struct NativeValueProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Atom = MfmaScaleF32_16x16x128_F8f6f4<core::E2M1, core::E4M3>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kTerms = 2;
  static constexpr int kBlockDims = 64;
  static constexpr int kBlocks = kConfig.head_dim / kBlockDims;
  static constexpr int kTiles = 4;  // of 16 dims, in a block
  static constexpr int kRaisedLog2 = 7;      // binade of a block's largest
  static constexpr int kSecondTermLog2 = 5;  // half an ulp in [128, 256) is 8: 256 at most, which E4M3 holds
  static constexpr std::uint32_t kLeastExponent = 27;  // of a block's largest: 2^-100, below which its scale would leave the range
  static_assert(kConfig.tile_keys == 128);

  /// A lane's 32 tokens of four dims.
  using Block = std::uint32_t[kTiles][4];

  template <class Backend, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                typename Backend::Output& output) {
    backend.set_unit(output, stream.v_global(), 0);
    backend.adopt_order(output, Shim::dim_order(KvKind::kMxfp4Tokens));
    PerLane<Probabilities[kRowTiles]> weight;
    FP4PA_UNROLL
    for (int nt = 0; nt < kRowTiles; ++nt) round_probabilities(exec, nt, p, weight);
    FP4PA_UNROLL
    for (int block = 0; block < kBlocks; ++block) {
      PerLane<Block> values;
      PerLane<std::uint32_t[kTiles]> scale;
      if constexpr (Shim::kValueReads == ValueReads::kColumns16) {
        read_columns_16(exec, stream, block, values);
      } else {
        read_columns_4(exec, stream, block, values);
      }
      exec.each_lane([&](Lane lane) { load_scales(exec, address_lane<kConfig>(exec, lane), stream, block, scale[lane]); });
      FP4PA_UNROLL
      for (int m = 0; m < kTiles; ++m) {
        FP4PA_UNROLL
        for (int i = 0; i < kTerms * kRowTiles; ++i) {
          const int term = i / kRowTiles;
          const int nt = i % kRowTiles;
          exec.template multiply_scaled<Atom, core::ScaleSelect{}, core::ScaleSelect{}>(
              [&](Lane lane) -> auto& { return output.value[lane][kTiles * block + m][nt]; },
              [&](Lane lane) -> auto& { return values[lane][m]; },
              [&](Lane lane) -> auto& { return weight[lane][nt].code[term]; }, [&](Lane lane) { return scale[lane][m]; },
              [&](Lane lane) { return weight[lane][nt].scale[term]; });
        }
      }
    }
  }

  /// Dim, within 64, of accumulator v of dim tile m.
  FP4PA_FN static constexpr int output_dim(int m, int lane, int v) {
    const int row = lane / 16 * 4 + v;
    return Shim::kValueReads == ValueReads::kColumns16 ? 4 * row + m : 16 * m + row;
  }

 private:
  /// B of one row tile, and the E8M0 scale that the lane supplies of it.
  struct Probabilities {
    std::uint32_t code[kTerms][8];
    std::uint32_t scale[kTerms];
  };

  template <class Scores>
  FP4PA_FN static void round_probabilities(E& exec, int nt, const Scores& p, PerLane<Probabilities[kRowTiles]>& weight) {
    const PerLane<std::uint32_t[2]> exponent = largest_exponents(exec, nt, p);
    exec.each_lane([&](Lane lane) {
      Probabilities& b = weight[lane][nt];
      FP4PA_UNROLL
      for (int tile = 0; tile < 8; ++tile) {
        const float raise = core::exp2_exact(kRaisedLog2 + 127 - static_cast<int>(exponent[lane][tile / 4]));
        float x[4];
        FP4PA_UNROLL
        for (int v = 0; v < 4; ++v) x[v] = p[lane][tile][nt][v] * raise;
        b.code[0][tile] = pack_e4m3(x[0], x[1], x[2], x[3]);
        float rounded[4];
        unpack_e4m3(b.code[0][tile], rounded);
        FP4PA_UNROLL
        for (int v = 0; v < 4; ++v) x[v] = (x[v] - rounded[v]) * core::exp2_exact(kSecondTermLog2);
        b.code[1][tile] = pack_e4m3(x[0], x[1], x[2], x[3]);
      }
    });
    // Lane n + 16 b supplies block b's: 0 and 1 are the lower halves of g = 0 and 2, 2 and 3 the upper ones. Lanes 0 and 3 have
    // theirs, 1 and 2 each other's neighbour's across 32 lanes.
    PerLane<std::uint32_t> given;
    exec.each_lane([&](Lane lane) { given[lane] = lane.id < 32 ? exponent[lane][1] : exponent[lane][0]; });
    const PerLane<std::uint32_t> taken = exec.shuffle_xor(given, 32);
    exec.each_lane([&](Lane lane) {
      const int g = lane.id / 16;
      // No index that is not a constant: it would put the array into memory.
      const std::uint32_t own = g == 0 ? exponent[lane][0] : exponent[lane][1];
      const std::uint32_t scale = (g == 0 || g == 3 ? own : taken[lane]) - kRaisedLog2;
      weight[lane][nt].scale[0] = scale;
      weight[lane][nt].scale[1] = scale - kSecondTermLog2;
    });
  }

  /// Exponent fields of the largest probability in the two blocks of 32 tokens that the lane has a half of. Probabilities are
  /// not negative: only a NaN, which becomes one whatever it is raised by, may have a sign to mask.
  template <class Scores>
  FP4PA_FN static PerLane<std::uint32_t[2]> largest_exponents(E& exec, int nt, const Scores& p) {
    PerLane<std::uint32_t[2]> exponent;
    FP4PA_UNROLL
    for (int half = 0; half < 2; ++half) {
      PerLane<std::uint32_t> largest;
      exec.each_lane([&](Lane lane) {
        largest[lane] = 0;
        FP4PA_UNROLL
        for (int i = 0; i < 16; ++i) {
          largest[lane] = core::Larger()(largest[lane], core::float_bits(p[lane][4 * half + i / 4][nt][i % 4]));
        }
      });
      core::combine_peers<16>(exec, largest, core::Larger());
      exec.each_lane([&](Lane lane) { exponent[lane][half] = core::Larger()(largest[lane] >> 23 & 0xff, kLeastExponent); });
    }
    return exponent;
  }

  template <class Stream>
  FP4PA_FN static std::uint32_t code_address(const Stream& stream, int token, int byte) {
    return gfx942::byte_offset(true, stream.tile_offset() + stream.layout().v_codes, token, stream.layout().v_chunks, byte);
  }

  template <class Stream>
  FP4PA_FN static void read_columns_16(E& exec, const Stream& stream, int block, PerLane<Block>& values) {
    FP4PA_UNROLL
    for (int run = 0; run < 4; ++run) {  // of eight tokens
      PerLane<std::uint32_t[2][2]> words;
      FP4PA_UNROLL
      for (int half = 0; half < 2; ++half) {
        exec.template read_transposed<16>(
            [&](Lane same) {
              const Lane lane = address_lane<kConfig>(exec, same);
              // The lane's token comes n-th in its column: tokens 0, 4, 1, 5 and 2, 6, 3, 7 make separate_dims' words.
              const int n = lane.id % 16 / 4;
              const int token = 32 * (lane.id / 16) + 8 * run + 2 * half + n / 2 + 4 * (n % 2);
              return code_address(stream, token, 32 * block + 8 * (lane.id % 4));
            },
            [&](Lane lane) -> auto& { return words[lane][half]; });
      }
      exec.each_lane([&](Lane lane) {
        const std::uint32_t in[4] = {words[lane][0][0], words[lane][0][1], words[lane][1][0], words[lane][1][1]};
        std::uint32_t out[4];
        separate_dims(in, out);
        FP4PA_UNROLL
        for (int m = 0; m < kTiles; ++m) values[lane][m][run] = out[m];
      });
    }
  }

  template <class Stream>
  FP4PA_FN static void read_columns_4(E& exec, const Stream& stream, int block, PerLane<Block>& values) {
    FP4PA_UNROLL
    for (int m = 0; m < kTiles; ++m) {
      FP4PA_UNROLL
      for (int half = 0; half < 2; ++half) {
        PerLane<std::uint32_t[2]> words;
        exec.template read_transposed<4>(
            [&](Lane lane) {
              return code_address(stream, 32 * (lane.id / 16) + 16 * half + lane.id % 16, 32 * block + 8 * m);
            },
            [&](Lane lane) -> auto& { return words[lane]; });
        exec.each_lane([&](Lane lane) {
          values[lane][m][2 * half] = words[lane][0];
          values[lane][m][2 * half + 1] = words[lane][1];
        });
      }
    }
  }

  /// The lane's row's scale in each of a block's dim tiles. 32 tokens are two pieces with the same scales (kTokenAlignment).
  template <class Stream>
  FP4PA_FN static void load_scales(E& exec, Lane lane, const Stream& stream, int block, std::uint32_t (&scale)[kTiles]) {
    const std::uint32_t at = stream.tile_offset() + stream.layout().v_scales +
                             lane.id / 16 * (32 / core::kScalePiece) * stream.layout().v_scale_pitch + block * kBlockDims;
    if constexpr (Shim::kValueReads == ValueReads::kColumns16) {
      const auto four = exec.template load_shared<std::uint32_t>(lane, at + 4 * (lane.id % 16));
      FP4PA_UNROLL
      for (int m = 0; m < kTiles; ++m) scale[m] = four >> (8 * m);
    } else {
      FP4PA_UNROLL
      for (int m = 0; m < kTiles; ++m) scale[m] = exec.template load_shared<std::uint8_t>(lane, at + 16 * m + lane.id % 16);
    }
  }
};

}  // namespace fp4pa::gfx950
