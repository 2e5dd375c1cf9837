// Which operand holds what. The two products of attention, written in its own words and not in the instruction's.
//
//   scores:  S[query, key] = sum over dim   Q[query, dim] K[key, dim]
//   output:  O[query, dim] = sum over token P[query, token] V[token, dim]
//
// Either side of an instruction can take either factor. With the query side in A, a row of C is a query and the lanes
// that share it are neighbours. With keys and values in A, a query is a column of C: on gfx950 most of a column then
// lies within one lane, and a tall A is full even when few heads share a KV head. A shim chooses, with an Operand;
// fragments ask these maps and never a_coord.
#pragma once

#include "core/atom/atom.hpp"

namespace fp4pa::core {

enum class Operand { kA, kB };

struct QueryDim {
  int query;
  int dim;
  friend constexpr bool operator==(const QueryDim&, const QueryDim&) = default;
};
struct KeyDim {
  int key;
  int dim;
  friend constexpr bool operator==(const KeyDim&, const KeyDim&) = default;
};
struct QueryKey {
  int query;
  int key;
  friend constexpr bool operator==(const QueryKey&, const QueryKey&) = default;
};
struct TokenDim {
  int token;
  int dim;
  friend constexpr bool operator==(const TokenDim&, const TokenDim&) = default;
};

/// An atom with a side chosen for the factor whose rows are queries. The other side has "other" rows: keys or dims.
template <AtomTraits T, Operand kQuerySide>
struct SidedAtom {
  using Atom = T;
  static constexpr bool kQueryIsA = kQuerySide == Operand::kA;

  static constexpr int kQueries = kQueryIsA ? T::kM : T::kN;
  static constexpr int kOthers = kQueryIsA ? T::kN : T::kM;
  static constexpr int kDepth = T::kK;

  static constexpr int kQueryValues = kQueryIsA ? T::kValuesA : T::kValuesB;
  static constexpr int kOtherValues = kQueryIsA ? T::kValuesB : T::kValuesA;
  static constexpr Packing kQueryPacking = kQueryIsA ? T::kPackingA : T::kPackingB;
  static constexpr Packing kOtherPacking = kQueryIsA ? T::kPackingB : T::kPackingA;

  /// Lane bits over which one query's scores (outputs) are spread, see AtomTraits.
  static constexpr unsigned kQueryPeerBits = kQueryIsA ? T::kRowPeerBits : T::kColPeerBits;

 protected:
  struct Pair {
    int index;
    int k;
  };
  FP4PA_FN static constexpr Pair a(int lane, int v) { return {T::a_coord(lane, v).row, T::a_coord(lane, v).k}; }
  FP4PA_FN static constexpr Pair b(int lane, int v) { return {T::b_coord(lane, v).col, T::b_coord(lane, v).k}; }
  FP4PA_FN static constexpr Pair query_pair(int lane, int v) {
    if constexpr (kQueryIsA) {
      return a(lane, v);
    } else {
      return b(lane, v);
    }
  }
  FP4PA_FN static constexpr Pair other_pair(int lane, int v) {
    if constexpr (kQueryIsA) {
      return b(lane, v);
    } else {
      return a(lane, v);
    }
  }
  FP4PA_FN static constexpr Pair result_pair(int lane, int v) {
    const RowCol x = T::c_coord(lane, v);
    return kQueryIsA ? Pair{x.row, x.col} : Pair{x.col, x.row};
  }
};

/// The product of scores. A scale group runs along dim: group g is dims [g * kScaleGroup, (g + 1) * kScaleGroup).
template <AtomTraits T, Operand kQuerySide>
struct ScoreAtom : SidedAtom<T, kQuerySide> {
  using Base = SidedAtom<T, kQuerySide>;
  static constexpr int kKeys = Base::kOthers;
  static constexpr int kDims = Base::kDepth;

  FP4PA_FN static constexpr QueryDim query_coord(int lane, int v) {
    return {Base::query_pair(lane, v).index, Base::query_pair(lane, v).k};
  }
  FP4PA_FN static constexpr KeyDim key_coord(int lane, int v) {
    return {Base::other_pair(lane, v).index, Base::other_pair(lane, v).k};
  }
  FP4PA_FN static constexpr QueryKey score_coord(int lane, int v) {
    return {Base::result_pair(lane, v).index, Base::result_pair(lane, v).k};
  }
};

/// The product of outputs. A scale group runs along tokens.
template <AtomTraits T, Operand kQuerySide>
struct OutputAtom : SidedAtom<T, kQuerySide> {
  using Base = SidedAtom<T, kQuerySide>;
  static constexpr int kDims = Base::kOthers;
  static constexpr int kTokens = Base::kDepth;

  FP4PA_FN static constexpr QueryKey probability_coord(int lane, int v) {
    return {Base::query_pair(lane, v).index, Base::query_pair(lane, v).k};
  }
  FP4PA_FN static constexpr TokenDim value_coord(int lane, int v) {
    return {Base::other_pair(lane, v).k, Base::other_pair(lane, v).index};
  }
  FP4PA_FN static constexpr QueryDim output_coord(int lane, int v) {
    return {Base::result_pair(lane, v).index, Base::result_pair(lane, v).k};
  }
};

}  // namespace fp4pa::core
