// FP4 matrix products on the CPU: x is widened once (and, for W4A4, quantised and decoded again), then every thread
// decodes four rows of the weight at a time and multiplies them with all of x: in registers while x has few rows, else by way of a panel.
//
//   workspace   x as floats [batch * m, K to 64], in lane order   x's multipliers [batch]
//               per thread a panel [4, K to 64], in lane order, scales in bytes [4, K to 64 / 16], and sums [m, 4]
#include "backends/cpu/gemm.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/cpu/cache_rows.hpp"
#include "backends/cpu/cache_threads.hpp"
#include "backends/cpu/gemm_ops.hpp"
#include "core/gemm/weight.hpp"
#include "core/paging/plain_row.hpp"

namespace fp4pa::cpu {
namespace {

using core::WeightLayout;

constexpr std::int64_t kRowMultiple = kPanelMultiple;  // floats; rows stay aligned for every vector width
constexpr int kMaxScales = kMaxRow / 16;

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

[[nodiscard]] constexpr KvFormat row_format(BlockFormat format) {
  return format == BlockFormat::kNvfp4 ? KvFormat::kNvfp4 : KvFormat::kMxfp4;
}

/// Elements [first, first + padded) of a row of `valid` elements, zeros past its end; the kernels take whole 16s.
void load_piece(const RowKernels& kernels, const void* row, DType dtype, std::int64_t first, std::int64_t valid, int padded,
                float* out) {
  const int there = static_cast<int>(std::clamp<std::int64_t>(valid - first, 0, padded));
  const int whole = there / 16 * 16;
  if (whole > 0) kernels.load(core::element_address(row, dtype, first), dtype, whole, out);
  core::load_plain_row(core::element_address(row, dtype, first + whole), dtype, there - whole, out + whole);
  std::fill(out + there, out + padded, 0.0f);
}

/// Bits of the largest finite magnitude of n elements.
[[nodiscard]] std::uint32_t amax_bits(const RowKernels& kernels, const void* x, DType dtype, std::int64_t n, int threads) {
  std::atomic<std::uint32_t> amax{0};
  const std::int64_t pieces = (n + kMaxRow - 1) / kMaxRow;
  on_threads(threads, [&](const Team& team) {
    std::uint32_t largest = 0;
    team.share(pieces, [&](std::int64_t p) {
      alignas(64) float values[kMaxRow];
      load_piece(kernels, x, dtype, p * kMaxRow, n, kMaxRow, values);
      for (const float v : values) largest = core::finite_amax_step(largest, v);
    });
    std::uint32_t seen = amax;
    while (seen < largest && !amax.compare_exchange_weak(seen, largest)) {
    }
  });
  return amax;
}

Status quantize_weight_with(const RowKernels& kernels, const api::WeightRequest& r, const ExecDesc& exec) {
  const WeightLayout layout{r.config.format, r.config.scale_layout, r.rows, r.cols};
  const core::EncodeRule rule{r.config.scale_mode, r.config.nvfp4_scale};
  const KvFormat format = row_format(r.config.format);
  const std::int64_t pieces_per_row = (layout.padded_cols() + kMaxRow - 1) / kMaxRow;
  const std::int64_t pieces = r.rows * pieces_per_row;
  const int threads = num_threads(exec, pieces, 64);
  for (std::int64_t b = 0; b < r.batch; ++b) {
    const void* const w = core::element_address(r.w, r.dtype, b * r.rows * r.cols);
    auto* const codes = static_cast<std::uint8_t*>(r.codes) + b * layout.code_bytes();
    auto* const scales = static_cast<std::uint8_t*>(r.scales) + b * layout.scale_bytes();
    float global = r.config.global_scale;
    if (r.global_scales != nullptr) {
      global = core::nvfp4_global_scale(amax_bits(kernels, w, r.dtype, r.rows * r.cols, threads));
      r.global_scales[b] = global;
    }
    if (layout.scale_layout == ScaleLayout::kBlocked) std::memset(scales, 0, static_cast<std::size_t>(layout.scale_bytes()));
    for_each(threads, pieces, [&](std::int64_t p) {
      const std::int64_t row = p / pieces_per_row;
      const std::int64_t first = (p - row * pieces_per_row) * kMaxRow;
      const int n = static_cast<int>(std::min<std::int64_t>(kMaxRow, layout.padded_cols() - first));
      alignas(64) float values[kMaxRow];
      std::uint8_t piece_scales[kMaxScales];
      load_piece(kernels, core::element_address(w, r.dtype, row * r.cols), r.dtype, first, r.cols, n, values);
      kernels.encode(format, values, n, global, rule, codes + row * layout.code_row_bytes() + first / 2, piece_scales);
      for (int g = 0; g < n / layout.group(); ++g) {
        scales[layout.scale_offset(row, first / layout.group() + g)] = piece_scales[g];
      }
    });
  }
  return Status::kOk;
}

/// Where a call's workspace is cut.
struct Workspace {
  std::int64_t row;         // floats of a widened row
  std::int64_t x;           // floats of all of them
  std::int64_t multipliers;  // floats
  std::int64_t scales;       // floats that the scales of four rows take
  std::int64_t per_thread;   // floats

  static Workspace of(const LinearArgs& a) {
    const std::int64_t row = round_up(a.weight.cols, kRowMultiple);
    const std::int64_t scales = round_up(kPanelRows * row / 64, kRowMultiple);  // four bytes a float, of groups of 16 columns
    return {row, a.batch * a.m * row, round_up(a.batch, kRowMultiple), scales,
            kPanelRows * row + scales + round_up(kPanelRows * a.m, kRowMultiple)};
  }
  [[nodiscard]] std::int64_t floats(int threads) const { return x + multipliers + threads * per_thread; }
  /// Of `threads`, those that `bytes` have room for.
  [[nodiscard]] int fitting(int threads, std::size_t bytes) const {
    return static_cast<int>(std::min<std::int64_t>(threads, (static_cast<std::int64_t>(bytes / sizeof(float)) - floats(0)) / per_thread));
  }
};

/// Threads that a call would start from the calling thread: OpenMP's choice may be another for each.
[[nodiscard]] int threads_of(const LinearArgs& a, const ExecDesc& exec) {
  return num_threads(exec, (a.weight.rows + kPanelRows - 1) / kPanelRows * a.batch, 1);
}

/// A row of x as it is multiplied, without the multiplier of its tensor.
void widen_row(const RowKernels& kernels, const LinearArgs& a, const void* row, float global, std::int64_t length,
               float* out) {
  const KvFormat format = row_format(a.weight.format);
  const core::EncodeRule rule{a.scale_mode, a.nvfp4_scale};
  for (std::int64_t first = 0; first < length; first += kMaxRow) {
    const int n = static_cast<int>(std::min<std::int64_t>(kMaxRow, length - first));
    load_piece(kernels, row, a.x_dtype, first, a.weight.cols, n, out + first);
    if (a.activations == ActivationForm::k16Bit) continue;
    std::uint8_t codes[kMaxRow / 2];
    std::uint8_t scales[kMaxScales];
    kernels.encode(format, out + first, n, global, rule, codes, scales);
    kernels.decode(format, codes, scales, n, 1.0f, out + first);
  }
}

/// Four rows of the weight; past the end, the last one again.
/// @param scales_of_rows  room for the scales of four rows, `pitch` bytes each
WeightRows weight_rows(const WeightLayout& layout, const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t first_row,
                       std::uint8_t* scales_of_rows, std::int64_t pitch) {
  WeightRows out{layout.format, layout.padded_cols(), {}, {}};
  for (int j = 0; j < kPanelRows; ++j) {
    const std::int64_t row = std::min(first_row + j, layout.rows - 1);
    out.codes[j] = codes + row * layout.code_row_bytes();
    out.scales[j] = scales + layout.scale_offset(row, 0);
    if (layout.scale_layout == ScaleLayout::kLinear) continue;
    std::uint8_t* const side_by_side = scales_of_rows + j * pitch;  // the layout has four of them so
    for (std::int64_t g = 0; g < layout.groups(); g += 4) std::memcpy(side_by_side + g, scales + layout.scale_offset(row, g), 4);
    out.scales[j] = side_by_side;
  }
  return out;
}

Status linear_with(const RowKernels& kernels, const GemmOps& ops, const LinearArgs& a, const ExecDesc& exec) {
  const Workspace w = Workspace::of(a);
  const int threads = w.fitting(threads_of(a, exec), a.workspace_bytes);
  float* const x = static_cast<float*>(a.workspace);
  float* const x_global = x + w.x;
  float* const scratch = x_global + w.multipliers;
  const Fp4Weight& weight = a.weight;
  const WeightLayout layout{weight.format, weight.scale_layout, weight.rows, weight.cols};

  const bool quantised_nvfp4 = a.activations == ActivationForm::kFp4 && weight.format == BlockFormat::kNvfp4;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    x_global[b] = !quantised_nvfp4 ? 1.0f : a.x_global_scale;
    if (x_global[b] == 0.0f) {
      const void* const of = core::element_address(a.x, a.x_dtype, b * a.m * weight.cols);
      x_global[b] = core::nvfp4_global_scale(amax_bits(kernels, of, a.x_dtype, a.m * weight.cols, threads));
    }
  }
  on_threads(threads, [&](const Team& team) {
    float* const widened = scratch + team.thread * w.per_thread;
    team.share(a.batch * a.m, [&](std::int64_t i) {
      widen_row(kernels, a, core::element_address(a.x, a.x_dtype, i * weight.cols), x_global[i / a.m], w.row, widened);
      ops.order(widened, w.row, x + i * w.row);
    });
  });

  const std::int64_t panels = (weight.rows + kPanelRows - 1) / kPanelRows;
  on_threads(threads, [&](const Team& team) {
    float* const panel = scratch + team.thread * w.per_thread;
    auto* const scales = reinterpret_cast<std::uint8_t*>(panel + kPanelRows * w.row);
    float* const sums = panel + kPanelRows * w.row + w.scales;
    team.share(a.batch * panels, [&](std::int64_t item) {
      const std::int64_t b = item / panels;
      const std::int64_t first_row = (item - b * panels) * kPanelRows;
      const std::int64_t which = weight.batch == 1 ? 0 : b;
      const WeightRows rows_of_w =
          weight_rows(layout, static_cast<const std::uint8_t*>(weight.codes) + which * layout.code_bytes(),
                      static_cast<const std::uint8_t*>(weight.scales) + which * layout.scale_bytes(), first_row, scales, w.row / 16);
      if (a.m <= ops.few) {
        ops.multiply_few(rows_of_w, x + b * a.m * w.row, a.m, w.row, sums);
      } else {
        ops.decode_panel(rows_of_w, w.row, panel);
        ops.multiply_panel(panel, x + b * a.m * w.row, a.m, w.row, sums);
      }

      const int rows = static_cast<int>(std::min<std::int64_t>(kPanelRows, weight.rows - first_row));
      float bias[kPanelRows] = {};
      if (a.bias != nullptr) {
        core::load_plain_row(core::element_address(a.bias, a.bias_dtype, first_row), a.bias_dtype, rows, bias);
      }
      const double w_global = weight.global_scale_ptr != nullptr ? weight.global_scale_ptr[which] : weight.global_scale;
      for (std::int64_t i = 0; i < a.m; ++i) {
        float out[kPanelRows];
        // In double: on the way to a result that f32 holds, neither product may leave its range.
        for (int j = 0; j < rows; ++j) out[j] = static_cast<float>(sums[i * kPanelRows + j] * w_global * x_global[b] + bias[j]);
        core::store_plain_row(out, rows, a.out_dtype,
                              core::element_address(a.out, a.out_dtype, (b * a.m + i) * weight.rows + first_row));
      }
    });
  });
  return Status::kOk;
}

}  // namespace

Status quantize_weight(const api::WeightRequest& request, const ExecDesc& exec) noexcept {
  return quantize_weight_with(fastest_rows(), request, exec);
}

Status linear_workspace(const LinearArgs& args, const ExecDesc& exec, std::size_t* bytes) noexcept {
  *bytes = static_cast<std::size_t>(Workspace::of(args).floats(threads_of(args, exec))) * sizeof(float);
  return Status::kOk;
}

Status linear(const LinearArgs& args, const ExecDesc& exec) noexcept {
  return linear_with(fastest_rows(), gemm_ops(), args, exec);
}

Status scalar::quantize_weight(const api::WeightRequest& request, const ExecDesc& exec) noexcept {
  return quantize_weight_with(kScalarRows, request, exec);
}

Status scalar::linear(const LinearArgs& args, const ExecDesc& exec) noexcept {
  return linear_with(kScalarRows, scalar_gemm_ops(), args, exec);
}

}  // namespace fp4pa::cpu
