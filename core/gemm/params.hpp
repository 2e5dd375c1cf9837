// What a matrix product on the blocks of block.hpp is given: C [M, N] = X [M, K] W [N, K]^T. No device code.
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

/// Rows along K, and the scales beside them: W, and an X that was quantised like one (WeightLayout); or X in f16, without scales;
/// or X as terms, whose words of scales count as four scales each (terms.hpp).
struct GemmOperand {
  const std::uint8_t* rows;
  std::int64_t row_bytes;    // a multiple of 8, rows aligned to its largest power of two up to 16
  std::int64_t batch_bytes;  // between the matrices of a batch; 0 when one serves all
  std::int32_t count;        // of rows
  const std::uint8_t* scales;
  std::int64_t scale_batch_bytes;
  std::int32_t groups;  // scales of a row
  ScaleLayout scale_layout;
};

struct GemmParams {
  GemmOperand w, x;
  const float* w_globals;  // a multiplier for each weight of a batch; null: w_global
  float w_global;
  const float* x_globals;  // [batch]; null: x_global
  float x_global;
  const float* x_inverse;  // null, or [batch * M], what brings each row of X back to its size
  const std::uint16_t* x_rest;  // null, or [batch * M, 128 * stages] in f16: what the terms of X leave (core/gemm/terms.hpp)

  void* out;         // [batch, M, N]
  const void* bias;  // null, or [N]
  DType out_dtype, bias_dtype;

  std::int32_t stages;     // of K
  std::int32_t row_tiles;  // of W
};

}  // namespace fp4pa::core
