// Putting values into a lane's registers, one at a time, as an atom's Packing says.
//
// This is the definition, which tests use. Kernels move whole registers: where the values of a register
// are neighbours in memory and lie there in the same packing, a register is one load (see runs in properties.hpp).
#pragma once

#include <cstdint>

#include "core/atom/atom.hpp"

namespace fp4pa::core {

/// @param registers  indexable; bits of value v must be zero
/// @param code       the element's code, in the low kBits bits
template <class Element, class Registers>
FP4PA_FN constexpr void put_code(Registers& registers, int v, Packing packing, std::uint32_t code) {
  const int bit = v * packing.bits + packing.shift;
  const std::uint64_t placed = std::uint64_t{code & ((1u << Element::kBits) - 1u)} << (bit % 32);
  registers[bit / 32] |= static_cast<std::uint32_t>(placed);
  if (bit % 32 + Element::kBits > 32) {  // 6-bit elements only
    registers[bit / 32 + 1] |= static_cast<std::uint32_t>(placed >> 32);
  }
}

/// Byte j of a scale register.
FP4PA_FN constexpr std::uint32_t put_scale_byte(std::uint32_t word, int j, std::uint8_t scale) {
  return (word & ~(0xffu << (8 * j))) | std::uint32_t{scale} << (8 * j);
}

}  // namespace fp4pa::core
