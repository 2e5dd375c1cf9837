// Two E2M1 codes in a byte: the even element in the low nibble, the odd one in the high nibble.
//
// This is the order of PTX's e2m1x2, CUTLASS, FlashInfer, vLLM and torchao. ggml is the exception: it pairs element j
// with element j + 16 (MXFP4) or j + 8 (NVFP4).
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

/// Only the low four bits of each code are used.
FP4PA_FN constexpr std::uint8_t pack_e2m1(std::uint8_t even, std::uint8_t odd) {
  return static_cast<std::uint8_t>((even & 0x0fu) | static_cast<unsigned>(odd & 0x0fu) << 4);
}

/// @param parity  the element's index modulo 2
FP4PA_FN constexpr std::uint8_t unpack_e2m1(std::uint8_t byte, int parity) {
  return static_cast<std::uint8_t>(parity == 0 ? byte & 0x0fu : byte >> 4);
}

}  // namespace fp4pa::core
