// The current device: whether there is one, what it offers, and how its errors become a Status.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "fp4pa/status.hpp"

/// The namespace that what cuda/ and hip/ share (kernels/) is compiled into.
#define FP4PA_GPU hip

namespace fp4pa::hip {

using Error = hipError_t;
using Stream = hipStream_t;

/// Most devices of a machine that are kept account of.
inline constexpr int kMaxDevices = 64;

/// Architectures that kernels are compiled for, as bits.
inline constexpr unsigned kGfx942 = 1;
inline constexpr unsigned kGfx950 = 2;

struct DeviceProperties {
  int device;
  int multiprocessors;
  unsigned architecture;            // one of the above
  int shared_bytes;                 // that a block may ask for
  int multiprocessor_shared_bytes;  // that its resident blocks share
};

/// Whether HIP can run here; *detail names the current device, or says why not. Asks the runtime once a device.
[[nodiscard]] bool device_available(const char** detail) noexcept;

/// The current device's architecture, 0 where there is none that kernels are built for. Asks the runtime as device_available() does,
/// once a device.
[[nodiscard]] unsigned current_architecture() noexcept;

/// @errors kDeviceError, kBackendUnavailable for an architecture that this build has no kernels for
[[nodiscard]] Status current_device(DeviceProperties* out) noexcept;

/// kOk, or kDeviceError with what was being done and the runtime's text.
[[nodiscard]] Status check(hipError_t error, const char* doing) noexcept;

// hip/runtime.cpp: calls that a runtime may lack. A program that links the library loads without them.

/// Number of the current device: the first where the runtime does not say, and there is one.
[[nodiscard]] hipError_t current_number(int* device) noexcept;
/// So that the user's next check does not find an error that was dealt with.
void forget_error() noexcept;
struct ErrorText {
  char text[160];
};
/// The runtime's words for an error and its number; the number alone where the runtime has no words.
[[nodiscard]] ErrorText text_of(hipError_t error) noexcept;
/// hipMemsetAsync of zeros.
[[nodiscard]] hipError_t clear_on(Stream stream, void* data, std::size_t bytes) noexcept;
/// Copies to the host, and has done so at return.
[[nodiscard]] hipError_t read_behind(Stream stream, void* to_host, const void* from, std::size_t bytes) noexcept;

}  // namespace fp4pa::hip
