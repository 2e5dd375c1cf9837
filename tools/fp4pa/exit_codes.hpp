// How the tool ends, and the one exception that carries it there.
//
// Scripts branch on these numbers, so they are documented in --help and never renumbered.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "fp4pa/status.hpp"

namespace fp4pa::tool {

enum class Exit : int {
  kOk = 0,
  kOutsideContract = 1,  ///< it ran, and a result is outside the error contract (or a comparison found a regression)
  kUsage = 2,            ///< the command line is wrong, or asks for something unsupported
  kInputFile = 3,  ///< an input file is missing, malformed or lacks what was named; or an output cannot be written
  kBackendUnavailable = 4,  ///< the back end is unknown or cannot run on this machine
  kInternal = 5,            ///< a device error or a bug
  kOutOfMemory = 6,         ///< what was asked for needs more memory than there is
};

inline constexpr const char* kExitCodeHelp =
    "Exit codes: 0 ok; 1 a result is outside its contract; 2 bad usage; 3 bad input file (or an output that cannot be\n"
    "written); 4 back end unknown or unavailable; 5 device error or a bug; 6 out of memory.";

/// Ends the command with `code` after printing `message` to stderr.
class Failure : public std::runtime_error {
 public:
  Failure(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] Exit code() const noexcept { return code_; }

 private:
  Exit code_;
};

[[nodiscard]] inline Failure out_of_memory(std::size_t bytes) {
  return {Exit::kOutOfMemory, "out of memory: " + std::to_string(bytes) + " bytes wanted in one piece"};
}

/// The exit code that a library status belongs to.
[[nodiscard]] constexpr Exit exit_of(Status status) noexcept {
  switch (status) {
    case Status::kOk:
      return Exit::kOk;
    case Status::kUnknownBackend:
    case Status::kBackendUnavailable:
      return Exit::kBackendUnavailable;
    case Status::kDeviceError:
    case Status::kInternal:
    case Status::kPlanMismatch:
    case Status::kWorkspaceTooSmall:
      return Exit::kInternal;
    default:
      return Exit::kUsage;
  }
}

/// Throws a Failure that names `what`, the status and the library's detail text, unless the status is kOk.
inline void check(Status status, const std::string& what) {
  if (status == Status::kOk) return;
  throw Failure(exit_of(status), what + ": " + status_name(status) + ": " + last_error_detail());
}

}  // namespace fp4pa::tool
