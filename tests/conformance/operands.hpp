// One matrix product in two shapes: as matrices of codes, and as the registers of a warp. Between them stand an atom's
// traits.
//
// The checks are written once for whatever executes an atom: a model on the host or an instruction on a device. An
// executor is
//   using Atom; static constexpr double kTolerance (of the sum of magnitudes);
//   void run(Selects, std::span<const Inputs<Atom>>, std::span<Outputs<Atom>>)
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/atom/pack.hpp"

namespace fp4pa::conformance {

/// The selects of both scale operands.
struct Selects {
  core::ScaleSelect a;
  core::ScaleSelect b;
};

/// What the lanes of a warp hold before the instruction. Plain memory, copied to a device as it is.
template <class Atom>
struct Inputs {
  std::uint32_t a[Atom::kLanes][Atom::kRegistersA];
  std::uint32_t b[Atom::kLanes][Atom::kRegistersB];
  float c[Atom::kLanes][Atom::kValuesC];
  std::uint32_t sfa[Atom::kLanes];
  std::uint32_t sfb[Atom::kLanes];
};

/// And after it.
template <class Atom>
struct Outputs {
  float d[Atom::kLanes][Atom::kValuesC];
};

template <class Atom>
consteval int scale_groups() {
  if constexpr (core::kIsScaled<Atom>) {
    return Atom::kScaleGroups;
  } else {
    return 1;
  }
}

/// Codes of A (by rows), B (by columns) and their scales; values of C.
template <class Atom>
struct Matrices {
  std::uint32_t a[Atom::kM][Atom::kK] = {};
  std::uint32_t b[Atom::kN][Atom::kK] = {};
  float c[Atom::kM][Atom::kN] = {};
  std::uint8_t sfa[Atom::kM][scale_groups<Atom>()] = {};
  std::uint8_t sfb[Atom::kN][scale_groups<Atom>()] = {};

  /// Scale 1 everywhere.
  void set_unit_scales() {
    if constexpr (core::kIsScaled<Atom>) {
      const auto one = static_cast<std::uint8_t>(core::value_code<typename Atom::Scale>(1.0f));
      for (auto& row : sfa) {
        for (auto& s : row) s = one;
      }
      for (auto& col : sfb) {
        for (auto& s : col) s = one;
      }
    }
  }
};

/// Registers of the warp. Scale bytes that the traits call unread hold NaN, so that an instruction that reads them
/// shows.
template <class Traits>
Inputs<Traits> pack(const Matrices<Traits>& m, Selects select) {
  Inputs<Traits> in{};
  for (int lane = 0; lane < Traits::kLanes; ++lane) {
    for (int v = 0; v < Traits::kValuesA; ++v) {
      const core::RowK at = Traits::a_coord(lane, v);
      core::put_code<typename Traits::ElementA>(in.a[lane], v, Traits::kPackingA, m.a[at.row][at.k]);
    }
    for (int v = 0; v < Traits::kValuesB; ++v) {
      const core::ColK at = Traits::b_coord(lane, v);
      core::put_code<typename Traits::ElementB>(in.b[lane], v, Traits::kPackingB, m.b[at.col][at.k]);
    }
    for (int v = 0; v < Traits::kValuesC; ++v) {
      const core::RowCol at = Traits::c_coord(lane, v);
      in.c[lane][v] = m.c[at.row][at.col];
    }
    if constexpr (core::kIsScaled<Traits>) {
      for (int byte = 0; byte < 4; ++byte) {
        const core::ScaleCoord a = Traits::sfa_coord(lane, byte, select.a);
        const core::ScaleCoord b = Traits::sfb_coord(lane, byte, select.b);
        const std::uint8_t nan = Traits::Scale::kNan;
        in.sfa[lane] = core::put_scale_byte(in.sfa[lane], byte, a.read() ? m.sfa[a.index][a.group] : nan);
        in.sfb[lane] = core::put_scale_byte(in.sfb[lane], byte, b.read() ? m.sfb[b.index][b.group] : nan);
      }
    }
  }
  return in;
}

/// [kM][kN], row-major.
template <class Traits>
std::vector<float> unpack(const Outputs<Traits>& out) {
  std::vector<float> d(Traits::kM * Traits::kN, std::numeric_limits<float>::quiet_NaN());
  for (int lane = 0; lane < Traits::kLanes; ++lane) {
    for (int v = 0; v < Traits::kValuesC; ++v) {
      const core::RowCol at = Traits::c_coord(lane, v);
      d[at.row * Traits::kN + at.col] = out.d[lane][v];
    }
  }
  return d;
}

/// The product in double, by the library's own decoders, and the sum of magnitudes that errors are measured against.
struct Reference {
  std::vector<double> d;
  std::vector<double> magnitude;
};

template <class Traits>
Reference reference(const Matrices<Traits>& m) {
  Reference r{std::vector<double>(Traits::kM * Traits::kN), std::vector<double>(Traits::kM * Traits::kN)};
  for (int row = 0; row < Traits::kM; ++row) {
    for (int col = 0; col < Traits::kN; ++col) {
      double sum = m.c[row][col];
      double magnitude = sum < 0 ? -sum : sum;
      for (int k = 0; k < Traits::kK; ++k) {
        double term = static_cast<double>(core::code_value<typename Traits::ElementA>(m.a[row][k])) *
                      core::code_value<typename Traits::ElementB>(m.b[col][k]);
        if constexpr (core::kIsScaled<Traits>) {
          const int group = k / Traits::kScaleGroup;
          term *=
              static_cast<double>(Traits::Scale::decode(m.sfa[row][group])) * Traits::Scale::decode(m.sfb[col][group]);
        }
        sum += term;
        magnitude += term < 0 ? -term : term;
      }
      r.d[row * Traits::kN + col] = sum;
      r.magnitude[row * Traits::kN + col] = magnitude;
    }
  }
  return r;
}

}  // namespace fp4pa::conformance
