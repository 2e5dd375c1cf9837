// Picking the back end of a call, together with the function that the call needs of it.
#pragma once

#include <cstring>

#include "api/backend.hpp"
#include "api/error.hpp"
#include "api/validate.hpp"

namespace fp4pa::api {

/// Whether a back end's memory is the host's, so that what pointers point to can be checked before the call.
[[nodiscard]] inline bool runs_on_host(const Backend& backend) noexcept {
  return std::strncmp(backend.name, "cpu", 3) == 0;
}

/// The back end that `exec` asks for, if its table has `entry`.
/// @errors kInvalidArgument, kUnknownBackend, kBackendUnavailable
template <typename Entry>
[[nodiscard]] Status select_backend(const ExecDesc& exec, Entry Backend::*entry, const char* name,
                                    const Backend** out) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_exec(exec));
  FP4PA_RETURN_IF_FAILED(find_backend(exec.backend, out));
  if ((*out)->*entry != nullptr) return Status::kOk;
  return fail(Status::kBackendUnavailable, "back end %s has no %s in this build", (*out)->name, name);
}

}  // namespace fp4pa::api
