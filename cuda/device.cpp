#include "cuda/device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>

#include "api/error.hpp"
#include "cuda/kernels.hpp"

namespace fp4pa::cuda {
namespace {

struct Availability {
  bool available = false;
  char detail[512] = "";
};

/// A machine without a driver, or without a device, is no error: the runtime says so, and nothing here remembers it as one.
Availability find_out() noexcept {
  Availability a;
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  int device = 0;
  if (error == cudaSuccess && count > 0) error = cudaGetDevice(&device);
  cudaDeviceProp properties{};
  if (error == cudaSuccess && count > 0) error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();  // not to be found by the user's next check
    std::snprintf(a.detail, sizeof a.detail, "%s", error != cudaSuccess ? cudaGetErrorString(error) : "no CUDA device");
    return a;
  }
  a.available = properties.major >= 8;
  std::snprintf(a.detail, sizeof a.detail, "%s, compute capability %d.%d%s", properties.name, properties.major,
                properties.minor, a.available ? "" : "; 8.0 or newer is needed");
  return a;
}

/// What the kernels that a device runs were compiled for, 90 for 9.0: its machine code, or PTX of an older one. Asked once a device.
cudaError_t code_capability(int device, int* out) noexcept {
  static std::array<std::atomic<int>, kMaxDevices> known{};
  const bool is_kept = device < kMaxDevices;
  *out = is_kept ? known[static_cast<std::size_t>(device)].load(std::memory_order_acquire) : 0;
  if (*out != 0) return cudaSuccess;
  cudaFuncAttributes of_kernel{};
  const cudaError_t error = cudaFuncGetAttributes(&of_kernel, attend_function<0>());
  if (error != cudaSuccess) return error;
  *out = of_kernel.ptxVersion;
  if (is_kept) known[static_cast<std::size_t>(device)].store(*out, std::memory_order_release);
  return cudaSuccess;
}

}  // namespace

bool device_available(const char** detail) noexcept {
  // One entry a device, and the last for those beyond them and for a machine without any.
  static std::array<std::once_flag, kMaxDevices + 1> asked;
  static std::array<Availability, kMaxDevices + 1> known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();
    device = kMaxDevices;
  }
  const auto i = static_cast<std::size_t>(std::min(device, kMaxDevices));
  std::call_once(asked[i], [i] { known[i] = find_out(); });
  *detail = known[i].detail;
  return known[i].available;
}

Status current_device(DeviceProperties* out) noexcept {
  const auto get = [&](int* value, cudaDeviceAttr attribute) { return cudaDeviceGetAttribute(value, attribute, out->device); };
  int major = 0;
  int minor = 0;
  cudaError_t error = cudaGetDevice(&out->device);
  if (error == cudaSuccess) error = get(&out->multiprocessors, cudaDevAttrMultiProcessorCount);
  if (error == cudaSuccess) error = get(&out->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (error == cudaSuccess) error = get(&major, cudaDevAttrComputeCapabilityMajor);
  if (error == cudaSuccess) error = get(&minor, cudaDevAttrComputeCapabilityMinor);
  out->compute_capability = 10 * major + minor;
  // Code for 8.0 waits for no kernel ahead and knows no clusters: on a newer device it is launched as on its own.
  if (error == cudaSuccess && out->compute_capability >= 90) {
    int code = 0;
    error = code_capability(out->device, &code);
    if (error == cudaSuccess && code < 90) out->compute_capability = code;
  }
  return check(error, "reading the device's properties");
}

Status check(cudaError_t error, const char* doing) noexcept {
  if (error == cudaSuccess) return Status::kOk;
  cudaGetLastError();  // not to be found by the user's next check
  return api::fail(Status::kDeviceError, "%s: %s (%s)", doing, cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace fp4pa::cuda
