// fp4pa._core: the library's calls over Python's tensors. python/fp4pa/__init__.py is what users import.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "fp4pa/backends.hpp"
#include "python/src/bind.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

std::vector<fp4pa::BackendInfo> backends() {
  std::vector<fp4pa::BackendInfo> found(static_cast<std::size_t>(fp4pa::available_backends(nullptr, 0)));
  (void)fp4pa::available_backends(found.data(), static_cast<std::int32_t>(found.size()));
  return found;
}

}  // namespace

NB_MODULE(_core, m) {
  // What other extensions still hold when the interpreter ends is no fault of the program that reads this.
  const char* log = std::getenv("FP4PA_LOG");
  nb::set_leak_warnings(log != nullptr && std::string_view(log) == "debug");
  nb::class_<fp4pa::BackendInfo>(m, "Backend", "One back end of this build.")
      .def_ro("name", &fp4pa::BackendInfo::name, "\"cpu\", \"cpu-scalar\", \"cuda\" or \"hip\".")
      .def_ro("available", &fp4pa::BackendInfo::available, "Whether it can run here, now.")
      .def_ro("detail", &fp4pa::BackendInfo::detail, "The device or instruction set that it would use, or why it cannot run.")
      .def("__repr__", [](const fp4pa::BackendInfo& b) {
        return std::string("Backend(name='") + b.name + "', available=" + (b.available ? "True" : "False") + ", detail='" +
               b.detail + "')";
      });
  m.def("backends", &backends, "The back ends of this build, best first.");
  m.def("version_string", &fp4pa::version_string,
        "The library's version and back ends, for example \"0.1.0 (cpu, cpu-scalar)\".");
  fp4pa::python::bind_cache(m);
  fp4pa::python::bind_cache_operations(m);
  fp4pa::python::bind_attention(m);
  fp4pa::python::bind_quantize(m);
  fp4pa::python::bind_gemm(m);
  fp4pa::python::bind_dense(m);
}
