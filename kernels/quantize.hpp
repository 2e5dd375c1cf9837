// quantize, dequantize: a thread per group of a tensor, with core's block encoders; merge_states: a warp per row.
#pragma once

#include "core/attention/softmax_state.hpp"
#include "core/formats/block.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/math.hpp"
#include "core/paging/encode_group.hpp"
#include "core/paging/plain_row.hpp"
#include "kernels/cache_ops.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kGroupThreads = 128;
constexpr int kGroupElements = 32;
/// A thread's elements in shared memory: in loops over them a register would have to be indexed by a variable. A row's end
/// is left empty, so that threads at the same element are in different banks.
constexpr int kGroupPitch = kGroupElements + 1;

struct TensorArgs {
  QuantizeConfig config;
  void* plain;
  DType dtype;
  std::int64_t rows, cols;
  std::uint8_t* codes;
  std::uint8_t* scales;

  [[nodiscard]] FP4PA_FN int group() const { return config.format == BlockFormat::kNvfp4 ? 16 : 32; }
  [[nodiscard]] FP4PA_FN std::int64_t groups_per_row() const { return cols / group(); }
  [[nodiscard]] FP4PA_DEVICE std::uint8_t* scale_of(std::int64_t index) const {
    if (config.scale_layout == ScaleLayout::kLinear) return scales + index;
    const std::int64_t row = index / groups_per_row();
    return scales + core::blocked_scale_offset(row, index - row * groups_per_row(), groups_per_row());
  }
  [[nodiscard]] FP4PA_DEVICE std::uint8_t* codes_of(std::int64_t index) const {
    const std::int64_t element = index * group();
    return codes + (config.format == BlockFormat::kMxfp8 ? element : element / 2);
  }
};

FP4PA_KERNEL(quantize_groups, kGroupThreads, TensorArgs args) {
  const std::int64_t index = std::int64_t{block_id()} * kGroupThreads + thread_id();
  if (index >= args.rows * args.groups_per_row()) return;
  FP4PA_SHARED float groups[kGroupThreads][kGroupPitch];
  float* const x = groups[thread_id()];
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

FP4PA_KERNEL(dequantize_groups, kGroupThreads, TensorArgs args) {
  const std::int64_t index = std::int64_t{block_id()} * kGroupThreads + thread_id();
  if (index >= args.rows * args.groups_per_row()) return;
  FP4PA_SHARED float groups[kGroupThreads][kGroupPitch];
  float* const x = groups[thread_id()];
  const int n = args.group();
  const std::uint8_t scale = *args.scale_of(index);
  switch (args.config.format) {
    case BlockFormat::kMxfp4: core::decode_e2m1_e8m0(args.codes_of(index), n, scale, x); break;
    case BlockFormat::kNvfp4: core::decode_nvfp4(args.codes_of(index), scale, args.config.global_scale, x); break;
    case BlockFormat::kMxfp8: core::decode_mxfp8(args.codes_of(index), n, scale, x); break;
  }
  core::store_plain_row(x, n, args.dtype, core::element_address(args.plain, args.dtype, index * n));
}

[[nodiscard]] inline std::int64_t blocks_of(const TensorArgs& args) {
  return (args.rows * args.groups_per_row() + kGroupThreads - 1) / kGroupThreads;
}

/// As backends/cpu/merge.cpp: both weights relative to the larger LSE, empty states left out by selection.
FP4PA_KERNEL(merge_rows, kGroupThreads, api::MergeRequest r) {
  const std::int64_t row = std::int64_t{block_id()} * (kGroupThreads / kLanes) + thread_id() / kLanes;
  if (row >= r.rows) return;
  const float lse_a = r.lse_a[row];
  const float lse_b = r.lse_b[row];
  const bool empty_a = lse_a == core::kMinusInf;
  const bool empty_b = lse_b == core::kMinusInf;
  const bool a_larger = lse_a >= lse_b;
  const float small = core::math::exp(a_larger ? lse_b - lse_a : lse_a - lse_b);
  const float sum = 1.0f + small;
  const float weight_a = a_larger ? 1.0f / sum : small / sum;
  const float weight_b = a_larger ? small / sum : 1.0f / sum;
  const float lse = empty_a ? lse_b : empty_b ? lse_a : (a_larger ? lse_a : lse_b) + core::math::log1p(small);
  sync_warp();  // o and lse may be the inputs: everything of a row is read by its warp before it is written
  for (int d = thread_id() % kLanes; d < r.head_dim; d += kLanes) {
    const std::int64_t at = row * r.head_dim + d;
    float a = 0.0f;
    float b = 0.0f;
    if (!empty_a) core::load_plain_row(core::element_address(r.oa, r.dtype, at), r.dtype, 1, &a);
    if (!empty_b) core::load_plain_row(core::element_address(r.ob, r.dtype, at), r.dtype, 1, &b);
    const float value = empty_a ? b : empty_b ? a : weight_a * a + weight_b * b;
    core::store_plain_row(&value, 1, r.dtype, core::element_address(r.o, r.dtype, at));
  }
  if (thread_id() % kLanes == 0) r.lse[row] = lse;
}

Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows, std::int64_t cols,
                void* codes, void* scales, const ExecDesc& exec) noexcept {
  const TensorArgs args{config, const_cast<void*>(x), dtype, rows, cols, static_cast<std::uint8_t*>(codes),
                        static_cast<std::uint8_t*>(scales)};
  if (config.scale_layout == ScaleLayout::kBlocked) {
    const std::size_t bytes = core::blocked_scale_size(rows, args.groups_per_row());
    if (const Status s = clear(scales, bytes, exec.stream, "clearing the scales' padding"); s != Status::kOk) return s;
  }
  return launch(quantize_groups, grid(blocks_of(args)), kGroupThreads, 0, exec.stream, args, "launching quantize");
}

Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                  std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept {
  const TensorArgs args{config, y, dtype, rows, cols, static_cast<std::uint8_t*>(const_cast<void*>(codes)),
                        static_cast<std::uint8_t*>(const_cast<void*>(scales))};
  return launch(dequantize_groups, grid(blocks_of(args)), kGroupThreads, 0, exec.stream, args, "launching dequantize");
}

Status merge_states(const api::MergeRequest& request, const ExecDesc& exec) noexcept {
  constexpr int kRows = kGroupThreads / kLanes;
  const std::int64_t blocks = (request.rows + kRows - 1) / kRows;
  return launch(merge_rows, grid(blocks), kGroupThreads, 0, exec.stream, request, "launching merge_states");
}

}  // namespace fp4pa::FP4PA_GPU
