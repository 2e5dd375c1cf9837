// quantize and dequantize: tensors in pieces of up to 256 elements of a row, which stay in the first-level cache
// between being widened to floats and encoded.
//
// Pieces are numbered over the whole tensor, so that one long row is shared by the threads as well as many short ones
// are.
#include "backends/cpu/quantize.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/cache_threads.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::cpu {
namespace {

inline constexpr int kMaxScales = kMaxRow / 16;

// One piece of a [rows, cols] tensor, and where its elements, codes and scales lie.
struct Piece {
  BlockFormat format;
  ScaleLayout layout;
  std::int64_t cols;
  std::int64_t row, column;  // of its first element
  int elements;

  // Worked out once a piece: a 64-bit division costs as much as encoding a vector.
  static Piece make(const QuantizeConfig& config, std::int64_t cols, std::int64_t index) {
    const std::int64_t pieces = pieces_per_row(cols);
    const std::int64_t row = index / pieces;
    const std::int64_t column = (index - row * pieces) * kMaxRow;
    return {config.format, config.scale_layout,
            cols,          row,
            column,        static_cast<int>(std::min<std::int64_t>(kMaxRow, cols - column))};
  }
  static std::int64_t pieces_per_row(std::int64_t cols) { return (cols + kMaxRow - 1) / kMaxRow; }

  std::int64_t first() const { return row * cols + column; }
  std::int64_t code_offset() const { return format == BlockFormat::kMxfp8 ? first() : first() / 2; }
  int groups() const { return elements / group_size(format); }

  // f(offset, g) for each of the piece's scales.
  template <class F>
  void each_scale(const F& f) const {
    const int count = groups();
    const std::int64_t row_groups = cols / group_size(format);
    const std::int64_t first_group = column / group_size(format);
    if (layout == ScaleLayout::kLinear) {
      const std::int64_t offset = row * row_groups + first_group;
      for (int g = 0; g < count; ++g) f(offset + g, g);
      return;
    }
    for (int g = 0; g < count; ++g) {
      f(static_cast<std::int64_t>(core::blocked_scale_offset(row, first_group + g, row_groups)), g);
    }
  }
};

Status quantize_with(const RowKernels& kernels, const QuantizeConfig& config, const void* x, DType dtype,
                     std::int64_t rows, std::int64_t cols, void* codes, void* scales, const ExecDesc& exec) noexcept {
  auto* const code_bytes = static_cast<std::uint8_t*>(codes);
  auto* const scale_bytes = static_cast<std::uint8_t*>(scales);
  if (config.scale_layout == ScaleLayout::kBlocked) {
    std::memset(scales, 0, core::blocked_scale_size(rows, cols / group_size(config.format)));
  }
  const core::EncodeRule rule{config.scale_mode, config.nvfp4_scale};
  const std::int64_t pieces = rows * Piece::pieces_per_row(cols);
  const int threads = num_threads(exec, pieces, 64);
  for_each(threads, pieces, [&](std::int64_t index) {
    const Piece piece = Piece::make(config, cols, index);
    alignas(64) float values[kMaxRow];
    std::uint8_t piece_scales[kMaxScales];
    const int n = piece.elements;
    kernels.load(core::element_address(x, dtype, piece.first()), dtype, n, values);
    std::uint8_t* const out = code_bytes + piece.code_offset();
    switch (config.format) {
      case BlockFormat::kMxfp4: kernels.encode(KvFormat::kMxfp4, values, n, 1.0f, rule, out, piece_scales); break;
      case BlockFormat::kNvfp4:
        kernels.encode(KvFormat::kNvfp4, values, n, config.global_scale, rule, out, piece_scales);
        break;
      case BlockFormat::kMxfp8: kernels.encode_mxfp8(values, n, config.scale_mode, out, piece_scales); break;
    }
    piece.each_scale([&](std::int64_t at, int g) { scale_bytes[at] = piece_scales[g]; });
  });
  return Status::kOk;
}

Status dequantize_with(const RowKernels& kernels, const QuantizeConfig& config, const void* codes, const void* scales,
                       std::int64_t rows, std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept {
  const auto* const code_bytes = static_cast<const std::uint8_t*>(codes);
  const auto* const scale_bytes = static_cast<const std::uint8_t*>(scales);
  const std::int64_t pieces = rows * Piece::pieces_per_row(cols);
  const int threads = num_threads(exec, pieces, 64);
  for_each(threads, pieces, [&](std::int64_t index) {
    const Piece piece = Piece::make(config, cols, index);
    alignas(64) float values[kMaxRow];
    std::uint8_t piece_scales[kMaxScales];
    const int n = piece.elements;
    piece.each_scale([&](std::int64_t at, int g) { piece_scales[g] = scale_bytes[at]; });
    const std::uint8_t* const in = code_bytes + piece.code_offset();
    switch (config.format) {
      case BlockFormat::kMxfp4: kernels.decode(KvFormat::kMxfp4, in, piece_scales, n, 1.0f, values); break;
      case BlockFormat::kNvfp4:
        kernels.decode(KvFormat::kNvfp4, in, piece_scales, n, config.global_scale, values);
        break;
      case BlockFormat::kMxfp8: kernels.decode_mxfp8(in, piece_scales, n, values); break;
    }
    kernels.store(values, n, dtype, core::element_address(y, dtype, piece.first()));
  });
  return Status::kOk;
}

}  // namespace

Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows, std::int64_t cols,
                void* codes, void* scales, const ExecDesc& exec) noexcept {
  return quantize_with(fastest_rows(), config, x, dtype, rows, cols, codes, scales, exec);
}

Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                  std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept {
  return dequantize_with(fastest_rows(), config, codes, scales, rows, cols, y, dtype, exec);
}

Status scalar::quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows, std::int64_t cols,
                        void* codes, void* scales, const ExecDesc& exec) noexcept {
  return quantize_with(kScalarRows, config, x, dtype, rows, cols, codes, scales, exec);
}

Status scalar::dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                          std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept {
  return dequantize_with(kScalarRows, config, codes, scales, rows, cols, y, dtype, exec);
}

}  // namespace fp4pa::cpu
