// How a function of the library fails: a status, and a sentence kept for this thread.
#pragma once

#include <cstdarg>

#include "fp4pa/status.hpp"

namespace fp4pa::api {

/// Stores the formatted sentence as this thread's last_error_detail (truncated at 512 bytes), logs it when FP4PA_LOG asks
/// for it, and returns `status`. Never allocates, never throws.
[[gnu::format(printf, 2, 3)]] Status fail(Status status, const char* format, ...) noexcept;

}  // namespace fp4pa::api

/// Ends the function with the status of a step that failed.
#define FP4PA_RETURN_IF_FAILED(expression)                                                        \
  do {                                                                                            \
    if (const ::fp4pa::Status status_ = (expression); status_ != ::fp4pa::Status::kOk) return status_; \
  } while (false)
