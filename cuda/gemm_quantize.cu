// Around the matrix product: weights to codes, X to the rows that the kernel reads, and the magnitudes that both need.
#include "core/formats/block.hpp"
#include "core/gemm/weight.hpp"
#include "core/paging/plain_row.hpp"
#include "cuda/gemm_kernels.hpp"

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 256;

/// Eight elements from `first` on, zeros past `cols`; 16-byte loads where the address allows.
__device__ __forceinline__ void load_8(const void* row, DType dtype, std::int64_t first, std::int64_t cols, float* out) {
  const void* const from = core::element_address(row, dtype, first);
  if (first + 8 <= cols && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
    __align__(16) std::uint32_t words[8];
    const auto* const source = static_cast<const uint4*>(from);
    *reinterpret_cast<uint4*>(words) = source[0];
    if (dtype == DType::kF32) *reinterpret_cast<uint4*>(words + 4) = source[1];
    core::load_plain_row(words, dtype, 8, out);
    return;
  }
  for (int i = 0; i < 8; ++i) {
    out[i] = 0.0f;
    if (first + i < cols) core::load_plain_row(core::element_address(row, dtype, first + i), dtype, 1, out + i);
  }
}

/// The largest of a block's values, in all threads.
__device__ std::uint32_t block_max(std::uint32_t value) {
  __shared__ std::uint32_t of_warp[kThreads / 32];
  value = __reduce_max_sync(0xffffffffu, value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  std::uint32_t all = 0;
  for (const std::uint32_t v : of_warp) all = v > all ? v : all;
  return all;
}

__global__ void __launch_bounds__(kThreads) amax_of(const void* x, DType dtype, std::int64_t n, std::uint32_t* amax) {
  const void* const run = core::element_address(x, dtype, blockIdx.y * n);
  std::uint32_t bits = 0;
  const std::int64_t step = std::int64_t{8} * kThreads * gridDim.x;
  for (std::int64_t at = 8 * (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x); at < n; at += step) {
    float v[8];
    load_8(run, dtype, at, n, v);
    for (const float e : v) bits = max(bits, core::magnitude_bits(e));
  }
  bits = block_max(bits);
  if (threadIdx.x == 0) atomicMax(amax + blockIdx.y, bits);
}

__global__ void globals_of(float* globals, std::int64_t batch) {
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (b < batch) globals[b] = core::nvfp4_global_scale(__float_as_uint(globals[b]));
}

/// A thread per group; batches in y.
__global__ void __launch_bounds__(kThreads) quantize_weight_groups(const __grid_constant__ WeightArgs args) {
  const core::WeightLayout layout{args.config.format, args.config.scale_layout, args.rows, args.cols};
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= args.rows * layout.groups()) return;
  const std::int64_t row = index / layout.groups();
  const std::int64_t g = index - row * layout.groups();
  const std::int64_t b = blockIdx.y;
  const void* const from = core::element_address(args.w, args.dtype, (b * args.rows + row) * args.cols);
  float x[32];
  for (int i = 0; i < layout.group(); i += 8) load_8(from, args.dtype, g * layout.group() + i, args.cols, x + i);
  std::uint8_t* const codes = args.codes + b * layout.code_bytes() + row * layout.code_row_bytes() + g * layout.group() / 2;
  std::uint8_t* const scale = args.scales + b * layout.scale_bytes() + layout.scale_offset(row, g);
  if (layout.format == BlockFormat::kNvfp4) {
    const float global = args.globals != nullptr ? args.globals[b] : args.config.global_scale;
    *scale = core::encode_nvfp4(x, global, args.config.nvfp4_scale, codes);
  } else {
    *scale = core::encode_e2m1_e8m0(x, 32, args.config.scale_mode, codes);
  }
}

/// 32 elements quantised and decoded in place, without the tensor's multiplier.
__device__ void through_fp4(const PrepareArgs& args, float global, float (&x)[32]) {
  std::uint8_t codes[16];
  if (args.format == BlockFormat::kNvfp4) {
    for (int g = 0; g < 2; ++g) {
      const std::uint8_t scale = core::encode_nvfp4(x + 16 * g, global, args.nvfp4_scale, codes);
      core::decode_nvfp4(codes, scale, 1.0f, x + 16 * g);
    }
  } else {
    const std::uint8_t scale = core::encode_e2m1_e8m0(x, 32, args.scale_mode, codes);
    core::decode_e2m1_e8m0(codes, 32, scale, x);
  }
}

/// A row of X in x, a share of its units in y. bf16, f32 and decoded values become f16 times a power of two that
/// puts the row's largest finite element between 2^13 and 2^14, where f16's smallest number is 2^-37 of it.
template <bool kQuantise>
__global__ void __launch_bounds__(kThreads) prepare_rows(const __grid_constant__ PrepareArgs args) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const std::int64_t row = blockIdx.x;
  const std::int64_t b = row / args.m;
  const void* const from = core::element_address(args.x, args.dtype, row * args.cols);
  float global = args.global;
  if (kQuantise && args.format == BlockFormat::kNvfp4 && global == 0.0f) global = core::nvfp4_global_scale(args.amax[b]);

  float scale = 1.0f;
  if (kQuantise || args.dtype != DType::kF16) {
    std::uint32_t bits = 0;
    for (std::int64_t at = 8 * static_cast<std::int64_t>(threadIdx.x); at < args.cols; at += 8 * kThreads) {
      float v[8];
      load_8(from, args.dtype, at, args.cols, v);
      for (const float e : v) {
        const std::uint32_t m = core::magnitude_bits(e);
        bits = max(bits, m < core::kFloatInfBits ? m : 0u);
      }
    }
    bits = block_max(bits);
    // NVFP4's values are in units of the multiplier.
    const float amax = __uint_as_float(bits) / (kQuantise && args.format == BlockFormat::kNvfp4 ? global : 1.0f);
    if (amax > 0.0f) {
      const int exponent = 13 - (static_cast<int>(__float_as_uint(amax) >> 23) - 127);
      scale = core::exp2_exact(min(max(exponent, -126), 126));
    }
  }
  if (blockIdx.y == 0 && threadIdx.x == 0) {
    args.inverse[row] = 1.0f / scale;
    if (args.globals != nullptr && row == b * args.m) args.globals[b] = global;
  }

  constexpr int kUnit = kQuantise ? 32 : 8;
  const std::int64_t units = args.out_cols / kUnit;
  for (std::int64_t unit = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x; unit < units; unit += kThreads * gridDim.y) {
    float x[32];
    for (int i = 0; i < kUnit; i += 8) load_8(from, args.dtype, unit * kUnit + i, args.cols, x + i);
    if constexpr (kQuantise) through_fp4(args, global, x);
    auto* const out = reinterpret_cast<uint4*>(args.out + row * args.out_cols + unit * kUnit);
    for (int i = 0; i < kUnit / 8; ++i) {
      std::uint32_t w[4];  // column c beside c + 4
      for (int p = 0; p < 4; ++p) {
        w[p] = core::f32_to_f16(x[8 * i + p] * scale) | static_cast<std::uint32_t>(core::f32_to_f16(x[8 * i + p + 4] * scale)) << 16;
      }
      out[i] = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}

[[nodiscard]] unsigned blocks(std::int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t launch_amax(const void* x, DType dtype, std::int64_t n, std::int64_t batch, std::uint32_t* amax, cudaStream_t stream) {
  const cudaError_t error = cudaMemsetAsync(amax, 0, static_cast<std::size_t>(batch) * sizeof *amax, stream);
  if (error != cudaSuccess) return error;
  const unsigned share = blocks((n + 7) / 8);
  amax_of<<<dim3(share < 1024 ? share : 1024, static_cast<unsigned>(batch)), kThreads, 0, stream>>>(x, dtype, n, amax);
  return cudaGetLastError();
}

cudaError_t launch_globals(float* globals, std::int64_t batch, cudaStream_t stream) {
  globals_of<<<blocks(batch), kThreads, 0, stream>>>(globals, batch);
  return cudaGetLastError();
}

cudaError_t launch_quantize_weight(const WeightArgs& args, cudaStream_t stream) {
  const core::WeightLayout layout{args.config.format, args.config.scale_layout, args.rows, args.cols};
  const dim3 grid(blocks(args.rows * layout.groups()), static_cast<unsigned>(args.batch));
  quantize_weight_groups<<<grid, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t launch_prepare(const PrepareArgs& args, cudaStream_t stream) {
  // Few rows are shared by several blocks: each finds the row's largest element itself.
  const std::int64_t units = args.out_cols / (args.quantise ? 32 : 8);
  const unsigned share = args.batch * args.m >= 128 ? 1 : blocks(units);
  const dim3 grid(static_cast<unsigned>(args.batch * args.m), share < 16 ? share : 16);
  if (args.quantise) {
    prepare_rows<true><<<grid, kThreads, 0, stream>>>(args);
  } else {
    prepare_rows<false><<<grid, kThreads, 0, stream>>>(args);
  }
  return cudaGetLastError();
}

}  // namespace fp4pa::cuda
