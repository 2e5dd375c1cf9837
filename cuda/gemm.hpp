// FP4 matrix products on CUDA: entries of the api::Backend table, as quantize_weight is (kernels/gemm_ops.hpp). Arguments arrive
// validated.
#pragma once

#include <cstddef>

#include "cuda/device.hpp"
#include "kernels/gemm_ops.hpp"

namespace fp4pa::cuda {

[[nodiscard]] Status linear_workspace(const LinearArgs& args, const ExecDesc& exec, std::size_t* bytes) noexcept;
[[nodiscard]] Status linear(const LinearArgs& args, const ExecDesc& exec) noexcept;

}  // namespace fp4pa::cuda
