// FP4 matrix products on the CPU: entries of the api::Backend tables. Arguments arrive validated, with a workspace for one thread at least.
#pragma once

#include <cstddef>

#include "api/backend.hpp"

namespace fp4pa::cpu {

[[nodiscard]] Status quantize_weight(const api::WeightRequest& request, const ExecDesc& exec) noexcept;
[[nodiscard]] Status linear_workspace(const LinearArgs& args, const ExecDesc& exec, std::size_t* bytes) noexcept;
[[nodiscard]] Status linear(const LinearArgs& args, const ExecDesc& exec) noexcept;

namespace scalar {
[[nodiscard]] Status quantize_weight(const api::WeightRequest& request, const ExecDesc& exec) noexcept;
[[nodiscard]] Status linear(const LinearArgs& args, const ExecDesc& exec) noexcept;
}  // namespace scalar

}  // namespace fp4pa::cpu
