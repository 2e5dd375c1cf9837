// The C functions: each reads its structs, calls the C++ function of the same name and returns its status. There is no
// logic of its own here, so that C and C++ cannot drift apart.
#include <new>

#include "api/backend.hpp"
#include "api/c_structs.hpp"
#include "api/validate.hpp"
#include "fp4pa/fp4pa.hpp"

struct fp4pa_plan {
  fp4pa::AttentionPlan plan;
};

namespace {

using fp4pa::Status;
using fp4pa::api::code;
using fp4pa::api::fail;
using fp4pa::api::from_c;
using fp4pa::api::init_struct;

[[nodiscard]] Status check_order(fp4pa_page_order order) noexcept {
  if (order == FP4PA_PAGE_HND || order == FP4PA_PAGE_NHD) return Status::kOk;
  return fail(Status::kInvalidArgument, "order is %d; allowed: 0 (hnd), 1 (nhd)", static_cast<int>(order));
}

/// The tensor of a description that a C caller means; null for a bad argument.
[[nodiscard]] const fp4pa::KvTensorDesc* tensor_of(const fp4pa::KvCacheDesc& cache, fp4pa_tensor_kind kind) noexcept {
  if (kind == FP4PA_K) return &cache.k;
  return kind == FP4PA_V ? &cache.v : nullptr;
}

}  // namespace

extern "C" {

const char* fp4pa_status_name(fp4pa_status status) { return fp4pa::status_name(static_cast<Status>(status)); }
const char* fp4pa_last_error_detail(void) { return fp4pa::last_error_detail(); }
const char* fp4pa_version_string(void) { return fp4pa::version_string(); }
int32_t fp4pa_abi_version(void) { return fp4pa::abi_version(); }

// --- Initialisation ------------------------------------------------------------------------------------------------------

void fp4pa_backend_info_init_sized(fp4pa_backend_info* info, size_t struct_size) { init_struct(info, struct_size, {}); }
void fp4pa_exec_init_sized(fp4pa_exec* exec, size_t struct_size) { init_struct(exec, struct_size, {}); }
void fp4pa_attention_args_init_sized(fp4pa_attention_args* args, size_t struct_size) {
  init_struct(args, struct_size, {});
}
void fp4pa_cache_init_sized(fp4pa_cache* cache, size_t struct_size) {
  init_struct(cache, struct_size, fp4pa::api::default_c_cache());
}
void fp4pa_attention_config_init_sized(fp4pa_attention_config* config, size_t struct_size) {
  init_struct(config, struct_size, fp4pa::api::default_c_config());
}
void fp4pa_two_tier_init_sized(fp4pa_two_tier* cache, size_t struct_size) {
  const fp4pa::TwoTierDesc defaults;
  init_struct(cache, struct_size, {0, nullptr, nullptr, defaults.window_tokens, defaults.group_tokens, 0});
}
void fp4pa_kv_input_init_sized(fp4pa_kv_input* input, size_t struct_size) {
  init_struct(input, struct_size, {0, nullptr, 0, 0, FP4PA_BF16});
}
void fp4pa_kv_output_init_sized(fp4pa_kv_output* output, size_t struct_size) {
  init_struct(output, struct_size, {0, nullptr, 0, 0, FP4PA_F32});
}
void fp4pa_quantize_config_init_sized(fp4pa_quantize_config* config, size_t struct_size) {
  fp4pa_quantize_config defaults{};
  defaults.global_scale = 1.0f;
  init_struct(config, struct_size, defaults);
}

// --- Back ends -----------------------------------------------------------------------------------------------------------

int32_t fp4pa_backend_count(void) { return fp4pa::available_backends(nullptr, 0); }

fp4pa_status fp4pa_get_backend(int32_t index, fp4pa_backend_info* out) {
  fp4pa_backend_info info{};
  FP4PA_RETURN_CODE_IF_FAILED(fp4pa::api::read_struct("out", out, &info));
  const auto all = fp4pa::api::backends();
  if (index < 0 || static_cast<std::size_t>(index) >= all.size()) {
    return code(fail(Status::kInvalidArgument, "index is %d; allowed: 0 to %zu", static_cast<int>(index),
                     all.size() - 1));
  }
  const fp4pa::api::Backend& backend = *all[static_cast<std::size_t>(index)];
  info.name = backend.name;
  info.detail = "";
  info.available = backend.available(&info.detail) ? 1 : 0;
  fp4pa::api::write_back(out, info);
  return FP4PA_OK;
}

// --- Cache ---------------------------------------------------------------------------------------------------------------

int64_t fp4pa_kv_data_bytes(fp4pa_kv_format format, int32_t head_dim) {
  return fp4pa::kv_data_bytes(static_cast<fp4pa::KvFormat>(format), head_dim);
}
int64_t fp4pa_kv_scale_bytes(fp4pa_kv_format format, fp4pa_scale_axis axis, int32_t head_dim) {
  return fp4pa::kv_scale_bytes(static_cast<fp4pa::KvFormat>(format), static_cast<fp4pa::VScaleAxis>(axis), head_dim);
}
int32_t fp4pa_kv_token_group(fp4pa_kv_format format, fp4pa_scale_axis axis) {
  return fp4pa::kv_token_group(static_cast<fp4pa::KvFormat>(format), static_cast<fp4pa::VScaleAxis>(axis));
}

fp4pa_status fp4pa_set_dense_strides(fp4pa_cache* cache, fp4pa_page_order order) {
  fp4pa::KvCacheDesc desc;
  FP4PA_RETURN_CODE_IF_FAILED(from_c("cache", cache, &desc));
  FP4PA_RETURN_CODE_IF_FAILED(check_order(order));
  FP4PA_RETURN_CODE_IF_FAILED(fp4pa::api::validate_cache_shape(desc));
  fp4pa::set_dense_strides(desc, static_cast<fp4pa::PageOrder>(order));
  fp4pa::api::to_c(desc, cache);
  return FP4PA_OK;
}

int64_t fp4pa_dense_data_bytes(const fp4pa_cache* cache, fp4pa_tensor_kind tensor) {
  fp4pa::KvCacheDesc desc;
  if (from_c("cache", cache, &desc) != Status::kOk || tensor_of(desc, tensor) == nullptr) return 0;
  return fp4pa::dense_data_bytes(desc, *tensor_of(desc, tensor));
}

int64_t fp4pa_dense_scale_bytes(const fp4pa_cache* cache, fp4pa_tensor_kind tensor) {
  fp4pa::KvCacheDesc desc;
  if (from_c("cache", cache, &desc) != Status::kOk || tensor_of(desc, tensor) == nullptr) return 0;
  return fp4pa::dense_scale_bytes(desc, *tensor_of(desc, tensor));
}

fp4pa_status fp4pa_set_interleaved_pages(fp4pa_cache* cache, fp4pa_page_order order, void* base, int64_t* page_bytes) {
  fp4pa::KvCacheDesc desc;
  FP4PA_RETURN_CODE_IF_FAILED(from_c("cache", cache, &desc));
  FP4PA_RETURN_CODE_IF_FAILED(check_order(order));
  FP4PA_RETURN_CODE_IF_FAILED(fp4pa::api::validate_cache_shape(desc));
  FP4PA_RETURN_CODE_IF_FAILED(fp4pa::api::validate_page_base(base));
  const std::int64_t bytes = fp4pa::set_interleaved_pages(desc, static_cast<fp4pa::PageOrder>(order), base);
  fp4pa::api::to_c(desc, cache);
  if (page_bytes != nullptr) *page_bytes = bytes;
  return FP4PA_OK;
}

fp4pa_status fp4pa_validate_cache(const fp4pa_cache* cache) {
  fp4pa::KvCacheDesc desc;
  FP4PA_RETURN_CODE_IF_FAILED(from_c("cache", cache, &desc));
  return code(fp4pa::validate(desc));
}

int32_t fp4pa_quantised_tokens(int32_t length, int32_t window_tokens, int32_t group_tokens) {
  return fp4pa::quantised_tokens(length, window_tokens, group_tokens);
}

int32_t fp4pa_old_tier_pages(const fp4pa_two_tier* cache, int32_t length) {
  fp4pa::TwoTierDesc desc;
  return from_c(cache, &desc) == Status::kOk ? fp4pa::old_tier_pages(desc, length) : 0;
}

int32_t fp4pa_min_ring_pages(int32_t window_tokens, int32_t group_tokens, int32_t page_size) {
  return fp4pa::min_ring_pages(window_tokens, group_tokens, page_size);
}

int32_t fp4pa_min_ring_pages_with_rollback(int32_t window_tokens, int32_t group_tokens, int32_t page_size,
                                           int32_t max_rollback) {
  return fp4pa::min_ring_pages(window_tokens, group_tokens, page_size, max_rollback);
}

fp4pa_status fp4pa_validate_two_tier(const fp4pa_two_tier* cache) {
  fp4pa::TwoTierDesc desc;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(cache, &desc));
  return code(fp4pa::validate(desc));
}

fp4pa_status fp4pa_append(const fp4pa_cache* cache, const fp4pa_kv_input* k, const fp4pa_kv_input* v, const void* slots,
                          fp4pa_index_type slot_type, int64_t num_tokens, const fp4pa_exec* exec) {
  fp4pa::KvCacheDesc desc;
  fp4pa::KvInput k_in, v_in;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(from_c("cache", cache, &desc));
  FP4PA_RETURN_CODE_IF_FAILED(from_c("k", k, &k_in));
  FP4PA_RETURN_CODE_IF_FAILED(from_c("v", v, &v_in));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::append(desc, k_in, v_in, slots, static_cast<fp4pa::IndexType>(slot_type), num_tokens, on));
}

fp4pa_status fp4pa_append_two_tier(const fp4pa_two_tier* cache, const fp4pa_kv_input* k, const fp4pa_kv_input* v,
                                   const int32_t* indptr, const int32_t* seq_lens, int32_t batch, int64_t num_tokens,
                                   const int32_t* old_table, int64_t old_table_stride, const int32_t* recent_table,
                                   const fp4pa_exec* exec) {
  fp4pa::TwoTierDesc desc;
  fp4pa::KvInput k_in, v_in;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(cache, &desc));
  FP4PA_RETURN_CODE_IF_FAILED(from_c("k", k, &k_in));
  FP4PA_RETURN_CODE_IF_FAILED(from_c("v", v, &v_in));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::append_two_tier(desc, k_in, v_in, indptr, seq_lens, batch, num_tokens, old_table, old_table_stride,
                                     recent_table, on));
}

fp4pa_status fp4pa_gather(const fp4pa_cache* cache, const void* slots, fp4pa_index_type slot_type, int64_t num_tokens,
                          const fp4pa_kv_output* k, const fp4pa_kv_output* v, const fp4pa_exec* exec) {
  fp4pa::KvCacheDesc desc;
  fp4pa::KvOutput k_out, v_out;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(from_c("cache", cache, &desc));
  FP4PA_RETURN_CODE_IF_FAILED(from_c("k", k, &k_out));
  FP4PA_RETURN_CODE_IF_FAILED(from_c("v", v, &v_out));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::gather(desc, slots, static_cast<fp4pa::IndexType>(slot_type), num_tokens, k_out, v_out, on));
}

fp4pa_status fp4pa_copy_pages(const fp4pa_cache* cache, const int32_t* src, const int32_t* dst, int64_t num_copies,
                              const fp4pa_exec* exec) {
  fp4pa::KvCacheDesc desc;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(from_c("cache", cache, &desc));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::copy_pages(desc, src, dst, num_copies, on));
}

// --- Quantising tensors --------------------------------------------------------------------------------------------------

size_t fp4pa_quantized_code_bytes(fp4pa_block_format format, int64_t rows, int64_t cols) {
  return fp4pa::quantized_code_bytes(static_cast<fp4pa::BlockFormat>(format), rows, cols);
}
size_t fp4pa_quantized_scale_bytes(fp4pa_block_format format, fp4pa_scale_layout layout, int64_t rows, int64_t cols) {
  return fp4pa::quantized_scale_bytes(static_cast<fp4pa::BlockFormat>(format), static_cast<fp4pa::ScaleLayout>(layout),
                                      rows, cols);
}

fp4pa_status fp4pa_quantize(const fp4pa_quantize_config* config, const void* x, fp4pa_dtype dtype, int64_t rows,
                            int64_t cols, void* codes, void* scales, const fp4pa_exec* exec) {
  fp4pa::QuantizeConfig choice;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(config, &choice));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::quantize(choice, x, static_cast<fp4pa::DType>(dtype), rows, cols, codes, scales, on));
}

fp4pa_status fp4pa_dequantize(const fp4pa_quantize_config* config, const void* codes, const void* scales, int64_t rows,
                              int64_t cols, void* y, fp4pa_dtype dtype, const fp4pa_exec* exec) {
  fp4pa::QuantizeConfig choice;
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(config, &choice));
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::dequantize(choice, codes, scales, rows, cols, y, static_cast<fp4pa::DType>(dtype), on));
}

// --- Attention -----------------------------------------------------------------------------------------------------------

fp4pa_status fp4pa_plan_create(const fp4pa_attention_config* config, fp4pa_plan** plan) {
  if (plan == nullptr) return code(fail(Status::kNullPointer, "plan is null"));
  fp4pa::AttentionConfig wanted;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(config, &wanted));
  fp4pa::AttentionPlan made;
  FP4PA_RETURN_CODE_IF_FAILED(fp4pa::plan(wanted, &made));
  auto* const handle = new (std::nothrow) fp4pa_plan{made};
  if (handle == nullptr) return code(fail(Status::kInternal, "no memory for a plan of %zu bytes", sizeof(fp4pa_plan)));
  *plan = handle;
  return FP4PA_OK;
}

void fp4pa_plan_destroy(fp4pa_plan* plan) { delete plan; }
size_t fp4pa_plan_workspace_bytes(const fp4pa_plan* plan) { return plan == nullptr ? 0 : plan->plan.workspace_bytes(); }
const char* fp4pa_plan_backend(const fp4pa_plan* plan) { return plan == nullptr ? "" : plan->plan.backend(); }
int32_t fp4pa_plan_num_workers(const fp4pa_plan* plan) { return plan == nullptr ? 0 : plan->plan.num_workers(); }

fp4pa_status fp4pa_run(const fp4pa_plan* plan, const fp4pa_attention_args* args) {
  if (plan == nullptr) return code(fail(Status::kNullPointer, "plan is null"));
  fp4pa::AttentionArgs given;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(args, &given));
  return code(fp4pa::run(plan->plan, given));
}

fp4pa_status fp4pa_merge_states(const void* oa, const float* lse_a, const void* ob, const float* lse_b, void* o, float* lse,
                                fp4pa_dtype dtype, int64_t rows, int32_t head_dim, const fp4pa_exec* exec) {
  fp4pa::ExecDesc on;
  FP4PA_RETURN_CODE_IF_FAILED(from_c(exec, &on));
  return code(fp4pa::merge_states(oa, lse_a, ob, lse_b, o, lse, static_cast<fp4pa::DType>(dtype), rows, head_dim, on));
}

}  // extern "C"
