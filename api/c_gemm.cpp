// The C functions of fp4pa_gemm.h: structs translated field by field, and the C++ functions called.
#include "api/c_structs.hpp"
#include "fp4pa/fp4pa.hpp"

namespace {

using fp4pa::Status;
using fp4pa::api::code;
using fp4pa::api::fail;
using fp4pa::api::from_c;
using fp4pa::api::init_struct;
using fp4pa::api::read_struct;

[[nodiscard]] fp4pa_fp4_weight default_weight() noexcept {
  fp4pa_fp4_weight c{};
  c.batch = 1;
  c.global_scale = 1.0f;
  return c;
}
[[nodiscard]] fp4pa_linear_args default_linear() noexcept {
  fp4pa_linear_args c{};
  c.batch = 1;
  c.x_dtype = c.out_dtype = c.bias_dtype = FP4PA_BF16;
  return c;
}
[[nodiscard]] fp4pa_matmul_args default_matmul() noexcept {
  fp4pa_matmul_args c{};
  c.batch = 1;
  c.a_dtype = c.b_dtype = c.out_dtype = FP4PA_BF16;
  return c;
}

[[nodiscard]] Status check_reserved(const char* name, std::int32_t reserved) noexcept {
  if (reserved == 0) return Status::kOk;
  return fail(Status::kInvalidArgument, "%s.reserved is %d; allowed: 0", name, static_cast<int>(reserved));
}

[[nodiscard]] fp4pa::Fp4Weight weight_of(const fp4pa_fp4_weight& w) noexcept {
  return {static_cast<fp4pa::BlockFormat>(w.format), static_cast<fp4pa::ScaleLayout>(w.scale_layout),
          w.rows, w.cols, w.batch, w.codes, w.scales, w.global_scale, w.global_scale_ptr};
}
/// What `make(&weight)` describes, into a caller's struct; `weight` is at first what the struct holds.
template <class Make>
[[nodiscard]] fp4pa_status describe(fp4pa_fp4_weight* weight, Make&& make) noexcept {
  fp4pa_fp4_weight c = default_weight();
  FP4PA_RETURN_CODE_IF_FAILED(read_struct("weight", weight, &c));
  fp4pa::Fp4Weight made = weight_of(c);
  FP4PA_RETURN_CODE_IF_FAILED(make(&made));
  c.format = static_cast<fp4pa_block_format>(made.format);
  c.scale_layout = static_cast<fp4pa_scale_layout>(made.scale_layout);
  c.rows = made.rows;
  c.cols = made.cols;
  c.batch = made.batch;
  c.codes = made.codes;
  c.scales = made.scales;
  c.global_scale = made.global_scale;
  c.global_scale_ptr = made.global_scale_ptr;
  fp4pa::api::write_back(weight, c);
  return FP4PA_OK;
}

[[nodiscard]] Status linear_from_c(const fp4pa_linear_args* in, fp4pa::LinearArgs* out) noexcept {
  fp4pa_linear_args c = default_linear();
  FP4PA_RETURN_IF_FAILED(read_struct("args", in, &c));
  fp4pa_fp4_weight w = default_weight();
  FP4PA_RETURN_IF_FAILED(read_struct("weight", c.weight, &w));
  FP4PA_RETURN_IF_FAILED(check_reserved("weight", w.reserved));
  out->weight = weight_of(w);
  out->x = c.x;
  out->x_dtype = static_cast<fp4pa::DType>(c.x_dtype);
  out->out = c.out;
  out->out_dtype = static_cast<fp4pa::DType>(c.out_dtype);
  out->bias = c.bias;
  out->bias_dtype = static_cast<fp4pa::DType>(c.bias_dtype);
  out->m = c.m;
  out->batch = c.batch;
  out->activations = static_cast<fp4pa::ActivationForm>(c.activations);
  out->scale_mode = static_cast<fp4pa::ScaleMode>(c.scale_mode);
  out->nvfp4_scale = static_cast<fp4pa::Nvfp4Scale>(c.nvfp4_scale);
  out->x_global_scale = c.x_global_scale;
  FP4PA_RETURN_IF_FAILED(fp4pa::api::read_flag("weight_settled", c.weight_settled, &out->weight_settled));
  out->workspace = c.workspace;
  out->workspace_bytes = c.workspace_bytes;
  return Status::kOk;
}

[[nodiscard]] Status matmul_from_c(const fp4pa_matmul_args* in, fp4pa::MatmulArgs* out) noexcept {
  fp4pa_matmul_args c = default_matmul();
  FP4PA_RETURN_IF_FAILED(read_struct("args", in, &c));
  out->format = static_cast<fp4pa::BlockFormat>(c.format);
  out->scale_mode = static_cast<fp4pa::ScaleMode>(c.scale_mode);
  out->nvfp4_scale = static_cast<fp4pa::Nvfp4Scale>(c.nvfp4_scale);
  out->a = c.a;
  out->a_dtype = static_cast<fp4pa::DType>(c.a_dtype);
  out->b = c.b;
  out->b_dtype = static_cast<fp4pa::DType>(c.b_dtype);
  out->out = c.out;
  out->out_dtype = static_cast<fp4pa::DType>(c.out_dtype);
  out->m = c.m;
  out->n = c.n;
  out->k = c.k;
  out->batch = c.batch;
  out->workspace = c.workspace;
  out->workspace_bytes = c.workspace_bytes;
  return Status::kOk;
}

}  // namespace

extern "C" {

void fp4pa_fp4_weight_init_sized(fp4pa_fp4_weight* weight, size_t struct_size) {
  init_struct(weight, struct_size, default_weight());
}
void fp4pa_linear_args_init_sized(fp4pa_linear_args* args, size_t struct_size) {
  init_struct(args, struct_size, default_linear());
}
void fp4pa_matmul_args_init_sized(fp4pa_matmul_args* args, size_t struct_size) {
  init_struct(args, struct_size, default_matmul());
}

size_t fp4pa_fp4_weight_code_bytes(fp4pa_block_format format, int64_t rows, int64_t cols, int64_t batch) {
  return fp4pa::fp4_weight_code_bytes(static_cast<fp4pa::BlockFormat>(format), rows, cols, batch);
}
size_t fp4pa_fp4_weight_scale_bytes(fp4pa_block_format format, fp4pa_scale_layout layout, int64_t rows, int64_t cols,
                                    int64_t batch) {
  return fp4pa::fp4_weight_scale_bytes(static_cast<fp4pa::BlockFormat>(format), static_cast<fp4pa::ScaleLayout>(layout),
                                       rows, cols, batch);
}

fp4pa_status fp4pa_fp4_quantize_weight(const fp4pa_quantize_config* config, const void* w, fp4pa_dtype dtype, int64_t rows,
                                       int64_t cols, int64_t batch, void* codes, void* scales, float* global_scales,
                                       fp4pa_fp4_weight* weight, const fp4pa_exec* exec) {
  fp4pa::QuantizeConfig choice;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(config, &choice));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return describe(weight, [&](fp4pa::Fp4Weight* made) {
    return fp4pa::fp4_quantize_weight(choice, w, static_cast<fp4pa::DType>(dtype), rows, cols, batch, codes, scales, global_scales, made, on);
  });
}

fp4pa_status fp4pa_fp4_find_weight(const char* path, const char* name, fp4pa_fp4_weight* weight) {
  return describe(weight, [&](fp4pa::Fp4Weight* made) { return fp4pa::fp4_find_weight(path, name, made); });
}
fp4pa_status fp4pa_fp4_load_weight(const char* path, const char* name, void* codes, void* scales, float* global_scales,
                                   fp4pa_fp4_weight* weight) {
  return describe(weight, [&](fp4pa::Fp4Weight* made) { return fp4pa::fp4_load_weight(path, name, codes, scales, global_scales, made); });
}
fp4pa_status fp4pa_fp4_save_weight(const char* path, const char* name, const fp4pa_fp4_weight* weight) {
  fp4pa_fp4_weight w = default_weight();
  FP4PA_RETURN_CODE_IF_FAILED(read_struct("weight", weight, &w));
  FP4PA_RETURN_CODE_IF_FAILED(check_reserved("weight", w.reserved));
  return code(fp4pa::fp4_save_weight(path, name, weight_of(w)));
}

fp4pa_status fp4pa_fp4_linear_workspace(const fp4pa_linear_args* args, size_t* bytes, const fp4pa_exec* exec) {
  fp4pa::LinearArgs given;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(linear_from_c(args, &given));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::fp4_linear_workspace(given, bytes, on));
}

fp4pa_status fp4pa_fp4_linear(const fp4pa_linear_args* args, const fp4pa_exec* exec) {
  fp4pa::LinearArgs given;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(linear_from_c(args, &given));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::fp4_linear(given, on));
}

fp4pa_status fp4pa_fp4_matmul_workspace(const fp4pa_matmul_args* args, size_t* bytes, const fp4pa_exec* exec) {
  fp4pa::MatmulArgs given;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(matmul_from_c(args, &given));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::fp4_matmul_workspace(given, bytes, on));
}

fp4pa_status fp4pa_fp4_matmul(const fp4pa_matmul_args* args, const fp4pa_exec* exec) {
  fp4pa::MatmulArgs given;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(matmul_from_c(args, &given));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::fp4_matmul(given, on));
}

}  // extern "C"
