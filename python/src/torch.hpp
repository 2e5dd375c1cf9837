// PyTorch, where the program has imported it. Its tensors are read through their attributes: by DLPack each took
// 8 us more (one core of a server, PyTorch 2.15), and a call has up to ten.
#pragma once

#include <nanobind/nanobind.h>

#include "python/src/tensor.hpp"

namespace fp4pa::python {

/// The module and what is asked of it in every call. Kept until the process ends: Python may be gone before it is destroyed.
class Torch {
 public:
  /// Null as long as nobody has imported PyTorch; asking does not.
  [[nodiscard]] static const Torch* get();

  [[nodiscard]] bool is_tensor(nanobind::handle object) const { return PyObject_IsInstance(object.ptr(), tensor_) == 1; }
  [[nodiscard]] Element element_of(nanobind::handle dtype) const;
  /// Whether its "cuda" is AMD's.
  [[nodiscard]] bool is_rocm() const { return rocm_; }
  [[nodiscard]] int current_device() const;
  [[nodiscard]] void* current_stream(int device) const;

 private:
  explicit Torch(nanobind::handle module);

  PyObject* tensor_;
  PyObject* cuda_;
  PyObject* elements_[6];  // float32, float16, bfloat16, int32, int64, uint64: in the order of Element
  bool rocm_;
};

}  // namespace fp4pa::python
