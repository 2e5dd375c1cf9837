// q, k and v of `fp4pa attend`: three tensors of a safetensors file, checked against one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4pa/types.hpp"
#include "weights/safetensors.hpp"

namespace fp4pa::tool {

/// One input tensor [heads, tokens, head_dim], as it lies in the file.
struct InputTensor {
  const std::byte* data = nullptr;  ///< no alignment promised
  DType dtype = DType::kF32;
  std::int64_t heads = 0;
  std::int64_t tokens = 0;
  std::int64_t head_dim = 0;
  /// Tokens first .. first+count-1 as [count, heads, head_dim] in the same dtype, aligned: what the library takes.
  [[nodiscard]] std::vector<std::byte> token_major(std::int64_t first, std::int64_t count) const;
  /// Element as a double.
  [[nodiscard]] double at(std::int64_t head, std::int64_t token, std::int64_t column) const;
};

/// The file stays mapped while this lives.
class AttendInput {
 public:
  /// Failure (kInputFile) when a tensor is missing, has the wrong rank or dtype, or the shapes do not fit together.
  AttendInput(const std::string& path, const std::string& q, const std::string& k, const std::string& v);
  InputTensor q, k, v;
  /// Of the file's metadata, 0 when it has none.
  double softmax_scale = 0.0;
  /// Of the file's metadata; true when it says nothing.
  bool causal = true;

 private:
  safetensors::File file_;
};

/// The dtype of a tensor that attention and quantisation can read; Failure (kInputFile) for the others.
[[nodiscard]] DType plain_dtype(const safetensors::TensorView& tensor);
/// The format's name of a dtype.
[[nodiscard]] const char* safetensors_name(DType dtype) noexcept;

}  // namespace fp4pa::tool
