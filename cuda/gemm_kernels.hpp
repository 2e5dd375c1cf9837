// The kernels of a matrix product, as the launching side sees them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "api/backend.hpp"
#include "backends/sm80/gemm_params.hpp"

namespace fp4pa::cuda {

/// What becomes of X before it is multiplied: f16 rows of whole stages, in the kernel's order of columns.
struct PrepareArgs {
  const void* x;
  DType dtype;
  std::int64_t m, batch, cols;
  bool quantise;  // to `format`, and decoded again
  BlockFormat format;
  ScaleMode scale_mode;
  Nvfp4Scale nvfp4_scale;
  float global;                  // NVFP4: 0 takes it from amax
  const std::uint32_t* amax;     // [batch] bits
  std::uint16_t* out;            // [batch * m, out_cols]
  std::int64_t out_cols;
  float* inverse;                // [batch * m]
  float* globals;                // null, or [batch]
};

struct WeightArgs {
  QuantizeConfig config;
  const void* w;
  DType dtype;
  std::int64_t rows, cols, batch;
  std::uint8_t* codes;
  std::uint8_t* scales;
  float* globals;             // null: config.global_scale
  const std::uint32_t* amax;  // [batch] bits; may be the same memory as globals
};

/// Largest magnitude of each of `batch` runs of n elements, as bits, into zeroed words.
[[nodiscard]] cudaError_t launch_amax(const void* x, DType dtype, std::int64_t n, std::int64_t batch, std::uint32_t* amax,
                                      cudaStream_t stream);
[[nodiscard]] cudaError_t launch_prepare(const PrepareArgs& args, cudaStream_t stream);
/// The multipliers from the bits, in place.
[[nodiscard]] cudaError_t launch_globals(float* globals, std::int64_t batch, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_quantize_weight(const WeightArgs& args, cudaStream_t stream);

/// The kernel for `x_tiles` (1, 2, 4, 8) eights of rows of X; null when there is none: more than 2 need paired columns.
[[nodiscard]] const void* gemm_function(bool nvfp4, int x_tiles, bool paired);

}  // namespace fp4pa::cuda
