// An FP4 matrix [rows, cols] whose groups run along cols: where its codes and scales lie, whatever cols is.
//
// A row is as long as its groups: cols is rounded up to 32 (MXFP4) or 16 (NVFP4), with codes of zero behind the last
// element. Nothing else is padded, so that what checkpoints hold, whose cols are whole groups, is read where it lies.
//   codes   row r at r * code_row_bytes(), two codes a byte, even column in the low nibble
//   scales  [rows, groups()], linear or in the 128x4 layout (core/formats/scale_layout.hpp)
#pragma once

#include <cstdint>

#include "core/formats/elements.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/macros.hpp"
#include "fp4pa/quantize.hpp"

namespace fp4pa::core {

/// Tiles of `b` that cover `a`.
[[nodiscard]] FP4PA_FN constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct WeightLayout {
  BlockFormat format;
  ScaleLayout scale_layout;
  std::int64_t rows, cols;

  [[nodiscard]] FP4PA_FN constexpr int group() const { return format == BlockFormat::kNvfp4 ? 16 : 32; }
  [[nodiscard]] FP4PA_FN constexpr std::int64_t groups() const { return (cols + group() - 1) / group(); }
  [[nodiscard]] FP4PA_FN constexpr std::int64_t padded_cols() const { return groups() * group(); }
  [[nodiscard]] FP4PA_FN constexpr std::int64_t code_row_bytes() const { return padded_cols() / 2; }

  [[nodiscard]] FP4PA_FN constexpr std::int64_t code_bytes() const { return rows * code_row_bytes(); }
  [[nodiscard]] FP4PA_FN constexpr std::int64_t scale_bytes() const {
    return scale_layout == ScaleLayout::kLinear ? rows * groups()
                                                : static_cast<std::int64_t>(blocked_scale_size(rows, groups()));
  }
  [[nodiscard]] FP4PA_FN constexpr std::int64_t scale_offset(std::int64_t row, std::int64_t g) const {
    return scale_layout == ScaleLayout::kLinear ? row * groups() + g
                                                : static_cast<std::int64_t>(blocked_scale_offset(row, g, groups()));
  }
};

/// NVFP4's decode multiplier of a tensor with this largest finite magnitude: it brings that element to 6 * 448. A tensor of
/// zeros, or without finite elements, gets 1.
/// @param amax_bits  bits of the magnitude, as finite_amax_step has them
[[nodiscard]] FP4PA_FN constexpr float nvfp4_global_scale(std::uint32_t amax_bits) {
  if (amax_bits == 0) return 1.0f;
  const float scale = float_from_bits(amax_bits) / 2688.0f;
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}

}  // namespace fp4pa::core
