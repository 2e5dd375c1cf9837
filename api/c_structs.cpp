// Field by field, in the order of the C++ headers. Enumerations are passed on as they are: validation names a bad one.
#include "api/c_structs.hpp"

namespace fp4pa::api {
namespace {

[[nodiscard]] fp4pa_kv_tensor default_c_tensor() noexcept {
  fp4pa_kv_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.global_scale = KvTensorDesc{}.global_scale;
  return tensor;
}

[[nodiscard]] Status tensor_from_c(const char* cache, const char* name, const fp4pa_kv_tensor& in,
                                   KvTensorDesc* out) noexcept {
  if (in.struct_size != sizeof in) {
    return fail(Status::kInvalidArgument, "%s.%s.struct_size is %zu; allowed: %zu, as fp4pa_cache_init sets it", cache,
                name, in.struct_size, sizeof in);
  }
  for (const std::uint64_t word : in.reserved) {
    if (word != 0) {
      return fail(Status::kInvalidArgument, "%s.%s.reserved has %llu; allowed: 0", cache, name,
                  static_cast<unsigned long long>(word));
    }
  }
  out->format = static_cast<KvFormat>(in.format);
  out->scale_axis = static_cast<VScaleAxis>(in.scale_axis);
  out->nibble_order = static_cast<NibbleOrder>(in.nibble_order);
  out->scale_swizzle = static_cast<ScaleSwizzle>(in.scale_swizzle);
  out->data = in.data;
  out->page_stride_bytes = in.page_stride_bytes;
  out->token_stride_bytes = in.token_stride_bytes;
  out->head_stride_bytes = in.head_stride_bytes;
  out->scales = in.scales;
  out->scale_page_stride_bytes = in.scale_page_stride_bytes;
  out->scale_token_stride_bytes = in.scale_token_stride_bytes;
  out->scale_head_stride_bytes = in.scale_head_stride_bytes;
  out->global_scale = in.global_scale;
  out->global_scale_ptr = in.global_scale_ptr;
  const std::int32_t per_head = in.global_scale_per_head;
  if (per_head != 0 && per_head != 1) {
    return fail(Status::kInvalidArgument, "%s.%s.global_scale_per_head is %d; allowed: 0, 1", cache, name, static_cast<int>(per_head));
  }
  out->global_scale_per_head = per_head == 1;
  return Status::kOk;
}

void layout_to_c(const KvTensorDesc& in, fp4pa_kv_tensor* out) noexcept {
  out->data = in.data;
  out->page_stride_bytes = in.page_stride_bytes;
  out->token_stride_bytes = in.token_stride_bytes;
  out->head_stride_bytes = in.head_stride_bytes;
  out->scales = in.scales;
  out->scale_page_stride_bytes = in.scale_page_stride_bytes;
  out->scale_token_stride_bytes = in.scale_token_stride_bytes;
  out->scale_head_stride_bytes = in.scale_head_stride_bytes;
}

}  // namespace

fp4pa_cache default_c_cache() noexcept {
  const KvCacheDesc defaults;
  fp4pa_cache cache{};
  cache.struct_size = sizeof cache;
  cache.k = default_c_tensor();
  cache.v = default_c_tensor();
  cache.scale_mode = static_cast<fp4pa_scale_mode>(defaults.scale_mode);
  cache.nvfp4_scale = static_cast<fp4pa_nvfp4_scale>(defaults.nvfp4_scale);
  return cache;
}

fp4pa_attention_config default_c_config() noexcept {
  const AttentionConfig defaults;
  fp4pa_attention_config config{};
  config.struct_size = sizeof config;
  config.q_dtype = static_cast<fp4pa_dtype>(defaults.q_dtype);
  config.o_dtype = static_cast<fp4pa_dtype>(defaults.o_dtype);
  config.causal = defaults.causal ? 1 : 0;
  config.table_kind = static_cast<fp4pa_table_kind>(defaults.table_kind);
  return config;
}

Status from_c(const char* name, const fp4pa_cache* in, KvCacheDesc* out) noexcept {
  fp4pa_cache c = default_c_cache();
  FP4PA_RETURN_IF_FAILED(read_struct(name, in, &c));
  KvCacheDesc cache;
  FP4PA_RETURN_IF_FAILED(tensor_from_c(name, "k", c.k, &cache.k));
  FP4PA_RETURN_IF_FAILED(tensor_from_c(name, "v", c.v, &cache.v));
  cache.num_kv_heads = c.num_kv_heads;
  cache.head_dim = c.head_dim;
  cache.page_size = c.page_size;
  cache.num_pages = c.num_pages;
  cache.rotation = static_cast<Rotation>(c.rotation);
  cache.scale_mode = static_cast<ScaleMode>(c.scale_mode);
  cache.nvfp4_scale = static_cast<Nvfp4Scale>(c.nvfp4_scale);
  *out = cache;
  return Status::kOk;
}

Status from_c(const fp4pa_two_tier* in, TwoTierDesc* out) noexcept {
  fp4pa_two_tier c{};
  FP4PA_RETURN_IF_FAILED(read_struct("cache", in, &c));
  FP4PA_RETURN_IF_FAILED(from_c("old_tier", c.old_tier, &out->old_tier));
  FP4PA_RETURN_IF_FAILED(from_c("recent", c.recent, &out->recent));
  out->window_tokens = c.window_tokens;
  out->group_tokens = c.group_tokens;
  out->ring_pages = c.ring_pages;
  return Status::kOk;
}

Status from_c(const char* name, const fp4pa_kv_input* in, KvInput* out) noexcept {
  fp4pa_kv_input c{};
  FP4PA_RETURN_IF_FAILED(read_struct(name, in, &c));
  *out = {c.data, static_cast<DType>(c.dtype), c.token_stride, c.head_stride};
  return Status::kOk;
}

Status from_c(const char* name, const fp4pa_kv_output* in, KvOutput* out) noexcept {
  *out = {};
  if (in == nullptr) return Status::kOk;
  fp4pa_kv_output c{};
  FP4PA_RETURN_IF_FAILED(read_struct(name, in, &c));
  *out = {c.data, static_cast<DType>(c.dtype), c.token_stride, c.head_stride};
  return Status::kOk;
}

Status from_c(const fp4pa_exec* in, ExecDesc* out) noexcept {
  *out = {};
  if (in == nullptr) return Status::kOk;
  fp4pa_exec c{};
  FP4PA_RETURN_IF_FAILED(read_struct("exec", in, &c));
  *out = {c.backend, c.stream, c.num_threads, false};
  return read_flag("exec.validate_device_data", c.validate_device_data, &out->validate_device_data);
}

Status from_c(const fp4pa_quantize_config* in, QuantizeConfig* out) noexcept {
  fp4pa_quantize_config c{};
  FP4PA_RETURN_IF_FAILED(read_struct("config", in, &c));
  *out = {static_cast<BlockFormat>(c.format), static_cast<ScaleLayout>(c.scale_layout),
          static_cast<ScaleMode>(c.scale_mode), static_cast<Nvfp4Scale>(c.nvfp4_scale), c.global_scale};
  return Status::kOk;
}

Status from_c(const fp4pa_attention_config* in, AttentionConfig* out) noexcept {
  fp4pa_attention_config c = default_c_config();
  FP4PA_RETURN_IF_FAILED(read_struct("config", in, &c));
  AttentionConfig config;
  FP4PA_RETURN_IF_FAILED(from_c("cache", c.cache, &config.cache));
  config.two_tier = c.recent != nullptr;
  if (config.two_tier) {
    FP4PA_RETURN_IF_FAILED(from_c("recent", c.recent, &config.recent));
  }
  config.window_tokens = c.window_tokens;
  config.group_tokens = c.group_tokens;
  config.ring_pages = c.ring_pages;
  config.num_q_heads = c.num_q_heads;
  config.q_dtype = static_cast<DType>(c.q_dtype);
  config.o_dtype = static_cast<DType>(c.o_dtype);
  config.sm_scale = c.sm_scale;
  FP4PA_RETURN_IF_FAILED(read_flag("causal", c.causal, &config.causal));
  config.sliding_window = c.sliding_window;
  config.softcap = c.softcap;
  FP4PA_RETURN_IF_FAILED(read_flag("sinks", c.sinks, &config.sinks));
  FP4PA_RETURN_IF_FAILED(read_flag("alibi", c.alibi, &config.alibi));
  FP4PA_RETURN_IF_FAILED(read_flag("tree_mask", c.tree_mask, &config.tree_mask));
  config.max_batch = c.max_batch;
  config.max_q_tokens = c.max_q_tokens;
  config.max_q_len = c.max_q_len;
  config.max_kv_len = c.max_kv_len;
  config.table_kind = static_cast<TableKind>(c.table_kind);
  FP4PA_RETURN_IF_FAILED(read_flag("batch_invariant", c.batch_invariant, &config.batch_invariant));
  config.kv_split_tokens = c.kv_split_tokens;
  FP4PA_RETURN_IF_FAILED(read_flag("validate_device_data", c.validate_device_data, &config.validate_device_data));
  config.num_threads = c.num_threads;
  config.backend = c.backend;
  config.matrix_path = static_cast<MatrixPath>(c.matrix_path);
  *out = config;
  return Status::kOk;
}

Status from_c(const fp4pa_attention_args* in, AttentionArgs* out) noexcept {
  fp4pa_attention_args c{};
  FP4PA_RETURN_IF_FAILED(read_struct("args", in, &c));
  AttentionArgs args;
  args.q = c.q;
  args.q_token_stride = c.q_token_stride;
  args.q_head_stride = c.q_head_stride;
  args.o = c.o;
  args.o_token_stride = c.o_token_stride;
  args.o_head_stride = c.o_head_stride;
  args.lse = c.lse;
  args.batch = c.batch;
  args.qo_indptr = c.qo_indptr;
  args.seq_lens = c.seq_lens;
  args.block_table = c.block_table;
  args.table_stride = c.table_stride;
  args.kv_indptr = c.kv_indptr;
  args.kv_indices = c.kv_indices;
  args.recent_table = c.recent_table;
  args.sinks = c.sinks;
  args.alibi_slopes = c.alibi_slopes;
  args.tree_mask = c.tree_mask;
  args.workspace = c.workspace;
  args.workspace_bytes = c.workspace_bytes;
  args.stream = c.stream;
  FP4PA_RETURN_IF_FAILED(read_flag("same_lengths", c.same_lengths, &args.same_lengths));
  *out = args;
  return Status::kOk;
}

void to_c(const KvCacheDesc& in, fp4pa_cache* out) noexcept {
  layout_to_c(in.k, &out->k);
  layout_to_c(in.v, &out->v);
}

}  // namespace fp4pa::api
