// What this build holds and what this machine can run.
#pragma once

#include <cstdint>

#include "fp4pa/export.hpp"
#include "fp4pa/status.hpp"

namespace fp4pa {

/// One back end of this build. Strings have static storage.
struct BackendInfo {
  const char* name;        ///< "cpu", "cpu-scalar", "cuda", "hip"
  bool available;          ///< can run here, now
  const char* detail;      ///< the current device or instruction set, which it would use, or why it cannot run
};

/// The back ends of this build, best first. Returns how many there are and writes at most `capacity` of them; `out` may be null with a
/// capacity of 0.
/// FP4PA_FORCE_BACKEND=name makes that back end the default of every call that names none. It is read once, by the first such call.
[[nodiscard]] FP4PA_API std::int32_t available_backends(BackendInfo* out, std::int32_t capacity) noexcept;

/// "0.1.0", and what was built in, for example "0.1.0 (cpu, cpu-scalar)".
[[nodiscard]] FP4PA_API const char* version_string() noexcept;
/// FP4PA_ABI_VERSION of the library, as against that of the header.
[[nodiscard]] FP4PA_API std::int32_t abi_version() noexcept;

}  // namespace fp4pa
