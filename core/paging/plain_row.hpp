// Rows of plain tensors, f32, f16 or bf16, to floats and back: what append reads and gather writes.
//
// The floats in between carry every input exactly, so that quantising an f16 row and quantising the same values as f32
// give the same codes.
#pragma once

#include <cstdint>

#include "core/formats/half.hpp"
#include "core/macros.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

/// Address of element `index` of a tensor.
[[nodiscard]] FP4PA_FN const void* element_address(const void* data, DType dtype, std::int64_t index) {
  return static_cast<const std::uint8_t*>(data) + index * size_of(dtype);
}
[[nodiscard]] FP4PA_FN void* element_address(void* data, DType dtype, std::int64_t index) {
  return static_cast<std::uint8_t*>(data) + index * size_of(dtype);
}

/// @param row  n elements of `dtype`, aligned to their size
FP4PA_FN void load_plain_row(const void* row, DType dtype, int n, float* out) {
  const auto* const halves = static_cast<const std::uint16_t*>(row);
  const auto* const floats = static_cast<const float*>(row);
  switch (dtype) {
    case DType::kF32:
      for (int i = 0; i < n; ++i) out[i] = floats[i];
      break;
    case DType::kF16:
      for (int i = 0; i < n; ++i) out[i] = f16_to_f32(halves[i]);
      break;
    case DType::kBF16:
      for (int i = 0; i < n; ++i) out[i] = bf16_to_f32(halves[i]);
      break;
  }
}

/// Rounds once, to nearest even.
/// @param row  n elements of `dtype`, aligned to their size
FP4PA_FN void store_plain_row(const float* x, int n, DType dtype, void* row) {
  auto* const halves = static_cast<std::uint16_t*>(row);
  auto* const floats = static_cast<float*>(row);
  switch (dtype) {
    case DType::kF32:
      for (int i = 0; i < n; ++i) floats[i] = x[i];
      break;
    case DType::kF16:
      for (int i = 0; i < n; ++i) halves[i] = f32_to_f16(x[i]);
      break;
    case DType::kBF16:
      for (int i = 0; i < n; ++i) halves[i] = f32_to_bf16(x[i]);
      break;
  }
}

}  // namespace fp4pa::core
