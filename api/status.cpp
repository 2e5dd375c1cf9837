// Status names, and the sentence that goes with the last failure on this thread.
//
// The sentence lives in a fixed thread-local buffer: failing must not allocate, since the caller may be out of memory, and
// must not take a lock, since `run` may fail on many threads at once.
#include "fp4pa/status.hpp"

#include <cstdarg>
#include <cstdio>

#include "api/error.hpp"
#include "api/log.hpp"
#include "api/utf8.hpp"

namespace fp4pa {
namespace {

constexpr int kDetailBytes = 512;
thread_local char detail_text[kDetailBytes] = "";

}  // namespace

const char* status_name(Status status) noexcept {
  switch (status) {
    case Status::kOk: return "kOk";
    case Status::kNullPointer: return "kNullPointer";
    case Status::kMisalignedPointer: return "kMisalignedPointer";
    case Status::kInvalidSize: return "kInvalidSize";
    case Status::kUnsupportedHeadDim: return "kUnsupportedHeadDim";
    case Status::kInvalidHeads: return "kInvalidHeads";
    case Status::kUnsupportedFormat: return "kUnsupportedFormat";
    case Status::kInvalidStrides: return "kInvalidStrides";
    case Status::kInvalidGlobalScale: return "kInvalidGlobalScale";
    case Status::kLengthExceedsTable: return "kLengthExceedsTable";
    case Status::kBlockIdOutOfRange: return "kBlockIdOutOfRange";
    case Status::kSlotOutOfRange: return "kSlotOutOfRange";
    case Status::kIncompleteGroup: return "kIncompleteGroup";
    case Status::kInvalidIndptr: return "kInvalidIndptr";
    case Status::kWorkspaceTooSmall: return "kWorkspaceTooSmall";
    case Status::kUnknownBackend: return "kUnknownBackend";
    case Status::kBackendUnavailable: return "kBackendUnavailable";
    case Status::kInvalidArgument: return "kInvalidArgument";
    case Status::kPlanMismatch: return "kPlanMismatch";
    case Status::kDeviceError: return "kDeviceError";
    case Status::kInternal: return "kInternal";
    case Status::kFileError: return "kFileError";
  }
  return "kUnknownStatus";
}

const char* last_error_detail() noexcept { return detail_text; }

namespace api {

Status fail(Status status, const char* format, ...) noexcept {
  // Formatted aside first: an argument may be the previous detail itself, when a caller adds context to a failure.
  char text[kDetailBytes];
  std::va_list args;
  va_start(args, format);
  const int written = std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  std::snprintf(detail_text, sizeof detail_text, "%s", written < 0 ? "(the detail could not be formatted)" : text);
  make_utf8(detail_text);  // names out of files are arbitrary bytes, and the end may be cut within a character
  log(LogLevel::kError, "%s: %s", status_name(status), detail_text);
  return status;
}

}  // namespace api
}  // namespace fp4pa
