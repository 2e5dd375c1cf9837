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

#include <concepts>
#include <cstdint>

#include "backends/emulator/isa/codes.hpp"
#include "backends/emulator/isa/product.hpp"

namespace fp4pa::emulator::isa {

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

/// Where the elements of a matrix are, and how many registers of a lane they fill.
template <int kRows, int kCols>
struct Layout {
  Place at[kRows][kCols] = {};
  int registers = 0;
};
template <int kRows, int kCols, class At>
constexpr Layout<kRows, kCols> layout(const At& at) {
  Layout<kRows, kCols> l;
  for (int row = 0; row < kRows; ++row) {
    for (int col = 0; col < kCols; ++col) {
      l.at[row][col] = at(row, col);
      if (l.at[row][col].reg >= l.registers) l.registers = l.at[row][col].reg + 1;
    }
  }
  return l;
}

template <class Isa>
struct Layouts {
  static constexpr auto kA = layout<Isa::kM, Isa::kK>([](int m, int k) { return Isa::a_at(m, k); });
  static constexpr auto kB = layout<Isa::kK, Isa::kN>([](int k, int n) { return Isa::b_at(k, n); });
  static constexpr auto kD = layout<Isa::kM, Isa::kN>([](int m, int n) { return Isa::d_at(m, n); });
};

/// One of the words' bytes as a scale.
template <class Code, int kLanes>
double scale(const std::uint32_t (&words)[kLanes], ScalePlace at) {
  return code_table<Code>()[(words[at.lane] >> (8 * at.byte)) & 0xffu];
}

/// What the codes of a matrix mean.
template <class Code, int kRows, int kCols, int kLanes, int kRegisters>
void decode(const Layout<kRows, kCols>& layout, const std::uint32_t (&words)[kLanes][kRegisters], double (&values)[kRows][kCols]) {
  isa::decode(kRows * kCols, &layout.at[0][0], &words[0][0], kRegisters, Code::kWidth, code_table<Code>().data(), &values[0][0]);
}

/// A's and B's registers and scales, [lane].
template <class Isa>
struct Operands {
  std::uint32_t a[Isa::kLanes][Layouts<Isa>::kA.registers];
  std::uint32_t b[Isa::kLanes][Layouts<Isa>::kB.registers];
  std::uint32_t sfa[Isa::kLanes], sfb[Isa::kLanes];  // not set without scales
};
/// A B as D's registers lie.
template <class Isa>
using Sums = double[Isa::kLanes][Layouts<Isa>::kD.registers];

template <class Isa>
void product(const Operands<Isa>& in, const Selectors& select, Sums<Isa>& out) {
  constexpr int kBlock = Isa::kK / Isa::kBlocks;
  double a[Isa::kM][Isa::kK], b[Isa::kK][Isa::kN];
  decode<typename Isa::CodeA>(Layouts<Isa>::kA, in.a, a);
  decode<typename Isa::CodeB>(Layouts<Isa>::kB, in.b, b);

  double sums[Isa::kM][Isa::kN] = {};
  for (int block = 0; block < Isa::kBlocks; ++block) {
    double products[Isa::kM][Isa::kN];
    multiply(Isa::kM, Isa::kN, kBlock, &a[0][block * kBlock], Isa::kK, b[block * kBlock], &products[0][0]);
    double b_scales[Isa::kN];
    for (int n = 0; n < Isa::kN; ++n) {
      if constexpr (std::same_as<typename Isa::Scale, ScaleNone>) {
        b_scales[n] = 1.0;
      } else {
        b_scales[n] = scale<typename Isa::Scale>(in.sfb, Isa::sfb_at(n, block, select));
      }
    }
    for (int m = 0; m < Isa::kM; ++m) {
      double a_scale = 1.0;
      if constexpr (!std::same_as<typename Isa::Scale, ScaleNone>) {
        a_scale = scale<typename Isa::Scale>(in.sfa, Isa::sfa_at(m, block, select));
      }
      for (int n = 0; n < Isa::kN; ++n) sums[m][n] += products[m][n] * a_scale * b_scales[n];
    }
  }
  for (int m = 0; m < Isa::kM; ++m) {
    for (int n = 0; n < Isa::kN; ++n) {
      const Place& at = Layouts<Isa>::kD.at[m][n];
      out[at.lane][at.reg] = sums[m][n];
    }
  }
}

}  // namespace detail

/// D = A B + C of one warp. Everything is indexed [lane][register], the scales [lane]; d and c may be the same.
/// @tparam Isa  kM, kN, kK, kLanes, kBlocks (1 without scales); CodeA, CodeB, Scale; a_at, b_at, d_at and, with scales,
///              sfa_at, sfb_at
template <class Isa, class A, class B, class C, class ScalesA, class ScalesB, class D>
void execute(const A& a, const B& b, const C& c, const ScalesA& sfa, const ScalesB& sfb, const Selectors& select,
             D& d) {
  // What depends on where a caller keeps its registers is these copies alone: callers are many, and compile the rest once.
  detail::Operands<Isa> in;
  for (int lane = 0; lane < Isa::kLanes; ++lane) {
    const auto& from_a = a[lane];
    const auto& from_b = b[lane];
    for (int r = 0; r < detail::Layouts<Isa>::kA.registers; ++r) in.a[lane][r] = from_a[r];
    for (int r = 0; r < detail::Layouts<Isa>::kB.registers; ++r) in.b[lane][r] = from_b[r];
    if constexpr (!std::same_as<typename Isa::Scale, ScaleNone>) {
      in.sfa[lane] = sfa[lane];
      in.sfb[lane] = sfb[lane];
    }
  }
  detail::Sums<Isa> sums;
  detail::product<Isa>(in, select, sums);
  for (int lane = 0; lane < Isa::kLanes; ++lane) {
    const auto& from = c[lane];
    auto&& to = d[lane];
    for (int r = 0; r < detail::Layouts<Isa>::kD.registers; ++r) to[r] = static_cast<float>(static_cast<double>(from[r]) + sums[lane][r]);
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
