// How what goes wrong reaches Python: a Status of the library as fp4pa.Error, and what this module itself finds wrong with an
// argument as ValueError or TypeError. Both name the value and what is allowed.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "fp4pa/status.hpp"

namespace fp4pa::python {

/// Throws fp4pa.Error(status, detail) unless `status` is kOk. On the thread whose call failed: the detail is kept per thread.
void check(Status status);

/// Throws ValueError: what an argument is, and what it may be.
[[noreturn]] void refuse(const std::string& is, const std::string& allowed);

/// A count for the library, most of whose counts have 32 bits. @throws ValueError for one that does not fit
[[nodiscard]] std::int32_t int32_of(std::int64_t value, const char* what);

/// Calls the library without the interpreter's lock, and checks what it returns.
template <class Call>
void check_unlocked(const Call& call) {
  Status status;
  {
    const nanobind::gil_scoped_release released;
    status = call();
  }
  check(status);
}

}  // namespace fp4pa::python
