// What a code means, for the instruction models: tables and sums of powers of two in double, exact.
//
// This is a second opinion on core/formats and deliberately shares nothing with it: an error in one must not cancel in
// the other. Compiled for devices too: there it is the arithmetic of instructions that a device lacks (tests/gpu/sm120).
// Sources: OCP OFP8 v1.0 and MX v1.0 bit tables; CDNA3 ISA for the FNUZ format; PTX ISA 9.0, "Alternate floating point
// data formats" and the (mx)f8f6f4 container rule.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "core/macros.hpp"

namespace fp4pa::emulator::isa {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// 2^exponent, a normal number.
FP4PA_FN double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

/// Sign, exponent and fraction fields of a small float to its value, NaN and infinity aside.
FP4PA_FN double field_value(int sign, int exponent, int fraction, int fraction_bits, int bias) {
  const double significand = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  const double value = significand * power_of_two((exponent == 0 ? 1 : exponent) - bias - fraction_bits);
  return sign != 0 ? -value : value;
}

/// Values of all codes of a format, computed once.
template <class Rule>
const auto& code_table() {
  static const auto kTable = [] {
    std::array<double, std::size_t{1} << Rule::kWidth> t{};
    for (std::uint32_t c = 0; c < t.size(); ++c) t[c] = Rule::value(static_cast<int>(c));
    return t;
  }();
  return kTable;
}

/// E2M1 in four bits.
struct Fp4Nibble {
  static constexpr int kWidth = 4;
  FP4PA_FN static double value(int code) {
    constexpr double kValues[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    return code < 8 ? kValues[code] : -kValues[code - 8];
  }
};

/// E2M1 in an (mx)f8f6f4 byte, 00SEEM00. The data path sees six bits S EE MMM: the two lower pad bits are more
/// fraction, which is why an unshifted code c has been seen to count as c/8. The two upper bits must be zero; what the
/// hardware makes of others is not known, and the model makes NaN of it so that nobody relies on either.
struct Fp4Container {
  static constexpr int kWidth = 8;
  FP4PA_FN static double value(int code) {
    if ((code & 0xc0) != 0) return kNaN;
    return field_value(code >> 5, (code >> 3) & 3, code & 7, 3, 1);
  }
};

/// OCP E4M3: no infinity, NaN where all bits below the sign are one.
struct Fp8Ocp {
  static constexpr int kWidth = 8;
  FP4PA_FN static double value(int code) {
    if ((code & 0x7f) == 0x7f) return kNaN;
    return field_value(code >> 7, (code >> 3) & 15, code & 7, 3, 7);
  }
};

/// E4M3 FNUZ: bias 8, no infinity, no negative zero; that code is the NaN.
struct Fp8Fnuz {
  static constexpr int kWidth = 8;
  FP4PA_FN static double value(int code) {
    if (code == 0x80) return kNaN;
    return field_value(code >> 7, (code >> 3) & 15, code & 7, 3, 8);
  }
};

struct Half {
  static constexpr int kWidth = 16;
  FP4PA_FN static double value(int code) {
    if ((code & 0x7c00) == 0x7c00) return (code & 0x3ff) != 0 ? kNaN : (code >> 15 != 0 ? -kInfinity : kInfinity);
    return field_value(code >> 15, (code >> 10) & 31, code & 0x3ff, 10, 15);
  }
};

struct Bfloat {
  static constexpr int kWidth = 16;
  FP4PA_FN static double value(int code) {
    if ((code & 0x7f80) == 0x7f80) return (code & 0x7f) != 0 ? kNaN : (code >> 15 != 0 ? -kInfinity : kInfinity);
    return field_value(code >> 15, (code >> 7) & 255, code & 0x7f, 7, 127);
  }
};

/// E8M0 scale: a biased exponent, all ones NaN.
struct ScaleE8 {
  static constexpr int kWidth = 8;
  FP4PA_FN static double value(int code) { return code == 0xff ? kNaN : power_of_two(code - 127); }
};

/// UE4M3 scale: the sign bit is not looked at, 0x7f is NaN.
struct ScaleUe4m3 {
  static constexpr int kWidth = 8;
  FP4PA_FN static double value(int code) {
    if ((code & 0x7f) == 0x7f) return kNaN;
    return field_value(0, (code >> 3) & 15, code & 7, 3, 7);
  }
};

/// "This instruction has no scales."
struct ScaleNone {};

}  // namespace fp4pa::emulator::isa
