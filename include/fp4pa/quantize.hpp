// Quantising and dequantising tensors: MXFP4, NVFP4 and MXFP8, with linear or 128x4-blocked scales.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4pa/cache.hpp"
#include "fp4pa/export.hpp"
#include "fp4pa/status.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa {

/// Block format of a quantised tensor; groups run along the last dimension.
enum class BlockFormat : std::int32_t {
  kMxfp4 = 0,  ///< E2M1 codes, two a byte, and one E8M0 per 32
  kNvfp4 = 1,  ///< E2M1 codes, two a byte, one E4M3 per 16, and an fp32 decode multiplier per tensor
  kMxfp8 = 2,  ///< E4M3 codes and one E8M0 per 32
};

[[nodiscard]] constexpr const char* name_of(BlockFormat v) noexcept {
  switch (v) {
    case BlockFormat::kMxfp4: return "mxfp4";
    case BlockFormat::kNvfp4: return "nvfp4";
    case BlockFormat::kMxfp8: return "mxfp8";
  }
  return "unknown";
}
/// Elements that share a scale: 32, or 16 for NVFP4.
[[nodiscard]] constexpr std::int32_t group_size(BlockFormat v) noexcept { return v == BlockFormat::kNvfp4 ? 16 : 32; }

/// How a tensor is quantised, and how what quantising made of it is read.
struct QuantizeConfig {
  BlockFormat format = BlockFormat::kMxfp4;
  ScaleLayout scale_layout = ScaleLayout::kLinear;
  ScaleMode scale_mode = ScaleMode::kFloor;         ///< MXFP4, MXFP8
  Nvfp4Scale nvfp4_scale = Nvfp4Scale::kAmaxOver6;  ///< NVFP4
  float global_scale = 1.0f;                        ///< NVFP4 decode multiplier; amax / 2688 uses the whole range
};

/// Bytes of the codes of a [rows, cols] tensor: rows * cols / 2 for the FP4 formats, rows * cols for MXFP8; 0 for a shape or a format that
/// cannot be quantised.
[[nodiscard]] FP4PA_API std::size_t quantized_code_bytes(BlockFormat format, std::int64_t rows,
                                                         std::int64_t cols) noexcept;
/// Bytes of its scales, padding included; 0 as above.
[[nodiscard]] FP4PA_API std::size_t quantized_scale_bytes(BlockFormat format, ScaleLayout layout, std::int64_t rows,
                                                          std::int64_t cols) noexcept;

/// Quantises x [rows, cols] (dense, `dtype`) into `codes` [rows, code bytes per row] and `scales`. Padding scales are 0.
/// x is aligned to its element; codes and scales may lie anywhere. NaN or infinity in x makes NaN of its group; in NVFP4 a finite x whose
/// quotient by the global scale overflows saturates. Outputs must not alias x, which is not checked.
/// @errors kNullPointer, kMisalignedPointer, kInvalidSize (cols must be a positive multiple of the group size), kUnsupportedFormat,
///         kInvalidGlobalScale, kInvalidArgument, kUnknownBackend, kBackendUnavailable, kDeviceError
[[nodiscard]] FP4PA_API Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows,
                                        std::int64_t cols, void* codes, void* scales,
                                        const ExecDesc& exec = {}) noexcept;

/// The inverse: y [rows, cols] = code * scale (* global_scale) in f32, then rounded to `dtype`.
/// @errors as quantize
[[nodiscard]] FP4PA_API Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales,
                                          std::int64_t rows, std::int64_t cols, void* y, DType dtype,
                                          const ExecDesc& exec = {}) noexcept;

}  // namespace fp4pa
