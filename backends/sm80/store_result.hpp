// Results of products to memory, in f32, f16 or bf16: rounded as core/formats/half.hpp rounds, by instruction, which may give a NaN
// another payload.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::sm80 {

/// @param at  of the element, in a tensor of `dtype`, which has 16 bits
FP4PA_FN void store_result_16(float x, DType dtype, void* data, std::int64_t at) {
  static_cast<std::uint16_t*>(data)[at] = dtype == DType::kF16 ? round_f16(x) : round_bf16(x);
}
/// Of any type.
FP4PA_FN void store_result(float x, DType dtype, void* data, std::int64_t at) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[at] = x;
  } else {
    store_result_16(x, dtype, data, at);
  }
}

}  // namespace fp4pa::sm80
