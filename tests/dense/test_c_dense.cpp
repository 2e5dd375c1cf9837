// The C functions of fp4pa_dense.h say and do what the C++ ones do.
#include <cstddef>

#include "fp4pa/fp4pa.h"
#include "tests/dense/fixture.hpp"

using namespace dense_test;

namespace {

/// Rows of `row` floats, from strides of `from` floats to strides of `to`.
Memory with_stride(const Memory& rows, std::int64_t row, std::int64_t from, std::int64_t to) {
  const std::size_t count = rows.size() / (static_cast<std::size_t>(from) * 4);
  Memory moved(count * static_cast<std::size_t>(to) * 4);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(moved.data() + i * static_cast<std::size_t>(to) * 4, rows.data() + i * static_cast<std::size_t>(from) * 4,
                static_cast<std::size_t>(row) * 4);
  }
  return moved;
}

/// Rows of `row` bytes, from [tokens, heads] to [heads, tokens] and strides of `to` bytes.
Memory heads_outermost(const Memory& rows, std::int64_t tokens, std::int64_t heads, std::size_t row, std::size_t to) {
  const auto count = static_cast<std::size_t>(tokens * heads), h = static_cast<std::size_t>(heads), n = static_cast<std::size_t>(tokens);
  Memory moved(count * to);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(moved.data() + (i % h * n + i / h) * to, rows.data() + i * row, row);
  return moved;
}

/// A run with rows of O that lie 72 floats apart and no token stride gives `bits`, once its gaps are taken out.
template <class Args, class Run>
void check_heads_apart(Args args, Outputs& out, const std::vector<std::uint8_t>& bits, Run&& run) {
  out.reset();
  const Memory o = with_stride(out.o, 64, 64, 72);
  args.o = o.data();
  args.o_head_stride = 72;
  REQUIRE(run(args) == FP4PA_OK);
  std::memcpy(out.o.data(), with_stride(o, 64, 72, 64).data(), out.o.size());  // in place: other calls write there, too
  CHECK(out.bits() == bits);
}

}  // namespace

TEST_CASE("C dense: the layout of the published structs does not move") {
  if (sizeof(void*) != 8) return;
  CHECK(sizeof(fp4pa_dense_config) == 120);
  CHECK(sizeof(fp4pa_dense_args) == 168);
  CHECK(sizeof(fp4pa_mxfp8_tensor) == 64);
  CHECK(sizeof(fp4pa_mxfp8_config) == 80);
  CHECK(sizeof(fp4pa_mxfp8_args) == 288);
  CHECK(offsetof(fp4pa_dense_config, backend) == 104);
  CHECK(offsetof(fp4pa_dense_config, matrix_path) == 112);
  CHECK(offsetof(fp4pa_dense_args, workspace) == 128);
  CHECK(offsetof(fp4pa_mxfp8_args, o) == 200);
}

TEST_CASE("C dense: fields of 0 or 1 may have no other value") {
  fp4pa_dense_config dense;
  fp4pa_mxfp8_config mxfp8;
  fp4pa_dense_config_init(&dense);
  fp4pa_mxfp8_config_init(&mxfp8);
  fp4pa_dense_plan* dense_plan = nullptr;
  fp4pa_mxfp8_plan* mxfp8_plan = nullptr;
  dense.causal = mxfp8.causal = 2;
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_dense_plan_create(&dense, &dense_plan)), Status::kInvalidArgument, "causal is 2; allowed: 0, 1");
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_mxfp8_plan_create(&mxfp8, &mxfp8_plan)), Status::kInvalidArgument, "causal is 2; allowed: 0, 1");
  dense.causal = mxfp8.causal = 1;
  dense.batch_invariant = mxfp8.batch_invariant = -1;
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_dense_plan_create(&dense, &dense_plan)), Status::kInvalidArgument, "batch_invariant is -1");
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_mxfp8_plan_create(&mxfp8, &mxfp8_plan)), Status::kInvalidArgument, "batch_invariant is -1");
  dense.batch_invariant = 1;
  dense.smooth_k = 17;
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_dense_plan_create(&dense, &dense_plan)), Status::kInvalidArgument, "smooth_k is 17; allowed: 0, 1");
}

TEST_CASE("C dense: a call gives the bits of the C++ call") {
  const char* const backend = kTargets[0].backend;
  DenseCall call({{7, 9}, {40, 33}, 4, 2, 64, true, 0.2f});
  call.fill(31, Distribution::kGaussian);
  call.config.k_format = KvFormat::kMxfp4;
  call.config.v_format = KvFormat::kNvfp4;
  call.config.v_scale_axis = VScaleAxis::kTokens;
  call.config.rotation = Rotation::kHadamard32;
  call.config.smooth_k = true;
  call.config.scale_mode = ScaleMode::kEven;
  call.config.nvfp4_scale = Nvfp4Scale::kFourOverSix;
  call.config.v_global_scale = 0.5f;
  call.config.batch_invariant = true;
  REQUIRE(call.run(backend) == Status::kOk);
  const std::vector<std::uint8_t> bits = call.out.bits();

  fp4pa_dense_config config;
  fp4pa_dense_config_init(&config);
  CHECK(config.struct_size == sizeof config);
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.q_dtype = config.kv_dtype = config.o_dtype = FP4PA_F32;
  config.sm_scale = 0.2f;
  config.causal = 1;
  config.k_format = FP4PA_KV_MXFP4;
  config.v_scale_axis = FP4PA_SCALE_AXIS_TOKENS;
  config.rotation = 32;
  config.smooth_k = 1;
  config.scale_mode = FP4PA_SCALE_EVEN;
  config.nvfp4_scale = FP4PA_NVFP4_FOUR_OVER_SIX;
  config.v_global_scale = 0.5f;
  config.max_batch = 2;
  config.max_q_tokens = 16;
  config.max_q_len = 9;
  config.max_kv_tokens = 73;
  config.max_kv_len = 40;
  config.batch_invariant = 1;
  config.num_threads = 2;
  config.backend = backend;
  fp4pa_dense_plan* plan = nullptr;
  REQUIRE(fp4pa_dense_plan_create(&config, &plan) == FP4PA_OK);
  CHECK(std::string(fp4pa_dense_plan_backend(plan)) == backend);
  CHECK(fp4pa_dense_plan_workspace_bytes(plan) == call.plan.workspace_bytes());

  fp4pa_dense_args args;
  fp4pa_dense_args_init(&args);
  args.q = call.args.q;
  args.k = call.args.k.data;
  args.v = call.args.v.data;
  args.o = call.args.o;
  args.lse = call.args.lse;
  args.q_indptr = call.rows.q.data();
  args.kv_indptr = call.rows.kv.data();
  args.workspace = call.args.workspace;
  args.workspace_bytes = call.args.workspace_bytes;
  args.batch = 2;
  args.q_tokens = 16;
  args.kv_tokens = 73;
  call.out.reset();
  REQUIRE(fp4pa_dense_run(plan, &args) == FP4PA_OK);
  CHECK(call.out.bits() == bits);

  // A token stride of 0 follows the head stride, also where K's mean is put back into LSE.
  fp4pa_dense_args apart = args;
  const Memory q(call.q.values.size() * 4);
  std::memcpy(q.data(), call.args.q, q.size());
  const Memory wide_q = with_stride(q, 64, 64, 192);
  apart.q = wide_q.data();
  apart.q_head_stride = 192;
  check_heads_apart(apart, call.out, bits, [plan](const fp4pa_dense_args& a) { return fp4pa_dense_run(plan, &a); });

  fp4pa_dense_args outermost = args;
  const Memory outer_q = heads_outermost(call.q.data, 16, 4, 64 * 4, 72 * 4), outer_k = heads_outermost(call.k.data, 73, 2, 64 * 4, 72 * 4),
               outer_v = heads_outermost(call.v.data, 73, 2, 64 * 4, 72 * 4);
  outermost.q = outer_q.data();
  outermost.k = outer_k.data();
  outermost.v = outer_v.data();
  outermost.q_token_stride = outermost.k_token_stride = outermost.v_token_stride = 72;
  outermost.q_head_stride = 16 * 72;
  outermost.k_head_stride = outermost.v_head_stride = 73 * 72;
  call.out.reset();
  REQUIRE(fp4pa_dense_run(plan, &outermost) == FP4PA_OK);
  CHECK(call.out.bits() == bits);

  args.reserved = 1;
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_dense_run(plan, &args)), Status::kInvalidArgument, "reserved is 1");
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_dense_run(nullptr, &args)), Status::kNullPointer, "plan is null");
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_dense_run(plan, nullptr)), Status::kNullPointer, "args is null");
  fp4pa_dense_plan_destroy(plan);

  call.config.k_format = KvFormat::kNvfp4;
  call.config.k_global_scale = 0.01f;
  call.config.batch_invariant = false;
  call.config.num_threads = 7;  // of which the workspace tells, now that work is shared out among them
  REQUIRE(call.run(backend) == Status::kOk);
  const std::vector<std::uint8_t> multiplied = call.out.bits();
  CHECK(multiplied != bits);
  config.k_format = FP4PA_KV_NVFP4;
  config.k_global_scale = 0.01f;
  config.batch_invariant = 0;
  config.num_threads = 7;
  REQUIRE(fp4pa_dense_plan_create(&config, &plan) == FP4PA_OK);
  CHECK(fp4pa_dense_plan_workspace_bytes(plan) == call.plan.workspace_bytes());
  args.reserved = 0;
  args.workspace = call.args.workspace;
  args.workspace_bytes = call.args.workspace_bytes;
  call.out.reset();
  REQUIRE(fp4pa_dense_run(plan, &args) == FP4PA_OK);
  CHECK(call.out.bits() == multiplied);
  fp4pa_dense_plan_destroy(plan);

  config.matrix_path = 3;
  DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_dense_plan_create(&config, &plan)), Status::kInvalidArgument, "matrix_path is 3");
  fp4pa_dense_plan_destroy(nullptr);
  CHECK(fp4pa_dense_plan_workspace_bytes(nullptr) == 0);
}

TEST_CASE("C mxfp8: a call gives the bits of the C++ call") {
  const char* const backend = kTargets[0].backend;
  for (const Mxfp8Decode decode : {Mxfp8Decode::kPerTile, Mxfp8Decode::kOnce}) {
    Mxfp8Call call({{7, 9}, {40, 33}, 4, 2, 64, true, 0.0f}, 3, -2, 1);
    call.config.decode = decode;
    REQUIRE(call.run(backend) == Status::kOk);
    const std::vector<std::uint8_t> bits = call.out.bits();

    fp4pa_mxfp8_config config;
    fp4pa_mxfp8_config_init(&config);
    config.num_q_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 64;
    config.o_dtype = FP4PA_F32;
    config.causal = 1;
    config.decode = static_cast<fp4pa_mxfp8_decode>(decode);
    config.max_batch = 2;
    config.max_q_tokens = 16;
    config.max_q_len = 9;
    config.max_kv_tokens = 73;
    config.max_kv_len = 40;
    config.num_threads = 2;
    config.backend = backend;
    fp4pa_mxfp8_plan* plan = nullptr;
    REQUIRE(fp4pa_mxfp8_plan_create(&config, &plan) == FP4PA_OK);
    CHECK(fp4pa_mxfp8_plan_workspace_bytes(plan) == call.plan.workspace_bytes());
    CHECK(std::string(fp4pa_mxfp8_plan_backend(plan)) == backend);

    fp4pa_mxfp8_args args;
    fp4pa_mxfp8_args_init(&args);
    const auto tensor = [](const Mxfp8Data& x) {
      return fp4pa_mxfp8_tensor{x.codes.data(), 0, 0, x.scales.data(), 0, 0, {0, 0}};
    };
    args.q = tensor(call.q);
    args.k = tensor(call.k);
    args.v = tensor(call.v);
    args.o = call.args.o;
    args.lse = call.args.lse;
    args.q_indptr = call.rows.q.data();
    args.kv_indptr = call.rows.kv.data();
    args.workspace = call.args.workspace;
    args.workspace_bytes = call.args.workspace_bytes;
    args.batch = 2;
    args.q_tokens = 16;
    args.kv_tokens = 73;
    call.out.reset();
    REQUIRE(fp4pa_mxfp8_run(plan, &args) == FP4PA_OK);
    CHECK(call.out.bits() == bits);
    check_heads_apart(args, call.out, bits, [plan](const fp4pa_mxfp8_args& a) { return fp4pa_mxfp8_run(plan, &a); });

    std::vector<Memory> moved;  // what the tensors below point to
    const auto outermost = [&moved](const Mxfp8Data& x, std::int64_t tokens, std::int64_t heads) {
      moved.push_back(heads_outermost(x.codes, tokens, heads, 64, 80));
      moved.push_back(heads_outermost(x.scales, tokens, heads, 2, 3));
      return fp4pa_mxfp8_tensor{moved[moved.size() - 2].data(), 80, tokens * 80, moved.back().data(), 3, tokens * 3, {0, 0}};
    };
    fp4pa_mxfp8_args strided = args;
    strided.q = outermost(call.q, 16, 4);
    strided.k = outermost(call.k, 73, 2);
    strided.v = outermost(call.v, 73, 2);
    call.out.reset();
    REQUIRE(fp4pa_mxfp8_run(plan, &strided) == FP4PA_OK);
    CHECK(call.out.bits() == bits);

    args.v.reserved[1] = 3;
    DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_mxfp8_run(plan, &args)), Status::kInvalidArgument, "v.reserved");
    fp4pa_mxfp8_plan_destroy(plan);
    config.scale_layout = FP4PA_SCALES_BLOCKED;
    DENSE_CHECK_REFUSED(static_cast<Status>(fp4pa_mxfp8_plan_create(&config, &plan)), Status::kUnsupportedFormat,
                        "blocked_128x4");
  }
}
