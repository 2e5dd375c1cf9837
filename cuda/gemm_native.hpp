// W4A4 products whose operands enter the matrix core as they lie in memory: SM120 and SM121.
#pragma once

#include "api/backend.hpp"
#include "cuda/device.hpp"

namespace fp4pa::cuda {

/// A kernel, and what its launch must know.
struct NativeGemm {
  const void* function;
  int rows, x_rows;  // of W and X of a block
  int threads, shared_bytes;
};
/// @param x_tiles  1, 2, 4 or 8 eights of rows of X
[[nodiscard]] NativeGemm native_gemm(bool nvfp4, int x_tiles) noexcept;

/// Whether a product takes this way.
[[nodiscard]] bool is_native(const LinearArgs& args, const DeviceProperties& device) noexcept;
[[nodiscard]] Status linear_native(const LinearArgs& args, const ExecDesc& exec) noexcept;

}  // namespace fp4pa::cuda
