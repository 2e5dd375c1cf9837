// plan_dense_attention and run_dense_attention: K and V into pages of the workspace, then one paged call.
#include <cmath>

#include "api/dense.hpp"
#include "api/error.hpp"
#include "api/row_strides.hpp"
#include "api/validate_rows.hpp"

namespace fp4pa {
namespace {

using api::fail;

/// Tokens of the workspace's pages: whole groups of every V scale axis.
constexpr std::int32_t kPage = 64;

/// Where everything lies in the workspace; the attention's own part comes first.
struct Layout {
  api::TableParts tables;
  std::size_t k_codes, k_scales, v_codes, v_scales;
  std::size_t mean_sums, mean, centred;
  std::size_t total;
};

[[nodiscard]] KvCacheDesc cache_of(const DenseAttentionConfig& c) noexcept {
  KvCacheDesc cache;
  cache.num_kv_heads = c.num_kv_heads;
  cache.head_dim = c.head_dim;
  cache.page_size = kPage;
  cache.num_pages = core::dense_pages(c.limits.max_kv_tokens, c.limits.max_batch, kPage);
  cache.rotation = c.rotation;
  cache.scale_mode = c.scale_mode;
  cache.nvfp4_scale = c.nvfp4_scale;
  cache.k.format = c.k_format;
  cache.k.global_scale = c.k_global_scale;
  cache.v.format = c.v_format;
  cache.v.global_scale = c.v_global_scale;
  cache.v.scale_axis = c.v_scale_axis;
  set_dense_strides(cache, PageOrder::kHnd);
  for (KvTensorDesc* tensor : {&cache.k, &cache.v}) {
    tensor->data = api::memory_to_come();
    tensor->scales = has_scales(tensor->format) ? api::memory_to_come() : nullptr;
  }
  return cache;
}

[[nodiscard]] Layout layout_of(const DenseAttentionConfig& c, std::size_t attention_bytes) noexcept {
  const KvCacheDesc cache = cache_of(c);
  const auto row_bytes =
      static_cast<std::size_t>(c.num_kv_heads) * static_cast<std::size_t>(c.head_dim) * sizeof(float);
  api::WorkspaceParts parts;
  (void)parts.add(attention_bytes);
  Layout l{};
  l.tables = api::TableParts::cut(parts, c.limits, kPage, true);
  l.k_codes = parts.add(static_cast<std::size_t>(dense_data_bytes(cache, cache.k)));
  l.k_scales = parts.add(static_cast<std::size_t>(dense_scale_bytes(cache, cache.k)));
  l.v_codes = parts.add(static_cast<std::size_t>(dense_data_bytes(cache, cache.v)));
  l.v_scales = parts.add(static_cast<std::size_t>(dense_scale_bytes(cache, cache.v)));
  if (c.smooth_k) {
    l.mean_sums =
        parts.add(row_bytes * static_cast<std::size_t>(core::mean_chunks(c.limits.max_kv_tokens, c.limits.max_batch)));
    l.mean = parts.add(row_bytes * static_cast<std::size_t>(c.limits.max_batch));
    l.centred = parts.add(row_bytes * static_cast<std::size_t>(c.limits.max_kv_tokens));
  }
  l.total = parts.total();
  return l;
}

/// K or V as given: strides written out, dtype the plan's.
[[nodiscard]] Status validate_input(const char* name, const DenseAttentionConfig& c, const KvCacheDesc& cache,
                                    std::int32_t tokens, KvInput* input) noexcept {
  if (input->dtype != c.kv_dtype) {
    return fail(Status::kPlanMismatch, "%s.dtype is %d; allowed: the plan's kv_dtype %d (%s)", name,
                static_cast<int>(input->dtype), static_cast<int>(c.kv_dtype), name_of(c.kv_dtype));
  }
  *input = api::with_dense_defaults(*input, cache);
  return tokens == 0 ? Status::kOk : api::validate_rows(name, *input, cache, tokens);
}

[[nodiscard]] core::HeadTensor head_tensor(const void* data, DType dtype, std::int64_t token_stride,
                                           std::int64_t head_stride) noexcept {
  return {const_cast<void*>(data), token_stride, head_stride, dtype};
}

}  // namespace

Status plan_dense_attention(const DenseAttentionConfig& config, DenseAttentionPlan* plan) noexcept {
  if (plan == nullptr) return fail(Status::kNullPointer, "plan is null; it must point to a DenseAttentionPlan");
  if (const Status s = api::validate_limits(config.limits, config.head_dim, config.num_q_heads, config.num_kv_heads);
      s != Status::kOk) {
    return s;
  }
  FP4PA_RETURN_IF_FAILED(api::validate_dtype("kv_dtype", config.kv_dtype));
  AttentionConfig paged = api::paged_config(config);
  paged.cache = cache_of(config);
  paged.q_dtype = config.q_dtype;
  paged.matrix_path = config.matrix_path;
  AttentionPlan attention;
  FP4PA_RETURN_IF_FAILED(api::plan_paged(paged, &attention));
  if (api::backend_of(attention)->append == nullptr) {
    return fail(Status::kBackendUnavailable, "back end '%s' has no append in this build", attention.backend());
  }
  DensePlanAccess::fill(*plan, config, attention, layout_of(config, attention.workspace_bytes()).total);
  return Status::kOk;
}

Status run_dense_attention(const DenseAttentionPlan& plan, const DenseAttentionArgs& args) noexcept {
  const DenseAttentionConfig& c = plan.config();
  const AttentionPlan& attention = DensePlanAccess::attention(plan);
  const api::Backend* const backend = api::backend_of(attention);
  FP4PA_RETURN_IF_FAILED(api::validate_run(plan, args, "plan_dense_attention"));
  if (args.rows.batch == 0 || args.rows.q_tokens == 0) return Status::kOk;
  auto* const base = static_cast<std::uint8_t*>(args.workspace);
  const Layout layout = layout_of(c, attention.workspace_bytes());
  KvCacheDesc cache = cache_of(c);
  cache.num_pages = core::dense_pages(args.rows.kv_tokens, args.rows.batch, kPage);
  cache.k.data = base + layout.k_codes;
  cache.v.data = base + layout.v_codes;
  if (cache.k.scales != nullptr) cache.k.scales = base + layout.k_scales;
  if (cache.v.scales != nullptr) cache.v.scales = base + layout.v_scales;

  KvInput k = args.k;
  KvInput v = args.v;
  FP4PA_RETURN_IF_FAILED(validate_input("k", c, cache, args.rows.kv_tokens, &k));
  FP4PA_RETURN_IF_FAILED(validate_input("v", c, cache, args.rows.kv_tokens, &v));

  const core::DenseTables tables = layout.tables.tables(base, cache.num_pages);
  AttentionArgs paged = api::paged_args(args, tables, attention.workspace_bytes());
  paged.q = args.q;
  paged.q_token_stride = args.q_token_stride;
  paged.q_head_stride = args.q_head_stride;
  FP4PA_RETURN_IF_FAILED(api::validate_run(attention, cache, paged, args.rows.q_tokens));

  const ExecDesc exec{nullptr, args.stream, c.num_threads};
  const core::DenseLengths lengths = api::lengths_of(args.rows, c.limits);
  core::KeyMean mean{lengths,
                     head_tensor(k.data, k.dtype, k.token_stride, k.head_stride),
                     c.num_kv_heads,
                     c.head_dim,
                     reinterpret_cast<float*>(base + layout.mean_sums),
                     reinterpret_cast<float*>(base + layout.mean),
                     reinterpret_cast<float*>(base + layout.centred)};
  FP4PA_RETURN_IF_FAILED(backend->dense->fill_tables(lengths, tables, exec));
  if (args.rows.kv_tokens > 0) {
    if (c.smooth_k) {
      FP4PA_RETURN_IF_FAILED(backend->dense->centre_keys(mean, exec));
      k = {mean.centred, DType::kF32, std::int64_t{c.num_kv_heads} * c.head_dim, c.head_dim};
    }
    const api::SlotList slots{tables.slots, IndexType::kInt64, args.rows.kv_tokens};
    FP4PA_RETURN_IF_FAILED(backend->append(cache, k, v, slots, exec));
  }
  FP4PA_RETURN_IF_FAILED(api::run_on(attention, cache, paged));
  if (!c.smooth_k || args.lse == nullptr || args.rows.kv_tokens == 0) return Status::kOk;
  const api::RowStrides q = api::with_dense_defaults({args.q_token_stride, args.q_head_stride}, c.num_q_heads, c.head_dim);
  const float sm_scale = c.sm_scale != 0.0f ? c.sm_scale : 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  return backend->dense->restore_lse(mean, head_tensor(args.q, c.q_dtype, q.token, q.head), c.num_q_heads, sm_scale,
                                     args.lse, exec);
}

}  // namespace fp4pa
