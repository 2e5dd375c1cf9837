// A bias to f32: of row n of W, of a product that has one.
#pragma once

#include <cstdint>

#include "backends/sm80/convert.hpp"
#include "backends/sm80/gemm_params.hpp"

namespace fp4pa::sm90 {

/// Of 16 bits, as a plain product's is.
__device__ __forceinline__ float load_bias_16(const sm80::GemmParams& p, int n) {
  const std::uint16_t bits = static_cast<const std::uint16_t*>(p.bias)[n];
  return p.bias_dtype == DType::kF16 ? sm80::f16_to_f32(bits, 0) : __uint_as_float(std::uint32_t{bits} << 16);
}
/// Of any type.
__device__ __forceinline__ float load_bias(const sm80::GemmParams& p, int n) {
  return p.bias_dtype == DType::kF32 ? static_cast<const float*>(p.bias)[n] : load_bias_16(p, n);
}

}  // namespace fp4pa::sm90
