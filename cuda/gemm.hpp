// FP4 matrix products on CUDA: entries of the api::Backend table. Arguments arrive validated.
#pragma once

#include <cstddef>

#include "api/backend.hpp"

namespace fp4pa::cuda {

[[nodiscard]] Status quantize_weight(const api::WeightRequest& request, const ExecDesc& exec) noexcept;
[[nodiscard]] Status linear_workspace(const LinearArgs& args, const ExecDesc& exec, std::size_t* bytes) noexcept;
[[nodiscard]] Status linear(const LinearArgs& args, const ExecDesc& exec) noexcept;

}  // namespace fp4pa::cuda
