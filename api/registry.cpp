// Which back ends this build holds, and which of them a call gets.
//
// The table is constant data: a back end registers by being listed here, under the definition its folder was built with,
// and not by a static initialiser that a static library would lose. Order is preference: the first that can run is the
// default.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api/backend.hpp"
#include "api/error.hpp"
#include "api/log.hpp"
#include "fp4pa/backends.hpp"
#include "fp4pa/version.hpp"

#define FP4PA_TEXT_OF(x) #x
#define FP4PA_TEXT(x) FP4PA_TEXT_OF(x)

namespace fp4pa {
namespace api {
namespace {

constexpr std::array kBackends = {
#if defined(FP4PA_HAVE_CUDA)
    &kCudaBackend,
#endif
#if defined(FP4PA_HAVE_HIP)
    &kHipBackend,
#endif
    &kCpuBackend,
    &kCpuScalarBackend,
};

/// "cuda, cpu, cpu-scalar", for messages.
struct NameList {
  char text[128] = "";
  NameList() noexcept {
    int used = 0;
    for (const Backend* backend : kBackends) {
      const int left = static_cast<int>(sizeof text) - used;
      const int wrote = std::snprintf(text + used, static_cast<std::size_t>(left), "%s%s", used == 0 ? "" : ", ", backend->name);
      if (wrote < 0 || wrote >= left) return;
      used += wrote;
    }
  }
};

/// FP4PA_FORCE_BACKEND as it was when the first call asked, in memory of its own: whoever sets a variable of the environment later, on
/// any thread, may move all of them while they are read. Longer than any name it is cut, which makes it no other back end's.
struct ForcedBackend {
  char name[64] = "";
  ForcedBackend() noexcept {
    const char* const value = std::getenv("FP4PA_FORCE_BACKEND");
    if (value != nullptr) std::snprintf(name, sizeof name, "%s", value);
  }
};

}  // namespace

std::span<const Backend* const> backends() noexcept { return kBackends; }

Status find_backend(const char* name, const Backend** out, std::int32_t* index) noexcept {
  static const ForcedBackend forced;
  return find_backend_or(name, forced.name, out, index);
}

Status find_backend_or(const char* name, const char* forced, const Backend** out, std::int32_t* index) noexcept {
  const bool given = name != nullptr;  // an empty name is none of the build's; an empty variable is one that is not set
  const char* const origin = given ? "backend" : "FP4PA_FORCE_BACKEND";
  if (!given) name = forced;
  const bool any = !given && (name == nullptr || *name == '\0');

  for (std::size_t i = 0; i < kBackends.size(); ++i) {
    const Backend* backend = kBackends[i];
    if (!any && std::strcmp(backend->name, name) != 0) continue;
    const char* detail = "";
    if (backend->available(&detail)) {
      log(LogLevel::kDebug, "back end %s (%s)", backend->name, detail);
      *out = backend;
      if (index != nullptr) *index = static_cast<std::int32_t>(i);
      return Status::kOk;
    }
    if (!any) {
      return fail(Status::kBackendUnavailable, "%s is \"%s\", which this machine cannot run: %s", origin, name, detail);
    }
  }
  const NameList names;
  if (any) return fail(Status::kBackendUnavailable, "none of the back ends of this build can run here: %s", names.text);
  return fail(Status::kUnknownBackend, "%s is \"%s\"; allowed in this build: %s", origin, name, names.text);
}

}  // namespace api

std::int32_t available_backends(BackendInfo* out, std::int32_t capacity) noexcept {
  const auto all = api::backends();
  for (std::size_t i = 0; out != nullptr && i < all.size() && static_cast<std::int32_t>(i) < capacity; ++i) {
    const char* detail = "";
    const bool available = all[i]->available(&detail);
    out[i] = {all[i]->name, available, detail};
  }
  return static_cast<std::int32_t>(all.size());
}

const char* version_string() noexcept {
  return FP4PA_TEXT(FP4PA_VERSION_MAJOR) "." FP4PA_TEXT(FP4PA_VERSION_MINOR) "." FP4PA_TEXT(FP4PA_VERSION_PATCH) " ("
#if defined(FP4PA_HAVE_CUDA)
         "cuda, "
#endif
#if defined(FP4PA_HAVE_HIP)
         "hip, "
#endif
         "cpu, cpu-scalar)";
}

std::int32_t abi_version() noexcept { return FP4PA_ABI_VERSION; }

}  // namespace fp4pa
