// What surrounds a matrix product: weights to codes, and X to what the products read. See cache_ops.hpp
// for FP4PA_GPU.
#pragma once

#include "api/backend.hpp"
#include "api/gemm_params.hpp"

namespace fp4pa::FP4PA_GPU {

/// X in f16, for the products that decode W: a power of two for each row, columns paired (core/gemm/prepare.hpp) or not; for
/// W4A4 quantised and decoded again.
[[nodiscard]] Status prepare_x(const LinearArgs& args, const api::PreparedX& to, const ExecDesc& exec) noexcept;

/// X in E4M3 terms, for the products that take W of MXFP4 as it lies beside X of 16 bits (HIP alone).
[[nodiscard]] Status split_x(const LinearArgs& args, const api::SplitX& to, const ExecDesc& exec) noexcept;

[[nodiscard]] Status quantize_weight(const api::WeightRequest& request, const ExecDesc& exec) noexcept;

}  // namespace fp4pa::FP4PA_GPU
