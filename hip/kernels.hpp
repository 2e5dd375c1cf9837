// The attention kernels of this library, for those who launch them; the rest of a run is in kernels/run.hpp.
#pragma once

#include "hip/device.hpp"
#include "kernels/run.hpp"

namespace fp4pa::hip {

/// The kernel of row `index` of kInstances, for hipLaunchKernel. Each is defined in a translation unit of its own.
template <int index>
[[nodiscard]] const void* attend_function() noexcept;

/// Merges the partial states of the units that were divided.
Error launch_merge(const AttendArgs& args, Stream stream) noexcept;

}  // namespace fp4pa::hip
