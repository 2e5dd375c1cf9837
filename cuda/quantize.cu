// quantize, dequantize: a thread per group of a tensor, with core's block encoders; merge_states: a warp per row.
#include "core/formats/block.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/paging/encode_group.hpp"
#include "core/paging/plain_row.hpp"
#include "cuda/cache_ops.hpp"
#include "cuda/device.hpp"

#include <cmath>

namespace fp4pa::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxGroup = 32;

struct TensorArgs {
  QuantizeConfig config;
  void* plain;
  DType dtype;
  std::int64_t rows, cols;
  std::uint8_t* codes;
  std::uint8_t* scales;

  [[nodiscard]] __host__ __device__ int group() const { return config.format == BlockFormat::kNvfp4 ? 16 : 32; }
  [[nodiscard]] __host__ __device__ std::int64_t groups_per_row() const { return cols / group(); }
  [[nodiscard]] __device__ std::uint8_t* scale_of(std::int64_t index) const {
    if (config.scale_layout == ScaleLayout::kLinear) return scales + index;
    const std::int64_t row = index / groups_per_row();
    return scales + core::blocked_scale_offset(row, index - row * groups_per_row(), groups_per_row());
  }
  [[nodiscard]] __device__ std::uint8_t* codes_of(std::int64_t index) const {
    const std::int64_t element = index * group();
    return codes + (config.format == BlockFormat::kMxfp8 ? element : element / 2);
  }
};

__global__ void __launch_bounds__(kThreads) quantize_groups(const __grid_constant__ TensorArgs args) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= args.rows * args.groups_per_row()) return;
  float x[kMaxGroup];
  const int n = args.group();
  core::load_plain_row(core::element_address(args.plain, args.dtype, index * n), args.dtype, n, x);
  const QuantizeConfig& c = args.config;
  switch (c.format) {
    case BlockFormat::kMxfp4: *args.scale_of(index) = core::encode_e2m1_e8m0(x, n, c.scale_mode, args.codes_of(index)); break;
    case BlockFormat::kNvfp4:
      *args.scale_of(index) = core::encode_nvfp4(x, c.global_scale, c.nvfp4_scale, args.codes_of(index));
      break;
    case BlockFormat::kMxfp8: *args.scale_of(index) = core::encode_mxfp8(x, n, c.scale_mode, args.codes_of(index)); break;
  }
}

__global__ void __launch_bounds__(kThreads) dequantize_groups(const __grid_constant__ TensorArgs args) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= args.rows * args.groups_per_row()) return;
  float x[kMaxGroup];
  const int n = args.group();
  const std::uint8_t scale = *args.scale_of(index);
  switch (args.config.format) {
    case BlockFormat::kMxfp4: core::decode_e2m1_e8m0(args.codes_of(index), n, scale, x); break;
    case BlockFormat::kNvfp4: core::decode_nvfp4(args.codes_of(index), scale, args.config.global_scale, x); break;
    case BlockFormat::kMxfp8: core::decode_mxfp8(args.codes_of(index), n, scale, x); break;
  }
  core::store_plain_row(x, n, args.dtype, core::element_address(args.plain, args.dtype, index * n));
}

[[nodiscard]] unsigned blocks_of(const TensorArgs& args) {
  return static_cast<unsigned>((args.rows * args.groups_per_row() + kThreads - 1) / kThreads);
}

/// As backends/cpu/merge.cpp: both weights relative to the larger LSE, empty states left out by selection.
__global__ void __launch_bounds__(kThreads) merge_rows(const __grid_constant__ api::MergeRequest r) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= r.rows) return;
  const float lse_a = r.lse_a[row];
  const float lse_b = r.lse_b[row];
  const bool empty_a = lse_a == -INFINITY;
  const bool empty_b = lse_b == -INFINITY;
  const bool a_larger = lse_a >= lse_b;
  const float small = expf(a_larger ? lse_b - lse_a : lse_a - lse_b);
  const float sum = 1.0f + small;
  const float weight_a = a_larger ? 1.0f / sum : small / sum;
  const float weight_b = a_larger ? small / sum : 1.0f / sum;
  const float lse = empty_a ? lse_b : empty_b ? lse_a : (a_larger ? lse_a : lse_b) + log1pf(small);
  __syncwarp();  // o and lse may be the inputs: everything of a row is read by its warp before it is written
  for (int d = static_cast<int>(threadIdx.x % 32); d < r.head_dim; d += 32) {
    const std::int64_t at = row * r.head_dim + d;
    float a = 0.0f;
    float b = 0.0f;
    if (!empty_a) core::load_plain_row(core::element_address(r.oa, r.dtype, at), r.dtype, 1, &a);
    if (!empty_b) core::load_plain_row(core::element_address(r.ob, r.dtype, at), r.dtype, 1, &b);
    const float value = empty_a ? b : empty_b ? a : weight_a * a + weight_b * b;
    core::store_plain_row(&value, 1, r.dtype, core::element_address(r.o, r.dtype, at));
  }
  if (threadIdx.x % 32 == 0) r.lse[row] = lse;
}

}  // namespace

Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows, std::int64_t cols,
                void* codes, void* scales, const ExecDesc& exec) noexcept {
  const TensorArgs args{config, const_cast<void*>(x), dtype, rows, cols, static_cast<std::uint8_t*>(codes),
                        static_cast<std::uint8_t*>(scales)};
  auto* const stream = static_cast<cudaStream_t>(exec.stream);
  if (config.scale_layout == ScaleLayout::kBlocked) {
    const std::size_t bytes = core::blocked_scale_size(rows, args.groups_per_row());
    const Status s = check(cudaMemsetAsync(scales, 0, bytes, stream), "clearing the scales' padding");
    if (s != Status::kOk) return s;
  }
  quantize_groups<<<blocks_of(args), kThreads, 0, stream>>>(args);
  return check(cudaGetLastError(), "launching quantize");
}

Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                  std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept {
  const TensorArgs args{config, y, dtype, rows, cols, static_cast<std::uint8_t*>(const_cast<void*>(codes)),
                        static_cast<std::uint8_t*>(const_cast<void*>(scales))};
  dequantize_groups<<<blocks_of(args), kThreads, 0, static_cast<cudaStream_t>(exec.stream)>>>(args);
  return check(cudaGetLastError(), "launching dequantize");
}

Status merge_states(const api::MergeRequest& request, const ExecDesc& exec) noexcept {
  const auto blocks = static_cast<unsigned>((request.rows + kThreads / 32 - 1) / (kThreads / 32));
  merge_rows<<<blocks, kThreads, 0, static_cast<cudaStream_t>(exec.stream)>>>(request);
  return check(cudaGetLastError(), "launching merge_states");
}

}  // namespace fp4pa::cuda
