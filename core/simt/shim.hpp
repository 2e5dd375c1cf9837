// What a shim supplies to the SIMT tile back end, and what it may say beside; docs/writing_a_backend.md has the prose.
#pragma once

#include <concepts>
#include <cstdint>

#include "core/simt/exec.hpp"
#include "core/simt/key_stream.hpp"
#include "core/simt/query.hpp"
#include "core/simt/row_slots.hpp"

namespace fp4pa::core {

/// The stream that a backend's products read: KeyStreamOf, or a shim's own, of tiles that other warps have decoded.
template <class Shim, std::int32_t S>
struct StreamOf {
  using type = KeyStreamOf<Shim, S>;
};
template <class Shim, std::int32_t S>
  requires requires { typename Shim::template TileStream<S>; }
struct StreamOf<Shim, S> {
  using type = typename Shim::template TileStream<S>;
};

/// A warp's scores of a tile, as the first product leaves them.
template <class S>
using ScoresOf = typename S::Exec::template PerLane<
    float[S::kConfig.tile_keys / S::ScoreAtom::kKeys][S::kConfig.row_tiles][RowSlots<typename S::ScoreAtom>::kValues]>;

/// In a back end's place where only the shape of the second product matters.
struct AnyBackend {
  struct Output {};
};

/// The words that read and write tiles. Asked for one kind of keys and values: a product's own code is checked where it is used.
template <class S>
concept SimtProducts =
    requires(typename S::Exec& exec, typename StreamOf<S, 0>::type& stream, ScoresOf<S>& scores, const ScoresOf<S>& p,
             AnyBackend::Output& output, typename S::Exec::template PerLane<typename S::QueryRegisters>& registers,
             const AnyBackend& backend, KvKind kind, std::uint32_t offset, int i, float multiplier) {
      S::store_query_row(exec, kind, offset, offset, i, i, multiplier, i);
      S::load_query_registers(exec, offset, i, registers);
      S::template query_key<S::kConfig.k[0]>(exec, stream, offset, registers, i, scores);
      S::template probability_value<S::kConfig.v[0]>(exec, backend, stream, p, output);
    };

/// What a shim supplies; docs/writing_a_backend.md has the prose. A shim whose query operands are no 16-bit floats also has
/// query_terms(params, kind), the number of operands that a query is the sum of.
template <class S>
concept SimtShim = Exec<typename S::Exec> && requires(int i, KvKind kind, float x, typename S::Exec& exec) {
  requires std::same_as<decltype(S::kConfig), const SimtConfig>;
  typename S::ScoreAtom;
  typename S::OutputAtom;
  requires rows_agree<typename S::ScoreAtom, typename S::OutputAtom>();
  typename S::QueryRegisters;  // a lane's share of the query, where it is kept in registers
  // Where chunk i of a row lies; its own inverse, alike in rows 8 apart unless the shim has kSwizzlesFarRows.
  { S::swizzle(i, i, i) } -> std::same_as<int>;
  { S::token_of_slot(i) } -> std::same_as<int>;        // which key of a tile the product takes as its i-th, see token_order.hpp
  requires std::same_as<decltype(S::kTokenAlignment), const int>;  // tokens that must share a row of scales along tokens
  { S::exp2(x) } -> std::same_as<float>;
  { S::query_form(kind) } -> std::same_as<QueryForm>;
  { S::dim_order(kind) } -> std::same_as<int>;
  { S::output_dim(i, i, i, i) } -> std::same_as<int>;  // order, dim tile of a block of dims, lane, value
  requires SimtProducts<S>;
};

/// Dims that a shim's orders permute among themselves; 32 unless it says otherwise.
template <class S>
inline constexpr int kOutputBlockOf = kDimBlock;
template <class S>
  requires requires { S::kOutputBlock; }
inline constexpr int kOutputBlockOf<S> = S::kOutputBlock;

/// Probabilities are kept times 2^kProbabilityLog2, where a shim names one: its P V then needs no multiplication of its own to
/// bring them into the range of a narrow operand. Row sums are kept in the same unit until finish_rows.
template <class Shim>
[[nodiscard]] consteval int probability_log2() {
  if constexpr (requires { Shim::kProbabilityLog2; }) {
    return Shim::kProbabilityLog2;
  } else {
    return 0;
  }
}

/// How far a score may exceed what its row is relative to, before the row moves: as far as 2^(kProbabilityLog2 + headroom) has
/// room in the shim's operand of P.
template <class Shim>
[[nodiscard]] consteval float headroom_log2() {
  if constexpr (requires { Shim::kHeadroomLog2; }) {
    return Shim::kHeadroomLog2;
  } else {
    return 0.0f;
  }
}

/// An output's unit before its first tile, as a power of two: 0, unless a shim names another. It costs nothing to leave while all is zeros.
template <class Shim>
[[nodiscard]] consteval int first_unit_log2() {
  if constexpr (requires { Shim::kFirstUnitLog2; }) {
    return Shim::kFirstUnitLog2;
  } else {
    return 0;
  }
}

/// What a shim works out of an output's unit once, and not for every tile: Shim::note_of, a Shim::UnitNote. Nothing, if it has none.
template <class Shim>
struct UnitNoteOf {
  struct type {};
};
template <class Shim>
  requires requires { typename Shim::UnitNote; }
struct UnitNoteOf<Shim> {
  using type = typename Shim::UnitNote;
};

/// Whether all tiles' outputs have one unit: V's multiplier times 2^kOnlyUnitLog2, which then nobody has to keep until the end. A shim
/// that leaves it, for a tile that it does not suit or for another segment, makes it 1 and says so by a unit_log2 of -kOnlyUnitLog2.
template <class Shim>
inline constexpr bool kHasOnlyUnit = requires { Shim::kOnlyUnitLog2; };

}  // namespace fp4pa::core
