// The matrix products: checks, sizes, and the calls through the back end's table.
#include "fp4pa/gemm.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstddef>
#include <cstdint>

#include "api/backend.hpp"
#include "api/error.hpp"
#include "api/gemm_params.hpp"
#include "api/saturating.hpp"
#include "api/select.hpp"
#include "api/validate.hpp"
#include "api/validate_scaling.hpp"
#include "api/workspace.hpp"
#include "core/gemm/weight.hpp"

namespace fp4pa {
namespace {

using api::Backend;
using api::fail;
using api::kSaturated;
using api::saturating_mul;
using api::workspace_part;

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;  // exclusive; also of m, so that 32-bit tile indices serve
constexpr std::int64_t kMaxCols = kMaxSize - 128;         // inclusive: kernels count X's columns in whole stages of 128, in 32 bits
constexpr std::int64_t kMaxBatch = 65535;                 // a grid's third dimension

[[nodiscard]] Status validate_count(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) noexcept {
  if (value >= least && value <= most) return Status::kOk;
  return fail(Status::kInvalidSize, "%s is %" PRId64 "; allowed: %" PRId64 " to %" PRId64, name, value, least, most);
}

[[nodiscard]] Status validate_format(const char* name, BlockFormat format) noexcept {
  if (format == BlockFormat::kMxfp4 || format == BlockFormat::kNvfp4) return Status::kOk;
  return fail(Status::kUnsupportedFormat, "%s is %d (%s); allowed: 0 (mxfp4), 1 (nvfp4)", name, static_cast<int>(format),
              name_of(format));
}

[[nodiscard]] Status validate_shape(std::int64_t rows, std::int64_t cols, std::int64_t batch) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_count("rows", rows, 1, kMaxSize - 1));
  FP4PA_RETURN_IF_FAILED(validate_count("cols", cols, 1, kMaxCols));
  FP4PA_RETURN_IF_FAILED(validate_count("batch", batch, 1, kMaxBatch));
  if (saturating_mul(saturating_mul(rows, cols + 31), 4 * batch) != kSaturated) return Status::kOk;
  return fail(Status::kInvalidSize, "rows is %" PRId64 ", cols is %" PRId64 " and batch is %" PRId64
              "; allowed: what fits the address space", rows, cols, batch);
}

[[nodiscard]] core::WeightLayout layout_of(BlockFormat format, ScaleLayout layout, std::int64_t rows,
                                           std::int64_t cols) noexcept {
  return {format, layout, rows, cols};
}

[[nodiscard]] bool has_bytes(BlockFormat format, std::int64_t rows, std::int64_t cols, std::int64_t batch) noexcept {
  return (format == BlockFormat::kMxfp4 || format == BlockFormat::kNvfp4) && rows > 0 && rows < kMaxSize && cols > 0 &&
         cols <= kMaxCols && batch > 0 && batch <= kMaxBatch &&
         saturating_mul(saturating_mul(rows, cols + 31), 4 * batch) != kSaturated;
}

/// Sizes and forms of a product, which is all that its workspace depends on.
[[nodiscard]] Status validate_product(const LinearArgs& a) noexcept {
  const Fp4Weight& w = a.weight;
  FP4PA_RETURN_IF_FAILED(validate_format("weight.format", w.format));
  FP4PA_RETURN_IF_FAILED(api::validate_scale_layout("weight.scale_layout", w.scale_layout));
  FP4PA_RETURN_IF_FAILED(validate_count("weight.rows", w.rows, 1, kMaxSize - 1));
  FP4PA_RETURN_IF_FAILED(validate_count("weight.cols", w.cols, 1, kMaxCols));
  FP4PA_RETURN_IF_FAILED(validate_count("m", a.m, 0, kMaxSize - 1));
  FP4PA_RETURN_IF_FAILED(validate_count("batch", a.batch, 1, kMaxBatch));
  if (w.batch != 1 && w.batch != a.batch) {
    return fail(Status::kInvalidSize, "weight.batch is %" PRId64 "; allowed: 1, or batch, which is %" PRId64, w.batch,
                a.batch);
  }
  FP4PA_RETURN_IF_FAILED(validate_shape(w.rows, w.cols, w.batch));
  // No back end's workspace takes eight bytes an element of X.
  if (saturating_mul(saturating_mul(a.m, w.cols + 255), 8 * a.batch) == kSaturated ||
      saturating_mul(saturating_mul(a.m, w.rows), 4 * a.batch) == kSaturated) {
    return fail(Status::kInvalidSize, "m is %" PRId64 "; allowed: what fits the address space with batch %" PRId64, a.m,
                a.batch);
  }
  FP4PA_RETURN_IF_FAILED(api::validate_dtype("x_dtype", a.x_dtype));
  FP4PA_RETURN_IF_FAILED(api::validate_dtype("out_dtype", a.out_dtype));
  switch (a.activations) {
    case ActivationForm::k16Bit:
      if (a.x_dtype != DType::kF32) return Status::kOk;
      return fail(Status::kUnsupportedFormat, "x_dtype is f32; allowed with activations a16: f16, bf16");
    case ActivationForm::kFp4: return api::validate_scale_rules(a.scale_mode, a.nvfp4_scale);
  }
  return fail(Status::kUnsupportedFormat, "activations is %d; allowed: 0 (a16), 1 (a4)", static_cast<int>(a.activations));
}

[[nodiscard]] Status validate_memory(const Fp4Weight& w) noexcept {
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("weight.codes", w.codes, 16));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("weight.scales", w.scales, 4));
  if (w.global_scale_ptr == nullptr) return api::validate_multiplier("weight.global_scale", w.format, w.global_scale);
  if (w.format == BlockFormat::kNvfp4) return api::validate_pointer("weight.global_scale_ptr", w.global_scale_ptr, 4);
  return fail(Status::kInvalidGlobalScale, "weight.global_scale_ptr is set; allowed for format %s: null", name_of(w.format));
}

/// The multipliers of a weight in the host's memory, each by itself.
[[nodiscard]] Status validate_multipliers(const Fp4Weight& w) noexcept {
  for (std::int64_t i = 0; w.global_scale_ptr != nullptr && i < w.batch; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "weight.global_scale_ptr[%" PRId64 "]", i);
    FP4PA_RETURN_IF_FAILED(api::validate_multiplier(name, w.format, w.global_scale_ptr[i]));
  }
  return Status::kOk;
}

[[nodiscard]] Status validate_workspace(const void* workspace, std::size_t given, std::size_t needed) noexcept {
  if (needed == 0) return Status::kOk;
  if (given < needed) {
    return fail(Status::kWorkspaceTooSmall, "workspace_bytes is %zu; allowed: at least %zu", given, needed);
  }
  return api::validate_pointer("workspace", workspace, api::kWorkspaceAlignment);
}

/// CPU threads that a workspace is counted for: what the call would start, and the least, with which any call succeeds. The first is not the
/// same on every calling thread where OpenMP chooses, and a workspace may come from another.
enum class Threads { kAll, kOne };

[[nodiscard]] Status product_workspace(const LinearArgs& args, const ExecDesc& exec, Threads threads, std::size_t* bytes) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_product(args));
  const Backend* backend = nullptr;
  FP4PA_RETURN_IF_FAILED(api::select_backend(exec, &Backend::linear_workspace, "fp4_linear", &backend));
  ExecDesc counted = exec;
  if (threads == Threads::kOne) counted.num_threads = 1;
  return backend->linear_workspace(args, counted, bytes);
}

/// A matmul's workspace: B's codes, its scales in the layout that every kernel reads with the fewest instructions, its
/// multipliers, and then what the product of the two needs.
struct MatmulPlan {
  std::size_t scales = 0, global_scales = 0, rest = 0, bytes = 0;
  LinearArgs product;
};

[[nodiscard]] Status plan_matmul(const MatmulArgs& args, const ExecDesc& exec, Threads threads, MatmulPlan* out) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_format("format", args.format));
  FP4PA_RETURN_IF_FAILED(validate_count("n", args.n, 1, kMaxSize - 1));
  FP4PA_RETURN_IF_FAILED(validate_count("k", args.k, 1, kMaxCols));
  FP4PA_RETURN_IF_FAILED(api::validate_dtype("b_dtype", args.b_dtype));
  FP4PA_RETURN_IF_FAILED(api::validate_dtype("a_dtype", args.a_dtype));
  LinearArgs& p = out->product;
  p.weight.format = args.format;
  p.weight.rows = args.n;
  p.weight.cols = args.k;
  p.weight.batch = args.batch;
  p.x = args.a;
  p.x_dtype = args.a_dtype;
  p.out = args.out;
  p.out_dtype = args.out_dtype;
  p.m = args.m;
  p.batch = args.batch;
  p.activations = ActivationForm::kFp4;
  p.scale_mode = args.scale_mode;
  p.nvfp4_scale = args.nvfp4_scale;
  std::size_t product_bytes = 0;
  FP4PA_RETURN_IF_FAILED(product_workspace(p, exec, threads, &product_bytes));
  out->scales = workspace_part(fp4_weight_code_bytes(args.format, args.n, args.k, args.batch));
  out->global_scales = out->scales + workspace_part(fp4_weight_scale_bytes(args.format, p.weight.scale_layout, args.n, args.k, args.batch));
  out->rest = out->global_scales + workspace_part(static_cast<std::size_t>(args.batch) * sizeof(float));
  out->bytes = out->rest + product_bytes;
  return Status::kOk;
}

}  // namespace

Status api::validate_host_weight(const Fp4Weight& w) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_format("weight.format", w.format));
  FP4PA_RETURN_IF_FAILED(api::validate_scale_layout("weight.scale_layout", w.scale_layout));
  FP4PA_RETURN_IF_FAILED(validate_shape(w.rows, w.cols, w.batch));
  FP4PA_RETURN_IF_FAILED(validate_memory(w));
  return validate_multipliers(w);
}

std::size_t fp4_weight_code_bytes(BlockFormat format, std::int64_t rows, std::int64_t cols, std::int64_t batch) noexcept {
  if (!has_bytes(format, rows, cols, batch)) return 0;
  return static_cast<std::size_t>(batch * layout_of(format, ScaleLayout::kLinear, rows, cols).code_bytes());
}

std::size_t fp4_weight_scale_bytes(BlockFormat format, ScaleLayout layout, std::int64_t rows, std::int64_t cols,
                                   std::int64_t batch) noexcept {
  if (!has_bytes(format, rows, cols, batch)) return 0;
  if (layout != ScaleLayout::kLinear && layout != ScaleLayout::kBlocked) return 0;
  return static_cast<std::size_t>(batch * layout_of(format, layout, rows, cols).scale_bytes());
}

Status fp4_quantize_weight(const QuantizeConfig& config, const void* w, DType dtype, std::int64_t rows, std::int64_t cols,
                           std::int64_t batch, void* codes, void* scales, float* global_scales, Fp4Weight* weight,
                           const ExecDesc& exec) noexcept {
  if (weight == nullptr) return fail(Status::kNullPointer, "weight is null");
  FP4PA_RETURN_IF_FAILED(validate_format("format", config.format));
  FP4PA_RETURN_IF_FAILED(api::validate_scale_layout("scale_layout", config.scale_layout));
  FP4PA_RETURN_IF_FAILED(api::validate_scale_rules(config.scale_mode, config.nvfp4_scale));
  FP4PA_RETURN_IF_FAILED(api::validate_multiplier("global_scale", config.format, config.global_scale));
  FP4PA_RETURN_IF_FAILED(api::validate_dtype("dtype", dtype));
  FP4PA_RETURN_IF_FAILED(validate_shape(rows, cols, batch));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("w", w, size_of(dtype)));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("codes", codes, 16));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("scales", scales, 4));
  if (global_scales != nullptr) {
    if (config.format != BlockFormat::kNvfp4) {
      return fail(Status::kInvalidArgument, "global_scales is set; allowed for format %s: null", name_of(config.format));
    }
    FP4PA_RETURN_IF_FAILED(api::validate_pointer("global_scales", global_scales, 4));
  }
  const Backend* backend = nullptr;
  FP4PA_RETURN_IF_FAILED(api::select_backend(exec, &Backend::quantize_weight, "fp4_quantize_weight", &backend));
  const api::WeightRequest request{config, w, dtype, rows, cols, batch, codes, scales, global_scales};
  FP4PA_RETURN_IF_FAILED(backend->quantize_weight(request, exec));
  *weight = {config.format, config.scale_layout, rows, cols, batch, codes, scales, config.global_scale, global_scales};
  return Status::kOk;
}

Status fp4_linear_workspace(const LinearArgs& args, std::size_t* bytes, const ExecDesc& exec) noexcept {
  if (bytes == nullptr) return fail(Status::kNullPointer, "bytes is null");
  return product_workspace(args, exec, Threads::kAll, bytes);
}

Status fp4_linear(const LinearArgs& args, const ExecDesc& exec) noexcept {
  std::size_t needed = 0;
  FP4PA_RETURN_IF_FAILED(product_workspace(args, exec, Threads::kOne, &needed));
  const Backend* backend = nullptr;
  FP4PA_RETURN_IF_FAILED(api::select_backend(exec, &Backend::linear, "fp4_linear", &backend));
  FP4PA_RETURN_IF_FAILED(validate_memory(args.weight));
  if (api::runs_on_host(*backend)) {
    FP4PA_RETURN_IF_FAILED(validate_multipliers(args.weight));
  }
  if (args.activations == ActivationForm::kFp4 && args.x_global_scale != 0.0f &&
      args.weight.format == BlockFormat::kNvfp4) {
    FP4PA_RETURN_IF_FAILED(api::validate_multiplier("x_global_scale", args.weight.format, args.x_global_scale));
  } else if (args.x_global_scale != 0.0f) {
    return fail(Status::kInvalidGlobalScale, "x_global_scale is %g; allowed with activations %s and format %s: 0",
                static_cast<double>(args.x_global_scale), name_of(args.activations), name_of(args.weight.format));
  }
  if (args.bias != nullptr) {
    FP4PA_RETURN_IF_FAILED(api::validate_dtype("bias_dtype", args.bias_dtype));
    FP4PA_RETURN_IF_FAILED(api::validate_pointer("bias", args.bias, size_of(args.bias_dtype)));
  }
  if (args.m == 0) return Status::kOk;
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("x", args.x, size_of(args.x_dtype)));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("out", args.out, size_of(args.out_dtype)));
  FP4PA_RETURN_IF_FAILED(validate_workspace(args.workspace, args.workspace_bytes, needed));
  return backend->linear(args, exec);
}

Status fp4_matmul_workspace(const MatmulArgs& args, std::size_t* bytes, const ExecDesc& exec) noexcept {
  if (bytes == nullptr) return fail(Status::kNullPointer, "bytes is null");
  MatmulPlan plan;
  FP4PA_RETURN_IF_FAILED(plan_matmul(args, exec, Threads::kAll, &plan));
  *bytes = plan.bytes;
  return Status::kOk;
}

Status fp4_matmul(const MatmulArgs& args, const ExecDesc& exec) noexcept {
  MatmulPlan plan;
  FP4PA_RETURN_IF_FAILED(plan_matmul(args, exec, Threads::kOne, &plan));
  if (args.m == 0) return Status::kOk;
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("a", args.a, size_of(args.a_dtype)));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("b", args.b, size_of(args.b_dtype)));
  FP4PA_RETURN_IF_FAILED(api::validate_pointer("out", args.out, size_of(args.out_dtype)));
  FP4PA_RETURN_IF_FAILED(validate_workspace(args.workspace, args.workspace_bytes, plan.bytes));
  auto* const memory = static_cast<std::uint8_t*>(args.workspace);
  QuantizeConfig config;
  config.format = args.format;
  config.scale_mode = args.scale_mode;
  config.nvfp4_scale = args.nvfp4_scale;
  auto* const global_scales =
      args.format == BlockFormat::kNvfp4 ? reinterpret_cast<float*>(memory + plan.global_scales) : nullptr;
  LinearArgs product = plan.product;
  FP4PA_RETURN_IF_FAILED(fp4_quantize_weight(config, args.b, args.b_dtype, args.n, args.k, args.batch, memory,
                                             memory + plan.scales, global_scales, &product.weight, exec));
  product.workspace = memory + plan.rest;
  product.workspace_bytes = args.workspace_bytes - plan.rest;
  return fp4_linear(product, exec);
}

}  // namespace fp4pa
