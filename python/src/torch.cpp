#include "python/src/torch.hpp"

#include <cstdint>

namespace nb = nanobind;

namespace fp4pa::python {

Torch::Torch(nb::handle module)
    : tensor_(nb::object(module.attr("Tensor")).release().ptr()),
      cuda_(nb::object(module.attr("cuda")).release().ptr()),
      rocm_(!nb::object(module.attr("version").attr("hip")).is_none()) {
  int i = 0;
  for (const char* name : {"float32", "float16", "bfloat16", "int32", "int64", "uint64"}) {
    elements_[i++] = nb::hasattr(module, name) ? nb::object(module.attr(name)).release().ptr() : nullptr;  // uint64 came with 2.3
  }
}

const Torch* Torch::get() {
  static const Torch* torch = nullptr;
  if (torch != nullptr) return torch;
  const nb::str name("torch");
  const nb::object module = nb::steal(PyImport_GetModule(name.ptr()));
  if (module.is_valid() && nb::hasattr(module, "version")) torch = new Torch(module);  // else it is still being imported
  return torch;
}

Element Torch::element_of(nb::handle dtype) const {
  for (int i = 0; i < 6; ++i) {
    if (elements_[i] == dtype.ptr()) return static_cast<Element>(i);
  }
  return Element::kOther;
}

int Torch::current_device() const { return nb::cast<int>(nb::handle(cuda_).attr("current_device")()); }

void* Torch::current_stream(int device) const {
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(nb::handle(cuda_).attr("current_stream")(device).attr("cuda_stream")));
}

}  // namespace fp4pa::python
