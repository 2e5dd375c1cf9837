// The runtime under these tests: CUDA's, or with FP4PA_TEST_HIP HIP's, whose names differ from it in their first letters.
#pragma once

#if defined(FP4PA_TEST_HIP)
#include "hip/device.hpp"
#define RUNTIME(name) hip##name
// What a runtime may lack is asked of the library (hip/runtime.cpp).
#define hipGetErrorString(error) fp4pa::hip::text_of(error).text
#else
#include <cuda_runtime_api.h>
#define RUNTIME(name) cuda##name
#endif

#include "api/backend.hpp"
#include "tests/gpu/backend_name.hpp"

namespace fp4pa::gpu_test {

/// The back end under test, on the device's own memory.
#if defined(FP4PA_TEST_HIP)
inline const api::Backend& kBackend = api::kHipBackend;
#else
inline const api::Backend& kBackend = api::kCudaBackend;
#endif

using Error = RUNTIME(Error_t);
using Stream = RUNTIME(Stream_t);

/// A stream that does not wait for the default one, where the runtime makes such streams: of HIP's the least is asked.
inline Error create_stream(Stream* stream) {
#if defined(FP4PA_TEST_HIP)
  return hipStreamCreate(stream);
#else
  return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
#endif
}

}  // namespace fp4pa::gpu_test
