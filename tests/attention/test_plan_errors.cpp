// plan() refuses what it cannot run, by name: a test for every error, with the status, the offending value and the
// allowed set in the sentence, and the caller's plan as it was.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "tests/attention/scene.hpp"

using namespace fp4pa;
using scene::Scene;
using scene::Spec;

namespace {

/// Changes a good configuration and plans it. The plan passed in is one that a good call filled: an error must leave
/// it.
void check_refused(const std::function<void(AttentionConfig&)>& change, Status status,
                   std::initializer_list<const char*> pieces, bool two_tier = false) {
  Spec spec;
  if (two_tier) spec.window = 64;
  Scene s(spec);
  AttentionPlan made;
  REQUIRE(plan(s.config, &made) == Status::kOk);
  const std::size_t bytes = made.workspace_bytes();
  unsigned char before[sizeof made];
  std::memcpy(before, static_cast<const void*>(&made), sizeof made);

  AttentionConfig c = s.config;
  c.num_threads = 7;  // another workspace, so that a plan that was filled all the same would show
  change(c);
  const Status refused = plan(c, &made);
  const std::string detail = last_error_detail();
  INFO(std::string(status_name(refused)), ": ", detail);
  CHECK(refused == status);
  CHECK(scene::detail_has(pieces));
  CHECK(std::memcmp(before, static_cast<const void*>(&made), sizeof made) == 0);
  CHECK(made.workspace_bytes() == bytes);
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("plan: the good call works, and says what it chose") {
  Scene s(Spec{});
  AttentionPlan made;
  CHECK(made.backend() == std::string(""));
  s.config.num_threads = 5;
  REQUIRE(plan(s.config, &made) == Status::kOk);
  CHECK(made.backend() == std::string("cpu"));
  CHECK(made.num_workers() == 5);
  CHECK(made.workspace_bytes() > 0);
  CHECK(made.config().num_q_heads == 4);
}

TEST_CASE("plan: null plan") {
  Scene s(Spec{});
  CHECK_REFUSED(plan(s.config, nullptr), Status::kNullPointer, "plan is null");
}

TEST_CASE("plan: back end that nobody has, and the allowed set") {
  check_refused([](AttentionConfig& c) { c.backend = "abacus"; }, Status::kUnknownBackend,
                {"\"abacus\"", "cpu", "cpu-scalar"});
}

TEST_CASE("plan: the cache's own errors arrive with their code and sentence") {
  check_refused([](AttentionConfig& c) { c.cache.head_dim = 48; }, Status::kUnsupportedHeadDim, {"48", "32 to 256"});
  check_refused([](AttentionConfig& c) { c.cache.head_dim = 288; }, Status::kUnsupportedHeadDim, {"288", "32 to 256"});
  check_refused([](AttentionConfig& c) { c.cache.num_kv_heads = 0; }, Status::kInvalidSize, {"num_kv_heads is 0"});
  check_refused([](AttentionConfig& c) { c.cache.page_size = 1025; }, Status::kInvalidSize,
                {"page_size is 1025", "1 to 1024"});
  check_refused([](AttentionConfig& c) { c.cache.num_pages = -1; }, Status::kInvalidSize, {"num_pages is -1"});
  check_refused([](AttentionConfig& c) { c.cache.k.data = nullptr; }, Status::kNullPointer, {"k.data"});
  check_refused([](AttentionConfig& c) { c.cache.v.data = static_cast<char*>(c.cache.v.data) + 8; },
                Status::kMisalignedPointer, {"v.data", "16"});
  check_refused([](AttentionConfig& c) { c.cache.v.scales = nullptr; }, Status::kNullPointer, {"v.scales"});
  check_refused([](AttentionConfig& c) { c.cache.k.format = static_cast<KvFormat>(9); }, Status::kUnsupportedFormat,
                {"k.format is 9", "mxfp4"});
  check_refused([](AttentionConfig& c) { c.cache.k.token_stride_bytes = 16; }, Status::kInvalidStrides,
                {"k.", "16", "32"});
  check_refused([](AttentionConfig& c) { c.cache.k.nibble_order = NibbleOrder::kSplitHalf; },
                Status::kUnsupportedFormat, {"k.nibble_order is 1", "even_low"});
  check_refused([](AttentionConfig& c) { c.cache.v.scale_swizzle = ScaleSwizzle::kFourTokens; },
                Status::kUnsupportedFormat, {"v.scale_swizzle is 1", "linear"});
  check_refused([](AttentionConfig& c) { c.cache.rotation = Rotation::kHadamard128; }, Status::kUnsupportedFormat,
                {"rotation is 128", "64"});
  check_refused(
      [](AttentionConfig& c) {
        c.cache.k.format = KvFormat::kNvfp4;
        c.cache.k.scale_token_stride_bytes = 4;
        c.cache.k.scale_head_stride_bytes = 4 * 16;
        c.cache.k.scale_page_stride_bytes = 4 * 16 * 2;
        c.cache.k.global_scale = kNan;
      },
      Status::kInvalidGlobalScale, {"k.global_scale", "nan", "greater than 0"});
}

TEST_CASE("plan: the two tiers' errors name the tier") {
  check_refused([](AttentionConfig& c) { c.recent.page_size = 0; }, Status::kInvalidSize, {"recent", "page_size is 0"},
                true);
  check_refused([](AttentionConfig& c) { c.recent.head_dim = 32; }, Status::kInvalidSize,
                {"recent.head_dim is 32", "64"}, true);
  check_refused([](AttentionConfig& c) { c.window_tokens = 8; }, Status::kInvalidSize,
                {"window_tokens is 8", "16 to 256"}, true);
  check_refused([](AttentionConfig& c) { c.group_tokens = 0; }, Status::kInvalidSize, {"group_tokens is 0"}, true);
  check_refused([](AttentionConfig& c) { c.ring_pages = 5; }, Status::kInvalidSize, {"ring_pages is 5", "at least 6"},
                true);
}

TEST_CASE("plan: a recent tier that is described and not read") {
  check_refused([](AttentionConfig& c) { c.window_tokens = 64; }, Status::kInvalidArgument, {"window_tokens is 64", "two_tier"});
  check_refused([](AttentionConfig& c) { c.group_tokens = 32; }, Status::kInvalidArgument, {"group_tokens is 32", "allowed: 0", "two_tier"});
  check_refused([](AttentionConfig& c) { c.ring_pages = -1; }, Status::kInvalidArgument, {"ring_pages is -1", "allowed: 0", "two_tier"});
  check_refused([](AttentionConfig& c) { c.recent.k.data = c.cache.k.data; }, Status::kInvalidArgument, {"recent has memory", "two_tier is 0"});
  check_refused([](AttentionConfig& c) { c.recent.v.data = c.cache.v.data; }, Status::kInvalidArgument, {"recent has memory", "two_tier is 0"});
}

TEST_CASE("plan: heads that do not divide") {
  check_refused([](AttentionConfig& c) { c.num_q_heads = 0; }, Status::kInvalidHeads,
                {"num_q_heads is 0", "multiples", "2"});
  check_refused([](AttentionConfig& c) { c.num_q_heads = 3; }, Status::kInvalidHeads,
                {"num_q_heads is 3", "multiples", "2"});
  check_refused([](AttentionConfig& c) { c.num_q_heads = -2; }, Status::kInvalidHeads, {"num_q_heads is -2"});
}

TEST_CASE("plan: unknown element types") {
  check_refused([](AttentionConfig& c) { c.q_dtype = static_cast<DType>(3); }, Status::kUnsupportedFormat,
                {"q_dtype is 3", "f32", "f16", "bf16"});
  check_refused([](AttentionConfig& c) { c.o_dtype = static_cast<DType>(-1); }, Status::kUnsupportedFormat,
                {"o_dtype is -1", "f32", "f16", "bf16"});
}

TEST_CASE("plan: sizes that are zero, negative or too large") {
  check_refused([](AttentionConfig& c) { c.max_batch = 0; }, Status::kInvalidSize, {"max_batch is 0", "1 to 1048576"});
  check_refused([](AttentionConfig& c) { c.max_batch = (1 << 20) + 1; }, Status::kInvalidSize,
                {"max_batch is 1048577"});
  check_refused([](AttentionConfig& c) { c.max_q_tokens = 0; }, Status::kInvalidSize,
                {"max_q_tokens is 0", "positive"});
  check_refused([](AttentionConfig& c) { c.max_q_tokens = -5; }, Status::kInvalidSize, {"max_q_tokens is -5"});
  check_refused([](AttentionConfig& c) { c.max_q_len = 0; }, Status::kInvalidSize,
                {"max_q_len is 0", "1 to max_q_tokens 1"});
  check_refused([](AttentionConfig& c) { c.max_q_len = 2; }, Status::kInvalidSize,
                {"max_q_len is 2", "1 to max_q_tokens 1"});
  check_refused([](AttentionConfig& c) { c.max_kv_len = -1; }, Status::kInvalidSize,
                {"max_kv_len is -1", "0 to 1073741824"});
  check_refused([](AttentionConfig& c) { c.max_kv_len = (1 << 30) + 1; }, Status::kInvalidSize,
                {"max_kv_len is 1073741825"});
  check_refused(
      [](AttentionConfig& c) {
        c.max_q_tokens = 1 << 30;
        c.num_q_heads = 4;
      },
      Status::kInvalidSize, {"max_q_tokens 1073741824", "num_q_heads 4", "2147483647"});
  check_refused(
      [](AttentionConfig& c) {
        c.max_q_tokens = 1 << 30;
        c.num_q_heads = 2;
      },
      Status::kInvalidSize, {"max_q_tokens 1073741824", "num_q_heads 2", "2147483647"});  // one row too many
}

TEST_CASE("plan: splits, threads and tables outside their range") {
  check_refused([](AttentionConfig& c) { c.kv_split_tokens = 100; }, Status::kInvalidArgument,
                {"kv_split_tokens is 100", "multiple of 64"});
  // So many parts that their bytes would wrap around to a small workspace.
  check_refused(
      [](AttentionConfig& c) {
        c.kv_split_tokens = 64;
        c.cache.num_kv_heads = c.num_q_heads = 8192;
        (void)set_interleaved_pages(c.cache, PageOrder::kHnd, c.cache.k.data);
        c.max_batch = 1 << 20;
        c.max_q_tokens = c.max_q_len = 1;
        c.max_kv_len = 1 << 30;
      },
      Status::kInvalidSize, {"parts of 64 tokens", "num_kv_heads 8192", "max_kv_len 1073741824"});
  check_refused([](AttentionConfig& c) { c.kv_split_tokens = -64; }, Status::kInvalidArgument,
                {"kv_split_tokens is -64"});
  check_refused([](AttentionConfig& c) { c.num_threads = -1; }, Status::kInvalidArgument,
                {"num_threads is -1", "4096"});
  check_refused([](AttentionConfig& c) { c.num_threads = 4097; }, Status::kInvalidArgument,
                {"num_threads is 4097", "4096"});
  check_refused([](AttentionConfig& c) { c.matrix_path = static_cast<MatrixPath>(3); }, Status::kInvalidArgument,
                {"matrix_path is 3", "0 (auto)", "2 (decode)"});
  check_refused([](AttentionConfig& c) { c.matrix_path = MatrixPath::kNative; }, Status::kUnsupportedFormat,
                {"matrix_path is native", "allowed: auto, decode"});
  check_refused([](AttentionConfig& c) { c.table_kind = static_cast<TableKind>(2); }, Status::kInvalidArgument,
                {"table_kind is 2", "block table", "CSR"});
}

TEST_CASE("plan: masks and scales outside their range") {
  check_refused([](AttentionConfig& c) { c.sliding_window = -1; }, Status::kInvalidArgument, {"sliding_window is -1"});
  check_refused(
      [](AttentionConfig& c) {
        c.sliding_window = 4;
        c.causal = false;
      },
      Status::kInvalidArgument, {"sliding_window is 4", "causal"});
  check_refused([](AttentionConfig& c) { c.softcap = -1.0f; }, Status::kInvalidArgument, {"softcap is -1", "2^-126 to 2^126"});
  check_refused([](AttentionConfig& c) { c.softcap = kNan; }, Status::kInvalidArgument, {"softcap is nan"});
  check_refused([](AttentionConfig& c) { c.softcap = kInf; }, Status::kInvalidArgument, {"softcap is inf"});
  check_refused([](AttentionConfig& c) { c.softcap = 3e38f; }, Status::kInvalidArgument, {"softcap is 3e+38", "2^126"});
  check_refused([](AttentionConfig& c) { c.softcap = 0x1.8p126f; }, Status::kInvalidArgument, {"softcap is 1.276", "2^126"});
  check_refused([](AttentionConfig& c) { c.softcap = 1e-39f; }, Status::kInvalidArgument, {"softcap is 1e-39", "2^-126"});
  check_refused([](AttentionConfig& c) { c.sm_scale = kNan; }, Status::kInvalidArgument, {"sm_scale is nan", "2^-126 to 2^126"});
  check_refused([](AttentionConfig& c) { c.sm_scale = -kInf; }, Status::kInvalidArgument,
                {"sm_scale is -inf", "-2^126 to -2^-126"});
  check_refused([](AttentionConfig& c) { c.sm_scale = -1e-39f; }, Status::kInvalidArgument, {"sm_scale is -1e-39", "2^-126"});
  check_refused([](AttentionConfig& c) { c.sm_scale = -3e38f; }, Status::kInvalidArgument, {"sm_scale is -3e+38", "2^126"});
}

TEST_CASE("plan: a tree mask and what it does not go with") {
  check_refused(
      [](AttentionConfig& c) {
        c.tree_mask = true;
        c.max_q_tokens = c.max_q_len = 65;
      },
      Status::kInvalidArgument, {"max_q_len 65", "64"});
  check_refused(
      [](AttentionConfig& c) {
        c.tree_mask = true;
        c.max_q_tokens = c.max_q_len = 17;
        c.sliding_window = 16;
      },
      Status::kInvalidArgument, {"tree_mask", "sliding_window 16", "max_q_len = 17"});
  check_refused(
      [](AttentionConfig& c) {
        c.tree_mask = true;
        c.alibi = true;
      },
      Status::kInvalidArgument, {"tree_mask", "alibi"});
}
