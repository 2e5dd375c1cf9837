// What can be read off an atom's maps: that they are bijections, who shares a row, and how many neighbours a lane
// holds.
//
// consteval, so that a kernel can depend on an answer at no cost and a wrong map is a compile error where somebody
// asks.
#pragma once

#include <array>

#include "core/atom/atom.hpp"

namespace fp4pa::core {

/// Every (row, k) of A is held exactly once.
template <AtomTraits T>
consteval bool a_is_bijective() {
  std::array<bool, T::kM * T::kK> seen{};
  for (int lane = 0; lane < T::kLanes; ++lane) {
    for (int v = 0; v < T::kValuesA; ++v) {
      const RowK x = T::a_coord(lane, v);
      if (x.row < 0 || x.row >= T::kM || x.k < 0 || x.k >= T::kK || seen[x.row * T::kK + x.k]) return false;
      seen[x.row * T::kK + x.k] = true;
    }
  }
  return true;
}

template <AtomTraits T>
consteval bool b_is_bijective() {
  std::array<bool, T::kN * T::kK> seen{};
  for (int lane = 0; lane < T::kLanes; ++lane) {
    for (int v = 0; v < T::kValuesB; ++v) {
      const ColK x = T::b_coord(lane, v);
      if (x.col < 0 || x.col >= T::kN || x.k < 0 || x.k >= T::kK || seen[x.col * T::kK + x.k]) return false;
      seen[x.col * T::kK + x.k] = true;
    }
  }
  return true;
}

template <AtomTraits T>
consteval bool c_is_bijective() {
  std::array<bool, T::kM * T::kN> seen{};
  for (int lane = 0; lane < T::kLanes; ++lane) {
    for (int v = 0; v < T::kValuesC; ++v) {
      const RowCol x = T::c_coord(lane, v);
      if (x.row < 0 || x.row >= T::kM || x.col < 0 || x.col >= T::kN || seen[x.row * T::kN + x.col]) return false;
      seen[x.row * T::kN + x.col] = true;
    }
  }
  return true;
}

/// Every scale of A (of B) is supplied exactly once under `select`, and only in range.
template <ScaledAtomTraits T, bool kOfA>
consteval bool scales_are_bijective(ScaleSelect select) {
  constexpr int kRows = kOfA ? T::kM : T::kN;
  std::array<bool, kRows * T::kScaleGroups> seen{};
  int count = 0;
  for (int lane = 0; lane < T::kLanes; ++lane) {
    for (int byte = 0; byte < 4; ++byte) {
      const ScaleCoord x = kOfA ? T::sfa_coord(lane, byte, select) : T::sfb_coord(lane, byte, select);
      if (!x.read()) continue;
      if (x.index >= kRows || x.group < 0 || x.group >= T::kScaleGroups) return false;
      if (seen[x.index * T::kScaleGroups + x.group]) return false;
      seen[x.index * T::kScaleGroups + x.group] = true;
      ++count;
    }
  }
  return count == kRows * T::kScaleGroups;
}

/// Lane bits that leave the rows of a lane's C values as they are.
template <AtomTraits T, bool kOfRows>
consteval unsigned peer_bits() {
  unsigned bits = 0;
  for (int bit = 1; bit < T::kLanes; bit *= 2) {
    bool same = true;
    for (int lane = 0; lane < T::kLanes; ++lane) {
      for (int v = 0; v < T::kValuesC; ++v) {
        const RowCol x = T::c_coord(lane, v);
        const RowCol y = T::c_coord(lane ^ bit, v);
        same = same && (kOfRows ? x.row == y.row : x.col == y.col);
      }
    }
    if (same) bits |= static_cast<unsigned>(bit);
  }
  return bits;
}

/// The stated peer bits are those of c_coord, and lanes that differ elsewhere share no row (column).
template <AtomTraits T, bool kOfRows>
consteval bool peers_are_right() {
  constexpr unsigned kBits = kOfRows ? T::kRowPeerBits : T::kColPeerBits;
  if (kBits != peer_bits<T, kOfRows>()) return false;
  std::array<int, (kOfRows ? T::kM : T::kN)> owner{};  // the peers' common lane bits, plus one
  for (int lane = 0; lane < T::kLanes; ++lane) {
    const int group = static_cast<int>(static_cast<unsigned>(lane) & ~kBits) + 1;
    for (int v = 0; v < T::kValuesC; ++v) {
      const RowCol x = T::c_coord(lane, v);
      int& known = owner[kOfRows ? x.row : x.col];
      if (known != 0 && known != group) return false;
      known = group;
    }
  }
  return true;
}

/// Values of A that always come as neighbours along k in one row: a fragment can be loaded in runs of so many.
template <AtomTraits T>
consteval int a_run() {
  for (int run = T::kValuesA; run > 1; run /= 2) {
    bool good = T::kValuesA % run == 0;
    for (int lane = 0; good && lane < T::kLanes; ++lane) {
      for (int v = 0; good && v < T::kValuesA; ++v) {
        const RowK first = T::a_coord(lane, v - v % run);
        good = T::a_coord(lane, v) == RowK{first.row, first.k + v % run} && first.k % run == 0;
      }
    }
    if (good) return run;
  }
  return 1;
}

template <AtomTraits T>
consteval int b_run() {
  for (int run = T::kValuesB; run > 1; run /= 2) {
    bool good = T::kValuesB % run == 0;
    for (int lane = 0; good && lane < T::kLanes; ++lane) {
      for (int v = 0; good && v < T::kValuesB; ++v) {
        const ColK first = T::b_coord(lane, v - v % run);
        good = T::b_coord(lane, v) == ColK{first.col, first.k + v % run} && first.k % run == 0;
      }
    }
    if (good) return run;
  }
  return 1;
}

/// Everything above that must hold of any atom, scale maps aside.
template <AtomTraits T>
consteval bool is_well_formed() {
  return a_is_bijective<T>() && b_is_bijective<T>() && c_is_bijective<T>() && peers_are_right<T, true>() &&
         peers_are_right<T, false>();
}

}  // namespace fp4pa::core
