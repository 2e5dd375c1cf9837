// The CPU's matrix core for products: rows of a weight become floats in lane order, and are multiplied with rows of x in the same order.
// One version per instruction set.
//
// Lane order is that of eight codes to a word (decode-inl.h), in chunks as long as an instruction set's vectors, so that decoding needs no
// shuffle. It is a matter between the operations of one table.
#pragma once

#include <cstdint>

#include "fp4pa/quantize.hpp"

namespace fp4pa::cpu {

inline constexpr int kPanelRows = 4;       // weight rows of a panel
inline constexpr int kPanelMultiple = 64;  // length of a row is a multiple of this

/// Rows of a weight as they lie in memory: of each, `cols` codes in whole groups and their scales side by side.
struct WeightRows {
  BlockFormat format;
  std::int64_t cols;
  const std::uint8_t* codes[kPanelRows];
  const std::uint8_t* scales[kPanelRows];
};

/// Lengths k are multiples of kPanelMultiple, and not less than cols; rows of k floats are aligned to 64 bytes.
struct GemmOps {
  const char* name;
  /// Puts k floats in lane order.
  void (*order)(const float* in, std::int64_t k, float* out);
  /// Codes times scales, in lane order, zeros behind them; rows of `panel` are k floats apart.
  void (*decode_panel)(const WeightRows& w, std::int64_t k, float* panel);
  /// out[i * kPanelRows + j] = sum_k panel[j][k] * x[i][k] for m rows of x; rows of both are k floats apart.
  void (*multiply_panel)(const float* panel, const float* x, std::int64_t m, std::int64_t k, float* out);
  /// Both in one, for up to `few` rows of x: decoded codes stay in registers.
  std::int64_t few;
  void (*multiply_few)(const WeightRows& w, const float* x, std::int64_t m, std::int64_t k, float* out);
};

/// For the best instruction set of this CPU, lowered as tile_ops() is.
[[nodiscard]] const GemmOps& gemm_ops() noexcept;
/// Without SIMD.
[[nodiscard]] const GemmOps& scalar_gemm_ops() noexcept;

}  // namespace fp4pa::cpu
