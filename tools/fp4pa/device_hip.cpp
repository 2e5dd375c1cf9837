// A HIP device. Of the runtime it takes properties, memory, copies and events, and no more. Compiled, and never run so far.
#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <string>
#include <vector>

#include "hip/device.hpp"
#include "perf/gpu_bandwidth.hpp"
#include "tools/fp4pa/device_cpu.hpp"
#include "tools/fp4pa/device_gpu.hpp"
#include "tools/fp4pa/exit_codes.hpp"

#define RUNTIME(name) hip##name
#define RUNTIME_PROPERTIES hipDeviceProp_t
// What a runtime may lack is asked of the library (hip/runtime.cpp).
#define hipGetDevice hip::current_number
#define hipGetLastError hip::forget_error
#define hipGetErrorString(error) hip::text_of(error).text

namespace fp4pa::tool {
namespace {

#include "tools/fp4pa/device_gpu.inc"

}  // namespace

std::unique_ptr<Device> make_hip_device() { return std::make_unique<GpuDevice>(); }

}  // namespace fp4pa::tool
