// Which device a back end's name means.
#include "tools/fp4pa/device.hpp"

#include <cstdlib>
#include <vector>

#include "fp4pa/backends.hpp"
#include "tools/fp4pa/device_cpu.hpp"
#include "tools/fp4pa/device_gpu.hpp"
#include "tools/fp4pa/exit_codes.hpp"

namespace fp4pa::tool {

Buffer uploaded(Device& device, const void* from_host, std::size_t bytes) {
  Buffer buffer = device.allocate(bytes);
  device.upload(buffer.data(), from_host, bytes);
  return buffer;
}

std::string backend_in_use(const std::string& backend) {
  std::vector<BackendInfo> known(static_cast<std::size_t>(available_backends(nullptr, 0)));
  (void)available_backends(known.data(), static_cast<std::int32_t>(known.size()));

  const char* forced = std::getenv("FP4PA_FORCE_BACKEND");
  const std::string wanted = !backend.empty() ? backend : forced != nullptr ? forced : "";
  std::string names;
  for (const BackendInfo& info : known) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
    if (wanted.empty() ? !info.available : wanted != info.name) continue;
    if (!info.available) {
      throw Failure(Exit::kBackendUnavailable, "back end '" + wanted + "' cannot run here: " + info.detail);
    }
    return info.name;
  }
  throw Failure(Exit::kBackendUnavailable, "unknown back end '" + wanted + "'; this build has: " + names);
}

std::unique_ptr<Device> make_device(const std::string& backend) {
  const std::string name = backend_in_use(backend);
  if (name == "cpu" || name.rfind("cpu-", 0) == 0) return make_cpu_device();
#ifdef FP4PA_HAVE_CUDA
  if (name == "cuda") return make_cuda_device();
#endif
#ifdef FP4PA_HAVE_HIP
  if (name == "hip") return make_hip_device();
#endif
  throw Failure(Exit::kBackendUnavailable, "this tool has no memory or clock for back end '" + name + "' yet");
}

}  // namespace fp4pa::tool
