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

/// Whether an error says that a device will never run the kernels of this build: they are machine code of other devices, or PTX that
/// nothing here compiles.
bool is_about_code(cudaError_t error) noexcept {
  return error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction || error == cudaErrorInvalidPtx ||
         error == cudaErrorUnsupportedPtxVersion || error == cudaErrorJitCompilerNotFound || error == cudaErrorJitCompilationDisabled;
}

/// code_capability(), where the calling thread may be capturing a stream: the first look at a kernel may load its code.
cudaError_t code_capability_at_any_time(int device, int* out) noexcept {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t error = code_capability(device, out);
  cudaThreadExchangeStreamCaptureMode(&mode);
  return error;
}

/// A machine without a driver, or without a device, is no error: the runtime says so, and nothing here remembers it as one. Neither
/// is a device of another generation than this build's: a back end after this one may serve.
Availability find_out() noexcept {
  Availability a;
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  int device = 0;
  if (error == cudaSuccess && count > 0) error = cudaGetDevice(&device);
  cudaDeviceProp properties{};
  if (error == cudaSuccess && count > 0) error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess || count == 0) {
    forget_error();
    std::snprintf(a.detail, sizeof a.detail, "%s", error != cudaSuccess ? cudaGetErrorString(error) : "no CUDA device");
    return a;
  }
  const auto say = [&](const char* but, const char* text) {
    std::snprintf(a.detail, sizeof a.detail, "%.255s, compute capability %d.%d%.40s%.160s", properties.name, properties.major,
                  properties.minor, but, text);
  };
  if (properties.major < 8) {
    say("; 8.0 or newer is needed", "");
    return a;
  }
  int code = 0;
  error = code_capability_at_any_time(device, &code);
  if (error != cudaSuccess) forget_error();
  a.available = !is_about_code(error);  // of another error the first call tells
  if (a.available) {
    say("", "");
  } else {
    say("; no kernel of this build runs on it: ", cudaGetErrorString(error));
  }
  return a;
}

}  // namespace

bool device_available(const char** detail) noexcept {
  // One entry a device, and the last for those beyond them and for a machine without any.
  static std::array<std::once_flag, kMaxDevices + 1> asked;
  static std::array<Availability, kMaxDevices + 1> known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    forget_error();
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

Status read_back(void* to_host, const void* from, std::size_t bytes, void* stream) noexcept {
  auto* const s = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  FP4PA_RETURN_IF_FAILED(check(cudaStreamIsCapturing(s, &capture), "looking at the stream"));
  if (capture != cudaStreamCaptureStatusNone) {
    return api::fail(Status::kInvalidArgument, "validate_device_data is 1 in a capture; allowed: 0, since nothing can be read back there");
  }
  cudaError_t error = cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, s);
  if (error == cudaSuccess) error = cudaStreamSynchronize(s);
  return check(error, "reading back what is to be checked");
}

void forget_error() noexcept { static_cast<void>(cudaGetLastError()); }

Status check(cudaError_t error, const char* doing) noexcept {
  if (error == cudaSuccess) return Status::kOk;
  forget_error();
  return api::fail(Status::kDeviceError, "%s: %s (%s)", doing, cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace fp4pa::cuda
