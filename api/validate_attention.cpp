#include "api/validate_attention.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <utility>

#include "api/attention_params.hpp"
#include "api/error.hpp"
#include "api/row_strides.hpp"
#include "api/saturating.hpp"
#include "api/validate.hpp"
#include "api/workspace.hpp"
#include "core/schedule/partition.hpp"

namespace fp4pa::api {
namespace {

Status check(bool ok, Status status, const char* format, auto... values) {
  return ok ? Status::kOk : fail(status, format, values...);
}

/// A recent tier that is described and not read would leave the newest tokens out.
Status validate_one_tier(const AttentionConfig& c) {
  for (const auto& [name, tokens] :
       {std::pair{"window_tokens", c.window_tokens}, {"group_tokens", c.group_tokens}, {"ring_pages", c.ring_pages}}) {
    FP4PA_RETURN_IF_FAILED(check(tokens == 0, Status::kInvalidArgument,
                                 "%s is %d without a recent tier; allowed: 0, or two_tier with recent", name, tokens));
  }
  const bool described = c.recent.k.data != nullptr || c.recent.v.data != nullptr;
  FP4PA_RETURN_IF_FAILED(check(!described, Status::kInvalidArgument, "recent has memory and two_tier is %d; allowed: 1, or an empty recent", 0));
  return fp4pa::validate(c.cache);
}
Status validate_tiers(const AttentionConfig& c) {
  if (!c.two_tier) return validate_one_tier(c);
  TwoTierDesc desc{c.cache, c.recent, c.window_tokens, c.group_tokens, c.ring_pages};
  return fp4pa::validate(desc);
}

Status validate_masks(const AttentionConfig& c) {
  FP4PA_RETURN_IF_FAILED(check(c.sliding_window >= 0, Status::kInvalidArgument,
                               "sliding_window is %d; allowed: 0 (all keys) or a positive number of keys", c.sliding_window));
  FP4PA_RETURN_IF_FAILED(check(c.sliding_window == 0 || c.causal, Status::kInvalidArgument,
                               "sliding_window is %d without causal; a window needs causal = true", c.sliding_window));
  // Both are multiplied by log2(e), and softcap's reciprocal is taken: none of these may leave the normal numbers. NaN fails.
  FP4PA_RETURN_IF_FAILED(check(c.softcap == 0.0f || (c.softcap >= 0x1p-126f && c.softcap <= 0x1p126f), Status::kInvalidArgument,
                               "softcap is %g; allowed: 0 (off) or 2^-126 to 2^126", static_cast<double>(c.softcap)));
  const float magnitude = std::abs(c.sm_scale);
  FP4PA_RETURN_IF_FAILED(check(c.sm_scale == 0.0f || (magnitude >= 0x1p-126f && magnitude <= 0x1p126f), Status::kInvalidArgument,
                               "sm_scale is %g; allowed: 0 (1 / sqrt(head_dim)), 2^-126 to 2^126 or -2^126 to -2^-126",
                               static_cast<double>(c.sm_scale)));
  if (!c.tree_mask) return Status::kOk;
  FP4PA_RETURN_IF_FAILED(check(c.max_q_len <= 64, Status::kInvalidArgument,
                               "tree_mask with max_q_len %d; allowed: up to 64 query tokens of a sequence", c.max_q_len));
  // Queries are not as far apart as their indices say. A window counts from a query's depth, and must not end within the tree; ALiBi
  // would need the depth of every key.
  FP4PA_RETURN_IF_FAILED(check(c.sliding_window == 0 || c.sliding_window >= c.max_q_len, Status::kInvalidArgument,
                               "tree_mask with sliding_window %d; allowed: 0, or at least max_q_len = %d", c.sliding_window, c.max_q_len));
  return check(!c.alibi, Status::kInvalidArgument, "tree_mask with alibi = %d; allowed: 0", 1);
}

/// Bytes of the states of all parts, as workspace_layout counts them for the largest tile of rows of any kernel, or kSaturated.
std::int64_t most_partial_bytes(const AttentionConfig& c) {
  constexpr std::int64_t kMostTileRows = 256;
  const std::int64_t split = std::int64_t{split_tiles(c)} * core::kScheduleTokens;
  if (split == 0) return 0;
  const std::int64_t rows = std::int64_t{c.max_q_tokens} * (c.num_q_heads / c.cache.num_kv_heads) + c.max_batch * kMostTileRows;
  const std::int64_t pieces = (c.max_kv_len + split - 1) / split;
  return saturating_mul(saturating_mul(rows, saturating_mul(c.cache.num_kv_heads, pieces)), 4 * (std::int64_t{c.cache.head_dim} + 2));
}

Status validate_sizes(const AttentionConfig& c) {
  FP4PA_RETURN_IF_FAILED(check(c.num_q_heads > 0 && c.num_q_heads % c.cache.num_kv_heads == 0, Status::kInvalidHeads,
                               "num_q_heads is %d; allowed: positive multiples of num_kv_heads %d", c.num_q_heads,
                               c.cache.num_kv_heads));
  FP4PA_RETURN_IF_FAILED(validate_dtype("q_dtype", c.q_dtype));
  FP4PA_RETURN_IF_FAILED(validate_dtype("o_dtype", c.o_dtype));
  FP4PA_RETURN_IF_FAILED(check(c.max_batch > 0 && c.max_batch <= 1 << 20, Status::kInvalidSize,
                               "max_batch is %d; allowed: 1 to %d", c.max_batch, 1 << 20));
  FP4PA_RETURN_IF_FAILED(check(c.max_q_tokens > 0, Status::kInvalidSize,
                               "max_q_tokens is %d; allowed: a positive number of tokens", c.max_q_tokens));
  FP4PA_RETURN_IF_FAILED(check(c.max_q_len > 0 && c.max_q_len <= c.max_q_tokens, Status::kInvalidSize,
                               "max_q_len is %d; allowed: 1 to max_q_tokens %d", c.max_q_len, c.max_q_tokens));
  // Scheduling counts in 64 bits, positions in 32: leave room for a tile past the end.
  FP4PA_RETURN_IF_FAILED(check(c.max_kv_len >= 0 && c.max_kv_len <= (1 << 30), Status::kInvalidSize,
                               "max_kv_len is %d; allowed: 0 to %d", c.max_kv_len, 1 << 30));
  FP4PA_RETURN_IF_FAILED(check(std::int64_t{c.max_q_tokens} * c.num_q_heads <= INT32_MAX, Status::kInvalidSize,
                               "max_q_tokens %d times num_q_heads %d passes %d rows", c.max_q_tokens, c.num_q_heads,
                               INT32_MAX));
  FP4PA_RETURN_IF_FAILED(check(c.kv_split_tokens >= 0 && c.kv_split_tokens % core::kScheduleTokens == 0,
                               Status::kInvalidArgument, "kv_split_tokens is %d; allowed: 0 or a multiple of %d",
                               c.kv_split_tokens, core::kScheduleTokens));
  FP4PA_RETURN_IF_FAILED(check(most_partial_bytes(c) <= kMostBytes, Status::kInvalidSize,
                               "parts of %d tokens: max_batch %d, num_kv_heads %d, max_q_tokens %d and max_kv_len %d may make more of them "
                               "than memory holds; allowed: what fits the address space",
                               split_tiles(c) * core::kScheduleTokens, c.max_batch, c.cache.num_kv_heads, c.max_q_tokens, c.max_kv_len));
  FP4PA_RETURN_IF_FAILED(check(c.num_threads >= 0 && c.num_threads <= 4096, Status::kInvalidArgument,
                               "num_threads is %d; allowed: 0 (automatic) to 4096", c.num_threads));
  FP4PA_RETURN_IF_FAILED(check(c.matrix_path == MatrixPath::kAuto || c.matrix_path == MatrixPath::kNative ||
                                   c.matrix_path == MatrixPath::kDecode,
                               Status::kInvalidArgument, "matrix_path is %d; allowed: 0 (auto), 1 (native), 2 (decode)",
                               static_cast<int>(c.matrix_path)));
  return check(c.table_kind == TableKind::kBlockTable || c.table_kind == TableKind::kCsr, Status::kInvalidArgument,
               "table_kind is %d; allowed: 0 (block table), 1 (CSR)", static_cast<int>(c.table_kind));
}

/// Strides of q or o, in elements.
struct NamedStrides : RowStrides {
  const char* name;
};
NamedStrides named_strides(const char* name, std::int64_t token, std::int64_t head, const AttentionConfig& c) {
  return {with_dense_defaults({token, head}, c.num_q_heads, c.cache.head_dim), name};
}
NamedStrides q_strides(const AttentionConfig& c, const AttentionArgs& a) { return named_strides("q", a.q_token_stride, a.q_head_stride, c); }
NamedStrides o_strides(const AttentionConfig& c, const AttentionArgs& a) { return named_strides("o", a.o_token_stride, a.o_head_stride, c); }

/// From the first to behind the last of `count` rows; saturating, because nobody has checked the strides yet.
std::int64_t span(std::int64_t count, std::int64_t stride, const AttentionConfig& c) {
  return saturating_add(saturating_mul(count - 1, stride), c.cache.head_dim);
}

/// Query tokens whose rows of all heads do not overlap: any number where a token's heads lie within its stride, or as many as lie within a
/// head's; 0: not even one token's.
std::int64_t tokens_apart(const RowStrides& s, const AttentionConfig& c) {
  if (s.head < c.cache.head_dim || s.token < c.cache.head_dim) return 0;
  if (s.token >= span(c.num_q_heads, s.head, c)) return kSaturated;
  return (s.head - c.cache.head_dim) / s.token + 1;
}

Status validate_strides(const NamedStrides& s, const AttentionConfig& c) {
  const std::int64_t apart = tokens_apart(s, c);
  const std::int64_t tokens = apart < c.max_q_tokens ? apart : c.max_q_tokens;
  const bool addressable =  // in bytes, too
      apart > 0 && saturating_add(span(c.num_q_heads, s.head, c), span(tokens, s.token, c)) <= kMostBytes / 4;
  return check(addressable, Status::kInvalidStrides,
               "%s has token stride %" PRId64 " and head stride %" PRId64
               " (elements); allowed: strides whose rows of %d elements do not overlap and can be addressed",
               s.name, s.token, s.head, c.cache.head_dim);
}

/// Of what a call hands in, what is not empty: true where only the device could tell. Empty tensors may be null.
struct Contents {
  bool queries = true;
  bool keys = true;   // that a query may see
  bool pages = true;  // of the page table, likewise
};
Contents contents_of(const AttentionConfig& c, const AttentionArgs& a) {
  const auto not_zero = [](std::int32_t x) { return x != 0; };
  const bool queries = std::any_of(a.qo_indptr, a.qo_indptr + a.batch + 1, not_zero);  // all of it: nobody has checked the order
  bool keys = false, pages = false;
  for (std::int32_t b = 0; b < a.batch && !pages; ++b) {
    const std::int32_t length = a.seq_lens[b];
    if (a.qo_indptr[b] == a.qo_indptr[b + 1] || length == 0) continue;
    keys = true;
    pages = !c.two_tier || quantised_tokens(length, c.window_tokens, c.group_tokens) != 0;
  }
  return {queries, keys, pages};
}

}  // namespace

Status validate(const AttentionConfig& c) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_tiers(c));
  FP4PA_RETURN_IF_FAILED(validate_sizes(c));
  return validate_masks(c);
}

Status validate(const AttentionConfig& c, std::size_t workspace_bytes, const AttentionArgs& a, bool on_host) noexcept {
  FP4PA_RETURN_IF_FAILED(check(a.batch >= 0 && a.batch <= c.max_batch, Status::kPlanMismatch,
                               "batch is %d; allowed: 0 to the plan's max_batch %d", a.batch, c.max_batch));
  if (a.batch == 0) return Status::kOk;
  FP4PA_RETURN_IF_FAILED(validate_pointer("qo_indptr", a.qo_indptr, 4));
  FP4PA_RETURN_IF_FAILED(validate_pointer("seq_lens", a.seq_lens, 4));
  const Contents has = on_host ? contents_of(c, a) : Contents{};
  if (has.queries || a.q != nullptr) FP4PA_RETURN_IF_FAILED(validate_pointer("q", a.q, 16));
  if (has.queries || a.o != nullptr) FP4PA_RETURN_IF_FAILED(validate_pointer("o", a.o, 16));
  if (a.lse != nullptr) FP4PA_RETURN_IF_FAILED(validate_pointer("lse", a.lse, 4));
  if (c.table_kind == TableKind::kCsr) {
    if (has.keys || a.kv_indptr != nullptr) FP4PA_RETURN_IF_FAILED(validate_pointer("kv_indptr", a.kv_indptr, 4));
    if (has.keys || a.kv_indices != nullptr) FP4PA_RETURN_IF_FAILED(validate_pointer("kv_indices", a.kv_indices, 4));
  } else if (has.pages || (a.block_table != nullptr && a.table_stride != 0)) {
    FP4PA_RETURN_IF_FAILED(validate_pointer("block_table", a.block_table, 4));
    FP4PA_RETURN_IF_FAILED(check(a.table_stride > 0, Status::kInvalidSize,
                                 "table_stride is %" PRId64 "; allowed: a positive number of pages", a.table_stride));
    FP4PA_RETURN_IF_FAILED(validate_table_stride("table_stride", a.table_stride, a.batch));
  }
  if (c.two_tier) {
    if (has.keys || a.recent_table != nullptr) FP4PA_RETURN_IF_FAILED(validate_pointer("recent_table", a.recent_table, 4));
  } else {
    FP4PA_RETURN_IF_FAILED(check(a.recent_table == nullptr, Status::kInvalidArgument,
                                 "recent_table is set and the plan's two_tier is %d; allowed: null, or a plan with two tiers", 0));
  }
  if (c.sinks) FP4PA_RETURN_IF_FAILED(validate_pointer("sinks", a.sinks, 4));
  if (c.alibi) FP4PA_RETURN_IF_FAILED(validate_pointer("alibi_slopes", a.alibi_slopes, 4));
  if (c.tree_mask && (has.queries || a.tree_mask != nullptr)) FP4PA_RETURN_IF_FAILED(validate_pointer("tree_mask", a.tree_mask, 8));
  FP4PA_RETURN_IF_FAILED(validate_strides(q_strides(c, a), c));
  FP4PA_RETURN_IF_FAILED(validate_strides(o_strides(c, a), c));
  FP4PA_RETURN_IF_FAILED(validate_pointer("workspace", a.workspace, kWorkspaceAlignment));
  return check(a.workspace_bytes >= workspace_bytes, Status::kWorkspaceTooSmall,
               "workspace_bytes is %zu; the plan needs at least %zu", a.workspace_bytes, workspace_bytes);
}

std::int64_t tokens_apart(const AttentionConfig& c, const AttentionArgs& a) noexcept {
  return std::min(tokens_apart(q_strides(c, a), c), tokens_apart(o_strides(c, a), c));
}

Status validate_tokens(const AttentionConfig& c, const AttentionArgs& a, std::int64_t tokens) noexcept {
  for (const NamedStrides& s : {q_strides(c, a), o_strides(c, a)}) {
    const std::int64_t apart = tokens_apart(s, c);
    FP4PA_RETURN_IF_FAILED(check(tokens <= apart, Status::kInvalidStrides,
                                 "%s has token stride %" PRId64 " and head stride %" PRId64
                                 " (elements), so that rows of %d elements overlap beyond %" PRId64 " query tokens; the call has %" PRId64
                                 "; allowed: up to that many, or all heads of a token within its token stride",
                                 s.name, s.token, s.head, c.cache.head_dim, apart, tokens));
  }
  return Status::kOk;
}

}  // namespace fp4pa::api
