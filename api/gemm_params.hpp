// From the arguments of a product to what the kernels on core/gemm/block.hpp are given.
#pragma once

#include <cstdint>

#include "api/backend.hpp"
#include "api/workspace.hpp"
#include "core/gemm/params.hpp"
#include "core/gemm/terms.hpp"
#include "core/gemm/weight.hpp"

namespace fp4pa::api {

/// A weight in the host's memory, whose multipliers can be looked at.
/// @errors kUnsupportedFormat, kInvalidSize, kNullPointer, kMisalignedPointer, kInvalidGlobalScale
[[nodiscard]] Status validate_host_weight(const Fp4Weight& weight) noexcept;

/// Everything but X, the stages and the tiles.
[[nodiscard]] inline core::GemmParams gemm_params(const LinearArgs& a) noexcept {
  const Fp4Weight& weight = a.weight;
  const core::WeightLayout layout{weight.format, weight.scale_layout, weight.rows, weight.cols};
  core::GemmParams p{};
  p.w = {static_cast<const std::uint8_t*>(weight.codes),
         layout.code_row_bytes(),
         weight.batch == 1 ? 0 : layout.code_bytes(),
         static_cast<std::int32_t>(weight.rows),
         static_cast<const std::uint8_t*>(weight.scales),
         weight.batch == 1 ? 0 : layout.scale_bytes(),
         static_cast<std::int32_t>(layout.groups()),
         weight.scale_layout};
  p.w_globals = weight.global_scale_ptr;
  p.w_global = weight.global_scale;
  p.x_global = 1.0f;
  p.out = a.out;
  p.bias = a.bias;
  p.out_dtype = a.out_dtype;
  p.bias_dtype = a.bias_dtype;
  return p;
}

/// X of a product whose operands both stay FP4: quantised like a weight of m rows, in the workspace.
struct QuantisedX {
  core::WeightLayout layout;
  QuantizeConfig config;
  bool finds_globals;                    // NVFP4 without a calibrated multiplier
  std::int64_t scales, globals, bytes;  // offsets of the workspace's parts, and its size

  static QuantisedX of(const LinearArgs& a) noexcept {
    QuantisedX x{{a.weight.format, ScaleLayout::kLinear, a.m, a.weight.cols}, {}, false, 0, 0, 0};
    x.config.format = a.weight.format;
    x.config.scale_mode = a.scale_mode;
    x.config.nvfp4_scale = a.nvfp4_scale;
    x.finds_globals = a.weight.format == BlockFormat::kNvfp4 && a.x_global_scale == 0.0f;
    if (a.weight.format == BlockFormat::kNvfp4 && !x.finds_globals) x.config.global_scale = a.x_global_scale;
    x.scales = workspace_part(a.batch * x.layout.code_bytes());
    x.globals = x.scales + workspace_part(a.batch * x.layout.scale_bytes());
    x.bytes = x.globals + workspace_part(a.batch * 4);
    return x;
  }

  /// What quantises it; refers to this object.
  [[nodiscard]] WeightRequest request(const LinearArgs& a) const noexcept {
    auto* const memory = static_cast<std::uint8_t*>(a.workspace);
    return {config, a.x, a.x_dtype, a.m, a.weight.cols, a.batch, memory, memory + scales,
            finds_globals ? reinterpret_cast<float*>(memory + globals) : nullptr};
  }

  /// Makes it the X of a product.
  void put_into(const LinearArgs& a, core::GemmParams* p) const noexcept {
    const auto* const memory = static_cast<const std::uint8_t*>(a.workspace);
    p->x = {memory,
            layout.code_row_bytes(),
            layout.code_bytes(),
            static_cast<std::int32_t>(a.m),
            memory + scales,
            layout.scale_bytes(),
            static_cast<std::int32_t>(layout.groups()),
            ScaleLayout::kLinear};
    p->x_globals = finds_globals ? reinterpret_cast<const float*>(memory + globals) : nullptr;
    p->x_global = config.global_scale;
  }
};

/// X of a product that decodes W: f16 rows of whole stages, in the workspace.
struct PreparedX {
  std::int64_t cols, rows;                     // of a row; of all
  bool has_globals;                            // quantised to NVFP4 on the way
  bool paired;                                 // columns in the order of core/gemm/prepare.hpp, else in their own
  std::int64_t inverse, amax, globals, bytes;  // offsets of the workspace's parts, and its size

  static PreparedX of(const LinearArgs& a) noexcept {
    constexpr std::int64_t kStage = 128;
    PreparedX x{};
    x.cols = (a.weight.cols + kStage - 1) / kStage * kStage;
    x.rows = a.batch * a.m;
    x.paired = true;
    x.has_globals = a.activations == ActivationForm::kFp4 && a.weight.format == BlockFormat::kNvfp4;
    x.inverse = workspace_part(x.rows * x.cols * 2);
    x.amax = x.inverse + workspace_part(x.rows * 4);
    x.globals = x.amax + workspace_part(a.batch * 4);
    x.bytes = x.globals + workspace_part(a.batch * 4);
    return x;
  }

  /// Makes it the X of a product.
  void put_into(const LinearArgs& a, core::GemmParams* p) const noexcept {
    const auto* const memory = static_cast<const std::uint8_t*>(a.workspace);
    p->x = {memory, cols * 2, a.m * cols * 2, static_cast<std::int32_t>(a.m), nullptr, 0, 0, ScaleLayout::kLinear};
    p->x_inverse = reinterpret_cast<const float*>(memory + inverse);
    p->x_globals = has_globals ? reinterpret_cast<const float*>(memory + globals) : nullptr;
  }
};

/// X of 16 bits beside a W of MXFP4 that stays as it is: E4M3 terms of whole stages, their scales and what they leave
/// (core/gemm/terms.hpp), in the workspace.
struct SplitX {
  std::int64_t stages, rows;         // of a row; of all
  std::int64_t scales, rest, bytes;  // offsets of the workspace's parts, and its size

  static SplitX of(const LinearArgs& a) noexcept {
    SplitX x{};
    x.stages = (a.weight.cols + 127) / 128;
    x.rows = a.batch * a.m;
    x.scales = workspace_part(x.rows * x.stages * core::kTermStageBytes);
    x.rest = x.scales + workspace_part(x.rows * x.stages * 16);
    x.bytes = x.rest + workspace_part(x.rows * x.stages * 256);
    return x;
  }

  /// Makes it the X of a product.
  void put_into(const LinearArgs& a, core::GemmParams* p) const noexcept {
    const auto* const memory = static_cast<const std::uint8_t*>(a.workspace);
    const std::int64_t row_bytes = stages * core::kTermStageBytes;
    // A word of scales counts as four.
    p->x = {memory,          row_bytes,           a.m * row_bytes,         static_cast<std::int32_t>(a.m),
            memory + scales, a.m * stages * 16, static_cast<std::int32_t>(16 * stages), ScaleLayout::kLinear};
    p->x_rest = reinterpret_cast<const std::uint16_t*>(memory + rest);
  }
};

}  // namespace fp4pa::api
