// The kernels of the decoding matrix product, as the launching side sees them.
#pragma once

#include "backends/sm80/gemm_params.hpp"

namespace fp4pa::cuda {

/// The kernel for `x_tiles` (1, 2, 4, 8) eights of rows of X; null when there is none: more than 2 need paired columns.
[[nodiscard]] const void* gemm_function(bool nvfp4, int x_tiles, bool paired);

}  // namespace fp4pa::cuda
