#include "python/src/error.hpp"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace fp4pa::python {

void check(Status status) {
  if (status == Status::kOk) return;
  const nb::object type = nb::module_::import_("fp4pa._error").attr("Error");
  const nb::object error = type(status_name(status), last_error_detail());
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

void refuse(const std::string& is, const std::string& allowed) { throw nb::value_error((is + "; allowed: " + allowed).c_str()); }

std::int32_t int32_of(std::int64_t value, const char* what) {
  if (value < INT32_MIN || value > INT32_MAX) refuse(std::string(what) + " is " + std::to_string(value), "-2^31 to 2^31 - 1");
  return static_cast<std::int32_t>(value);
}

}  // namespace fp4pa::python
