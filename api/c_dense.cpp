// The C functions of fp4pa_dense.h: each reads its structs, calls the C++ function and returns its status.
#include <new>

#include "api/c_structs.hpp"
#include "fp4pa/dense_attention.hpp"
#include "fp4pa/fp4pa.h"

struct fp4pa_dense_plan {
  fp4pa::DenseAttentionPlan plan;
};
struct fp4pa_mxfp8_plan {
  fp4pa::Mxfp8AttentionPlan plan;
};

namespace {

using fp4pa::DType;
using fp4pa::KvFormat;
using fp4pa::Status;
using fp4pa::api::code;
using fp4pa::api::fail;
using fp4pa::api::init_struct;
using fp4pa::api::read_flag;
using fp4pa::api::read_struct;

static_assert(static_cast<int>(fp4pa::Mxfp8Decode::kAuto) == FP4PA_MXFP8_AUTO &&
              static_cast<int>(fp4pa::Mxfp8Decode::kPerTile) == FP4PA_MXFP8_PER_TILE &&
              static_cast<int>(fp4pa::Mxfp8Decode::kOnce) == FP4PA_MXFP8_ONCE);

[[nodiscard]] fp4pa_dense_config default_dense_config() noexcept {
  const fp4pa::DenseAttentionConfig d;
  fp4pa_dense_config c{};
  c.q_dtype = c.kv_dtype = c.o_dtype = FP4PA_BF16;
  c.k_format = static_cast<fp4pa_kv_format>(d.k_format);
  c.v_format = static_cast<fp4pa_kv_format>(d.v_format);
  c.k_global_scale = d.k_global_scale;
  c.v_global_scale = d.v_global_scale;
  return c;
}
[[nodiscard]] fp4pa_mxfp8_config default_mxfp8_config() noexcept {
  fp4pa_mxfp8_config c{};
  c.o_dtype = FP4PA_BF16;
  return c;
}

/// What both configurations and both kinds of arguments spell alike.
template <class C, class Config>
[[nodiscard]] Status read_common(const C& c, Config& config) noexcept {
  config.num_q_heads = c.num_q_heads;
  config.num_kv_heads = c.num_kv_heads;
  config.head_dim = c.head_dim;
  config.o_dtype = static_cast<DType>(c.o_dtype);
  config.sm_scale = c.sm_scale;
  FP4PA_RETURN_IF_FAILED(read_flag("causal", c.causal, &config.causal));
  config.limits = {c.max_batch, c.max_q_tokens, c.max_q_len, c.max_kv_tokens, c.max_kv_len};
  FP4PA_RETURN_IF_FAILED(read_flag("batch_invariant", c.batch_invariant, &config.batch_invariant));
  config.num_threads = c.num_threads;
  config.backend = c.backend;
  return Status::kOk;
}
template <class C, class Args>
[[nodiscard]] Status read_common_args(const C& c, Args& args) noexcept {
  if (c.reserved != 0)
    return fail(Status::kInvalidArgument, "reserved is %d; allowed: 0", static_cast<int>(c.reserved));
  args.o = c.o;
  args.o_token_stride = c.o_token_stride;
  args.o_head_stride = c.o_head_stride;
  args.lse = c.lse;
  args.rows = {c.batch, c.q_tokens, c.kv_tokens, c.q_indptr, c.kv_indptr};
  args.workspace = c.workspace;
  args.workspace_bytes = c.workspace_bytes;
  args.stream = c.stream;
  return Status::kOk;
}

[[nodiscard]] Status from_c(const fp4pa_dense_config* in, fp4pa::DenseAttentionConfig* out) noexcept {
  fp4pa_dense_config c = default_dense_config();
  FP4PA_RETURN_IF_FAILED(read_struct("config", in, &c));
  FP4PA_RETURN_IF_FAILED(read_common(c, *out));
  out->q_dtype = static_cast<DType>(c.q_dtype);
  out->kv_dtype = static_cast<DType>(c.kv_dtype);
  out->k_format = static_cast<KvFormat>(c.k_format);
  out->v_format = static_cast<KvFormat>(c.v_format);
  out->v_scale_axis = static_cast<fp4pa::VScaleAxis>(c.v_scale_axis);
  out->rotation = static_cast<fp4pa::Rotation>(c.rotation);
  FP4PA_RETURN_IF_FAILED(read_flag("smooth_k", c.smooth_k, &out->smooth_k));
  out->scale_mode = static_cast<fp4pa::ScaleMode>(c.scale_mode);
  out->nvfp4_scale = static_cast<fp4pa::Nvfp4Scale>(c.nvfp4_scale);
  out->k_global_scale = c.k_global_scale;
  out->v_global_scale = c.v_global_scale;
  out->matrix_path = static_cast<fp4pa::MatrixPath>(c.matrix_path);
  return Status::kOk;
}

[[nodiscard]] Status from_c(const fp4pa_dense_plan& plan, const fp4pa_dense_args* in,
                            fp4pa::DenseAttentionArgs* out) noexcept {
  fp4pa_dense_args c{};
  FP4PA_RETURN_IF_FAILED(read_struct("args", in, &c));
  const DType dtype = plan.plan.config().kv_dtype;
  out->q = c.q;
  out->q_token_stride = c.q_token_stride;
  out->q_head_stride = c.q_head_stride;
  out->k = {c.k, dtype, c.k_token_stride, c.k_head_stride};
  out->v = {c.v, dtype, c.v_token_stride, c.v_head_stride};
  return read_common_args(c, *out);
}

[[nodiscard]] Status from_c(const fp4pa_mxfp8_config* in, fp4pa::Mxfp8AttentionConfig* out) noexcept {
  fp4pa_mxfp8_config c = default_mxfp8_config();
  FP4PA_RETURN_IF_FAILED(read_struct("config", in, &c));
  if (c.reserved != 0)
    return fail(Status::kInvalidArgument, "reserved is %d; allowed: 0", static_cast<int>(c.reserved));
  FP4PA_RETURN_IF_FAILED(read_common(c, *out));
  out->scale_layout = static_cast<fp4pa::ScaleLayout>(c.scale_layout);
  out->decode = static_cast<fp4pa::Mxfp8Decode>(c.decode);
  return Status::kOk;
}

[[nodiscard]] Status tensor_from_c(const char* name, const fp4pa_mxfp8_tensor& t, fp4pa::Mxfp8Tensor* out) noexcept {
  if (t.reserved[0] != 0 || t.reserved[1] != 0) {
    return fail(Status::kInvalidArgument, "%s.reserved is not zero; allowed: 0", name);
  }
  *out = {t.codes, t.token_stride, t.head_stride, t.scales, t.scale_token_stride, t.scale_head_stride};
  return Status::kOk;
}

[[nodiscard]] Status from_c(const fp4pa_mxfp8_args* in, fp4pa::Mxfp8AttentionArgs* out) noexcept {
  fp4pa_mxfp8_args c{};
  FP4PA_RETURN_IF_FAILED(read_struct("args", in, &c));
  FP4PA_RETURN_IF_FAILED(tensor_from_c("q", c.q, &out->q));
  FP4PA_RETURN_IF_FAILED(tensor_from_c("k", c.k, &out->k));
  FP4PA_RETURN_IF_FAILED(tensor_from_c("v", c.v, &out->v));
  return read_common_args(c, *out);
}

/// @param make  plan_dense_attention or plan_mxfp8_attention
template <class Handle, class CConfig, class Config, class Plan>
[[nodiscard]] fp4pa_status create(const CConfig* config, Handle** plan,
                                  Status (*make)(const Config&, Plan*) noexcept) noexcept {
  if (plan == nullptr) return code(fail(Status::kNullPointer, "plan is null"));
  Config wanted;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(config, &wanted));
  Plan made;
  FP4PA_RETURN_CODE_IF_FAILED(make(wanted, &made));
  auto* const handle = new (std::nothrow) Handle{made};
  if (handle == nullptr) return code(fail(Status::kInternal, "no memory for a plan of %zu bytes", sizeof(Handle)));
  *plan = handle;
  return FP4PA_OK;
}

}  // namespace

extern "C" {

void fp4pa_dense_config_init_sized(fp4pa_dense_config* config, size_t struct_size) {
  init_struct(config, struct_size, default_dense_config());
}
void fp4pa_dense_args_init_sized(fp4pa_dense_args* args, size_t struct_size) { init_struct(args, struct_size, {}); }
void fp4pa_mxfp8_config_init_sized(fp4pa_mxfp8_config* config, size_t struct_size) {
  init_struct(config, struct_size, default_mxfp8_config());
}
void fp4pa_mxfp8_args_init_sized(fp4pa_mxfp8_args* args, size_t struct_size) { init_struct(args, struct_size, {}); }

fp4pa_status fp4pa_dense_plan_create(const fp4pa_dense_config* config, fp4pa_dense_plan** plan) {
  return create(config, plan, fp4pa::plan_dense_attention);
}
void fp4pa_dense_plan_destroy(fp4pa_dense_plan* plan) { delete plan; }
size_t fp4pa_dense_plan_workspace_bytes(const fp4pa_dense_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}
const char* fp4pa_dense_plan_backend(const fp4pa_dense_plan* plan) {
  return plan == nullptr ? "" : plan->plan.backend();
}

fp4pa_status fp4pa_dense_run(const fp4pa_dense_plan* plan, const fp4pa_dense_args* args) {
  if (plan == nullptr) return code(fail(Status::kNullPointer, "plan is null"));
  fp4pa::DenseAttentionArgs given;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(*plan, args, &given));
  return code(fp4pa::run_dense_attention(plan->plan, given));
}

fp4pa_status fp4pa_mxfp8_plan_create(const fp4pa_mxfp8_config* config, fp4pa_mxfp8_plan** plan) {
  return create(config, plan, fp4pa::plan_mxfp8_attention);
}
void fp4pa_mxfp8_plan_destroy(fp4pa_mxfp8_plan* plan) { delete plan; }
size_t fp4pa_mxfp8_plan_workspace_bytes(const fp4pa_mxfp8_plan* plan) {
  return plan == nullptr ? 0 : plan->plan.workspace_bytes();
}
const char* fp4pa_mxfp8_plan_backend(const fp4pa_mxfp8_plan* plan) {
  return plan == nullptr ? "" : plan->plan.backend();
}

fp4pa_status fp4pa_mxfp8_run(const fp4pa_mxfp8_plan* plan, const fp4pa_mxfp8_args* args) {
  if (plan == nullptr) return code(fail(Status::kNullPointer, "plan is null"));
  fp4pa::Mxfp8AttentionArgs given;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(args, &given));
  return code(fp4pa::run_mxfp8_attention(plan->plan, given));
}

}  // extern "C"
