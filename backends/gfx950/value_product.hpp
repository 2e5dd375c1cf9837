// O += P V by block-scaled products: values with scales along tokens enter the matrix core with those scales.
//
// Dims of V are the rows of A (E2M1), queries the columns of B, tokens the depth. P is E4M3 and lies where the first product
// left it (staging.hpp, wide order): four scores of a lane are a register of B. It is raised by 2^8, which B's scale takes away
// again, so that what is 2^-17 of a row's largest probability is the least that counts. kProbabilityTerms of 2 adds what the
// rounding left as a second operand, with a scale of 2^-4 beside the first's.
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

namespace fp4pa::gfx950 {

using core::KvKind;

enum class ValueReads { kColumns16, kColumns4 };

template <class Shim>
struct NativeValueProduct {
  static constexpr core::SimtConfig kConfig = Shim::kConfig;
  using E = typename Shim::Exec;
  using Lane = typename E::Lane;
  template <class T>
  using PerLane = typename E::template PerLane<T>;
  using Atom = MfmaScaleF32_16x16x128_F8f6f4<core::E2M1, core::E4M3>;
  static constexpr int kRowTiles = kConfig.row_tiles;
  static constexpr int kTerms = Shim::kProbabilityTerms;
  static constexpr int kBlockDims = 64;
  static constexpr int kBlocks = kConfig.head_dim / kBlockDims;
  static constexpr int kTiles = 4;  // of 16 dims, in a block
  static constexpr float kRaise = 256.0f;
  static constexpr float kTermRaise = 16.0f;
  static constexpr std::uint32_t kScale[2] = {127 - 8, 127 - 8 - 4};
  static_assert(kConfig.tile_keys == 128 && kTerms <= 2);

  /// A lane's 32 tokens of four dims.
  using Block = std::uint32_t[kTiles][4];

  template <class Backend, class Stream, class Scores>
  FP4PA_FN static void multiply(E& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                typename Backend::Output& output) {
    backend.set_unit(output, stream.v_global(), 0);
    backend.adopt_order(output, Shim::dim_order(KvKind::kMxfp4Tokens));
    PerLane<std::uint32_t[kTerms][kRowTiles][8]> weight;
    exec.each_lane([&](Lane lane) {
      FP4PA_UNROLL
      for (int i = 0; i < kRowTiles * 8; ++i) {
        const int nt = i / 8;
        const int tile = i % 8;
        float x[4];
        FP4PA_UNROLL
        for (int v = 0; v < 4; ++v) x[v] = p[lane][tile][nt][v] * kRaise;
        FP4PA_UNROLL
        for (int term = 0; term < kTerms; ++term) {
          const std::uint32_t codes = pack_e4m3(x[0], x[1], x[2], x[3]);
          weight[lane][term][nt][tile] = codes;
          if (term + 1 == kTerms) break;
          float rounded[4];
          unpack_e4m3(codes, rounded);
          FP4PA_UNROLL
          for (int v = 0; v < 4; ++v) x[v] = (x[v] - rounded[v]) * kTermRaise;
        }
      }
    });
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
              [&](Lane lane) -> auto& { return weight[lane][term][nt]; }, [&](Lane lane) { return scale[lane][m]; },
              [&](Lane) { return kScale[term]; });
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
