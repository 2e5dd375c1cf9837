// AttentionPlan: plan once, run with every call's tensors; and merge_states.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <variant>

#include "fp4pa/attention.hpp"
#include "python/src/bind.hpp"
#include "python/src/cache.hpp"
#include "python/src/error.hpp"
#include "python/src/names.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fp4pa::python {
namespace {

using AnyCache = std::variant<KvCache, TwoTierKvCache>;

/// A plan and the caches that it has the pointers of.
class PyAttentionPlan {
 public:
  PyAttentionPlan(AnyCache cache, AttentionConfig config, const std::optional<std::string>& backend) : cache_(std::move(cache)) {
    if (const auto* tiers = std::get_if<TwoTierKvCache>(&cache_)) {
      config.cache = tiers->desc().old_tier;
      config.two_tier = true;
      config.recent = tiers->desc().recent;
      config.window_tokens = tiers->desc().window_tokens;
      config.group_tokens = tiers->desc().group_tokens;
      config.ring_pages = tiers->desc().ring_pages;
    } else {
      config.cache = std::get<KvCache>(cache_).desc();
    }
    const std::string name = place().backend(backend);
    config.backend = name.c_str();
    check(fp4pa::plan(config, &plan_));
  }

  [[nodiscard]] Place place() const {
    return std::visit([](const auto& cache) { return cache.place(); }, cache_);
  }
  [[nodiscard]] const AttentionPlan& plan() const { return plan_; }

  void run(nb::handle q_given, nb::handle o_given, nb::handle qo_indptr_given, nb::handle seq_lens_given,
           nb::handle block_table_given, nb::handle kv_indptr_given, nb::handle kv_indices_given, nb::handle recent_table_given,
           nb::handle lse_given, nb::handle sinks_given, nb::handle slopes_given, nb::handle tree_given,
           nb::handle workspace_given, bool same_lengths, nb::handle stream) const {
    const AttentionConfig& config = plan_.config();
    const Place there = place();
    const Tensor q(q_given, "q"), o(o_given, "o", Access::kWrite), qo_indptr(qo_indptr_given, "qo_indptr"),
        seq_lens(seq_lens_given, "seq_lens");
    const std::optional<Tensor> block_table = optional_tensor(block_table_given, "block_table"),
                                kv_indptr = optional_tensor(kv_indptr_given, "kv_indptr"),
                                kv_indices = optional_tensor(kv_indices_given, "kv_indices"),
                                recent_table = optional_tensor(recent_table_given, "recent_table"),
                                lse = optional_tensor(lse_given, "lse", Access::kWrite),
                                sinks = optional_tensor(sinks_given, "sinks"),
                                slopes = optional_tensor(slopes_given, "alibi_slopes"),
                                tree = optional_tensor(tree_given, "tree_mask"),
                                workspace = optional_tensor(workspace_given, "workspace", Access::kWrite);
    const std::int64_t heads = config.num_q_heads, head_dim = config.cache.head_dim;
    there.also(q.is_shape({-1, heads, head_dim}, "[tokens, num_q_heads, head_dim]").is_dtype(config.q_dtype).has_rows());
    const std::int64_t tokens = q.extent(0);
    there.also(o.is_shape({tokens, heads, head_dim}, "[tokens, num_q_heads, head_dim]").is_dtype(config.o_dtype).has_rows());
    there.also(seq_lens.is_shape({-1}, "[batch]").is_int32().is_dense());
    const std::int64_t batch = seq_lens.extent(0);
    there.also(qo_indptr.is_shape({batch + 1}, "[batch + 1]").is_int32().is_dense());

    AttentionArgs args;
    if (config.table_kind == TableKind::kBlockTable) {
      if (!block_table || kv_indptr || kv_indices) {
        refuse("the plan's table_kind is \"block_table\"", "block_table, and neither kv_indptr nor kv_indices");
      }
      there.also(block_table->is_shape({batch, -1}, "[batch, pages]").is_int32().has_rows().moves_along(0));
      args.block_table = static_cast<const std::int32_t*>(block_table->data());
      args.table_stride = block_table->extent(1) == 0 ? 0 : block_table->stride(0);
    } else {
      if (block_table || !kv_indptr || !kv_indices) {
        refuse("the plan's table_kind is \"csr\"", "kv_indptr and kv_indices, and no block_table");
      }
      there.also(kv_indptr->is_shape({batch + 1}, "[batch + 1]").is_int32().is_dense());
      there.also(kv_indices->is_shape({-1}, "[pages]").is_int32().is_dense());
      args.kv_indptr = static_cast<const std::int32_t*>(kv_indptr->data());
      args.kv_indices = static_cast<const std::int32_t*>(kv_indices->data());
    }
    if (recent_table) {
      there.also(recent_table->is_shape({batch, config.ring_pages}, "[batch, ring_pages]").is_int32().is_dense());
      args.recent_table = static_cast<const std::int32_t*>(recent_table->data());
    }
    if (lse) {
      there.also(lse->is_shape({tokens, heads}, "[tokens, num_q_heads]").is_dtype(DType::kF32).is_dense());
      args.lse = static_cast<float*>(lse->data());
    }
    expect_if(config.sinks, sinks.has_value(), "sinks");
    expect_if(config.alibi, slopes.has_value(), "alibi_slopes");
    expect_if(config.tree_mask, tree.has_value(), "tree_mask");
    for (const auto* per_head : {&sinks, &slopes}) {
      if (*per_head) there.also((*per_head)->is_shape({heads}, "[num_q_heads]").is_dtype(DType::kF32).is_dense());
    }
    if (tree) there.also(tree->is_shape({tokens}, "[tokens]").is_uint64().is_dense());
    if (sinks) args.sinks = static_cast<const float*>(sinks->data());
    if (slopes) args.alibi_slopes = static_cast<const float*>(slopes->data());
    if (tree) args.tree_mask = static_cast<const std::uint64_t*>(tree->data());
    if (q.device() == Device::kHost) check_ends(qo_indptr, seq_lens, tokens, block_table, kv_indptr, kv_indices);

    args.q = q.data();
    args.o = o.data();
    args.q_token_stride = rows_of(q).token_stride;
    args.q_head_stride = rows_of(q).head_stride;
    args.o_token_stride = rows_of(o).token_stride;
    args.o_head_stride = rows_of(o).head_stride;
    args.batch = int32_of(batch, "batch");
    args.qo_indptr = static_cast<const std::int32_t*>(qo_indptr.data());
    args.seq_lens = static_cast<const std::int32_t*>(seq_lens.data());
    set_workspace(args, workspace, there);
    args.stream = there.stream(stream);
    args.same_lengths = same_lengths;
    check_unlocked([&] { return fp4pa::run(plan_, args); });
  }

 private:
  /// The library is told by tables alone how many rows Q has, and by strides how many pages a row of the table; what the tensors have
  /// is known here, and looked at where the tables can be read.
  void check_ends(const Tensor& qo_indptr, const Tensor& seq_lens, std::int64_t tokens, const std::optional<Tensor>& block_table,
                  const std::optional<Tensor>& kv_indptr, const std::optional<Tensor>& kv_indices) const {
    const std::int64_t batch = seq_lens.extent(0);
    const auto* const first_rows = static_cast<const std::int32_t*>(qo_indptr.data());
    qo_indptr.ends_within(tokens, "rows of q");
    if (kv_indptr) kv_indptr->ends_within(kv_indices->extent(0), "pages of kv_indices");
    if (!block_table) return;
    for (std::int64_t b = 0; b < batch; ++b) {
      if (first_rows[b] == first_rows[b + 1]) continue;  // nobody asks
      const std::int32_t length = static_cast<const std::int32_t*>(seq_lens.data())[b];
      const auto* tiers = std::get_if<TwoTierKvCache>(&cache_);
      const std::int64_t page_size = plan_.config().cache.page_size;
      block_table->has_pages(b, tiers != nullptr ? old_tier_pages(tiers->desc(), length) : (length + page_size - 1) / page_size);
    }
  }
  static void expect_if(bool planned, bool given, const char* name) {
    if (planned == given) return;
    if (planned) refuse(std::string(name) + " is None, and the plan was made with it", "a tensor");
    refuse(std::string(name) + " is given, and the plan was made without it", "None");
  }

  AnyCache cache_;
  AttentionPlan plan_;
};

void merge(nb::handle oa_given, nb::handle la_given, nb::handle ob_given, nb::handle lb_given, nb::handle o_given,
           nb::handle l_given, const std::optional<std::string>& backend, nb::handle stream, std::int32_t num_threads) {
  const Tensor oa(oa_given, "oa"), la(la_given, "lse_a"), ob(ob_given, "ob"), lb(lb_given, "lse_b"),
      o(o_given, "o", Access::kWrite), l(l_given, "lse", Access::kWrite);
  const Place place(oa);
  const DType type = oa.dtype();
  oa.is_shape({-1, -1, -1}, "[tokens, heads, head_dim]");
  const std::int64_t tokens = oa.extent(0), heads = oa.extent(1), head_dim = oa.extent(2);
  for (const Tensor* t : {&oa, &ob, &o})
    place.also(t->is_shape({tokens, heads, head_dim}, "[tokens, heads, head_dim]").is_dtype(type).is_dense());
  for (const Tensor* t : {&la, &lb, &l})
    place.also(t->is_shape({tokens, heads}, "[tokens, heads]").is_dtype(DType::kF32).is_dense());
  run_there(place, {backend, stream, num_threads}, [&](const ExecDesc& exec) {
    return merge_states(oa.data(), static_cast<const float*>(la.data()), ob.data(), static_cast<const float*>(lb.data()),
                        o.data(), static_cast<float*>(l.data()), type, tokens * heads, int32_of(head_dim, "head_dim"), exec);
  });
}

}  // namespace

void bind_attention(nb::module_& m) {
  nb::class_<PyAttentionPlan>(m, "AttentionPlan",
                              R"(A validated configuration of paged attention with its partition; run() computes.

cache: KvCache or TwoTierKvCache, which the plan keeps. Each layer of a model has a plan of its own, because a plan holds its cache's pointers.
num_q_heads: a multiple of num_kv_heads; query head h reads KV head h / (num_q_heads / num_kv_heads).
max_batch, max_q_tokens, max_q_len, max_kv_len: the largest call: sequences, query tokens of all, query tokens of one, keys of one.
q_dtype, o_dtype: "f32", "f16" or "bf16".
sm_scale: multiplies Q K^T; 0 is 1 / sqrt(head_dim).
causal: aligned to the end, query i of n sees keys 0 .. len - n + i.
sliding_window: a query sees at most this many of its newest visible keys; 0 is all.
softcap: logits become softcap * tanh(logit / softcap); 0 is off.
sinks, alibi, tree_mask: whether run() gets sinks, alibi_slopes, tree_mask.
table_kind: "block_table" or "csr".
batch_invariant: a sequence's result does not depend on the rest of the batch. kv_split_tokens: force splits of this many keys; 0 balances.
matrix_path: "auto", "native" (FP4 matrix cores, or refused) or "decode".
validate: on a GPU, check lengths and page ids in every run, which waits for the stream.
backend, num_threads: as append's.
Raises Error with the value that the library refuses.)")
      .def(
          "__init__",
          [](PyAttentionPlan* self, AnyCache cache, std::int64_t num_q_heads, std::int64_t max_batch, std::int64_t max_q_tokens,
             std::int64_t max_q_len, std::int64_t max_kv_len, const std::string& q_dtype, const std::string& o_dtype,
             double sm_scale, bool causal, std::int64_t sliding_window, double softcap, bool sinks, bool alibi, bool tree_mask,
             const std::string& kind, bool batch_invariant, std::int64_t kv_split_tokens, const std::string& path, bool validate,
             const std::optional<std::string>& backend, std::int64_t num_threads) {
            AttentionConfig config;
            config.num_q_heads = int32_of(num_q_heads, "num_q_heads");
            config.max_batch = int32_of(max_batch, "max_batch");
            config.max_q_tokens = int32_of(max_q_tokens, "max_q_tokens");
            config.max_q_len = int32_of(max_q_len, "max_q_len");
            config.max_kv_len = int32_of(max_kv_len, "max_kv_len");
            config.q_dtype = dtype(q_dtype, "q_dtype");
            config.o_dtype = dtype(o_dtype, "o_dtype");
            config.sm_scale = float_of(sm_scale, "sm_scale");
            config.causal = causal;
            config.sliding_window = int32_of(sliding_window, "sliding_window");
            config.softcap = float_of(softcap, "softcap");
            config.sinks = sinks;
            config.alibi = alibi;
            config.tree_mask = tree_mask;
            config.table_kind = table_kind(kind);
            config.batch_invariant = batch_invariant;
            config.kv_split_tokens = int32_of(kv_split_tokens, "kv_split_tokens");
            config.matrix_path = matrix_path(path);
            config.validate_device_data = validate;
            config.num_threads = int32_of(num_threads, "num_threads");
            new (self) PyAttentionPlan(std::move(cache), config, backend);
          },
          "cache"_a, "num_q_heads"_a, nb::kw_only(), "max_batch"_a, "max_q_tokens"_a, "max_q_len"_a, "max_kv_len"_a,
          "q_dtype"_a = "bf16", "o_dtype"_a = "bf16", "sm_scale"_a = 0.0, "causal"_a = true, "sliding_window"_a = 0,
          "softcap"_a = 0.0, "sinks"_a = false, "alibi"_a = false, "tree_mask"_a = false, "table_kind"_a = "block_table",
          "batch_invariant"_a = false, "kv_split_tokens"_a = 0, "matrix_path"_a = "auto", "validate"_a = false,
          "backend"_a = nb::none(), "num_threads"_a = 0)
      .def("run", &PyAttentionPlan::run, "q"_a, "o"_a, nb::kw_only(), "qo_indptr"_a, "seq_lens"_a, "block_table"_a = nb::none(),
           "kv_indptr"_a = nb::none(), "kv_indices"_a = nb::none(), "recent_table"_a = nb::none(), "lse"_a = nb::none(),
           "sinks"_a = nb::none(), "alibi_slopes"_a = nb::none(), "tree_mask"_a = nb::none(), "workspace"_a = nb::none(),
           "same_lengths"_a = false, "stream"_a = nb::none(),
           R"(O = softmax(sm_scale Q K^T + masks) V. On a GPU it enqueues and returns, and can be captured in a graph.

q, o: [tokens, num_q_heads, head_dim] of the plan's dtypes; rows of a token contiguous, other strides free. o may not alias an input.
qo_indptr: [batch + 1] int32: sequence b has queries qo_indptr[b] .. qo_indptr[b + 1] - 1, its last tokens.
seq_lens: [batch] int32, keys of each sequence, its queries included.
block_table: [batch, pages] int32 page ids; or, with table_kind="csr", kv_indptr [batch + 1] and kv_indices [pages] int32.
recent_table: [batch, ring_pages] int32, with a TwoTierKvCache.
lse: [tokens, num_q_heads] float32, written where given: natural log, -inf where nothing is seen.
sinks, alibi_slopes: [num_q_heads] float32. tree_mask: [tokens] uint64 or int64, bit j: this query sees its sequence's query j.
workspace: at least workspace_bytes; one for each stream.
same_lengths: your promise that batch, qo_indptr and seq_lens are those of the last run with this workspace (fp4pa/attention.hpp).
On a GPU lengths and page ids are trusted unless the plan validates.)")
      .def_prop_ro(
          "workspace_bytes", [](const PyAttentionPlan& p) { return with_alignment(p.plan().workspace_bytes()); },
          "Bytes of workspace for run(), wherever it starts: 255 more than C and C++ need of memory that is aligned.")
      .def_prop_ro("backend", [](const PyAttentionPlan& p) { return p.plan().backend(); })
      .def_prop_ro(
          "num_workers", [](const PyAttentionPlan& p) { return p.plan().num_workers(); },
          "CPU threads, or resident blocks, that share the work.");

  m.def("merge_states", &merge, "oa"_a, "lse_a"_a, "ob"_a, "lse_b"_a, "o"_a, "lse"_a, nb::kw_only(), "backend"_a = nb::none(),
        "stream"_a = nb::none(), "num_threads"_a = 0,
        R"(Merges two partial results over disjoint keys into o and lse, which may be either input.

oa, ob, o: [tokens, heads, head_dim] of one dtype; lse_a, lse_b, lse: [tokens, heads] float32, natural log. All contiguous.)");
}

}  // namespace fp4pa::python
