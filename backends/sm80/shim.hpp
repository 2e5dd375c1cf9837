// sm_80 to sm_100 as a shim of the SIMT back end: E2M1 decoded in registers, f16 and bf16 mma.sync.
//
// Exec is a parameter so that a host can run the very same shim lane by lane (tests/gpu, backends/emulator).
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/sm80/atoms.hpp"
#include "backends/sm80/key_product.hpp"
#include "backends/sm80/query_pairs.hpp"
#include "backends/sm80/value_product.hpp"
#include "core/simt/tile_backend.hpp"

namespace fp4pa::sm80 {

/// What shims of instances with one format of V whose scales P is multiplied by note of an output's unit.
template <core::SimtConfig kShape, class Shim, bool kNotes = kShape.plain && scales_probability(kShape.v[0])>
struct NotesOfUnit {};
template <core::SimtConfig kShape, class Shim>
struct NotesOfUnit<kShape, Shim, true> {
  using UnitNote = WindowNote;
  [[nodiscard]] FP4PA_FN static UnitNote note_of(float unit, int unit_log2) {
    return ScaleWindow<Shim>::template note_of<kShape.v[0]>(unit, unit_log2);
  }
};

template <core::SimtConfig kShape, class Executor>
struct Shim : NotesOfUnit<kShape, Shim<kShape, Executor>> {
  static constexpr core::SimtConfig kConfig = kShape;
  using Exec = Executor;
  using Lane = typename Exec::Lane;
  template <class T>
  using PerLane = typename Exec::template PerLane<T>;

  // f16 and bf16 have the same maps; the product picks the instruction by its operands.
  using ScoreAtom = core::ScoreAtom<MmaM16N8K16<core::F16>, core::Operand::kB>;
  using OutputAtom = core::OutputAtom<MmaM16N8K16<core::F16>, core::Operand::kB>;

  /// The query stays in shared memory and is read block by block: keys need the registers themselves.
  struct QueryRegisters {};

  using ScaleForm = std::conditional_t<kConfig.side_by_side == core::SideBySide::kGroups, GroupScales, ProductScales>;
  /// What probabilities come raised by, and how much more they may be: 2^15 is the most that f16 has room for. With three
  /// binades of headroom a quarter of the tiles raised a maximum, and 16 rows took 2 to 4 % longer.
  static constexpr int kProbabilityLog2 = 6;
  static constexpr float kHeadroomLog2 = 9.0f;
  /// Made for no E8M0 scale, so that the first tile chooses: a unit that some scales just fit would cost P what f16 has below them.
  static constexpr int kFirstUnitLog2 = 128 - kProbabilityLog2 - kE2m1F16Log2;

  FP4PA_FN static int swizzle(int row, int chunk, int chunks) { return chunk ^ swizzle_bits(row, chunks); }
  FP4PA_FN static int token_of_slot(int slot) { return slot; }
  /// Pages of MXFP4 with scales along tokens are whole groups of 32.
  static constexpr int kTokenAlignment = kConfig.v[0] == KvKind::kMxfp4Tokens ? 32 : core::kScalePiece;
  FP4PA_FN static float exp2(float x) { return exp2_fast(x); }
  FP4PA_FN static std::uint16_t to_f16(float x) { return round_f16(x); }
  FP4PA_FN static std::uint16_t to_bf16(float x) { return round_bf16(x); }
  FP4PA_FN static core::QueryForm query_form(KvKind kind) { return key_query_form(kind); }
  FP4PA_FN static int dim_order(KvKind kind) { return core::per_halfword(kind); }
  FP4PA_FN static int output_dim(int order, int m, int lane, int v) { return value_output_dim(order, m, lane, v); }
  using FourDims = sm80::FourDims;

  // The query in shared memory: [term][row tile][block of 32 dims][lane][pair], 16 bytes a lane, which is what B's lane
  // 4 (row % 8) + t takes in one load. Side by side, the second term of row r, or its dims of every second group of 16, stand where row
  // r + 4 would; what a row leaves of its groups is zeros.
  FP4PA_FN static std::uint32_t query_address(std::uint32_t query, int head_dim, int tile, int block, int lane) {
    return query + static_cast<std::uint32_t>(((tile * (head_dim / core::kDimBlock) + block) * Exec::kLanes + lane) * 16);
  }

  /// From a pair's first term to its second.
  [[nodiscard]] FP4PA_FN static int term_bytes(int head_dim) {
    return kConfig.side_by_side == core::SideBySide::kTerms ? kFourRows : kConfig.row_tiles * 8 * head_dim * 2;
  }
  static constexpr int kFourRows = 4 * 4 * 16;  // bytes of a block of dims
  static_assert(kConfig.side_by_side == core::SideBySide::kNothing || (kConfig.plain && kConfig.row_tiles == 1));
  static_assert(kConfig.side_by_side == core::SideBySide::kNothing ||
                kConfig.terms == (kConfig.side_by_side == core::SideBySide::kTerms ? 2 : 1));
  static_assert(kConfig.side_by_side != core::SideBySide::kGroups ||
                (kConfig.segments == 1 && sums_groups(kConfig, kConfig.k[0]) && sums_groups(kConfig, kConfig.v[0])));
  /// Which of a block's two groups of 16 the rows of V^T are of whose sums a lane holds.
  [[nodiscard]] FP4PA_FN static constexpr int group_of_dims(int lane) { return lane / 16; }

  /// Rounds one row from f32 in `scratch` to the sum of `terms` operands.
  FP4PA_FN static void store_query_row(Exec& exec, KvKind kind, std::uint32_t scratch, std::uint32_t query, int row,
                                       int head_dim, float multiplier, int terms) {
    each_pair_of_row(exec, kind, scratch, head_dim, multiplier, [&](Lane lane, int dim, float low, float high) {
      store_query_pair(exec, lane, kind, query, row, dim, head_dim, low, high, terms);
    });
  }
  /// The same of a row that lies in registers: lane l holds dims base + 4l .. base + 4l + 3.
  static constexpr bool kStoresQuads = true;
  FP4PA_FN static void store_query_quads(Exec& exec, KvKind kind, std::uint32_t query, int row, int base, int head_dim,
                                         const PerLane<float[4]>& quad, int terms) {
    each_pair_of_quads<kConfig.head_dim>(exec, kind, base, quad, [&](Lane lane, int dim, float low, float high) {
      store_query_pair(exec, lane, kind, query, row, dim, head_dim, low, high, terms);
    });
  }
  FP4PA_FN static void store_query_pair(Exec& exec, Lane lane, KvKind kind, std::uint32_t query, int row, int dim,
                                        int head_dim, float low, float high, int terms) {
    const QueryPlace place = query_place(kind, dim % core::kDimBlock);
    const std::uint32_t at =
        query_address(query, head_dim, row / 8, dim / core::kDimBlock, row % 8 * 4 + place.thread) + 4 * place.pair;
    if constexpr (kConfig.side_by_side == core::SideBySide::kGroups) {
      const std::uint32_t second = place.thread / 2 * kFourRows;  // the lanes of a group's dims, see KeyProduct
      store_pair(exec, lane, false, low, high, 1, [&](int) { return at + second; });
      exec.template store_shared<std::uint32_t>(lane, at + (kFourRows - second), 0u);
      return;
    }
    store_pair(exec, lane, key_is_bf16(kind), low, high, terms, [&](int term) { return at + term * term_bytes(head_dim); });
  }

  FP4PA_FN static void load_query_registers(Exec&, std::uint32_t, int, PerLane<QueryRegisters>&) {}

  /// One block of dims of the query's first term, from shared memory whatever a shim has in registers.
  FP4PA_FN static void query_block(Exec& exec, Lane lane, std::uint32_t query, const auto&, int block, int head_dim,
                                   std::uint32_t (&out)[kConfig.row_tiles][4]) {
    FP4PA_UNROLL
    for (int tile = 0; tile < kConfig.row_tiles; ++tile) {
      exec.load_shared_16(lane, query_address(query, head_dim, tile, block, lane.id), out[tile]);
    }
  }

  FP4PA_FN static void second_term(Exec& exec, Lane lane, std::uint32_t query, int block, int head_dim,
                                   std::uint32_t (&out)[kConfig.row_tiles][4]) {
    query_block(exec, lane, query + term_bytes(head_dim), nullptr, block, head_dim, out);
  }

  template <KvKind kKind, class Stream, class Scores>
  FP4PA_FN static void query_key(Exec& exec, const Stream& stream, std::uint32_t query,
                                 const PerLane<QueryRegisters>& registers, int terms, Scores& scores) {
    KeyProduct<Shim>::template multiply<kKind>(exec, stream, query, registers, terms, scores);
  }
  template <KvKind kKind, class Backend, class Stream, class Scores>
  FP4PA_FN static void probability_value(Exec& exec, const Backend& backend, const Stream& stream, const Scores& p,
                                         typename Backend::Output& output) {
    ValueProduct<Shim>::template multiply<kKind>(exec, backend, stream, p, output);
  }
};

}  // namespace fp4pa::sm80
