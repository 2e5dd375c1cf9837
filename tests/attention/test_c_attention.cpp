// The C calls of paged attention: every field of the configuration and of the arguments that the CPU looks at does what it does in
// C++, and something.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "fp4pa/fp4pa.h"
#include "tests/attention/scene.hpp"

using namespace fp4pa;
using scene::Scene;
using scene::Spec;

namespace {

void to_c(const KvTensorDesc& in, fp4pa_kv_tensor* out) {
  out->format = static_cast<int>(in.format);
  out->scale_axis = static_cast<int>(in.scale_axis);
  out->nibble_order = static_cast<int>(in.nibble_order);
  out->scale_swizzle = static_cast<int>(in.scale_swizzle);
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
  out->global_scale_per_head = in.global_scale_per_head;
}

fp4pa_cache to_c(const KvCacheDesc& in) {
  fp4pa_cache c;
  fp4pa_cache_init(&c);
  to_c(in.k, &c.k);
  to_c(in.v, &c.v);
  c.num_kv_heads = in.num_kv_heads;
  c.head_dim = in.head_dim;
  c.page_size = in.page_size;
  c.rotation = static_cast<int>(in.rotation);
  c.num_pages = in.num_pages;
  c.scale_mode = static_cast<int>(in.scale_mode);
  c.nvfp4_scale = static_cast<int>(in.nvfp4_scale);
  return c;
}

fp4pa_attention_config to_c(const AttentionConfig& in, const fp4pa_cache* cache, const fp4pa_cache* recent) {
  fp4pa_attention_config c;
  fp4pa_attention_config_init(&c);
  c.cache = cache;
  c.recent = in.two_tier ? recent : nullptr;
  c.window_tokens = in.window_tokens;
  c.group_tokens = in.group_tokens;
  c.ring_pages = in.ring_pages;
  c.num_q_heads = in.num_q_heads;
  c.q_dtype = static_cast<int>(in.q_dtype);
  c.o_dtype = static_cast<int>(in.o_dtype);
  c.sm_scale = in.sm_scale;
  c.causal = in.causal;
  c.sliding_window = in.sliding_window;
  c.softcap = in.softcap;
  c.sinks = in.sinks;
  c.alibi = in.alibi;
  c.tree_mask = in.tree_mask;
  c.max_batch = in.max_batch;
  c.max_q_tokens = in.max_q_tokens;
  c.max_q_len = in.max_q_len;
  c.max_kv_len = in.max_kv_len;
  c.table_kind = static_cast<int>(in.table_kind);
  c.batch_invariant = in.batch_invariant;
  c.kv_split_tokens = in.kv_split_tokens;
  c.num_threads = in.num_threads;
  c.backend = in.backend;
  c.matrix_path = static_cast<int>(in.matrix_path);
  return c;
}

fp4pa_attention_args to_c(const AttentionArgs& in) {
  fp4pa_attention_args c;
  fp4pa_attention_args_init(&c);
  c.q = in.q;
  c.q_token_stride = in.q_token_stride;
  c.q_head_stride = in.q_head_stride;
  c.o = in.o;
  c.o_token_stride = in.o_token_stride;
  c.o_head_stride = in.o_head_stride;
  c.lse = in.lse;
  c.qo_indptr = in.qo_indptr;
  c.seq_lens = in.seq_lens;
  c.block_table = in.block_table;
  c.table_stride = in.table_stride;
  c.kv_indptr = in.kv_indptr;
  c.kv_indices = in.kv_indices;
  c.recent_table = in.recent_table;
  c.sinks = in.sinks;
  c.alibi_slopes = in.alibi_slopes;
  c.tree_mask = in.tree_mask;
  c.workspace = in.workspace;
  c.workspace_bytes = in.workspace_bytes;
  c.batch = in.batch;
  return c;
}

/// All that a plan and its run show.
struct Outcome {
  Status status = Status::kOk;
  std::size_t workspace = 0;
  std::int32_t workers = 0;
  std::vector<std::uint8_t> bits;  // of O and LSE
  bool operator==(const Outcome&) const = default;
};

std::vector<std::uint8_t> all_bits(const Scene& s) {
  std::vector<std::uint8_t> bits(s.o.data(), s.o.data() + s.o_bytes);
  const auto* const lse = reinterpret_cast<const std::uint8_t*>(s.lse.data());
  bits.insert(bits.end(), lse, lse + 4 * s.lse.size());
  return bits;
}

Outcome in_cpp(Scene& s) {
  s.reset_outputs();
  AttentionPlan made;
  if (const Status status = plan(s.config, &made); status != Status::kOk) return {status, 0, 0, {}};
  s.args.workspace = nullptr;
  const Status status = s.run();
  return {status, made.workspace_bytes(), made.num_workers(), all_bits(s)};
}

Outcome in_c(Scene& s) {
  s.reset_outputs();
  const fp4pa_cache cache = to_c(s.config.cache), recent = to_c(s.config.recent);
  const fp4pa_attention_config config = to_c(s.config, &cache, &recent);
  fp4pa_plan* made = nullptr;
  if (const fp4pa_status status = fp4pa_plan_create(&config, &made); status != FP4PA_OK) {
    return {static_cast<Status>(status), 0, 0, {}};
  }
  const std::size_t bytes = fp4pa_plan_workspace_bytes(made);
  const grid::Memory workspace(bytes, 0xFF);
  s.args.workspace = workspace.data();
  s.args.workspace_bytes = bytes;
  const fp4pa_attention_args args = to_c(s.args);
  const auto status = static_cast<Status>(fp4pa_run(made, &args));
  const Outcome outcome{status, bytes, fp4pa_plan_num_workers(made), all_bits(s)};
  fp4pa_plan_destroy(made);
  return outcome;
}

struct Choice {
  const char* name;
  void (*of_spec)(Spec&);
  void (*of_scene)(Scene&);
};
void no_other_spec(Spec&) {}
void no_other_scene(Scene&) {}

const float kScales[2] = {0.5f, 2.0f};

const Choice kChoices[] = {
    {"sm_scale", no_other_spec, [](Scene& s) { s.config.sm_scale = 0.5f; }},
    {"all keys", no_other_spec, [](Scene& s) { s.config.causal = false; }},
    {"sliding_window", no_other_spec, [](Scene& s) { s.config.sliding_window = 20; }},
    {"softcap", no_other_spec, [](Scene& s) { s.config.softcap = 1.0f; }},
    {"sinks", no_other_spec, [](Scene& s) { s.config.sinks = true; }},
    {"alibi", no_other_spec, [](Scene& s) { s.config.alibi = true; }},
    {"tree_mask", no_other_spec, [](Scene& s) { s.config.tree_mask = true; }},
    {"batch_invariant", no_other_spec, [](Scene& s) { s.config.batch_invariant = true; }},
    {"kv_split_tokens", no_other_spec, [](Scene& s) { s.config.kv_split_tokens = 64; }},
    {"num_threads", no_other_spec, [](Scene& s) { s.config.num_threads = 3; }},
    {"matrix_path, which is refused", no_other_spec, [](Scene& s) { s.config.matrix_path = MatrixPath::kNative; }},
    {"rotation", no_other_spec, [](Scene& s) { s.config.cache.rotation = Rotation::kHadamard32; }},
    {"global_scale", no_other_spec, [](Scene& s) { s.config.cache.k.global_scale = 0.25f; }},
    {"global_scale_ptr", no_other_spec, [](Scene& s) { s.config.cache.v.global_scale_ptr = kScales; }},
    {"global_scale_per_head", no_other_spec,
     [](Scene& s) {
       s.config.cache.v.global_scale_ptr = kScales;
       s.config.cache.v.global_scale_per_head = true;
     }},
    {"no lse", no_other_spec, [](Scene& s) { s.args.lse = nullptr; }},
    {"heads of Q outermost", no_other_spec,
     [](Scene& s) {
       s.args.q_token_stride = s.spec.head_dim;
       s.args.q_head_stride = s.q_tokens() * std::int64_t{s.spec.head_dim};
     }},
    {"heads of O outermost", no_other_spec,
     [](Scene& s) {
       s.args.o_token_stride = s.spec.head_dim;
       s.args.o_head_stride = s.q_tokens() * std::int64_t{s.spec.head_dim};
     }},
    {"q_dtype", [](Spec& spec) { spec.q_dtype = DType::kF16; }, no_other_scene},
    {"o_dtype", [](Spec& spec) { spec.o_dtype = DType::kF16; }, no_other_scene},
    {"scale_axis", [](Spec& spec) { spec.v_axis = VScaleAxis::kTokens; }, no_other_scene},
    {"two tiers", [](Spec& spec) { spec.window = 32, spec.group_tokens = 16; }, no_other_scene},
    {"two tiers, a shorter window and f16", [](Spec& spec) { spec.window = spec.group_tokens = 16, spec.recent = KvFormat::kF16; },
     no_other_scene},
};

Spec two_sequences() {
  Spec spec;
  spec.k = spec.v = KvFormat::kNvfp4;
  spec.sequences = {{3, 150, 0}, {2, 70, 1}};
  return spec;
}

}  // namespace

TEST_CASE("C attention: every choice does what it does in C++, and something") {
  Scene plain(two_sequences());
  plain.config.num_threads = 2;
  const Outcome base = in_cpp(plain);
  REQUIRE(base.status == Status::kOk);
  CHECK(in_c(plain) == base);
  for (const Choice& choice : kChoices) {
    Spec spec = two_sequences();
    choice.of_spec(spec);
    Scene s(spec);
    s.config.num_threads = 2;
    choice.of_scene(s);
    INFO(std::string(choice.name));
    const Outcome wanted = in_cpp(s);
    CHECK(wanted != base);
    CHECK(in_c(s) == wanted);
  }
}

TEST_CASE("C attention: either form of a page table says the same") {
  Spec spec = two_sequences();
  Scene blocks(spec);
  spec.table = TableKind::kCsr;
  Scene csr(spec);
  const Outcome wanted = in_cpp(blocks);
  REQUIRE(wanted.status == Status::kOk);
  CHECK(in_cpp(csr) == wanted);
  CHECK(in_c(csr) == wanted);
}
