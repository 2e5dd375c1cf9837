// The little of the CUDA runtime that the device conformance tests use. glue_hip.hpp has the same names.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace fp4pa::conformance::glue {

inline void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Name of device 0 as the tests' `supports` understands it, "sm_90" and so on; empty when there is no device.
inline std::string architecture() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return {};
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("device: %s, sm_%d%d\n", properties.name, properties.major, properties.minor);
  return "sm_" + std::to_string(10 * properties.major + properties.minor);
}

inline void* allocate(std::size_t bytes) {
  void* pointer = nullptr;
  require(cudaMalloc(&pointer, bytes), "cudaMalloc");
  return pointer;
}
inline void release(void* pointer) { require(cudaFree(pointer), "cudaFree"); }
inline void to_device(void* device, const void* host, std::size_t bytes) {
  require(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}
inline void to_host(void* host, const void* device, std::size_t bytes) {
  require(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
}
inline void check_launch() { require(cudaGetLastError(), "kernel launch"); }

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int block_index() { return static_cast<int>(blockIdx.x); }
__device__ __forceinline__ void barrier() { __syncthreads(); }

}  // namespace fp4pa::conformance::glue
