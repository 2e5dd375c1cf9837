// The attention kernels of this library, for those who launch them; the rest of a run is in kernels/run.hpp.
#pragma once

#include "cuda/device.hpp"
#include "kernels/run.hpp"

namespace fp4pa::cuda {

/// The kernel of row `index` of kInstances, for cudaLaunchKernel. Each is defined in a translation unit of its own.
template <int index>
[[nodiscard]] const void* attend_function() noexcept;

}  // namespace fp4pa::cuda
