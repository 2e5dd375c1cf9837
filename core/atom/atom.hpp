// What an atom is: the meaning of one matrix instruction, as plain functions that any compiler can evaluate.
//
// An atom computes D = A B + C, with A [kM, kK], B [kK, kN], C and D [kM, kN] in f32, spread over kLanes lanes. Its
// traits say which element each lane holds where, and nothing else; the instruction that does it stands in a file of
// its own (AtomInstruction), and the host has a model of it that was written from the manufacturer's tables and not
// from these traits (backends/emulator/isa). tests/conformance holds the three against each other.
//
// Terms. A lane holds kValuesA values of A. Value v lies in the lane's registers as its Packing says, and is element
// a_coord(lane, v) of A; so for B and C. C's value v is the v-th f32 register. A block-scaled instruction multiplies
// each run of kScaleGroup elements along k by a scale per row of A and per column of B. The scales of an operand are
// bytes in one 32-bit register per lane; the ScaleSelect, a constant of the instruction, says which lanes and bytes
// are read, and sfa_coord(lane, byte, select) says whose scale that byte is.
#pragma once

#include <concepts>
#include <cstdint>

#include "core/atom/element.hpp"
#include "core/macros.hpp"

namespace fp4pa::core {

/// An element of A.
struct RowK {
  int row;
  int k;
  friend constexpr bool operator==(const RowK&, const RowK&) = default;
};

/// An element of B.
struct ColK {
  int col;
  int k;
  friend constexpr bool operator==(const ColK&, const ColK&) = default;
};

/// An element of C and D.
struct RowCol {
  int row;
  int col;
  friend constexpr bool operator==(const RowCol&, const RowCol&) = default;
};

/// Whose scale a byte is: group `group` along k of row (SFA) or column (SFB) `index`.
struct ScaleCoord {
  int index;
  int group;
  /// False for a byte that the instruction does not look at.
  [[nodiscard]] FP4PA_FN constexpr bool read() const { return index >= 0; }
  friend constexpr bool operator==(const ScaleCoord&, const ScaleCoord&) = default;
};
inline constexpr ScaleCoord kNotRead{-1, -1};

/// Constants by which an instruction chooses among the scale registers of its lanes. What each may be is up to the
/// atom.
struct ScaleSelect {
  int byte = 0;    ///< first byte that is read (SM120 byte-id, gfx950 opsel)
  int thread = 0;  ///< which lane of a group supplies it (SM120 thread-id)
  friend constexpr bool operator==(const ScaleSelect&, const ScaleSelect&) = default;
};

/// How values lie in a lane's registers: value v occupies bits [v * bits, (v + 1) * bits) of the registers taken as one
/// little-endian string, and its code stands `shift` bits above the lower end, zeros around it.
struct Packing {
  int bits;
  int shift = 0;
  friend constexpr bool operator==(const Packing&, const Packing&) = default;
};

/// Registers of 32 bits for so many values.
FP4PA_FN constexpr int packed_registers(int values, Packing packing) { return (values * packing.bits + 31) / 32; }

template <class T>
concept AtomTraits = requires {
  requires std::same_as<decltype(T::kM), const int> && std::same_as<decltype(T::kN), const int> &&
               std::same_as<decltype(T::kK), const int> && std::same_as<decltype(T::kLanes), const int>;
  requires ElementFormat<typename T::ElementA> && ElementFormat<typename T::ElementB>;
  typename T::Scale;  // E8M0, UE4M3 or NoScale
  requires std::same_as<decltype(T::kPackingA), const Packing> && std::same_as<decltype(T::kPackingB), const Packing>;

  // Every element is held by exactly one lane.
  requires T::kValuesA * T::kLanes == T::kM * T::kK;
  requires T::kValuesB * T::kLanes == T::kK * T::kN;
  requires T::kValuesC * T::kLanes == T::kM * T::kN;
  requires T::kRegistersA == packed_registers(T::kValuesA, T::kPackingA);
  requires T::kRegistersB == packed_registers(T::kValuesB, T::kPackingB);
  { T::a_coord(0, 0) } -> std::same_as<RowK>;
  { T::b_coord(0, 0) } -> std::same_as<ColK>;
  { T::c_coord(0, 0) } -> std::same_as<RowCol>;

  // Reductions over a row or a column of C: lanes whose numbers differ only in these bits hold the same rows (columns)
  // in the same values, and no other lane holds them. A reduction combines a lane's own values, then exchanges with
  // lane ^ bit for each bit that is set.
  requires std::same_as<decltype(T::kRowPeerBits), const unsigned>;
  requires std::same_as<decltype(T::kColPeerBits), const unsigned>;
};

template <class T>
inline constexpr bool kIsScaled = !std::same_as<typename T::Scale, NoScale>;

template <class T>
concept ScaledAtomTraits = AtomTraits<T> && kIsScaled<T> && requires(ScaleSelect select) {
  requires ElementFormat<typename T::Scale> && T::Scale::kBits == 8;
  requires T::kScaleGroup * T::kScaleGroups == T::kK;
  { T::valid_select_a(select) } -> std::same_as<bool>;
  { T::valid_select_b(select) } -> std::same_as<bool>;
  { T::sfa_coord(0, 0, select) } -> std::same_as<ScaleCoord>;
  { T::sfb_coord(0, 0, select) } -> std::same_as<ScaleCoord>;
};

/// The lane's share of each operand, as an instruction takes it.
template <AtomTraits T>
struct AtomRegisters {
  using A = std::uint32_t[T::kRegistersA];
  using B = std::uint32_t[T::kRegistersB];
  using C = float[T::kValuesC];
};

/// The instruction of an atom. `mma` is a device function, collective over the kLanes lanes of a warp that has
/// converged; d and c may be the same array. A scaled one is `mma<select_a, select_b>(d, a, b, c, sfa, sfb)`, the
/// selects defaulting to {}; an unscaled one is `mma(d, a, b, c)`. On an architecture that lacks it, a call does not
/// compile or does not link.
template <class I>
concept AtomInstruction =
    AtomTraits<typename I::Atom> &&
    ((kIsScaled<typename I::Atom> &&
      requires(typename AtomRegisters<typename I::Atom>::A& a, typename AtomRegisters<typename I::Atom>::B& b,
               typename AtomRegisters<typename I::Atom>::C& c, std::uint32_t sf) {
        I::mma(c, a, b, c, sf, sf);
        I::template mma<ScaleSelect{}, ScaleSelect{}>(c, a, b, c, sf, sf);
      }) ||
     (!kIsScaled<typename I::Atom> &&
      requires(typename AtomRegisters<typename I::Atom>::A& a, typename AtomRegisters<typename I::Atom>::B& b,
               typename AtomRegisters<typename I::Atom>::C& c) { I::mma(c, a, b, c); }));

}  // namespace fp4pa::core
