// MXFP8 attention: what is wrong with a call is named, and nothing is written.
#include "tests/dense/fixture.hpp"

using namespace dense_test;

TEST_CASE("mxfp8: bad input is refused by name, and nothing is written") {
  const char* const backend = kTargets[0].backend;
  const auto plan_with = [&](auto&& change) {
    Mxfp8Call call(ragged(64, true));
    call.config.backend = backend;
    change(call.config);
    return plan_mxfp8_attention(call.config, &call.plan);
  };
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.head_dim = 48; }), Status::kUnsupportedHeadDim, "head_dim is 48",
                      "multiples of 32");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.num_q_heads = 3; }), Status::kInvalidHeads, "num_q_heads is 3",
                      "num_kv_heads 2");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.num_kv_heads = 0; }), Status::kInvalidHeads, "num_kv_heads is 0",
                      "1 to 65536");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.scale_layout = ScaleLayout::kBlocked; }), Status::kUnsupportedFormat,
                      "scale_layout is 1 (blocked_128x4)", "0 (linear)");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.decode = static_cast<Mxfp8Decode>(9); }), Status::kInvalidArgument,
                      "decode is 9", "2 (once)");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.o_dtype = static_cast<DType>(5); }), Status::kUnsupportedFormat,
                      "o_dtype is 5", "2 (bf16)");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.sm_scale = INFINITY; }), Status::kInvalidArgument, "sm_scale is inf",
                      "2^-126 to 2^126");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.limits.max_batch = 0; }), Status::kInvalidSize, "max_batch is 0",
                      "1 to");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.limits.max_kv_tokens = -4; }), Status::kInvalidSize,
                      "max_kv_tokens is -4", "0 to");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.limits.max_kv_len = 1 << 20; }), Status::kInvalidSize,
                      "max_kv_len is 1048576", "max_kv_tokens 238");
  DENSE_CHECK_REFUSED(plan_with([](auto& c) { c.backend = "abacus"; }), Status::kUnknownBackend, "abacus");

  Mxfp8Call call(ragged(64, true));
  REQUIRE(call.run(backend) == Status::kOk);
  const Mxfp8AttentionArgs good = call.args;
  const auto run_with = [&](auto&& change) {
    call.args = good;
    change(call.args);
    call.out.reset();
    const Status s = run_mxfp8_attention(call.plan, call.args);
    CHECK(call.out.untouched());
    return s;
  };
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.k.codes = nullptr; }), Status::kNullPointer, "k.codes is null");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.v.scales = nullptr; }), Status::kNullPointer, "v.scales is null");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.q.codes = static_cast<const char*>(a.q.codes) + 8; }),
                      Status::kMisalignedPointer, "q.codes is", "multiples of 16");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.k.token_stride = 100; }), Status::kInvalidStrides,
                      "k.token_stride is 100", "multiple of 16");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.v.token_stride = 64; }), Status::kInvalidStrides, "v.", "overlap");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.v.scale_head_stride = -2; }), Status::kInvalidStrides,
                      "v.scale_head_stride is -2", "0 (dense)");
  DENSE_CHECK_REFUSED(run_with([](auto& a) {
                        a.q.scale_token_stride = 1;  // of rows of two scales
                        a.q.scale_head_stride = 200;
                      }),
                      Status::kInvalidStrides, "q.scale_token_stride is 1", "rows of 2 bytes overlap");
  // The token stride that follows from it leaves the address space: the head stride is named.
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.q.head_stride = std::int64_t{1} << 62; }), Status::kInvalidStrides,
                      "q.head_stride is 4611686018427387904", "address space");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.o = nullptr; }), Status::kNullPointer, "o is null");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.batch = 5; }), Status::kPlanMismatch, "batch is 5", "max_batch 4");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.batch = 0; }), Status::kInvalidSize, "q_tokens is 109 with batch 0", "allowed: 0");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.batch = a.rows.q_tokens = 0; }), Status::kInvalidSize, "kv_tokens is 238 with batch 0");
  CHECK(run_with([](auto& a) { a.rows = {}; }) == Status::kOk);  // no work, and nothing written
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.q_tokens = 110; }), Status::kPlanMismatch, "q_tokens is 110",
                      "max_q_tokens 109");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.rows.q_indptr = nullptr; }), Status::kInvalidSize, "q_tokens is 109",
                      "batch 4", "multiples of batch");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.workspace_bytes -= 1; }), Status::kWorkspaceTooSmall,
                      "workspace_bytes is", "at least");
  DENSE_CHECK_REFUSED(run_with([](auto& a) { a.workspace = static_cast<char*>(a.workspace) + 64; }),
                      Status::kMisalignedPointer, "workspace is", "256");
  call.args = good;
  call.args.v = good.k;  // rows that are only read may be the same
  CHECK(run_mxfp8_attention(call.plan, call.args) == Status::kOk);
  DENSE_CHECK_REFUSED(run_mxfp8_attention({}, good), Status::kPlanMismatch, "plan_mxfp8_attention");
}

TEST_CASE("mxfp8: on the CPU what is wrong with a call's lengths is found before anything is written") {
  Mxfp8Call call(ragged(64, true));
  REQUIRE(call.run("cpu") == Status::kOk);
  const auto refused = [&](std::vector<std::int32_t>& indptr, std::size_t i, std::int32_t value) {
    const std::int32_t good = indptr[i];
    indptr[i] = value;
    call.out.reset();
    const Status s = run_mxfp8_attention(call.plan, call.args);
    indptr[i] = good;
    CHECK(call.out.untouched());
    return s;
  };
  DENSE_CHECK_REFUSED(refused(call.rows.q, 0, 1), Status::kInvalidIndptr, "q_indptr[0] is 1");
  DENSE_CHECK_REFUSED(refused(call.rows.kv, 2, 36), Status::kInvalidIndptr, "kv_indptr[2] is 36 after 37");
  DENSE_CHECK_REFUSED(refused(call.rows.kv, 4, 237), Status::kInvalidIndptr, "kv_indptr ends at 237", "allowed: kv_tokens, which is 238");
  DENSE_CHECK_REFUSED(refused(call.rows.q, 2, 90), Status::kPlanMismatch, "sequence 1 has 85 rows by q_indptr", "70");
}
