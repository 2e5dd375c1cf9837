// Quantising and dequantising tensors on the CPU: entries of the api::Backend tables.
//
// Arguments arrive validated (columns are whole groups, the global scale is positive). The functions of `scalar` write
// the same bytes from core's own loops.
#pragma once

#include <cstdint>

#include "fp4pa/quantize.hpp"

namespace fp4pa::cpu {

[[nodiscard]] Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows,
                              std::int64_t cols, void* codes, void* scales, const ExecDesc& exec) noexcept;

[[nodiscard]] Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                                std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept;

namespace scalar {

[[nodiscard]] Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows,
                              std::int64_t cols, void* codes, void* scales, const ExecDesc& exec) noexcept;

[[nodiscard]] Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                                std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept;

}  // namespace scalar
}  // namespace fp4pa::cpu
