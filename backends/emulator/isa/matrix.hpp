// The arithmetic common to all matrix instruction models: gather from the lanes, multiply, scatter.
//
// A model (sm120_mma.hpp and its siblings) is a struct of tables in the manufacturer's direction: for element (row, k)
// of A, which lane, register and bit holds it. The shims' traits go the other way, from lane to element; nothing is
// shared between the two.
//
// Arithmetic. A product of two elements is exact in double, and so is the sum of a scale block of 8-bit or smaller
// elements (41 bits at most). Blocks, times their two scales, and C are added in double, and the result is rounded
// once to f32: an error of some 2^-50 before the last rounding, where the hardware is free to make more. NaN elements
// and NaN scales give NaN in every sum that they enter, zeros included.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

#include "backends/emulator/isa/codes.hpp"

namespace fp4pa::emulator::isa {

/// Where a code begins.
struct Place {
  int lane;
  int reg;
  int bit;
};

/// Where a scale byte is.
struct ScalePlace {
  int lane;
  int byte;
};

/// The constants of a block-scaled instruction, PTX's byte-id and thread-id or AMD's opsel (in the bytes).
struct Selectors {
  int byte_a = 0;
  int thread_a = 0;
  int byte_b = 0;
  int thread_b = 0;
};

namespace detail {

template <class Table, class Registers>
double element(const Table& values, const Registers& registers, Place at) {
  const std::uint32_t word = registers[at.lane][at.reg];
  return values[(word >> at.bit) & (values.size() - 1)];
}

template <class Table, class Scales>
double scale(const Table& values, const Scales& scales, ScalePlace at) {
  return values[(static_cast<std::uint32_t>(scales[at.lane]) >> (8 * at.byte)) & 0xffu];
}

}  // namespace detail

/// D = A B + C of one warp. Everything is indexed [lane][register], the scales [lane]; d and c may be the same.
/// @tparam Isa  kM, kN, kK, kBlocks (1 without scales); CodeA, CodeB, Scale; a_at, b_at, d_at and, with scales,
///              sfa_at, sfb_at
template <class Isa, class A, class B, class C, class ScalesA, class ScalesB, class D>
void execute(const A& a, const B& b, const C& c, const ScalesA& sfa, const ScalesB& sfb, const Selectors& select,
             D& d) {
  constexpr int kBlock = Isa::kK / Isa::kBlocks;
  constexpr bool kScaled = !std::same_as<typename Isa::Scale, ScaleNone>;

  const auto& values_a = code_table<typename Isa::CodeA>();
  const auto& values_b = code_table<typename Isa::CodeB>();

  double b_values[Isa::kK][Isa::kN];
  double b_scales[Isa::kN][Isa::kBlocks];
  bool b_finite = true;
  for (int n = 0; n < Isa::kN; ++n) {
    for (int k = 0; k < Isa::kK; ++k) {
      b_values[k][n] = detail::element(values_b, b, Isa::b_at(k, n));
      b_finite = b_finite && std::isfinite(b_values[k][n]);
    }
    for (int block = 0; block < Isa::kBlocks; ++block) {
      if constexpr (kScaled) {
        b_scales[n][block] = detail::scale(code_table<typename Isa::Scale>(), sfb, Isa::sfb_at(n, block, select));
      } else {
        b_scales[n][block] = 1.0;
      }
    }
  }

  // d may be c: an element is read just before it is written.
  for (int m = 0; m < Isa::kM; ++m) {
    double sums[Isa::kBlocks][Isa::kN] = {};
    for (int k = 0; k < Isa::kK; ++k) {
      const double x = detail::element(values_a, a, Isa::a_at(m, k));
      if (x == 0.0 && b_finite) continue;  // adds nothing
      for (int n = 0; n < Isa::kN; ++n) sums[k / kBlock][n] += x * b_values[k][n];
    }
    double a_scales[Isa::kBlocks];
    for (int block = 0; block < Isa::kBlocks; ++block) {
      if constexpr (kScaled) {
        a_scales[block] = detail::scale(code_table<typename Isa::Scale>(), sfa, Isa::sfa_at(m, block, select));
      } else {
        a_scales[block] = 1.0;
      }
    }
    for (int n = 0; n < Isa::kN; ++n) {
      double sum = 0.0;
      for (int block = 0; block < Isa::kBlocks; ++block) sum += sums[block][n] * a_scales[block] * b_scales[n][block];
      const Place at = Isa::d_at(m, n);
      d[at.lane][at.reg] = static_cast<float>(static_cast<double>(c[at.lane][at.reg]) + sum);
    }
  }
}

/// Lane `lane`'s registers of D, for a device on which each lane computes its own from everybody's operands: the same sums in
/// the same order as execute(), which adds nothing where an element is zero. c and d are this lane's, and may be the same.
template <class Isa, class A, class B, class ScalesA, class ScalesB, int kRegisters>
FP4PA_FN void execute_lane(int lane, const A& a, const B& b, const float (&c)[kRegisters], const ScalesA& sfa, const ScalesB& sfb,
                           const Selectors& select, float (&d)[kRegisters]) {
  constexpr int kBlock = Isa::kK / Isa::kBlocks;
  const auto element = [](const auto& registers, Place at, auto code) {
    using Code = decltype(code);
    return Code::value(static_cast<int>((registers[at.lane][at.reg] >> at.bit) & ((1u << Code::kWidth) - 1u)));
  };
  FP4PA_NO_UNROLL
  for (int i = 0; i < Isa::kM * Isa::kN; ++i) {
    const int m = i / Isa::kN;
    const int n = i % Isa::kN;
    const Place at = Isa::d_at(m, n);
    if (at.lane != lane) continue;
    double sum = 0.0;
    FP4PA_NO_UNROLL
    for (int block = 0; block < Isa::kBlocks; ++block) {
      double products = 0.0;
      FP4PA_NO_UNROLL
      for (int k = block * kBlock; k < (block + 1) * kBlock; ++k) {
        products += element(a, Isa::a_at(m, k), typename Isa::CodeA()) * element(b, Isa::b_at(k, n), typename Isa::CodeB());
      }
      if constexpr (!std::same_as<typename Isa::Scale, ScaleNone>) {
        const auto scale = [](const auto& words, ScalePlace of) {
          return Isa::Scale::value(static_cast<int>((static_cast<std::uint32_t>(words[of.lane]) >> (8 * of.byte)) & 0xffu));
        };
        products = products * scale(sfa, Isa::sfa_at(m, block, select)) * scale(sfb, Isa::sfb_at(n, block, select));
      }
      sum += products;
    }
    d[at.reg] = static_cast<float>(static_cast<double>(c[at.reg]) + sum);
  }
}

}  // namespace fp4pa::emulator::isa
