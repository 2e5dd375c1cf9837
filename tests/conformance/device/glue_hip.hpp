// The little of the HIP runtime that the device conformance tests use. glue_cuda.hpp has the same names.
//
// Only the API header is needed, not the device headers and libraries: what a kernel here asks of a wave are builtins.
#pragma once

// clang-format off
#include <cstdlib>  // before HIP's header, which reaches <new> in clang's wrapper and leaves malloc to others
// clang-format on
#include <hip/hip_runtime_api.h>

#include <cstdio>
#include <string>

// What a runtime may lack: null where the loader finds nothing (hip/runtime.cpp).
#pragma weak hipGetLastError
#pragma weak hipGetErrorString

#ifndef __global__
#define __global__ __attribute__((global))
#endif
#ifndef __shared__
#define __shared__ __attribute__((shared))
#endif

namespace fp4pa::conformance::glue {

inline void require(hipError_t error, const char* what) {
  if (error == hipSuccess) return;
  std::printf("FAILED: %s: %s, HIP error %d\n", what, &hipGetErrorString != nullptr ? hipGetErrorString(error) : "no words for it",
              static_cast<int>(error));
  std::exit(1);
}

/// Name of device 0 as the tests' `supports` understands it, "gfx950" and so on; empty when there is no device.
inline std::string architecture() {
  int count = 0;
  if (hipGetDeviceCount(&count) != hipSuccess || count == 0) return {};
  hipDeviceProp_t properties;
  require(hipGetDeviceProperties(&properties, 0), "hipGetDeviceProperties");
  std::printf("device: %s, %s\n", properties.name, properties.gcnArchName);
  const std::string name = properties.gcnArchName;
  return name.substr(0, name.find(':'));
}

inline void* allocate(std::size_t bytes) {
  void* pointer = nullptr;
  require(hipMalloc(&pointer, bytes), "hipMalloc");
  return pointer;
}
inline void release(void* pointer) { require(hipFree(pointer), "hipFree"); }
inline void to_device(void* device, const void* host, std::size_t bytes) {
  require(hipMemcpy(device, host, bytes, hipMemcpyHostToDevice), "hipMemcpy to the device");
}
inline void to_host(void* host, const void* device, std::size_t bytes) {
  require(hipMemcpy(host, device, bytes, hipMemcpyDeviceToHost), "hipMemcpy to the host");
}
/// Without hipGetLastError a launch that failed shows in its results.
inline void check_launch() {
  if (&hipGetLastError != nullptr) require(hipGetLastError(), "kernel launch");
}

__attribute__((device)) inline int lane_index() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
__attribute__((device)) inline int block_index() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
__attribute__((device)) inline void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

}  // namespace fp4pa::conformance::glue
