#include "hip/device.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "api/error.hpp"

namespace fp4pa::hip {
namespace {

struct Availability {
  unsigned architecture = 0;  // 0: not available
  char detail[640] = "";
};

/// Local data share of a compute unit.
constexpr int lds_bytes(unsigned architecture) { return (architecture == kGfx950 ? 160 : 64) * 1024; }

/// Which of the code objects a device will be given, 0 for none. A runtime that does not name the architecture is taken for
/// one of the newest: if it has no code object for it, the first launch says so.
unsigned architecture_of(const hipDeviceProp_t& properties) noexcept {
  const char* const name = properties.gcnArchName;  // "gfx950:sramecc+:xnack-"
  const std::size_t length = std::strcspn(name, ":");
  const auto is = [&](const char* known) { return length == std::strlen(known) && std::strncmp(name, known, length) == 0; };
  const unsigned architecture = *name == '\0' || is("gfx950") ? kGfx950 : is("gfx942") ? kGfx942 : 0u;
  return architecture & FP4PA_HIP_ARCHITECTURE_BITS;
}

/// A runtime writes as much as its own release's structure has, which may be longer than in the headers that this was compiled with.
union RoomyProperties {
  hipDeviceProp_t properties{};
  char room[4096];
};

/// A machine without a driver, or without a device, is no error: the runtime says so, and nothing here remembers it as one.
Availability find_out() noexcept {
  Availability a;
  int device = 0;
  hipError_t error = current_number(&device);
  RoomyProperties roomy;
  const hipDeviceProp_t& properties = roomy.properties;
  if (error == hipSuccess) error = hipGetDeviceProperties(&roomy.properties, device);
  if (error != hipSuccess) {
    forget_error();
    std::snprintf(a.detail, sizeof a.detail, "%s", error != hipErrorNoDevice ? text_of(error).text : "no HIP device");
    return a;
  }
  a.architecture = architecture_of(properties);
  const bool available = a.architecture != 0;
  std::snprintf(a.detail, sizeof a.detail, "%s, %s%s%s", properties.name, properties.gcnArchName,
                available ? "" : "; this build has kernels for ", available ? "" : FP4PA_HIP_ARCHITECTURES);
  return a;
}

const Availability& availability() noexcept {
  // One entry a device, and the last for those beyond them and for a machine without any.
  static std::array<std::once_flag, kMaxDevices + 1> asked;
  static std::array<Availability, kMaxDevices + 1> known;
  int device = 0;
  if (current_number(&device) != hipSuccess) device = kMaxDevices;
  const auto i = static_cast<std::size_t>(std::min(device, kMaxDevices));
  std::call_once(asked[i], [i] { known[i] = find_out(); });
  return known[i];
}

}  // namespace

bool device_available(const char** detail) noexcept {
  const Availability& a = availability();
  *detail = a.detail;
  return a.architecture != 0;
}

unsigned current_architecture() noexcept { return availability().architecture; }

Status current_device(DeviceProperties* out) noexcept {
  RoomyProperties roomy;
  const hipDeviceProp_t& properties = roomy.properties;
  hipError_t error = current_number(&out->device);
  if (error == hipSuccess) error = hipGetDeviceProperties(&roomy.properties, out->device);
  FP4PA_RETURN_IF_FAILED(check(error, "reading the device's properties"));
  const unsigned architecture = architecture_of(properties);
  if (architecture == 0) {
    return api::fail(Status::kBackendUnavailable, "HIP device %d is %s; this build has kernels for %s", out->device,
                     properties.gcnArchName, FP4PA_HIP_ARCHITECTURES);
  }
  out->architecture = architecture;
  out->multiprocessors = std::max(1, properties.multiProcessorCount);
  // A runtime that does not say has what the architecture has.
  out->shared_bytes = properties.sharedMemPerBlock != 0 ? static_cast<int>(properties.sharedMemPerBlock) : lds_bytes(architecture);
  out->multiprocessor_shared_bytes =
      std::max(out->shared_bytes, static_cast<int>(properties.maxSharedMemoryPerMultiProcessor));
  return Status::kOk;
}

Status check(hipError_t error, const char* doing) noexcept {
  if (error == hipSuccess) return Status::kOk;
  forget_error();
  return api::fail(Status::kDeviceError, "%s: %s", doing, text_of(error).text);
}

}  // namespace fp4pa::hip
