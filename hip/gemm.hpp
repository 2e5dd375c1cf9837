// FP4 matrix products on HIP: entries of the api::Backend table, as quantize_weight is (kernels/gemm_ops.hpp). Arguments arrive
// validated.
#pragma once

#include <cstddef>

#include "hip/device.hpp"
#include "hip/gemm_path.hpp"
#include "kernels/gemm_ops.hpp"

namespace fp4pa::hip {

[[nodiscard]] Status linear_workspace(const LinearArgs& args, const ExecDesc& exec, std::size_t* bytes) noexcept;
[[nodiscard]] Status linear(const LinearArgs& args, const ExecDesc& exec) noexcept;

/// Whether kernels that decode W take X paired (core/gemm/prepare.hpp), and not in its columns' order.
[[nodiscard]] bool takes_paired_x(bool gfx950) noexcept;

/// The kernel, for hipLaunchKernel.
/// @param x_tiles  1, 2 or 4 sixteens of rows of X
[[nodiscard]] const void* gemm_function(GemmPath path, int x_tiles) noexcept;

}  // namespace fp4pa::hip
