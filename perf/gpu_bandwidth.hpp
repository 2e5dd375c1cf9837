// See gpu_bandwidth.cu.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fp4pa::perf {
cudaError_t launch_read(const void* data, std::int64_t bytes, void* sink, int blocks, cudaStream_t stream);
}
