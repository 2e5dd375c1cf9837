// A table in a back end's memory as the host can look at it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "api/backend.hpp"
#include "api/error.hpp"

namespace fp4pa::api {

/// Copies `count` elements to a new array, behind what the stream was given before.
/// @param operation, what  of the error's text: "append: no memory to check 7 slots in"
/// @errors kBackendUnavailable (memory of a back end that cannot be read back), kInternal (no memory), what reading ends with
template <typename T>
[[nodiscard]] Status read_back(const Backend& backend, const char* operation, const char* what, const T* from, std::int64_t count,
                               void* stream, std::unique_ptr<T[]>& to) noexcept {
  if (backend.read_back == nullptr) {
    return fail(Status::kBackendUnavailable, "%s: back end %s has no validate_device_data in this build", operation, backend.name);
  }
  if (count == 0) return Status::kOk;
  to.reset(new (std::nothrow) T[static_cast<std::size_t>(count)]);
  if (to == nullptr) return fail(Status::kInternal, "%s: no memory to check %lld %s in", operation, static_cast<long long>(count), what);
  return backend.read_back(to.get(), from, static_cast<std::size_t>(count) * sizeof(T), stream);
}

}  // namespace fp4pa::api
