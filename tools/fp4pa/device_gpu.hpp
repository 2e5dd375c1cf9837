// The current CUDA or HIP device as a device of the tool.
#pragma once

#include <memory>

#include "tools/fp4pa/device.hpp"

namespace fp4pa::tool {

/// Failure when there is none. Only in builds with CUDA.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device();
/// Failure when there is none. Only in builds with HIP.
[[nodiscard]] std::unique_ptr<Device> make_hip_device();

}  // namespace fp4pa::tool
