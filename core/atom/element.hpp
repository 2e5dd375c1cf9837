// What an operand element or a scale can be: a format of core/formats, one of the two 16-bit floats, or nothing.
//
// An atom names its operand types with these, so that whoever loads a fragment knows which codes to produce. All of
// them offer kBits, encode(float) and decode(code); code_value() hides that the 8-bit formats take bytes and the
// others words.
#pragma once

#include <concepts>
#include <cstdint>

#include "core/formats/elements.hpp"
#include "core/formats/half.hpp"
#include "core/macros.hpp"

namespace fp4pa::core {

/// IEEE binary16 as an operand type.
struct F16 {
  static constexpr int kBits = 16;
  FP4PA_FN static constexpr std::uint16_t encode(float x) { return f32_to_f16(x); }
  FP4PA_FN static constexpr float decode(std::uint16_t code) { return f16_to_f32(code); }
};

/// bfloat16 as an operand type.
struct BF16 {
  static constexpr int kBits = 16;
  FP4PA_FN static constexpr std::uint16_t encode(float x) { return f32_to_bf16(x); }
  FP4PA_FN static constexpr float decode(std::uint16_t code) { return bf16_to_f32(code); }
};

/// The scale type of an instruction that applies no scales.
struct NoScale {};

template <class E>
concept ElementFormat = requires(float x) {
  { E::kBits } -> std::convertible_to<int>;
  { E::encode(x) } -> std::unsigned_integral;
  { E::decode(E::encode(x)) } -> std::same_as<float>;
};

/// Value of a code held in a register's low bits.
template <ElementFormat E>
FP4PA_FN constexpr float code_value(std::uint32_t code) {
  return E::decode(static_cast<decltype(E::encode(0.0f))>(code));
}

/// Code of a value, in a register's low bits.
template <ElementFormat E>
FP4PA_FN constexpr std::uint32_t value_code(float x) {
  return E::encode(x);
}

}  // namespace fp4pa::core
