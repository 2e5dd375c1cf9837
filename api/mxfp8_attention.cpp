// plan_mxfp8_attention and run_mxfp8_attention: the caller's K and V are the pages, of one token each.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

#include "api/dense.hpp"
#include "api/error.hpp"
#include "api/row_strides.hpp"
#include "api/saturating.hpp"
#include "api/stride_overlap.hpp"
#include "api/validate.hpp"

namespace fp4pa {
namespace {

using api::fail;

/// Query rows per KV head of a sequence from which decoding every code once pays. With fewer, K and V are read for few
/// products, and reading 8 bits beats writing and reading 16; with more, each code is decoded again for every tile of
/// rows (16 on the CPU, where the two cost the same at 32 to 64 rows).
constexpr std::int64_t kManyQueries = 64;

struct Layout {
  api::TableParts tables;
  std::size_t q;     // [max_q_tokens, num_q_heads, head_dim] bf16, where the attention does not take codes
  std::size_t k, v;  // kOnce: [max_kv_tokens, num_kv_heads, head_dim] bf16
  std::size_t total;
};

[[nodiscard]] std::int64_t row_elements(const Mxfp8AttentionConfig& c) noexcept {
  return std::int64_t{c.num_kv_heads} * c.head_dim;
}

/// Whether the attention takes Q's codes and scales as it takes those of K and V.
[[nodiscard]] bool takes_codes(Mxfp8Decode decode, const AttentionPlan& attention) noexcept {
  return decode == Mxfp8Decode::kPerTile && api::decodes_aside(attention);
}

[[nodiscard]] Layout layout_of(const Mxfp8AttentionConfig& c, Mxfp8Decode decode, const AttentionPlan& attention) noexcept {
  const auto bf16_bytes = [&c](std::int64_t tokens, std::int64_t heads) {
    return static_cast<std::size_t>(tokens * heads * c.head_dim) * sizeof(std::uint16_t);
  };
  api::WorkspaceParts parts;
  (void)parts.add(attention.workspace_bytes());
  Layout l{};
  l.tables = api::TableParts::cut(parts, c.limits, 1, false);
  if (!takes_codes(decode, attention)) l.q = parts.add(bf16_bytes(c.limits.max_q_tokens, c.num_q_heads));
  if (decode == Mxfp8Decode::kOnce) {
    l.k = parts.add(bf16_bytes(c.limits.max_kv_tokens, c.num_kv_heads));
    l.v = parts.add(bf16_bytes(c.limits.max_kv_tokens, c.num_kv_heads));
  }
  l.total = parts.total();
  return l;
}

/// As the caller gave them: with 0 written out they may have left the address space, which is another thing to be told.
[[nodiscard]] Status validate_given_strides(const char* name, const Mxfp8Tensor& t) noexcept {
  struct Given {
    const char* name;
    std::int64_t stride, alignment;
  };
  for (const Given& g : {Given{"token_stride", t.token_stride, 16}, {"head_stride", t.head_stride, 16},
                         {"scale_token_stride", t.scale_token_stride, 1}, {"scale_head_stride", t.scale_head_stride, 1}}) {
    if (g.stride >= 0 && g.stride % g.alignment == 0) continue;
    return fail(Status::kInvalidStrides, "%s.%s is %" PRId64 "; allowed: 0 (dense) or a positive multiple of %" PRId64, name, g.name,
                g.stride, g.alignment);
  }
  return Status::kOk;
}

/// Strides of 0 written out.
[[nodiscard]] Mxfp8Tensor with_strides(const Mxfp8Tensor& t, std::int32_t heads, std::int32_t head_dim) noexcept {
  const api::RowStrides codes = api::with_dense_defaults({t.token_stride, t.head_stride}, heads, head_dim);
  const api::RowStrides scales = api::with_dense_defaults({t.scale_token_stride, t.scale_head_stride}, heads, head_dim / 32);
  return {t.codes, codes.token, codes.head, t.scales, scales.token, scales.head};
}

[[nodiscard]] Status validate_strides(const char* name, std::array<api::StridedDim, 2> dims, std::int64_t row_bytes) noexcept {
  const api::StrideCheck check = api::check_strides(dims, row_bytes);
  if (!check.disjoint) {
    return fail(Status::kInvalidStrides,
                "%s.%s is %" PRId64 ", so that rows of %" PRId64
                " bytes overlap; allowed: 0 (dense) or at least %" PRId64,
                name, check.dim->name, check.dim->stride_bytes, row_bytes, check.needed_bytes);
  }
  if (check.span_bytes <= api::kMostBytes) return Status::kOk;
  const api::StridedDim& widest = dims[1].stride_bytes > api::kMostBytes / std::max<std::int64_t>(dims[1].size, 1) ? dims[1] : dims[0];
  return fail(Status::kInvalidStrides, "%s.%s is %" PRId64 ", which leaves the address space; allowed: spans that fit",
              name, widest.name, widest.stride_bytes);
}

[[nodiscard]] Status validate_tensor(const char* name, const Mxfp8Tensor& given, std::int64_t tokens, std::int32_t heads,
                                     std::int32_t head_dim) noexcept {
  char field[16];
  std::snprintf(field, sizeof field, "%s.codes", name);
  FP4PA_RETURN_IF_FAILED(api::validate_pointer(field, given.codes, 16));
  std::snprintf(field, sizeof field, "%s.scales", name);
  FP4PA_RETURN_IF_FAILED(api::validate_pointer(field, given.scales, 1));
  FP4PA_RETURN_IF_FAILED(validate_given_strides(name, given));
  const Mxfp8Tensor t = with_strides(given, heads, head_dim);
  if (const Status s = validate_strides(
          name, {{{"token_stride", tokens, t.token_stride}, {"head_stride", heads, t.head_stride}}}, head_dim);
      s != Status::kOk) {
    return s;
  }
  return validate_strides(
      name, {{{"scale_token_stride", tokens, t.scale_token_stride}, {"scale_head_stride", heads, t.scale_head_stride}}},
      head_dim / 32);
}

[[nodiscard]] core::Mxfp8Rows rows_of(const Mxfp8Tensor& t) noexcept {
  return {static_cast<const std::uint8_t*>(t.codes),  t.token_stride,       t.head_stride,
          static_cast<const std::uint8_t*>(t.scales), t.scale_token_stride, t.scale_head_stride};
}

/// K or V as a tensor of a cache with one token a page.
[[nodiscard]] KvTensorDesc in_place(const Mxfp8Tensor& t) noexcept {
  KvTensorDesc d;
  d.format = KvFormat::kMxfp8;
  d.data = const_cast<void*>(t.codes);
  d.page_stride_bytes = t.token_stride;
  d.token_stride_bytes = t.token_stride;
  d.head_stride_bytes = t.head_stride;
  d.scales = const_cast<void*>(t.scales);
  d.scale_page_stride_bytes = t.scale_token_stride;
  d.scale_token_stride_bytes = t.scale_token_stride;
  d.scale_head_stride_bytes = t.scale_head_stride;
  return d;
}
[[nodiscard]] KvTensorDesc expanded(const Mxfp8AttentionConfig& c, void* data) noexcept {
  KvTensorDesc d;
  d.format = KvFormat::kBf16;
  d.data = data;
  d.page_stride_bytes = d.token_stride_bytes = 2 * row_elements(c);
  d.head_stride_bytes = 2 * std::int64_t{c.head_dim};
  return d;
}

[[nodiscard]] Status validate_choices(const Mxfp8AttentionConfig& c) noexcept {
  if (c.scale_layout != ScaleLayout::kLinear) {
    return fail(Status::kUnsupportedFormat, "scale_layout is %d%s; allowed: 0 (linear)",
                static_cast<int>(c.scale_layout), c.scale_layout == ScaleLayout::kBlocked ? " (blocked_128x4)" : "");
  }
  const int decode = static_cast<int>(c.decode);
  if (decode >= static_cast<int>(Mxfp8Decode::kAuto) && decode <= static_cast<int>(Mxfp8Decode::kOnce))
    return Status::kOk;
  return fail(Status::kInvalidArgument, "decode is %d; allowed: 0 (auto), 1 (per_tile), 2 (once)", decode);
}

/// Whether K and V are decoded once where nothing is asked for. A matrix core that takes the codes as they lie needs no decoding
/// of K at all, and where decoding has warps of its own it costs less than writing and reading 16 bits.
/// @param per_tile  the plan of the attention that reads the codes
[[nodiscard]] bool better_once(const Mxfp8AttentionConfig& c, const AttentionPlan& per_tile) noexcept {
  const std::int64_t rows = std::int64_t{c.limits.max_q_len} * (c.num_q_heads / c.num_kv_heads);
  return rows >= kManyQueries && !api::is_native(per_tile) && !api::decodes_aside(per_tile);
}

}  // namespace

Status plan_mxfp8_attention(const Mxfp8AttentionConfig& config, Mxfp8AttentionPlan* plan) noexcept {
  if (plan == nullptr) return fail(Status::kNullPointer, "plan is null; it must point to an Mxfp8AttentionPlan");
  if (const Status s = api::validate_limits(config.limits, config.head_dim, config.num_q_heads, config.num_kv_heads);
      s != Status::kOk) {
    return s;
  }
  FP4PA_RETURN_IF_FAILED(validate_choices(config));
  AttentionConfig paged = api::paged_config(config);
  paged.q_dtype = DType::kBF16;
  paged.cache.page_size = 1;
  paged.cache.num_pages = core::dense_pages(config.limits.max_kv_tokens, config.limits.max_batch, 1);
  const Mxfp8Tensor any =
      with_strides({api::memory_to_come(), 0, 0, api::memory_to_come(), 0, 0}, config.num_kv_heads, config.head_dim);
  AttentionPlan attention;
  if (config.decode != Mxfp8Decode::kOnce) {
    paged.cache.k = paged.cache.v = in_place(any);
    FP4PA_RETURN_IF_FAILED(api::plan_paged(paged, &attention));
  }
  const bool once = config.decode == Mxfp8Decode::kOnce || (config.decode == Mxfp8Decode::kAuto && better_once(config, attention));
  if (once) {
    paged.cache.k = paged.cache.v = expanded(config, api::memory_to_come());
    FP4PA_RETURN_IF_FAILED(api::plan_paged(paged, &attention));
  }
  const Mxfp8Decode decode = once ? Mxfp8Decode::kOnce : Mxfp8Decode::kPerTile;
  DensePlanAccess::fill(*plan, config, attention, layout_of(config, decode, attention).total);
  DensePlanAccess::set_decode(*plan, decode);
  return Status::kOk;
}

Status run_mxfp8_attention(const Mxfp8AttentionPlan& plan, const Mxfp8AttentionArgs& args) noexcept {
  const Mxfp8AttentionConfig& c = plan.config();
  const AttentionPlan& attention = DensePlanAccess::attention(plan);
  const api::Backend* const backend = api::backend_of(attention);
  FP4PA_RETURN_IF_FAILED(api::validate_run(plan, args, "plan_mxfp8_attention"));
  if (args.rows.batch == 0 || args.rows.q_tokens == 0) return Status::kOk;
  const std::int32_t q_tokens = args.rows.q_tokens;
  const std::int32_t kv_tokens = args.rows.kv_tokens;
  const Mxfp8Tensor q = with_strides(args.q, c.num_q_heads, c.head_dim);
  Mxfp8Tensor k = with_strides(args.k, c.num_kv_heads, c.head_dim);
  Mxfp8Tensor v = with_strides(args.v, c.num_kv_heads, c.head_dim);
  FP4PA_RETURN_IF_FAILED(validate_tensor("q", args.q, q_tokens, c.num_q_heads, c.head_dim));
  if (kv_tokens > 0) {
    FP4PA_RETURN_IF_FAILED(validate_tensor("k", args.k, kv_tokens, c.num_kv_heads, c.head_dim));
    FP4PA_RETURN_IF_FAILED(validate_tensor("v", args.v, kv_tokens, c.num_kv_heads, c.head_dim));
  } else {
    k = v = with_strides({api::memory_to_come(), 0, 0, api::memory_to_come(), 0, 0}, c.num_kv_heads, c.head_dim);
  }

  auto* const base = static_cast<std::uint8_t*>(args.workspace);
  const bool once = plan.decode() == Mxfp8Decode::kOnce;
  const Layout layout = layout_of(c, plan.decode(), attention);
  KvCacheDesc cache = attention.config().cache;
  cache.num_pages = core::dense_pages(kv_tokens, args.rows.batch, 1);
  cache.k = once ? expanded(c, base + layout.k) : in_place(k);
  cache.v = once ? expanded(c, base + layout.v) : in_place(v);
  const core::DenseTables tables = layout.tables.tables(base, cache.num_pages);
  AttentionArgs paged = api::paged_args(args, tables, attention.workspace_bytes());
  const bool codes = takes_codes(plan.decode(), attention);
  paged.q = codes ? q.codes : base + layout.q;
  FP4PA_RETURN_IF_FAILED(api::validate_run(attention, cache, paged, q_tokens));
  core::QueryScales q_scales{};
  if (codes) {  // whose strides were validated above, as this call's and not the plan's
    paged.q_token_stride = q.token_stride;
    paged.q_head_stride = q.head_stride;
    q_scales = {static_cast<const std::uint8_t*>(q.scales), q.scale_token_stride, q.scale_head_stride};
  }

  const ExecDesc exec{nullptr, args.stream, c.num_threads};
  const auto expand = [&](const Mxfp8Tensor& t, std::int32_t tokens, std::int32_t heads, std::size_t to) {
    return backend->dense->expand(rows_of(t), tokens, heads, c.head_dim, reinterpret_cast<std::uint16_t*>(base + to),
                                  exec);
  };
  if (const Status s = backend->dense->fill_tables(api::lengths_of(args.rows, plan.config().limits), tables, exec); s != Status::kOk)
    return s;
  if (!codes) {
    FP4PA_RETURN_IF_FAILED(expand(q, q_tokens, c.num_q_heads, layout.q));
  }
  if (once && kv_tokens > 0) {
    FP4PA_RETURN_IF_FAILED(expand(k, kv_tokens, c.num_kv_heads, layout.k));
    FP4PA_RETURN_IF_FAILED(expand(v, kv_tokens, c.num_kv_heads, layout.v));
  }
  return api::run_on(attention, cache, paged, q_scales);
}

}  // namespace fp4pa
