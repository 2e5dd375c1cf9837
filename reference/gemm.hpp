// The plain double reference of the matrix products: operands decoded one element at a time, sums in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4pa/gemm.hpp"
#include "reference/element.hpp"

namespace fp4pa::reference {

/// A matrix [rows, cols] of doubles.
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> at;
};

/// Where the scale of (row, group) lies, counted out from the layouts' descriptions.
[[nodiscard]] inline std::int64_t scale_index(ScaleLayout layout, std::int64_t row, std::int64_t g, std::int64_t groups) {
  if (layout == ScaleLayout::kLinear) return row * groups + g;
  const std::int64_t atom = row / 128 * ((groups + 3) / 4) + g / 4;
  return atom * 512 + row % 32 * 16 + row % 128 / 32 * 4 + g % 4;
}

/// Weight `index` of a batch, decoded; memory is the host's.
[[nodiscard]] inline Matrix decode(const Fp4Weight& w, std::int64_t index = 0) {
  const std::int64_t group = group_size(w.format);
  const std::int64_t groups = (w.cols + group - 1) / group;
  const std::int64_t row_bytes = groups * group / 2;
  const auto* const codes = static_cast<const std::uint8_t*>(w.codes) + index * w.rows * row_bytes;
  const std::int64_t scale_bytes = static_cast<std::int64_t>(fp4_weight_scale_bytes(w.format, w.scale_layout, w.rows, w.cols));
  const auto* const scales = static_cast<const std::uint8_t*>(w.scales) + index * scale_bytes;
  const double global = w.global_scale_ptr != nullptr ? w.global_scale_ptr[index] : w.global_scale;
  Matrix m{w.rows, w.cols, std::vector<double>(static_cast<std::size_t>(w.rows * w.cols))};
  for (std::int64_t r = 0; r < w.rows; ++r) {
    for (std::int64_t c = 0; c < w.cols; ++c) {
      const unsigned code = codes[r * row_bytes + c / 2] >> (c % 2 * 4) & 15u;
      const std::uint8_t s = scales[scale_index(w.scale_layout, r, c / group, groups)];
      const double scale = w.format == BlockFormat::kNvfp4 ? decode_e4m3(s & 0x7f) * global : decode_e8m0(s);
      m.at[static_cast<std::size_t>(r * w.cols + c)] = decode_e2m1(code) * scale;
    }
  }
  return m;
}

/// One element of a b^T, and the sum of its terms' magnitudes, which bounds what f32 sums may err by.
struct Element {
  double sum = 0, magnitude = 0;
};
[[nodiscard]] inline Element product(const Matrix& a, std::int64_t i, const Matrix& b, std::int64_t j) {
  Element e;
  for (std::int64_t k = 0; k < a.cols; ++k) {
    const double term = a.at[static_cast<std::size_t>(i * a.cols + k)] * b.at[static_cast<std::size_t>(j * b.cols + k)];
    e.sum += term;
    e.magnitude += std::fabs(term);
  }
  return e;
}

}  // namespace fp4pa::reference
