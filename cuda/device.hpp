// The current device: whether there is one, what it offers, and how its errors become a Status.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "fp4pa/status.hpp"

/// The namespace that what cuda/ and hip/ share (kernels/) is compiled into.
#define FP4PA_GPU cuda

namespace fp4pa::cuda {

using Error = cudaError_t;
using Stream = cudaStream_t;

/// Most devices of a machine that are kept account of.
inline constexpr int kMaxDevices = 64;

struct DeviceProperties {
  int device;
  int multiprocessors;
  int compute_capability;  // 90 for 9.0; of the code where a library that was built for less than 9.0 meets a newer device
  int shared_bytes;        // that a block may ask for
};

/// Whether CUDA can run here, this build's kernels included; *detail names the current device, or says why not. Asks the driver once
/// a device, and in doing so makes the device's context.
[[nodiscard]] bool device_available(const char** detail) noexcept;

/// @errors kDeviceError
[[nodiscard]] Status current_device(DeviceProperties* out) noexcept;

/// Copies to the host behind what the stream was given before, and has done so at return.
/// @errors kDeviceError, kInvalidArgument in a capture
[[nodiscard]] Status read_back(void* to_host, const void* from, std::size_t bytes, void* stream) noexcept;

/// So that the user's next check does not find an error that was dealt with.
void forget_error() noexcept;

/// kOk, or kDeviceError with what was being done and the runtime's text.
[[nodiscard]] Status check(cudaError_t error, const char* doing) noexcept;

}  // namespace fp4pa::cuda
