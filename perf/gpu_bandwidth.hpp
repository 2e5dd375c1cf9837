// See gpu_bandwidth.cu and gpu_bandwidth.hip.
#pragma once

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime_api.h>
#else
#include <cuda_runtime_api.h>
#endif

#include <cstdint>

namespace fp4pa::perf {

/// Reads [data, data + bytes) once with `blocks` blocks of 512 threads. `bytes` is a multiple of 16; sink is 4 bytes that the
/// kernel may write.
#if defined(__HIP_PLATFORM_AMD__)
hipError_t launch_read(const void* data, std::int64_t bytes, void* sink, int blocks, hipStream_t stream);
#else
cudaError_t launch_read(const void* data, std::int64_t bytes, void* sink, int blocks, cudaStream_t stream);
#endif

}  // namespace fp4pa::perf
