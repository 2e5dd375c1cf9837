// Calls of the HIP runtime that the back end can do without. What a runtime has to have is: the number of devices and their
// properties, memory and copies, streams, launches (with the registration of kernels) and attributes of functions. Simulators and
// runtimes of other makers may end there, so that everything else is weak: null where the loader finds nothing.
//
// This file is compiled for a shared library in any case. In code with fixed addresses a weak function of a shared library would
// be found at the program's own stub for it, and never be null.
#include <cstdio>

#include "hip/device.hpp"

#pragma weak hipGetDevice
#pragma weak hipGetLastError
#pragma weak hipGetErrorString
#pragma weak hipMemsetAsync
#pragma weak hipMemcpyAsync

namespace fp4pa::hip {

hipError_t current_number(int* device) noexcept {
  *device = 0;
  if (&hipGetDevice != nullptr) {
    if (hipGetDevice(device) == hipSuccess) return hipSuccess;
    forget_error();
    *device = 0;
  }
  int count = 0;
  const hipError_t error = hipGetDeviceCount(&count);
  if (error != hipSuccess) forget_error();
  return error != hipSuccess ? error : count > 0 ? hipSuccess : hipErrorNoDevice;
}

void forget_error() noexcept {
  if (&hipGetLastError != nullptr) static_cast<void>(hipGetLastError());
}

ErrorText text_of(hipError_t error) noexcept {
  const char* const words = &hipGetErrorString != nullptr ? hipGetErrorString(error) : nullptr;
  ErrorText t;
  std::snprintf(t.text, sizeof t.text, "%s%sHIP error %d", words != nullptr ? words : "", words != nullptr ? ", " : "",
                static_cast<int>(error));
  return t;
}

/// A runtime that has no asynchronous form of a call: it says so, or the call is another library's further behind, which was never
/// told of the device.
[[nodiscard]] static bool is_missing(hipError_t error) noexcept {
  return error == hipErrorNotSupported || error == hipErrorInvalidDevice || error == hipErrorNoDevice || error == hipErrorNotInitialized;
}

hipError_t clear_on(Stream stream, void* data, std::size_t bytes) noexcept {
  if (&hipMemsetAsync != nullptr) {
    const hipError_t error = hipMemsetAsync(data, 0, bytes, stream);
    if (!is_missing(error)) return error;
    forget_error();
  }
  // hipMemset is the null stream's: between two waits it is in the order of any.
  hipError_t error = hipStreamSynchronize(stream);
  if (error == hipSuccess) error = hipMemset(data, 0, bytes);
  return error == hipSuccess ? hipStreamSynchronize(nullptr) : error;
}

hipError_t read_behind(Stream stream, void* to_host, const void* from, std::size_t bytes) noexcept {
  if (&hipMemcpyAsync != nullptr) {
    const hipError_t error = hipMemcpyAsync(to_host, from, bytes, hipMemcpyDeviceToHost, stream);
    if (error == hipSuccess) return hipStreamSynchronize(stream);
    if (!is_missing(error)) return error;
    forget_error();
  }
  const hipError_t error = hipStreamSynchronize(stream);
  return error == hipSuccess ? hipMemcpy(to_host, from, bytes, hipMemcpyDeviceToHost) : error;
}

}  // namespace fp4pa::hip
