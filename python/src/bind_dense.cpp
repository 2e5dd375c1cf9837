// Attention over contiguous tensors: DenseAttentionPlan quantises K and V on the way, Mxfp8AttentionPlan takes all three in MXFP8.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <utility>

#include "fp4pa/dense_attention.hpp"
#include "python/src/bind.hpp"
#include "python/src/error.hpp"
#include "python/src/exec.hpp"
#include "python/src/names.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fp4pa::python {
namespace {

/// What run() of both plans shares: rows of sequences, O, LSE, workspace and stream.
struct Call {
  std::optional<Tensor> q_indptr, kv_indptr, lse, workspace;

  Call(nb::handle q_given, nb::handle kv_given, nb::handle lse_given, nb::handle workspace_given)
      : q_indptr(optional_tensor(q_given, "q_indptr")),
        kv_indptr(optional_tensor(kv_given, "kv_indptr")),
        lse(optional_tensor(lse_given, "lse", Access::kWrite)),
        workspace(optional_tensor(workspace_given, "workspace", Access::kWrite)) {}

  [[nodiscard]] DenseBatch rows(std::int32_t batch, std::int64_t q_tokens, std::int64_t kv_tokens, const Place& place) const {
    DenseBatch rows;
    rows.batch = batch;
    rows.q_tokens = int32_of(q_tokens, "q's number of rows");
    rows.kv_tokens = int32_of(kv_tokens, "k's number of rows");
    for (const auto* indptr : {&q_indptr, &kv_indptr}) {
      if (*indptr) place.also((*indptr)->is_shape({std::int64_t{batch} + 1}, "[batch + 1]").is_int32().is_dense());
    }
    if (q_indptr) rows.q_indptr = static_cast<const std::int32_t*>(q_indptr->data());
    if (kv_indptr) rows.kv_indptr = static_cast<const std::int32_t*>(kv_indptr->data());
    return rows;
  }
  [[nodiscard]] float* lse_data(std::int64_t tokens, std::int64_t heads, const Place& place) const {
    if (!lse) return nullptr;
    place.also(lse->is_shape({tokens, heads}, "[q_tokens, num_q_heads]").is_dtype(DType::kF32).is_dense());
    return static_cast<float*>(lse->data());
  }
};

DenseLimits limits_of(std::int64_t max_batch, std::int64_t max_q_tokens, std::int64_t max_q_len, std::int64_t max_kv_tokens,
                      std::int64_t max_kv_len) {
  return {int32_of(max_batch, "max_batch"), int32_of(max_q_tokens, "max_q_tokens"), int32_of(max_q_len, "max_q_len"),
          int32_of(max_kv_tokens, "max_kv_tokens"), int32_of(max_kv_len, "max_kv_len")};
}

const Tensor& check_rows(const Tensor& t, std::int64_t heads, std::int64_t row, const char* wanted) {
  return t.is_shape({-1, heads, row}, wanted).has_rows();
}

class PyDensePlan {
 public:
  PyDensePlan(DenseAttentionConfig config, const std::optional<std::string>& backend) {
    config.backend = backend ? backend->c_str() : nullptr;  // nothing of a call is known yet
    check(plan_dense_attention(config, &plan_));
  }
  [[nodiscard]] const DenseAttentionPlan& plan() const { return plan_; }

  void run(nb::handle q_given, nb::handle k_given, nb::handle v_given, nb::handle o_given, std::int32_t batch,
           nb::handle q_indptr, nb::handle kv_indptr, nb::handle lse, nb::handle workspace, nb::handle stream) const {
    const DenseAttentionConfig& config = plan_.config();
    const Tensor q(q_given, "q"), k(k_given, "k"), v(v_given, "v"), o(o_given, "o", Access::kWrite);
    const Call call(q_indptr, kv_indptr, lse, workspace);
    const Place place(q);
    (void)place.backend(std::string(plan_.backend()));
    check_rows(q, config.num_q_heads, config.head_dim, "[q_tokens, num_q_heads, head_dim]").is_dtype(config.q_dtype);
    place.also(o.is_shape({q.extent(0), config.num_q_heads, config.head_dim}, "[q_tokens, num_q_heads, head_dim]")
                   .is_dtype(config.o_dtype)
                   .has_rows());
    place.also(
        check_rows(k, config.num_kv_heads, config.head_dim, "[kv_tokens, num_kv_heads, head_dim]").is_dtype(config.kv_dtype));
    place.also(v.is_shape({k.extent(0), config.num_kv_heads, config.head_dim}, "[kv_tokens, num_kv_heads, head_dim]")
                   .is_dtype(config.kv_dtype)
                   .has_rows());
    DenseAttentionArgs args;
    args.q = q.data();
    args.q_token_stride = rows_of(q).token_stride;
    args.q_head_stride = rows_of(q).head_stride;
    args.k = {k.data(), config.kv_dtype, rows_of(k).token_stride, rows_of(k).head_stride};
    args.v = {v.data(), config.kv_dtype, rows_of(v).token_stride, rows_of(v).head_stride};
    args.o = o.data();
    args.o_token_stride = rows_of(o).token_stride;
    args.o_head_stride = rows_of(o).head_stride;
    args.lse = call.lse_data(q.extent(0), config.num_q_heads, place);
    args.rows = call.rows(batch, q.extent(0), k.extent(0), place);
    set_workspace(args, call.workspace, place);
    args.stream = place.stream(stream);
    check_unlocked([&] { return run_dense_attention(plan_, args); });
  }

 private:
  DenseAttentionPlan plan_;
};

/// Codes and scales of one of MXFP8's tensors.
class Mxfp8 {
 public:
  Mxfp8(const std::pair<nb::object, nb::object>& given, const char* codes_name, const char* scales_name)
      : codes_(given.first, codes_name), scales_(given.second, scales_name) {}

  [[nodiscard]] Mxfp8Tensor describe(std::int64_t heads, std::int64_t head_dim, const Place& place) const {
    place.also(check_rows(codes_, heads, head_dim, "[tokens, heads, head_dim]").is_bytes());
    place.also(
        scales_.is_shape({codes_.extent(0), heads, head_dim / 32}, "[tokens, heads, head_dim / 32]").is_bytes().has_rows());
    Mxfp8Tensor t;
    t.codes = codes_.data();
    t.token_stride = rows_of(codes_).token_stride;
    t.head_stride = rows_of(codes_).head_stride;
    t.scales = scales_.data();
    t.scale_token_stride = rows_of(scales_).token_stride;
    t.scale_head_stride = rows_of(scales_).head_stride;
    return t;
  }
  [[nodiscard]] const Tensor& codes() const { return codes_; }

 private:
  Tensor codes_, scales_;
};

class PyMxfp8Plan {
 public:
  PyMxfp8Plan(Mxfp8AttentionConfig config, const std::optional<std::string>& backend) {
    config.backend = backend ? backend->c_str() : nullptr;  // nothing of a call is known yet
    check(plan_mxfp8_attention(config, &plan_));
  }
  [[nodiscard]] const Mxfp8AttentionPlan& plan() const { return plan_; }

  using Pair = std::pair<nb::object, nb::object>;
  void run(const Pair& q_given, const Pair& k_given, const Pair& v_given, nb::handle o_given, std::int32_t batch,
           nb::handle q_indptr, nb::handle kv_indptr, nb::handle lse, nb::handle workspace, nb::handle stream) const {
    const Mxfp8AttentionConfig& config = plan_.config();
    const Mxfp8 q(q_given, "q's codes", "q's scales"), k(k_given, "k's codes", "k's scales"),
        v(v_given, "v's codes", "v's scales");
    const Tensor o(o_given, "o", Access::kWrite);
    const Call call(q_indptr, kv_indptr, lse, workspace);
    const Place place(q.codes());
    (void)place.backend(std::string(plan_.backend()));
    Mxfp8AttentionArgs args;
    args.q = q.describe(config.num_q_heads, config.head_dim, place);
    args.k = k.describe(config.num_kv_heads, config.head_dim, place);
    args.v = v.describe(config.num_kv_heads, config.head_dim, place);
    const std::int64_t tokens = q.codes().extent(0);
    v.codes().is_shape({k.codes().extent(0), config.num_kv_heads, config.head_dim}, "[kv_tokens, num_kv_heads, head_dim]");
    place.also(o.is_shape({tokens, config.num_q_heads, config.head_dim}, "[q_tokens, num_q_heads, head_dim]")
                   .is_dtype(config.o_dtype)
                   .has_rows());
    args.o = o.data();
    args.o_token_stride = rows_of(o).token_stride;
    args.o_head_stride = rows_of(o).head_stride;
    args.lse = call.lse_data(tokens, config.num_q_heads, place);
    args.rows = call.rows(batch, tokens, k.codes().extent(0), place);
    set_workspace(args, call.workspace, place);
    args.stream = place.stream(stream);
    check_unlocked([&] { return run_mxfp8_attention(plan_, args); });
  }

 private:
  Mxfp8AttentionPlan plan_;
};

}  // namespace

void bind_dense(nb::module_& m) {
  nb::class_<PyDensePlan>(m, "DenseAttentionPlan",
                          R"(Attention over contiguous Q, K and V; K and V are quantised once in every run.

max_*: the largest call (batch; rows of Q over the batch and of one sequence; rows of K and V likewise).
q_dtype, kv_dtype, o_dtype: "f32", "f16" or "bf16". sm_scale: 0 is 1 / sqrt(head_dim). causal: aligned to the end.
k_format, v_format: what K and V become, any format of a cache. v_scale_axis: "head_dim" or "tokens". rotation: 0, 16, 32, 64 or 128.
smooth_k: quantise K less its mean over each sequence's tokens. k_global_scale, v_global_scale: of NVFP4 and FP8.
backend: a name; None is FP4PA_FORCE_BACKEND's or the best available, whose memory the tensors of run() must be.)")
      .def(
          "__init__",
          [](PyDensePlan* self, std::int64_t num_q_heads, std::int64_t num_kv_heads, std::int64_t head_dim,
             std::int64_t max_batch, std::int64_t max_q_tokens, std::int64_t max_q_len, std::int64_t max_kv_tokens,
             std::int64_t max_kv_len, const std::string& q_dtype, const std::string& kv_dtype, const std::string& o_dtype,
             double sm_scale, bool causal, const std::string& k_format, const std::string& v_format, const std::string& axis,
             std::int64_t rotation, bool smooth_k, const std::string& mode, const std::string& nvfp4, float k_global_scale,
             float v_global_scale, bool batch_invariant, const std::string& path, const std::optional<std::string>& backend,
             std::int64_t num_threads) {
            DenseAttentionConfig config;
            config.num_q_heads = int32_of(num_q_heads, "num_q_heads");
            config.num_kv_heads = int32_of(num_kv_heads, "num_kv_heads");
            config.head_dim = int32_of(head_dim, "head_dim");
            config.limits = limits_of(max_batch, max_q_tokens, max_q_len, max_kv_tokens, max_kv_len);
            config.q_dtype = dtype(q_dtype, "q_dtype");
            config.kv_dtype = dtype(kv_dtype, "kv_dtype");
            config.o_dtype = dtype(o_dtype, "o_dtype");
            config.sm_scale = float_of(sm_scale, "sm_scale");
            config.causal = causal;
            config.k_format = kv_format(k_format, "k_format");
            config.v_format = kv_format(v_format, "v_format");
            config.v_scale_axis = scale_axis(axis, "v_scale_axis");
            config.rotation = static_cast<Rotation>(int32_of(rotation, "rotation"));
            config.smooth_k = smooth_k;
            config.scale_mode = scale_mode(mode);
            config.nvfp4_scale = nvfp4_scale(nvfp4);
            config.k_global_scale = k_global_scale;
            config.v_global_scale = v_global_scale;
            config.batch_invariant = batch_invariant;
            config.matrix_path = matrix_path(path);
            config.num_threads = int32_of(num_threads, "num_threads");
            new (self) PyDensePlan(config, backend);
          },
          "num_q_heads"_a, "num_kv_heads"_a, "head_dim"_a, nb::kw_only(), "max_batch"_a, "max_q_tokens"_a, "max_q_len"_a,
          "max_kv_tokens"_a, "max_kv_len"_a, "q_dtype"_a = "bf16", "kv_dtype"_a = "bf16", "o_dtype"_a = "bf16",
          "sm_scale"_a = 0.0, "causal"_a = false, "k_format"_a = "nvfp4", "v_format"_a = "nvfp4", "v_scale_axis"_a = "head_dim",
          "rotation"_a = 0, "smooth_k"_a = false, "scale_mode"_a = "floor", "nvfp4_scale"_a = "amax_over_6",
          "k_global_scale"_a = 1.0f, "v_global_scale"_a = 1.0f, "batch_invariant"_a = false, "matrix_path"_a = "auto",
          "backend"_a = nb::none(), "num_threads"_a = 0)
      .def("run", &PyDensePlan::run, "q"_a, "k"_a, "v"_a, "o"_a, nb::kw_only(), "batch"_a = 1, "q_indptr"_a = nb::none(),
           "kv_indptr"_a = nb::none(), "lse"_a = nb::none(), "workspace"_a = nb::none(), "stream"_a = nb::none(),
           R"(Computes O, and LSE where it is given.

q, o: [q_tokens, num_q_heads, head_dim]. k, v: [kv_tokens, num_kv_heads, head_dim]. Sequences one after another; q_indptr and kv_indptr [batch + 1] int32
say where each begins, None: all are equally long. lse: [q_tokens, num_q_heads] float32. workspace: workspace_bytes.)")
      .def_prop_ro(
          "workspace_bytes", [](const PyDensePlan& p) { return with_alignment(p.plan().workspace_bytes()); },
          "Bytes of workspace for run(), wherever it starts.")
      .def_prop_ro("backend", [](const PyDensePlan& p) { return p.plan().backend(); });

  nb::class_<PyMxfp8Plan>(m, "Mxfp8AttentionPlan", R"(Attention over Q, K and V in MXFP8, all three with their scales applied.

decode: "auto", "per_tile" or "once", where K and V are decoded. The rest as DenseAttentionPlan's.)")
      .def(
          "__init__",
          [](PyMxfp8Plan* self, std::int64_t num_q_heads, std::int64_t num_kv_heads, std::int64_t head_dim,
             std::int64_t max_batch, std::int64_t max_q_tokens, std::int64_t max_q_len, std::int64_t max_kv_tokens,
             std::int64_t max_kv_len, const std::string& o_dtype, double sm_scale, bool causal, const std::string& decode,
             bool batch_invariant, const std::optional<std::string>& backend, std::int64_t num_threads) {
            Mxfp8AttentionConfig config;
            config.num_q_heads = int32_of(num_q_heads, "num_q_heads");
            config.num_kv_heads = int32_of(num_kv_heads, "num_kv_heads");
            config.head_dim = int32_of(head_dim, "head_dim");
            config.limits = limits_of(max_batch, max_q_tokens, max_q_len, max_kv_tokens, max_kv_len);
            config.o_dtype = dtype(o_dtype, "o_dtype");
            config.sm_scale = float_of(sm_scale, "sm_scale");
            config.causal = causal;
            config.decode = mxfp8_decode(decode);
            config.batch_invariant = batch_invariant;
            config.num_threads = int32_of(num_threads, "num_threads");
            new (self) PyMxfp8Plan(config, backend);
          },
          "num_q_heads"_a, "num_kv_heads"_a, "head_dim"_a, nb::kw_only(), "max_batch"_a, "max_q_tokens"_a, "max_q_len"_a,
          "max_kv_tokens"_a, "max_kv_len"_a, "o_dtype"_a = "bf16", "sm_scale"_a = 0.0, "causal"_a = false, "decode"_a = "auto",
          "batch_invariant"_a = false, "backend"_a = nb::none(), "num_threads"_a = 0)
      .def("run", &PyMxfp8Plan::run, "q"_a, "k"_a, "v"_a, "o"_a, nb::kw_only(), "batch"_a = 1, "q_indptr"_a = nb::none(),
           "kv_indptr"_a = nb::none(), "lse"_a = nb::none(), "workspace"_a = nb::none(), "stream"_a = nb::none(),
           R"(Computes O, and LSE where it is given.

q, k, v: pairs (codes, scales), [tokens, heads, head_dim] E4M3 and [tokens, heads, head_dim / 32] E8M0, of 8-bit elements; a row starts at a multiple
of 16 bytes. The rest as DenseAttentionPlan.run.)")
      .def_prop_ro(
          "workspace_bytes", [](const PyMxfp8Plan& p) { return with_alignment(p.plan().workspace_bytes()); },
          "Bytes of workspace for run(), wherever it starts.")
      .def_prop_ro("backend", [](const PyMxfp8Plan& p) { return p.plan().backend(); })
      .def_prop_ro(
          "decode", [](const PyMxfp8Plan& p) { return fp4pa::name_of(p.plan().decode()); },
          "\"per_tile\" or \"once\": what \"auto\" has become.");
}

}  // namespace fp4pa::python
