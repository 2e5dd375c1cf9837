#include "python/src/tensor.hpp"

#include <nanobind/stl/string.h>

#include <cstddef>

#include "python/src/error.hpp"
#include "python/src/torch.hpp"

namespace nb = nanobind;

namespace fp4pa::python {
namespace {

constexpr int kDlCudaManaged = 13;  // DLPack's number; nanobind names the others

Element element_of(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return Element::kOther;
  switch (static_cast<Code>(type.code)) {
    case Code::Float: return type.bits == 32 ? Element::kF32 : type.bits == 16 ? Element::kF16 : Element::kOther;
    case Code::Bfloat: return type.bits == 16 ? Element::kBF16 : Element::kOther;
    case Code::Int: return type.bits == 32 ? Element::kInt32 : type.bits == 64 ? Element::kInt64 : Element::kOther;
    case Code::UInt: return type.bits == 64 ? Element::kUint64 : Element::kOther;
    default: return Element::kOther;
  }
}

/// An address for tensors without elements, which have none in PyTorch on a GPU; the library asks for one, and never reads there.
void* address_of_nothing() {
  alignas(256) static std::byte nothing;
  return &nothing;
}

/// What a GPU's array lends, without waiting: the call goes to a stream that is in order with it (exec.hpp), and waiting for the default stream,
/// which is what leaving the stream out means, cannot be captured in a graph. JAX does not know -1, and is asked for the default stream.
nb::object exported(nb::handle object) {
  const auto with_stream = [&](int stream) {
    nb::kwargs arguments = nb::steal<nb::kwargs>(PyDict_New());
    arguments["stream"] = stream;
    return nb::object(object.attr("__dlpack__")(**arguments));
  };
  try {
    return with_stream(-1);
  } catch (const nb::python_error&) {
    return with_stream(1);
  }
}

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

/// NumPy names neither bf16 nor 8-bit floats to others: an array of ml_dtypes' types, seen as integers in the same memory. Other objects as they are.
nb::object nameable(nb::handle object, bool* is_bf16) {
  if (!nb::hasattr(object.type(), "__array_finalize__")) return nb::borrow(object);
  const std::string type = text_of(object.attr("dtype").attr("name"));
  *is_bf16 = type == "bfloat16";
  if (*is_bf16) return object.attr("view")("uint16");
  return type.starts_with("float8_") ? object.attr("view")("uint8") : nb::borrow(object);
}

}  // namespace

Tensor::Tensor(nb::handle object, const char* name, Access access) : name_(name), object_(nb::borrow(object)) {
  const Torch* torch = Torch::get();
  torch_ = torch != nullptr && torch->is_tensor(object);
  if (torch_)
    take_torch(object, access);
  else
    take_dlpack(object, access);
  if (data_ == nullptr && size() == 0) data_ = address_of_nothing();
}

void Tensor::take_axes(std::size_t count) {
  if (count > kMaxAxes) refuse("has " + std::to_string(count) + " axes", "up to " + std::to_string(kMaxAxes));
  ndim_ = static_cast<int>(count);
}

void Tensor::take_torch(nb::handle object, Access access) {
  const Torch& torch = *Torch::get();
  if (access == Access::kWrite && nb::cast<bool>(object.attr("requires_grad")))
    refuse("requires a gradient", "a tensor that does not, to be written");
  if (nb::cast<bool>(object.attr("is_cuda"))) {
    device_ = torch.is_rocm() ? Device::kRocm : Device::kCuda;
    device_id_ = nb::cast<int>(object.attr("get_device")());
  } else if (!nb::cast<bool>(object.attr("is_cpu"))) {
    refuse("is on " + text_of(object.attr("device")), "cpu, cuda");
  }
  const auto shape = nb::cast<nb::tuple>(object.attr("shape")), strides = nb::cast<nb::tuple>(object.attr("stride")());
  take_axes(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    shape_[i] = nb::cast<std::int64_t>(nb::handle(shape[i]));
    strides_[i] = nb::cast<std::int64_t>(nb::handle(strides[i]));
  }
  element_ = torch.element_of(object.attr("dtype"));
  element_bytes_ = nb::cast<std::int64_t>(object.attr("element_size")());
  if (object.attr("is_neg")().is(Py_True))
    refuse("is negated when it is read (is_neg()), and its memory is not", "what resolve_neg() makes of it");
  data_ = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr("data_ptr")()));
}

void Tensor::take_dlpack(nb::handle object, Access access) {
  bool is_bf16 = false;
  nb::object source = nameable(object, &is_bf16);
  if (nb::hasattr(object, "__dlpack_device__")) {
    const auto device = nb::cast<nb::tuple>(object.attr("__dlpack_device__")());
    const int type = nb::cast<int>(nb::int_(nb::handle(device[0])));
    switch (type) {
      case nb::device::cpu::value:
      case nb::device::cuda_host::value: break;
      case nb::device::cuda::value:
      case kDlCudaManaged: device_ = Device::kCuda; break;
      case nb::device::rocm::value: device_ = Device::kRocm; break;
      default: refuse("is on a device of DLPack's type " + std::to_string(type), "CPU (1), CUDA (2), ROCm (10)");
    }
    if (device_ != Device::kHost) source = exported(object);
  }
  nb::ndarray<> writable;
  if (access == Access::kWrite && nb::try_cast(source, writable, false)) {
    array_ = nb::ndarray<nb::ro>(writable);
  } else if (!nb::try_cast(source, array_, false)) {
    const std::string of = nb::hasattr(object, "dtype") ? " of " + text_of(object.attr("dtype")) : "";
    throw nb::type_error(
        (std::string(name_) + " is " + text_of(object.type()) + of + "; allowed: a tensor with DLPack or the buffer protocol, of elements that they can name")
            .c_str());
  } else if (access == Access::kWrite) {
    refuse("may not be written", "a tensor that may");
  }
  take_axes(array_.ndim());
  for (std::size_t i = 0; i < array_.ndim(); ++i) {
    shape_[i] = static_cast<std::int64_t>(array_.shape(i));
    strides_[i] = array_.stride(i);
  }
  element_ = is_bf16 ? Element::kBF16 : element_of(array_.dtype());
  const int bits = array_.dtype().bits * array_.dtype().lanes;
  element_bytes_ = bits / 8;
  if (bits % 8 != 0) refuse("has elements of " + std::to_string(bits) + " bits", "whole bytes, as two codes in a uint8");
  data_ = const_cast<void*>(array_.data());
  device_id_ = device_ == Device::kHost ? 0 : array_.device_id();
}

std::int64_t Tensor::stride(int axis) const {
  if (extent(axis) != 1) return strides_[static_cast<std::size_t>(axis)];
  std::int64_t inner = 1;
  for (int i = axis + 1; i < ndim(); ++i) inner *= extent(i);
  return inner;
}

std::int64_t Tensor::size() const {
  std::int64_t size = 1;
  for (int axis = 0; axis < ndim(); ++axis) size *= extent(axis);
  return size;
}

DType Tensor::dtype() const {
  switch (element_) {
    case Element::kF32: return DType::kF32;
    case Element::kF16: return DType::kF16;
    case Element::kBF16: return DType::kBF16;
    default: refuse_elements("float32, float16, bfloat16");
  }
}

IndexType Tensor::index_type() const {
  if (element_ == Element::kInt32) return IndexType::kInt32;
  if (element_ == Element::kInt64) return IndexType::kInt64;
  refuse_elements("int32, int64");
}

const Tensor& Tensor::is_dtype(DType wanted) const {
  const Element element = wanted == DType::kF32 ? Element::kF32 : wanted == DType::kF16 ? Element::kF16 : Element::kBF16;
  if (element_ != element) refuse_elements(wanted == DType::kF32 ? "float32" : wanted == DType::kF16 ? "float16" : "bfloat16");
  return *this;
}

const Tensor& Tensor::is_int32() const {
  if (element_ != Element::kInt32) refuse_elements("int32");
  return *this;
}

const Tensor& Tensor::is_uint64() const {
  if (element_ != Element::kUint64 && element_ != Element::kInt64) refuse_elements("uint64, int64");
  return *this;
}

const Tensor& Tensor::is_bytes() const {
  if (element_bytes_ != 1) refuse_elements("elements of 8 bits, as uint8");
  return *this;
}

const Tensor& Tensor::is_bytes_of(std::size_t wanted) const {
  is_bytes().is_dense();
  if (static_cast<std::size_t>(bytes()) != wanted) refuse("has " + std::to_string(bytes()) + " bytes", std::to_string(wanted));
  return *this;
}

const Tensor& Tensor::is_dense() const {
  std::int64_t expected = 1;
  for (int axis = ndim() - 1; axis >= 0; --axis) {
    if (size() > 0 && stride(axis) != expected) {
      refuse("has a stride of " + std::to_string(stride(axis)) + " in axis " + std::to_string(axis) + " of " + shape_text(),
             "a contiguous tensor");
    }
    expected *= extent(axis);
  }
  return *this;
}

const Tensor& Tensor::has_rows() const {
  if (ndim() > 0 && size() > 0 && stride(ndim() - 1) != 1)
    refuse("has a stride of " + std::to_string(stride(ndim() - 1)) + " in its last axis", "1");
  return *this;
}

const Tensor& Tensor::is_shape(std::initializer_list<std::int64_t> shape, const char* wanted) const {
  bool equal = ndim() == static_cast<int>(shape.size());
  int axis = 0;
  for (const std::int64_t extent_wanted : shape) {
    if (equal && extent_wanted >= 0) equal = extent(axis) == extent_wanted;
    ++axis;
  }
  if (equal) return *this;
  std::string allowed = std::string(wanted) + " = [";
  axis = 0;
  for (const std::int64_t extent_wanted : shape) {
    allowed += (axis++ == 0 ? "" : ", ") + (extent_wanted < 0 ? std::string("any") : std::to_string(extent_wanted));
  }
  refuse("has shape " + shape_text(), allowed + "]");
}

std::string Tensor::shape_text() const {
  std::string text = "[";
  for (int axis = 0; axis < ndim(); ++axis) text += (axis == 0 ? "" : ", ") + std::to_string(extent(axis));
  return text + "]";
}

void Tensor::refuse_elements(const char* allowed) const {
  const std::string type =
      nb::hasattr(object_, "dtype") ? text_of(object_.attr("dtype")) : std::to_string(element_bytes_) + " bytes";
  refuse("has elements of " + type, allowed);
}

void Tensor::refuse(const std::string& is, const std::string& allowed) const {
  python::refuse(std::string(name_) + " " + is, allowed);
}

void Tensor::ends_within(std::int64_t rows, const char* of) const {
  const std::int32_t end = static_cast<const std::int32_t*>(data_)[extent(0) - 1];
  if (end > rows) refuse("ends at " + std::to_string(end), "at most the " + std::to_string(rows) + " " + of);
}

void Tensor::has_pages(std::int64_t sequence, std::int64_t pages) const {
  if (stride(0) > extent(1) && pages > extent(1)) {
    refuse("has rows of " + std::to_string(extent(1)) + " pages",
           "at least the " + std::to_string(pages) + " that sequence " + std::to_string(sequence) + " needs");
  }
}

const Tensor& Tensor::moves_along(int axis) const {
  if (extent(axis) > 1 && size() > 0 && stride(axis) == 0) {
    refuse("has a stride of 0 in axis " + std::to_string(axis) + " of " + shape_text(),
           "rows of their own, as contiguous() makes them");
  }
  return *this;
}

Rows rows_of(const Tensor& t) {
  t.moves_along(0).moves_along(1);
  return {t.extent(0) > 1 ? t.stride(0) : 0, t.extent(1) > 1 ? t.stride(1) : 0};
}

std::optional<float> number_of(nb::handle object) {
  if (!nb::isinstance<nb::float_>(object) && !nb::isinstance<nb::int_>(object)) return std::nullopt;
  return nb::cast<float>(nb::float_(nb::borrow(object)));
}

float float_of(double value, const char* name) {
  const auto single = static_cast<float>(value);
  if (single == 0.0f && value != 0.0) {
    fp4pa::python::refuse(std::string(name) + " is " + text_of(nb::float_(value)) + ", which is no float32 but 0", "0, or a magnitude of at least 2^-149");
  }
  return single;
}

std::optional<Tensor> optional_tensor(nb::handle object, const char* name, Access access) {
  if (object.is_none()) return std::nullopt;
  return Tensor(object, name, access);
}

}  // namespace fp4pa::python
