// Memory that Python lends to a call: PyTorch's tensors, and any object with DLPack (NumPy, CuPy, JAX) or the buffer protocol. Nothing is
// copied or converted; what does not fit is refused with the argument's name, what it is, and what is allowed.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "fp4pa/cache.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::python {

/// Where memory lies, as far as back ends differ in it.
enum class Device { kHost, kCuda, kRocm };

enum class Access { kRead, kWrite };

/// Elements, as far as calls differ in them.
enum class Element { kF32, kF16, kBF16, kInt32, kInt64, kUint64, kOther };

/// One tensor of a call. It holds a reference to the memory, so that a cache or a plan can keep what it points to.
class Tensor {
 public:
  /// PyTorch's may require a gradient where they are read; none is computed.
  /// @throws TypeError for an object that is no tensor, ValueError for one on a device that no back end has or one that may not be written
  ///         (Access::kWrite), and what a GPU tensor's own __dlpack__ throws
  Tensor(nanobind::handle object, const char* name, Access access = Access::kRead);

  [[nodiscard]] const char* name() const { return name_; }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] int ndim() const { return ndim_; }
  [[nodiscard]] std::int64_t extent(int axis) const { return shape_[static_cast<std::size_t>(axis)]; }
  /// In elements. Of an axis of one element, whose stride can be anything, the dense one: what follows it, end to end.
  [[nodiscard]] std::int64_t stride(int axis) const;
  [[nodiscard]] std::int64_t size() const;
  [[nodiscard]] std::int64_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] std::int64_t bytes() const { return size() * element_bytes(); }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] int device_id() const { return device_id_; }
  /// Whether PyTorch knows the stream that works on it.
  [[nodiscard]] bool is_torch() const { return torch_; }

  /// f32, f16 or bf16. @throws ValueError for anything else
  [[nodiscard]] DType dtype() const;
  /// int32 or int64. @throws ValueError for anything else
  [[nodiscard]] IndexType index_type() const;

  // Each throws ValueError unless the tensor is so, and returns it, so that they can be chained.
  const Tensor& is_dtype(DType wanted) const;
  const Tensor& is_int32() const;
  const Tensor& is_uint64() const;                      ///< int64 too: PyTorch computes little with uint64
  const Tensor& is_bytes() const;                       ///< elements of 8 bits: uint8, or codes in a type of their own
  const Tensor& is_bytes_of(std::size_t wanted) const;  ///< as many of them, contiguous, in any shape
  const Tensor& is_dense() const;                       ///< row-major, without gaps
  const Tensor& has_rows() const;                       ///< the last axis is contiguous
  /// -1 stands for any extent; `wanted` is how the message writes the shape.
  const Tensor& is_shape(std::initializer_list<std::int64_t> shape, const char* wanted) const;
  const Tensor& moves_along(int axis) const;  ///< its rows there are not one row again and again, as expand() makes them

  // Of tables of int32 in the host's memory.
  void ends_within(std::int64_t rows, const char* of) const;  ///< an indptr's last entry is at most `rows`
  void has_pages(std::int64_t sequence,
                 std::int64_t pages) const;  ///< a row of [batch, pages] has as many, also where it is a part of a longer one

  /// "[2, 3]"
  [[nodiscard]] std::string shape_text() const;

 private:
  static constexpr int kMaxAxes = 8;

  void take_torch(nanobind::handle object, Access access);
  void take_dlpack(nanobind::handle object, Access access);
  [[noreturn]] void refuse(const std::string& is, const std::string& allowed) const;
  [[noreturn]] void refuse_elements(const char* allowed) const;
  void take_axes(std::size_t count);

  const char* name_;
  nanobind::object object_;                // keeps the memory of PyTorch's
  nanobind::ndarray<nanobind::ro> array_;  // of others
  void* data_ = nullptr;
  int ndim_ = 0;
  std::array<std::int64_t, kMaxAxes> shape_{}, strides_{};
  Element element_ = Element::kOther;
  std::int64_t element_bytes_ = 1;
  Device device_ = Device::kHost;
  int device_id_ = 0;
  bool torch_ = false;
};

/// A number of Python's, where a tensor may stand as well.
[[nodiscard]] std::optional<float> number_of(nanobind::handle object);
/// Python's number as the library has it. @throws ValueError for one that would become 0, which stands for something else
[[nodiscard]] float float_of(double value, const char* name);

/// A tensor where there is one; None is none.
[[nodiscard]] std::optional<Tensor> optional_tensor(nanobind::handle object, const char* name, Access access = Access::kRead);

/// Strides of [tokens, heads, head_dim] as the library takes them: 0 is dense, which an axis of one element is.
struct Rows {
  std::int64_t token_stride;
  std::int64_t head_stride;
};
/// @throws ValueError where an axis of several rows has a stride of 0, as expand() makes it: to the library that is another one
[[nodiscard]] Rows rows_of(const Tensor& t);

}  // namespace fp4pa::python
