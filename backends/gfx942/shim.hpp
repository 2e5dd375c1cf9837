// gfx942 as a shim of the SIMT back end: E2M1 decoded in registers, f16 and bf16 mfma; and the part of it that is gfx950's
// decode path too, whose instruction is twice as deep.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/gfx942/atoms.hpp"
#include "backends/gfx942/key_product.hpp"
#include "backends/gfx942/value_product.hpp"
#include "core/simt/tile_backend.hpp"

namespace fp4pa::gfx942 {

/// Everything but the instruction, the atoms, and the orders of tokens and dims.
/// @tparam Derived  the shim: kWide, token_of_slot, kDimsPerLane, multiply_16, kConvertsBytes and with it convert_byte and convert_word
template <class Derived, core::SimtConfig kShape, class Executor>
struct DecodeShim {
  static constexpr core::SimtConfig kConfig = kShape;
  using Exec = Executor;
  using Lane = typename Exec::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;

  using ScaleForm = HalfScales;

  static constexpr int kBlocks = kConfig.head_dim / core::kDimBlock;
  static constexpr int kQueryWords = kBlocks * kConfig.row_tiles * 4;
  /// A short query stays in registers; a longer one is read from shared memory block by block.
  static constexpr bool kQueryInRegisters = kConfig.exact_head_dim && kQueryWords <= 16 && core::is_fp4(kConfig.k[0]);
  using QueryRegisters = std::uint32_t[kQueryInRegisters ? kBlocks : 1][kConfig.row_tiles][4];

  static constexpr bool kSwizzlesFarRows = true;
  static constexpr bool kLoadsArguments = true;  // into scalar registers, of which there are never enough
  FP4PA_FN static int swizzle(int row, int chunk, int chunks) { return chunk ^ swizzle_bits(Derived::kWide, row, chunks); }
  static constexpr int kTokenAlignment = core::kScalePiece;
  FP4PA_FN static float exp2(float x) { return exp2_fast(x); }
  FP4PA_FN static std::uint16_t to_f16(float x) { return static_cast<std::uint16_t>(pack_f16(x, 0.0f)); }
  FP4PA_FN static std::uint16_t to_bf16(float x) { return static_cast<std::uint16_t>(pack_bf16(x, 0.0f)); }
  FP4PA_FN static core::QueryForm query_form(KvKind kind) { return decode_query_form(kind); }
  FP4PA_FN static int dim_order(KvKind) { return 1; }
  static constexpr bool kOneOrder = true;

  // The query in shared memory: [term][row tile][block of 32 dims][lane][pair], 16 bytes a lane, which is what B's lane
  // 16 g + row % 16 takes in one load.
  FP4PA_FN static std::uint32_t query_address(std::uint32_t query, int head_dim, int tile, int block, int lane) {
    return query + static_cast<std::uint32_t>(((tile * (head_dim / core::kDimBlock) + block) * Exec::kLanes + lane) * 16);
  }
  [[nodiscard]] FP4PA_FN static int term_bytes(int head_dim) { return kConfig.row_tiles * 16 * head_dim * 2; }

  /// Rounds one row from f32 in `scratch` to the sum of `terms` operands.
  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row,
                                       int head_dim, float multiplier, int terms) {
    const bool bf16 = kind == KvKind::kBf16;
    exec.each_lane([&](Lane lane) {
      for (int i = lane.id; i < head_dim / 2; i += Exec::kLanes) {
        const int block = i / 16;
        const int g = i / 4 % 4;
        const int p = i % 4;
        const auto element = [&](int half) {
          const int dim = block * core::kDimBlock + pair_dim(kind, Derived::kConvertsBytes, g, p, half);
          return exec.template load_shared<float>(lane, scratch + 4 * dim) * multiplier;
        };
        const float low = element(0);
        const float high = element(1);
        const std::uint32_t word = bf16 ? pack_bf16(low, high) : pack_f16(low, high);
        const std::uint32_t at = query_address(query, head_dim, row / 16, block, row % 16 + 16 * g) + 4 * p;
        exec.template store_shared<std::uint32_t>(lane, at, word);
        if (terms == 1) continue;
        const std::uint32_t rest = bf16 ? pack_bf16_rest(low, high, word) : pack_f16_rest(low, high, word);
        exec.template store_shared<std::uint32_t>(lane, at + term_bytes(head_dim), rest);
      }
    });
  }

  FP4PA_FN static void load_query_registers(Exec& exec, std::uint32_t query, int head_dim,
                                            PerLane<QueryRegisters>& registers) {
    if constexpr (kQueryInRegisters) {
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < kBlocks * kConfig.row_tiles; ++i) {
          const int tile = i % kConfig.row_tiles;
          const int block = i / kConfig.row_tiles;
          exec.load_shared_16(lane, query_address(query, head_dim, tile, block, lane.id), registers[lane][block][tile]);
        }
      });
    }
  }

  /// One block of dims of the query's first term.
  FP4PA_FN static void query_block(Exec& exec, Lane lane, std::uint32_t query, const auto& registers, int block,
                                   int head_dim, std::uint32_t (&out)[kConfig.row_tiles][4]) {
    FP4PA_UNROLL
    for (int tile = 0; tile < kConfig.row_tiles; ++tile) {
      if constexpr (kQueryInRegisters && std::is_same_v<std::remove_cvref_t<decltype(registers)>, QueryRegisters>) {
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) out[tile][i] = registers[block][tile][i];
      } else {
        exec.load_shared_16(lane, query_address(query, head_dim, tile, block, lane.id), out[tile]);
      }
    }
  }
  FP4PA_FN static void second_term(Exec& exec, Lane lane, std::uint32_t query, int block, int head_dim,
                                   std::uint32_t (&out)[kConfig.row_tiles][4]) {
    query_block(exec, lane, query + term_bytes(head_dim), nullptr, block, head_dim, out);
  }

  template <KvKind kKind, class Stream, class Registers, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query, const Registers& registers,
                                 int terms, Scores& scores) {
    KeyProduct<Derived>::template multiply<kKind>(exec, stream, query, registers, terms, scores);
  }
  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    ValueProduct<Derived>::template multiply<kKind>(exec, backend, stream, p, output);
  }
};

/// Which accumulators of a lane are four neighbouring dims of a query, where tiles are of every second dim.
struct FourDims {
  static constexpr int kOrder = 1;
  static constexpr int kTiles = 2;  // dim tiles that the four are of
  static constexpr int kFours = 2;  // fours of those tiles in a lane
  [[nodiscard]] FP4PA_FN static constexpr int tile(int k) { return k % 2; }
  [[nodiscard]] FP4PA_FN static constexpr int value(int four, int k) { return 2 * four + k / 2; }
};

template <core::SimtConfig kShape, class Executor>
struct Shim : DecodeShim<Shim<kShape, Executor>, kShape, Executor> {
  using Base = DecodeShim<Shim, kShape, Executor>;
  using typename Base::Exec;
  using typename Base::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;
  using ScoreAtom = core::ScoreAtom<MfmaF32_16x16x16_F16, core::Operand::kB>;
  using OutputAtom = core::OutputAtom<MfmaF32_16x16x16_F16, core::Operand::kB>;

  static constexpr bool kWide = false;
  static constexpr bool kConvertsBytes = false;
  static constexpr int kDimsPerLane = 2;
  static constexpr int kOutputBlock = 16 * kDimsPerLane;
  FP4PA_FN static int token_of_slot(int slot) { return gfx942::token_of_slot(kWide, slot); }
  FP4PA_FN static int output_dim(int, int m, int lane, int v) { return kDimsPerLane * (lane / 16 * 4 + v) + m; }
  using FourDims = gfx942::FourDims;

  /// d += a b over 32 of depth, four registers each: two instructions, of two registers each.
  template <class Element, class D, class A, class B>
  FP4PA_FN static void multiply_16(Exec& exec, D&& d, A&& a, B&& b) {
    using Atom = std::conditional_t<std::is_same_v<Element, core::F16>, MfmaF32_16x16x16_F16, MfmaF32_16x16x16_Bf16>;
    FP4PA_UNROLL
    for (int half = 0; half < 2; ++half) {
      PerLane<std::uint32_t[2]> a_half;
      PerLane<std::uint32_t[2]> b_half;
      exec.each_lane([&](Lane lane) {
        FP4PA_UNROLL
        for (int i = 0; i < 2; ++i) {
          a_half[lane][i] = a(lane)[2 * half + i];
          b_half[lane][i] = b(lane)[2 * half + i];
        }
      });
      exec.template multiply<Atom>(d, [&](Lane lane) -> auto& { return a_half[lane]; },
                                   [&](Lane lane) -> auto& { return b_half[lane]; });
    }
  }
};

}  // namespace fp4pa::gfx942
