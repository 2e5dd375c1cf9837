// quantize and dequantize: tensors in pieces of up to 256 elements of a row, which stay in the first-level cache between
// being widened to floats and encoded.
//
// Pieces are numbered over the whole tensor, so that one long row is shared by the threads as well as many short ones are.
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

// How a [rows, cols] tensor is cut, and where its codes and scales lie.
struct Cut {
  BlockFormat format;
  ScaleLayout layout;
  std::int64_t cols;
  std::int64_t pieces_per_row;

  static Cut make(const QuantizeConfig& config, std::int64_t cols) {
    return {config.format, config.scale_layout, cols, (cols + kMaxRow - 1) / kMaxRow};
  }
  std::int64_t row(std::int64_t piece) const { return piece / pieces_per_row; }
  std::int64_t column(std::int64_t piece) const { return piece % pieces_per_row * kMaxRow; }
  int elements(std::int64_t piece) const {
    return static_cast<int>(std::min<std::int64_t>(kMaxRow, cols - column(piece)));
  }
  std::int64_t code_offset(std::int64_t piece) const {
    const std::int64_t element = row(piece) * cols + column(piece);
    return format == BlockFormat::kMxfp8 ? element : element / 2;
  }
  // Of the piece's group g.
  std::int64_t scale_offset(std::int64_t piece, int g) const {
    const std::int64_t groups = cols / group_size(format);
    const std::int64_t group = column(piece) / group_size(format) + g;
    if (layout == ScaleLayout::kLinear) return row(piece) * groups + group;
    return static_cast<std::int64_t>(core::blocked_scale_offset(row(piece), group, groups));
  }
};

Status quantize_with(const RowKernels& kernels, const QuantizeConfig& config, const void* x, DType dtype,
                     std::int64_t rows, std::int64_t cols, void* codes, void* scales, const ExecDesc& exec) noexcept {
  const Cut cut = Cut::make(config, cols);
  auto* const code_bytes = static_cast<std::uint8_t*>(codes);
  auto* const scale_bytes = static_cast<std::uint8_t*>(scales);
  if (config.scale_layout == ScaleLayout::kBlocked) {
    std::memset(scales, 0, core::blocked_scale_size(rows, cols / group_size(config.format)));
  }
  const core::EncodeRule rule{config.scale_mode, config.nvfp4_scale};
  const std::int64_t pieces = rows * cut.pieces_per_row;
  const int threads = num_threads(exec, pieces, 64);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    alignas(64) float values[kMaxRow];
    std::uint8_t piece_scales[kMaxScales];
    const int n = cut.elements(piece);
    kernels.load(core::element_address(x, dtype, cut.row(piece) * cols + cut.column(piece)), dtype, n, values);
    std::uint8_t* const out = code_bytes + cut.code_offset(piece);
    switch (config.format) {
      case BlockFormat::kMxfp4: kernels.encode(KvFormat::kMxfp4, values, n, 1.0f, rule, out, piece_scales); break;
      case BlockFormat::kNvfp4:
        kernels.encode(KvFormat::kNvfp4, values, n, config.global_scale, rule, out, piece_scales);
        break;
      case BlockFormat::kMxfp8: kernels.encode_mxfp8(values, n, config.scale_mode, out, piece_scales); break;
    }
    for (int g = 0; g * group_size(config.format) < n; ++g) scale_bytes[cut.scale_offset(piece, g)] = piece_scales[g];
  }
  return Status::kOk;
}

Status dequantize_with(const RowKernels& kernels, const QuantizeConfig& config, const void* codes, const void* scales,
                       std::int64_t rows, std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept {
  const Cut cut = Cut::make(config, cols);
  const auto* const code_bytes = static_cast<const std::uint8_t*>(codes);
  const auto* const scale_bytes = static_cast<const std::uint8_t*>(scales);
  const std::int64_t pieces = rows * cut.pieces_per_row;
  const int threads = num_threads(exec, pieces, 64);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    alignas(64) float values[kMaxRow];
    std::uint8_t piece_scales[kMaxScales];
    const int n = cut.elements(piece);
    for (int g = 0; g * group_size(config.format) < n; ++g) piece_scales[g] = scale_bytes[cut.scale_offset(piece, g)];
    const std::uint8_t* const in = code_bytes + cut.code_offset(piece);
    switch (config.format) {
      case BlockFormat::kMxfp4: kernels.decode(KvFormat::kMxfp4, in, piece_scales, n, 1.0f, values); break;
      case BlockFormat::kNvfp4:
        kernels.decode(KvFormat::kNvfp4, in, piece_scales, n, config.global_scale, values);
        break;
      case BlockFormat::kMxfp8: kernels.decode_mxfp8(in, piece_scales, n, values); break;
    }
    kernels.store(values, n, dtype, core::element_address(y, dtype, cut.row(piece) * cols + cut.column(piece)));
  }
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
