// quantize and dequantize: sizes of the results, the checks both share, and the call through the back end's table.
#include <cinttypes>
#include <cstddef>
#include <cstdint>

#include "api/backend.hpp"
#include "api/error.hpp"
#include "api/saturating.hpp"
#include "api/select.hpp"
#include "api/validate.hpp"
#include "api/validate_scaling.hpp"
#include "fp4pa/quantize.hpp"

namespace fp4pa {
namespace {

using api::Backend;
using api::fail;
using api::kSaturated;
using api::round_up;
using api::saturating_mul;

constexpr std::int64_t kAtomRows = 128;  // of the 128x4 scale atom
constexpr std::int64_t kAtomGroups = 4;

[[nodiscard]] bool is_block_format(BlockFormat format) noexcept {
  switch (format) {
    case BlockFormat::kMxfp4:
    case BlockFormat::kNvfp4:
    case BlockFormat::kMxfp8: return true;
  }
  return false;
}

[[nodiscard]] bool is_scale_layout(ScaleLayout layout) noexcept {
  return layout == ScaleLayout::kLinear || layout == ScaleLayout::kBlocked;
}

/// Whether a [rows, cols] tensor can be quantised at all; an unknown format cannot.
[[nodiscard]] bool is_shape(BlockFormat format, std::int64_t rows, std::int64_t cols) noexcept {
  return is_block_format(format) && rows >= 0 && cols > 0 && cols % group_size(format) == 0;
}

[[nodiscard]] std::size_t bytes_or_zero(std::int64_t bytes) noexcept {
  return bytes == kSaturated ? 0 : static_cast<std::size_t>(bytes);
}

[[nodiscard]] Status validate_choices(const QuantizeConfig& config) noexcept {
  if (!is_block_format(config.format)) {
    return fail(Status::kUnsupportedFormat, "format is %d; allowed: 0 (mxfp4), 1 (nvfp4), 2 (mxfp8)",
                static_cast<int>(config.format));
  }
  FP4PA_RETURN_IF_FAILED(api::validate_scale_layout("scale_layout", config.scale_layout));
  FP4PA_RETURN_IF_FAILED(api::validate_scale_rules(config.scale_mode, config.nvfp4_scale));
  return api::validate_multiplier("global_scale", config.format, config.global_scale);
}

[[nodiscard]] Status validate_shape(const QuantizeConfig& config, std::int64_t rows, std::int64_t cols) noexcept {
  if (rows < 0) return fail(Status::kInvalidSize, "rows is %" PRId64 "; allowed: 0 or more", rows);
  if (!is_shape(config.format, rows, cols)) {
    return fail(Status::kInvalidSize, "cols is %" PRId64 "; allowed for %s: positive multiples of %" PRId32, cols,
                name_of(config.format), group_size(config.format));
  }
  // f32 is the widest thing that either side holds; padded scales are the other one.
  if (saturating_mul(saturating_mul(rows, cols), 4) == kSaturated ||
      (rows > 0 && quantized_scale_bytes(config.format, config.scale_layout, rows, cols) == 0)) {
    return fail(Status::kInvalidSize, "rows is %" PRId64 " and cols is %" PRId64 "; allowed: what fits the address space",
                rows, cols);
  }
  return Status::kOk;
}

[[nodiscard]] Status validate_call(const QuantizeConfig& config, const char* plain_name, const void* plain, DType dtype,
                                   std::int64_t rows, std::int64_t cols, const void* codes,
                                   const void* scales) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_choices(config));
  FP4PA_RETURN_IF_FAILED(api::validate_dtype("dtype", dtype));
  FP4PA_RETURN_IF_FAILED(validate_shape(config, rows, cols));
  if (rows == 0) return Status::kOk;
  FP4PA_RETURN_IF_FAILED(api::validate_pointer(plain_name, plain, size_of(dtype)));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("codes", codes, 1));
  return api::validate_pointer("scales", scales, 1);
}

}  // namespace

std::size_t quantized_code_bytes(BlockFormat format, std::int64_t rows, std::int64_t cols) noexcept {
  if (!is_shape(format, rows, cols)) return 0;
  return bytes_or_zero(saturating_mul(rows, format == BlockFormat::kMxfp8 ? cols : cols / 2));
}

std::size_t quantized_scale_bytes(BlockFormat format, ScaleLayout layout, std::int64_t rows,
                                  std::int64_t cols) noexcept {
  if (!is_shape(format, rows, cols) || !is_scale_layout(layout)) return 0;
  const std::int64_t groups = cols / group_size(format);
  if (layout == ScaleLayout::kLinear) return bytes_or_zero(saturating_mul(rows, groups));
  return bytes_or_zero(saturating_mul(round_up(rows, kAtomRows), round_up(groups, kAtomGroups)));
}

Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows, std::int64_t cols,
                void* codes, void* scales, const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_call(config, "x", x, dtype, rows, cols, codes, scales));
  const Backend* backend = nullptr;
  const Status found = api::select_backend(exec, &Backend::quantize, "quantize", &backend);
  if (found != Status::kOk || rows == 0) return found;
  return backend->quantize(config, x, dtype, rows, cols, codes, scales, exec);
}

Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                  std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_call(config, "y", y, dtype, rows, cols, codes, scales));
  const Backend* backend = nullptr;
  const Status found = api::select_backend(exec, &Backend::dequantize, "dequantize", &backend);
  if (found != Status::kOk || rows == 0) return found;
  return backend->dequantize(config, codes, scales, rows, cols, y, dtype, exec);
}

}  // namespace fp4pa
