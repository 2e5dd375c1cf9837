// Where a call runs: its tensors say which memory, and with it which back end; PyTorch, where the tensors are its, says which stream.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "fp4pa/cache.hpp"
#include "python/src/error.hpp"
#include "python/src/tensor.hpp"

namespace fp4pa::python {

/// The one device of all tensors of a call. Built from the first, told of the others.
class Place {
 public:
  explicit Place(const Tensor& first) : first_(first) {}

  /// @throws ValueError where it lies elsewhere than the first
  const Tensor& also(const Tensor& other) const;
  void also(const std::optional<Tensor>& other) const {
    if (other) also(*other);
  }

  /// The back end asked for, or FP4PA_FORCE_BACKEND's, or else the one of this memory.
  /// @throws ValueError for one whose memory is another
  [[nodiscard]] std::string backend(const std::optional<std::string>& asked) const;

  /// A cudaStream_t or hipStream_t. None is the stream that PyTorch has made current for this device, where the first tensor is PyTorch's, and
  /// the default stream elsewhere. Otherwise a number, an object with `cuda_stream` (PyTorch), `ptr` (CuPy), or __cuda_stream__.
  /// @throws ValueError where PyTorch's current device is not the tensors', TypeError for what is no stream
  [[nodiscard]] void* stream(nanobind::handle asked) const;

 private:
  const Tensor& first_;
};

/// What Python's caller said of where a call runs: the keyword arguments that most functions end with.
struct Asked {
  const std::optional<std::string>& backend;
  nanobind::handle stream;
  std::int32_t num_threads;
  bool validate = false;
};

/// Runs `call(const ExecDesc&)` there.
template <class Call>
void run_there(const Place& place, const Asked& asked, const Call& call) {
  const std::string backend = place.backend(asked.backend);
  ExecDesc exec;
  exec.backend = backend.c_str();
  exec.stream = place.stream(asked.stream);
  exec.num_threads = asked.num_threads;
  exec.validate_device_data = asked.validate;
  check_unlocked([&] { return call(exec); });
}

/// The workspace of a call, its start aligned as the library wants it, and how much is left of it from there.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};
constexpr std::size_t kWorkspaceAlignment = 256;
/// What Python is told to bring for `bytes`: room to align any start.
[[nodiscard]] constexpr std::size_t with_alignment(std::size_t bytes) { return bytes == 0 ? 0 : bytes + kWorkspaceAlignment - 1; }
[[nodiscard]] Workspace workspace_of(const std::optional<Tensor>& workspace, const Place& place);
template <class Args>
void set_workspace(Args& args, const std::optional<Tensor>& workspace, const Place& place) {
  const Workspace space = workspace_of(workspace, place);
  args.workspace = space.data;
  args.workspace_bytes = space.bytes;
}

}  // namespace fp4pa::python
