// Which query rows a lane holds values of, read off an atom's maps.
//
// A lane's accumulators belong to a few query rows (two on sm_80, one on gfx950). A slot is one of them: per-row numbers
// are kept once per slot and not once per value. The lanes that share a slot's row are the peers that the atom names.
// Nothing here knows an instruction; both products of a back end must agree on it.
//
// slot() and row() are chains of selections among constants, which vanish when the loop around them is unrolled. A table
// or a search would not: the registers they index would end up in memory.
#pragma once

#include <bit>
#include <utility>

#include "core/atom/roles.hpp"

namespace fp4pa::core {

/// @tparam Sided  a ScoreAtom or an OutputAtom
template <class Sided>
struct RowSlots {
  using Atom = typename Sided::Atom;
  static constexpr int kValues = Atom::kValuesC;
  static constexpr unsigned kPeerBits = Sided::kQueryPeerBits;

  /// How many lanes share a row, and which of them a lane is.
  static constexpr int kPeers = 1 << std::popcount(kPeerBits);
  [[nodiscard]] FP4PA_FN static constexpr int peer(int lane) {
    constexpr int kFirstBit = std::countr_zero(kPeerBits);
    static_assert(kPeerBits == static_cast<unsigned>(kPeers - 1) << kFirstBit, "peers' bits are neighbours");
    return lane >> kFirstBit & (kPeers - 1);
  }

  /// Query row of accumulator `value`, within the atom's queries.
  [[nodiscard]] FP4PA_FN static constexpr int query(int lane, int value) {
    const RowCol x = Atom::c_coord(lane, value);
    return Sided::kQueryIsA ? x.row : x.col;
  }
  /// Key or dim of accumulator `value`, within the atom's other side.
  [[nodiscard]] FP4PA_FN static constexpr int other(int lane, int value) {
    const RowCol x = Atom::c_coord(lane, value);
    return Sided::kQueryIsA ? x.col : x.row;
  }

 private:
  // The first value with the same row, in lane 0 and, as valid() says, in all.
  static consteval int first(int value) {
    int u = 0;
    while (query(0, u) != query(0, value)) ++u;
    return u;
  }
  static consteval int slot_of(int value) {
    int s = 0;
    for (int v = 0; v < first(value); ++v) s += first(v) == v ? 1 : 0;
    return s;
  }
  static consteval int count() {
    int n = 0;
    for (int v = 0; v < kValues; ++v) n += first(v) == v ? 1 : 0;
    return n;
  }
  template <int v>
  using SlotOf = std::integral_constant<int, slot_of(v)>;
  template <int v>
  using FirstIs = std::bool_constant<first(v) == v>;

 public:
  /// Slot of accumulator `value`.
  [[nodiscard]] FP4PA_FN static constexpr int slot(int value) {
    return [value]<int... v>(std::integer_sequence<int, v...>) {
      int s = 0;
      ((s = value == v ? SlotOf<v>::value : s), ...);
      return s;
    }(std::make_integer_sequence<int, kValues>());
  }
  /// Whether no accumulator before `value` has its slot.
  [[nodiscard]] FP4PA_FN static constexpr bool is_first(int value) {
    return [value]<int... v>(std::integer_sequence<int, v...>) {
      bool is = false;
      ((is = value == v ? FirstIs<v>::value : is), ...);
      return is;
    }(std::make_integer_sequence<int, kValues>());
  }
  /// Query row of a slot.
  [[nodiscard]] FP4PA_FN static constexpr int row(int lane, int slot_index) {
    return [lane, slot_index]<int... v>(std::integer_sequence<int, v...>) {
      int r = 0;
      ((r = slot_index == SlotOf<v>::value ? query(lane, v) : r), ...);
      return r;
    }(std::make_integer_sequence<int, kValues>());
  }

  static constexpr int kSlots = [] { return count(); }();

  /// Slots are the same in every lane.
  [[nodiscard]] static consteval bool valid() {
    for (int lane = 0; lane < Atom::kLanes; ++lane) {
      for (int v = 0; v < kValues; ++v) {
        for (int u = 0; u < kValues; ++u) {
          if ((first(u) == first(v)) != (query(lane, u) == query(lane, v))) return false;
        }
      }
    }
    return true;
  }
  /// Whether a lane's rows are all below `rows` or none of them is.
  [[nodiscard]] static consteval bool parts_lanes(int rows) {
    for (int lane = 0; lane < Atom::kLanes; ++lane) {
      for (int s = 0; s < kSlots; ++s) {
        if ((row(lane, s) < rows) != (row(lane, 0) < rows)) return false;
      }
    }
    return true;
  }
};

/// Scores and outputs keep their rows in the same lanes and slots.
template <class Score, class Output>
consteval bool rows_agree() {
  using S = RowSlots<Score>;
  using O = RowSlots<Output>;
  if (!S::valid() || !O::valid()) return false;
  if (Score::kQueries != Output::kQueries || S::kSlots != O::kSlots || S::kPeerBits != O::kPeerBits) return false;
  for (int lane = 0; lane < Score::Atom::kLanes; ++lane) {
    for (int s = 0; s < S::kSlots; ++s) {
      if (S::row(lane, s) != O::row(lane, s)) return false;
    }
  }
  return true;
}

}  // namespace fp4pa::core
