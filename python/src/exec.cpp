#include "python/src/exec.hpp"

#include <cstdlib>
#include <string_view>

#include "python/src/torch.hpp"

namespace nb = nanobind;

namespace fp4pa::python {
namespace {

const char* text_of(Device device) {
  switch (device) {
    case Device::kHost: return "the host";
    case Device::kCuda: return "CUDA";
    case Device::kRocm: return "ROCm";
  }
  return "unknown";
}

std::string place_of(const Tensor& t) {
  std::string text = std::string(t.name()) + " is in the memory of " + text_of(t.device());
  if (t.device() != Device::kHost) text += ", device " + std::to_string(t.device_id());
  return text;
}

/// The memory of a back end; none for a name that the library will refuse.
std::optional<Device> memory_of(std::string_view backend) {
  if (backend == "cpu" || backend == "cpu-scalar") return Device::kHost;
  if (backend == "cuda") return Device::kCuda;
  if (backend == "hip") return Device::kRocm;
  return std::nullopt;
}

}  // namespace

const Tensor& Place::also(const Tensor& other) const {
  if (other.device() != first_.device() || (other.device() != Device::kHost && other.device_id() != first_.device_id())) {
    refuse(place_of(other) + "; " + place_of(first_), "one device for all of a call");
  }
  return other;
}

std::string Place::backend(const std::optional<std::string>& asked) const {
  static const char* const kForced = std::getenv("FP4PA_FORCE_BACKEND");  // once, as the library reads it
  if (!asked && (kForced == nullptr || *kForced == '\0')) {
    return first_.device() == Device::kHost ? "cpu" : first_.device() == Device::kCuda ? "cuda" : "hip";
  }
  const std::string name = asked ? *asked : kForced;
  const std::optional<Device> memory = memory_of(name);
  if (memory && *memory != first_.device()) {
    refuse(place_of(first_) + ", and the back end is \"" + name + "\"", "one with this memory");
  }
  return name;
}

void* Place::stream(nb::handle asked) const {
  if (first_.device() == Device::kHost) return nullptr;
  if (first_.is_torch()) {
    const Torch& torch = *Torch::get();
    const int current = torch.current_device();
    if (current != first_.device_id()) {
      refuse(place_of(first_) + ", and the current device is " + std::to_string(current),
             "the current device (torch.cuda.device makes one current)");
    }
    if (asked.is_none()) return torch.current_stream(current);
  }
  if (asked.is_none()) return nullptr;
  nb::object handle = nb::borrow(asked);
  if (nb::hasattr(asked, "cuda_stream"))
    handle = asked.attr("cuda_stream");
  else if (nb::hasattr(asked, "ptr"))
    handle = asked.attr("ptr");
  else if (nb::hasattr(asked, "__cuda_stream__"))
    handle = nb::cast<nb::tuple>(asked.attr("__cuda_stream__")())[1];
  std::uintptr_t number = 0;
  if (nb::isinstance<nb::int_>(handle) && nb::try_cast(handle, number)) return reinterpret_cast<void*>(number);
  throw nb::type_error(
      "stream is no stream; allowed: None, a handle as a number, PyTorch's, CuPy's, or an object with __cuda_stream__");
}

Workspace workspace_of(const std::optional<Tensor>& workspace, const Place& place) {
  if (!workspace) return {};
  place.also(workspace->is_dense());
  const auto start = reinterpret_cast<std::uintptr_t>(workspace->data());
  const std::uintptr_t aligned = (start + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  const auto bytes = static_cast<std::size_t>(workspace->bytes());
  if (start == 0) return {};
  if (aligned - start > bytes) return {reinterpret_cast<void*>(aligned), 0};
  return {reinterpret_cast<void*>(aligned), bytes - (aligned - start)};
}

}  // namespace fp4pa::python
