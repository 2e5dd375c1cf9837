// The CPU's matrix core for products: decoded rows times decoded rows, one version per instruction set.
#pragma once

#include <cstdint>

namespace fp4pa::cpu {

inline constexpr int kPanelRows = 4;      // weight rows of a panel
inline constexpr int kPanelMultiple = 16;  // length of a row is a multiple of this

struct GemmOps {
  const char* name;
  /// out[i * kPanelRows + j] = sum_k panel[j][k] * x[i][k] for m rows of x.
  /// @param k  a multiple of kPanelMultiple; rows of both are k floats apart, aligned to 64 bytes
  void (*multiply_panel)(const float* panel, const float* x, std::int64_t m, std::int64_t k, float* out);
};

/// For the best instruction set of this CPU, lowered as tile_ops() is.
[[nodiscard]] const GemmOps& gemm_ops() noexcept;
/// Without SIMD.
[[nodiscard]] const GemmOps& scalar_gemm_ops() noexcept;

}  // namespace fp4pa::cpu
