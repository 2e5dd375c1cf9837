// The C interface: structs of other ages, and that it says and does what the C++ interface does.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "fp4pa/fp4pa.h"
#include "fp4pa/fp4pa.hpp"
#include "tests/api/small_cache.hpp"

using namespace fp4pa;
using test::Bytes;

#define FP4PA_CHECK_C_REFUSED(call, expected, ...)          \
  do {                                                      \
    const fp4pa_status refused = (call);                    \
    const std::string detail = fp4pa_last_error_detail();   \
    INFO(fp4pa_status_name(refused), ": ", detail);         \
    CHECK(refused == (expected));                           \
    CHECK(test::detail_has({__VA_ARGS__}));                 \
  } while (false)

namespace {

/// The C twin of test::SmallCache.
struct CCache {
  CCache() {
    fp4pa_cache_init(&desc);
    desc.num_kv_heads = 2;
    desc.head_dim = 64;
    desc.page_size = 32;
    desc.num_pages = 3;
    std::int64_t page_bytes = 0;
    REQUIRE(fp4pa_set_interleaved_pages(&desc, FP4PA_PAGE_NHD, nullptr, &page_bytes) == FP4PA_OK);
    REQUIRE(page_bytes == 2 * 2 * 32 * (32 + 2));
    REQUIRE(fp4pa_set_interleaved_pages(&desc, FP4PA_PAGE_NHD, pool.data(), nullptr) == FP4PA_OK);
  }
  fp4pa_cache desc;
  Bytes pool{3 * 2 * 2 * 32 * (32 + 2)};
};

fp4pa_exec on_cpu() {
  fp4pa_exec exec;
  fp4pa_exec_init(&exec);
  exec.backend = "cpu";
  return exec;
}

fp4pa_kv_input input_of(const std::vector<float>& x) {
  fp4pa_kv_input in;
  fp4pa_kv_input_init(&in);
  in.data = x.data();
  in.dtype = FP4PA_F32;
  return in;
}

fp4pa_kv_output output_to(std::vector<float>& x) {
  fp4pa_kv_output out;
  fp4pa_kv_output_init(&out);
  out.data = x.data();
  return out;
}

/// A slot of a cache holds these elements, the same for every head and dimension.
void check_token(const fp4pa_cache& cache, std::int32_t slot, float of_k, float of_v) {
  std::vector<float> k(2 * 64), v(2 * 64);
  const fp4pa_kv_output k_out = output_to(k), v_out = output_to(v);
  const fp4pa_exec exec = on_cpu();
  REQUIRE(fp4pa_gather(&cache, &slot, FP4PA_INT32, 1, &k_out, &v_out, &exec) == FP4PA_OK);
  CHECK(k == std::vector<float>(k.size(), of_k));
  CHECK(v == std::vector<float>(v.size(), of_v));
}

}  // namespace

TEST_CASE("C: the layout of the published structs does not move") {
  if (sizeof(void*) != 8) return;
  CHECK(sizeof(fp4pa_kv_tensor) == 136);
  CHECK(sizeof(fp4pa_cache) == 312);
  CHECK(sizeof(fp4pa_two_tier) == 40);
  CHECK(sizeof(fp4pa_kv_input) == 40);
  CHECK(sizeof(fp4pa_kv_output) == 40);
  CHECK(sizeof(fp4pa_exec) == 32);
  CHECK(sizeof(fp4pa_backend_info) == 32);
  CHECK(sizeof(fp4pa_quantize_config) == 32);
  CHECK(sizeof(fp4pa_attention_config) == 128);
  CHECK(sizeof(fp4pa_attention_args) == 176);
  CHECK(offsetof(fp4pa_cache, num_pages) == 296);
  CHECK(offsetof(fp4pa_attention_config, backend) == 112);
  CHECK(offsetof(fp4pa_attention_args, workspace) == 144);
  CHECK(offsetof(fp4pa_attention_args, same_lengths) == 172);
}

TEST_CASE("C: version, names and back ends") {
  CHECK(fp4pa_abi_version() == FP4PA_ABI_VERSION);
  CHECK(std::string(fp4pa_version_string()) == version_string());
  CHECK(std::string(fp4pa_status_name(FP4PA_UNSUPPORTED_HEAD_DIM)) == "kUnsupportedHeadDim");
  CHECK(std::string(fp4pa_status_name(999)) == "kUnknownStatus");

  const std::int32_t count = fp4pa_backend_count();
  CHECK(count == available_backends(nullptr, 0));
  fp4pa_backend_info info;
  fp4pa_backend_info_init(&info);
  REQUIRE(fp4pa_get_backend(count - 2, &info) == FP4PA_OK);
  CHECK(std::string(info.name) == "cpu");
  CHECK(info.available == 1);
  CHECK(info.struct_size == sizeof info);
  FP4PA_CHECK_C_REFUSED(fp4pa_get_backend(count, &info), FP4PA_INVALID_ARGUMENT, "index is ", "allowed: 0 to ");
  FP4PA_CHECK_C_REFUSED(fp4pa_get_backend(0, nullptr), FP4PA_NULL_POINTER, "out is null");
}

TEST_CASE("C: a struct that was never initialised is refused") {
  fp4pa_cache cache;
  std::memset(&cache, 0, sizeof cache);
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_cache(&cache), FP4PA_INVALID_ARGUMENT, "cache.struct_size is 0", "init function");
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_cache(nullptr), FP4PA_NULL_POINTER, "cache is null");
}

TEST_CASE("C: a caller with a newer header is understood while its new fields are zero") {
  struct Newer {
    fp4pa_kv_input known;
    std::int64_t added;
  } newer;
  std::memset(&newer, 0, sizeof newer);
  CCache cache;
  const std::vector<float> x(2 * 64, 1.0f);
  fp4pa_kv_input_init_sized(&newer.known, sizeof newer);
  CHECK(newer.known.struct_size == sizeof newer);
  CHECK(newer.known.dtype == FP4PA_BF16);
  newer.known.data = x.data();
  newer.known.dtype = FP4PA_F32;
  const std::int32_t slot = 4;
  const fp4pa_exec exec = on_cpu();
  CHECK(fp4pa_append(&cache.desc, &newer.known, &newer.known, &slot, FP4PA_INT32, 1, &exec) == FP4PA_OK);
  newer.added = 1;
  FP4PA_CHECK_C_REFUSED(fp4pa_append(&cache.desc, &newer.known, &newer.known, &slot, FP4PA_INT32, 1, &exec),
                        FP4PA_INVALID_ARGUMENT, "k.struct_size is 48", "does not know");
}

TEST_CASE("C: an init function does not write beyond the size it is given") {
  fp4pa_attention_config config;
  std::memset(&config, 0x5A, sizeof config);
  fp4pa_attention_config_init_sized(&config, 24);
  CHECK(config.struct_size == 24);
  CHECK(config.num_q_heads == 0x5A5A5A5A);
}

TEST_CASE("C: reserved words and nested sizes are checked") {
  CCache cache;
  cache.desc.v.reserved[2] = 7;
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_cache(&cache.desc), FP4PA_INVALID_ARGUMENT, "cache.v.reserved has 7", "allowed: 0");
  cache.desc.v.reserved[2] = 0;
  cache.desc.k.struct_size = 8;
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_cache(&cache.desc), FP4PA_INVALID_ARGUMENT, "cache.k.struct_size is 8");
}

TEST_CASE("C: fields of 0 or 1 may have no other value") {
  CCache cache;
  cache.desc.v.global_scale_per_head = 2;
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_cache(&cache.desc), FP4PA_INVALID_ARGUMENT, "cache.v.global_scale_per_head is 2", "allowed: 0, 1");
  cache.desc.v.global_scale_per_head = 0;
  fp4pa_exec exec = on_cpu();
  exec.validate_device_data = -1;
  FP4PA_CHECK_C_REFUSED(fp4pa_copy_pages(&cache.desc, nullptr, nullptr, 0, &exec), FP4PA_INVALID_ARGUMENT,
                        "exec.validate_device_data is -1", "allowed: 0, 1");

  fp4pa_attention_config config;
  fp4pa_attention_config_init(&config);
  config.cache = &cache.desc;
  config.num_q_heads = 2;
  config.max_batch = config.max_q_tokens = config.max_q_len = config.max_kv_len = 1;
  config.backend = "cpu";
  fp4pa_plan* plan = nullptr;
  const struct {
    const char* name;
    std::int32_t* field;
  } flags[] = {{"causal", &config.causal},       {"sinks", &config.sinks},
               {"alibi", &config.alibi},         {"tree_mask", &config.tree_mask},
               {"batch_invariant", &config.batch_invariant}, {"validate_device_data", &config.validate_device_data}};
  for (const auto& flag : flags) {
    const std::int32_t good = *flag.field;
    *flag.field = 256;  // whose lowest byte is 0
    FP4PA_CHECK_C_REFUSED(fp4pa_plan_create(&config, &plan), FP4PA_INVALID_ARGUMENT, flag.name, " is 256", "allowed: 0, 1");
    *flag.field = good;
  }
  REQUIRE(fp4pa_plan_create(&config, &plan) == FP4PA_OK);
  fp4pa_attention_args args;
  fp4pa_attention_args_init(&args);
  CHECK(fp4pa_run(plan, &args) == FP4PA_OK);  // a batch of 0
  args.same_lengths = 3;
  FP4PA_CHECK_C_REFUSED(fp4pa_run(plan, &args), FP4PA_INVALID_ARGUMENT, "same_lengths is 3", "allowed: 0, 1");
  fp4pa_plan_destroy(plan);
}

TEST_CASE("C: validation tells the same story as in C++") {
  CCache cache;
  CHECK(fp4pa_validate_cache(&cache.desc) == FP4PA_OK);
  cache.desc.head_dim = 48;
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_cache(&cache.desc), FP4PA_UNSUPPORTED_HEAD_DIM, "head_dim is 48",
                        "multiples of 32 from 32 to 256");
  cache.desc.head_dim = 64;
  cache.desc.k.format = 17;
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_cache(&cache.desc), FP4PA_UNSUPPORTED_FORMAT, "k.format is 17");
  cache.desc.k.format = FP4PA_KV_MXFP4;
  cache.desc.k.nibble_order = 1;
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_cache(&cache.desc), FP4PA_UNSUPPORTED_FORMAT, "k.nibble_order is 1");
}

TEST_CASE("C: layout helpers equal those of C++") {
  CCache c;
  test::SmallCache cpp;
  REQUIRE(fp4pa_set_dense_strides(&c.desc, FP4PA_PAGE_HND) == FP4PA_OK);
  CHECK(c.desc.k.head_stride_bytes == cpp.desc.k.head_stride_bytes);
  CHECK(c.desc.v.scale_page_stride_bytes == cpp.desc.v.scale_page_stride_bytes);
  CHECK(fp4pa_dense_data_bytes(&c.desc, FP4PA_V) == dense_data_bytes(cpp.desc, cpp.desc.v));
  CHECK(fp4pa_dense_scale_bytes(&c.desc, FP4PA_K) == dense_scale_bytes(cpp.desc, cpp.desc.k));
  CHECK(fp4pa_dense_data_bytes(&c.desc, 2) == 0);
  CHECK(fp4pa_kv_data_bytes(FP4PA_KV_NVFP4, 128) == 64);
  CHECK(fp4pa_kv_scale_bytes(FP4PA_KV_NVFP4, FP4PA_SCALE_AXIS_TOKENS, 128) == 128);
  CHECK(fp4pa_kv_token_group(FP4PA_KV_MXFP4, FP4PA_SCALE_AXIS_TOKENS) == 32);
  CHECK(fp4pa_quantised_tokens(129, 64, 32) == 64);
  CHECK(fp4pa_quantised_tokens(129, 64, 0) == 0);
  CHECK(fp4pa_min_ring_pages(64, 32, 16) == 6);
  CHECK(fp4pa_min_ring_pages(64, 32, 0) == 0);
  CHECK(fp4pa_min_ring_pages(INT32_MAX, INT32_MAX, 1) == INT32_MAX);
  CHECK(fp4pa_min_ring_pages_with_rollback(64, 32, 16, 0) == 6);
  CHECK(fp4pa_min_ring_pages_with_rollback(64, 32, 16, 8) == 7);
  CHECK(fp4pa_min_ring_pages_with_rollback(64, 32, 16, -1) == 0);
  CHECK(fp4pa::quantised_tokens(100, 0, 0) == 0);
  CHECK(fp4pa::min_ring_pages(64, 32, 0) == 0);
  FP4PA_CHECK_C_REFUSED(fp4pa_set_dense_strides(&c.desc, 2), FP4PA_INVALID_ARGUMENT, "order is 2", "nhd");
}

TEST_CASE("C: layout helpers refuse sizes that no cache has, and leave the description alone") {
  CCache c;
  const auto check = [&](auto&& change, fp4pa_status status, std::initializer_list<const char*> words) {
    fp4pa_cache bad = c.desc;
    change(bad);
    const fp4pa_cache before = bad;
    const auto refused = [&](fp4pa_status got) {
      INFO(fp4pa_status_name(got), ": ", std::string(fp4pa_last_error_detail()));
      CHECK(got == status);
      CHECK(test::detail_has(words));
      CHECK(std::memcmp(&bad, &before, sizeof bad) == 0);
    };
    refused(fp4pa_set_dense_strides(&bad, FP4PA_PAGE_HND));
    std::int64_t page_bytes = 77;
    refused(fp4pa_set_interleaved_pages(&bad, FP4PA_PAGE_HND, c.pool.data(), &page_bytes));
    CHECK(page_bytes == 77);
    CHECK(fp4pa_dense_data_bytes(&bad, FP4PA_K) == 0);
    CHECK(fp4pa_dense_scale_bytes(&bad, FP4PA_V) == 0);
  };
  check([](auto& d) { d.num_kv_heads = -1; }, FP4PA_INVALID_SIZE, {"num_kv_heads is -1", "at least 1"});
  check([](auto& d) { d.page_size = 0; }, FP4PA_INVALID_SIZE, {"page_size is 0", "1 to 1024"});
  check([](auto& d) { d.head_dim = 33; }, FP4PA_UNSUPPORTED_HEAD_DIM, {"head_dim is 33", "32 to 256"});
  check([](auto& d) { d.num_pages = std::int64_t{1} << 62; }, FP4PA_INVALID_SIZE, {"num_pages is 4611686018427387904", "0 to 2147483647"});
  check([](auto& d) { d.num_pages = -1; }, FP4PA_INVALID_SIZE, {"num_pages is -1"});
  check([](auto& d) { d.v.format = 17; }, FP4PA_UNSUPPORTED_FORMAT, {"v.format is 17"});
  FP4PA_CHECK_C_REFUSED(fp4pa_set_interleaved_pages(&c.desc, FP4PA_PAGE_HND, c.pool.data() + 4, nullptr), FP4PA_MISALIGNED_POINTER,
                        "base is 0x", "multiples of 16");

  c.desc.num_pages = 0;  // not known yet: it may follow from the bytes of a page
  std::int64_t page_bytes = 0;
  CHECK(fp4pa_set_interleaved_pages(&c.desc, FP4PA_PAGE_HND, nullptr, &page_bytes) == FP4PA_OK);
  CHECK(page_bytes == 2 * 2 * 32 * (32 + 2));
  CHECK(fp4pa_set_dense_strides(&c.desc, FP4PA_PAGE_HND) == FP4PA_OK);
  // More bytes than there are.
  c.desc.num_pages = c.desc.num_kv_heads = INT32_MAX;
  CHECK(fp4pa_dense_data_bytes(&c.desc, FP4PA_K) == 0);
}

TEST_CASE("C: append, copy and gather bring the tokens back") {
  CCache cache;
  std::vector<float> x(2 * 2 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 4) - 1.0f;  // -1, 0, 1, 2: exact in E2M1
  const fp4pa_kv_input in = input_of(x);
  const fp4pa_exec exec = on_cpu();
  const std::int64_t slots[2] = {3, 31};
  REQUIRE(fp4pa_append(&cache.desc, &in, &in, slots, FP4PA_INT64, 2, &exec) == FP4PA_OK);
  const std::int32_t src = 0, dst = 2;
  REQUIRE(fp4pa_copy_pages(&cache.desc, &src, &dst, 1, &exec) == FP4PA_OK);

  std::vector<float> k(x.size(), 99.0f);
  const fp4pa_kv_output out = output_to(k);
  const std::int32_t copied[2] = {64 + 3, 64 + 31};
  REQUIRE(fp4pa_gather(&cache.desc, copied, FP4PA_INT32, 2, &out, nullptr, &exec) == FP4PA_OK);
  CHECK(k == x);
}

TEST_CASE("C: append keeps K and V apart") {
  CCache cache;
  const std::vector<float> ones(2 * 64, 1.0f), twos(2 * 64, 2.0f);
  const fp4pa_kv_input k = input_of(ones), v = input_of(twos);
  const fp4pa_exec exec = on_cpu();
  const std::int32_t slot = 5;
  REQUIRE(fp4pa_append(&cache.desc, &k, &v, &slot, FP4PA_INT32, 1, &exec) == FP4PA_OK);
  check_token(cache.desc, slot, 1.0f, 2.0f);
}

TEST_CASE("C: append's every choice does what it does in C++, and something") {
  std::vector<float> x(32 * 2 * 64);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.37f * static_cast<float>(i * i % 97) - 15.0f;
  const fp4pa_kv_input in = input_of(x);
  const KvInput cpp_in{x.data(), DType::kF32, 0, 0};
  std::vector<std::int32_t> slots;
  for (std::int32_t i = 0; i < 32; ++i) slots.push_back(i);
  const fp4pa_exec exec = on_cpu();
  std::set<std::string> seen;  // pools
  const auto check = [&](auto&& change) {
    CCache c;
    test::SmallCache cpp;
    change(cpp.desc, c.desc);
    constexpr std::size_t kPoolBytes = 1 << 16;
    Bytes cpp_pool(kPoolBytes), c_pool(kPoolBytes);
    (void)set_interleaved_pages(cpp.desc, PageOrder::kNhd, cpp_pool.data());
    REQUIRE(fp4pa_set_interleaved_pages(&c.desc, FP4PA_PAGE_NHD, c_pool.data(), nullptr) == FP4PA_OK);
    REQUIRE(fp4pa::append(cpp.desc, cpp_in, cpp_in, slots.data(), IndexType::kInt32, 32, ExecDesc{"cpu"}) == Status::kOk);
    REQUIRE(fp4pa_append(&c.desc, &in, &in, slots.data(), FP4PA_INT32, 32, &exec) == FP4PA_OK);
    CHECK(std::memcmp(cpp_pool.data(), c_pool.data(), kPoolBytes) == 0);
    CHECK(seen.emplace(reinterpret_cast<const char*>(cpp_pool.data()), kPoolBytes).second);
  };
  const auto nvfp4 = [](auto& cpp, auto& c) {
    cpp.k.format = cpp.v.format = KvFormat::kNvfp4;
    c.k.format = c.v.format = FP4PA_KV_NVFP4;
  };
  check([](auto&, auto&) {});
  check([](auto& cpp, auto& c) { cpp.scale_mode = ScaleMode::kCeil, c.scale_mode = FP4PA_SCALE_CEIL; });
  check([](auto& cpp, auto& c) { cpp.rotation = Rotation::kHadamard32, c.rotation = 32; });
  check([](auto& cpp, auto& c) { cpp.v.scale_axis = VScaleAxis::kTokens, c.v.scale_axis = FP4PA_SCALE_AXIS_TOKENS; });
  check(nvfp4);
  check([&](auto& cpp, auto& c) { nvfp4(cpp, c), cpp.k.global_scale = c.k.global_scale = 0.02f; });
  check([&](auto& cpp, auto& c) {
    nvfp4(cpp, c);
    cpp.nvfp4_scale = Nvfp4Scale::kFourOverSix;
    c.nvfp4_scale = FP4PA_NVFP4_FOUR_OVER_SIX;
  });
}

TEST_CASE("C: quantise and back") {
  fp4pa_quantize_config config;
  fp4pa_quantize_config_init(&config);
  std::vector<float> x(2 * 32), y(2 * 32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) * 0.5f;  // 0 to 3: exact in E2M1 but 2.5
  std::vector<std::uint8_t> codes(fp4pa_quantized_code_bytes(FP4PA_BLOCK_MXFP8, 2, 32));
  std::vector<std::uint8_t> scales(fp4pa_quantized_scale_bytes(FP4PA_BLOCK_MXFP8, FP4PA_SCALES_LINEAR, 2, 32));
  config.format = FP4PA_BLOCK_MXFP8;
  const fp4pa_exec exec = on_cpu();
  REQUIRE(fp4pa_quantize(&config, x.data(), FP4PA_F32, 2, 32, codes.data(), scales.data(), &exec) == FP4PA_OK);
  REQUIRE(fp4pa_dequantize(&config, codes.data(), scales.data(), 2, 32, y.data(), FP4PA_F32, &exec) == FP4PA_OK);
  CHECK(x == y);
  FP4PA_CHECK_C_REFUSED(fp4pa_quantize(&config, x.data(), FP4PA_F32, 2, 33, codes.data(), scales.data(), &exec),
                        FP4PA_INVALID_SIZE, "cols is 33");
}

TEST_CASE("C: two tiers") {
  CCache old_tier;
  fp4pa_cache recent = old_tier.desc;
  recent.k.format = recent.v.format = FP4PA_KV_BF16;
  Bytes pool(3 * 2 * 2 * 32 * 128);
  REQUIRE(fp4pa_set_interleaved_pages(&recent, FP4PA_PAGE_HND, pool.data(), nullptr) == FP4PA_OK);
  fp4pa_two_tier tiers;
  fp4pa_two_tier_init(&tiers);
  CHECK(tiers.window_tokens == 64);
  CHECK(tiers.group_tokens == 32);
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_two_tier(&tiers), FP4PA_NULL_POINTER, "old_tier is null");
  tiers.old_tier = &old_tier.desc;
  tiers.recent = &recent;
  FP4PA_CHECK_C_REFUSED(fp4pa_validate_two_tier(&tiers), FP4PA_INVALID_SIZE, "ring_pages is 0", "at least 3");
  tiers.ring_pages = 3;
  CHECK(fp4pa_validate_two_tier(&tiers) == FP4PA_OK);
  CHECK(fp4pa_old_tier_pages(&tiers, 96) == 1);

  const std::vector<float> x(100 * 2 * 64, 1.0f), twos(100 * 2 * 64, 2.0f);
  const fp4pa_kv_input k = input_of(x), v = input_of(twos);
  const std::int32_t indptr[2] = {0, 100}, seq_lens[1] = {0}, old_table[1] = {1}, recent_table[3] = {2, 0, 1};
  const fp4pa_exec exec = on_cpu();
  CHECK(fp4pa_append_two_tier(&tiers, &k, &v, indptr, seq_lens, 1, 100, old_table, 1, recent_table, &exec) == FP4PA_OK);
  check_token(old_tier.desc, 1 * 32 + 5, 1.0f, 2.0f);  // token 5
  check_token(recent, 0 * 32 + 1, 1.0f, 2.0f);         // token 33
}

TEST_CASE("C: merging knows whose LSE is whose") {
  const std::vector<float> a(32, 1.0f), b(32, 3.0f);
  const float lse_a = 0.0f, lse_b = 20.0f;  // b is all but everything
  std::vector<float> o(32);
  float lse = 0.0f;
  const fp4pa_exec exec = on_cpu();
  REQUIRE(fp4pa_merge_states(a.data(), &lse_a, b.data(), &lse_b, o.data(), &lse, FP4PA_F32, 1, 32, &exec) == FP4PA_OK);
  CHECK(o[0] == doctest::Approx(3.0f));
  CHECK(lse == doctest::Approx(20.0f));
}

TEST_CASE("C: plan and merge refuse what C++ refuses, and null handles are harmless") {
  fp4pa_attention_config config;
  fp4pa_attention_config_init(&config);
  CHECK(config.causal == 1);
  CHECK(config.q_dtype == FP4PA_BF16);
  fp4pa_plan* plan = nullptr;
  FP4PA_CHECK_C_REFUSED(fp4pa_plan_create(&config, &plan), FP4PA_NULL_POINTER, "cache is null");
  FP4PA_CHECK_C_REFUSED(fp4pa_plan_create(&config, nullptr), FP4PA_NULL_POINTER, "plan is null");
  CCache cache;
  config.cache = &cache.desc;
  config.num_q_heads = 3;
  FP4PA_CHECK_C_REFUSED(fp4pa_plan_create(&config, &plan), FP4PA_INVALID_HEADS, "num_q_heads is 3");
  config.num_q_heads = 4;
  config.window_tokens = 64;
  FP4PA_CHECK_C_REFUSED(fp4pa_plan_create(&config, &plan), FP4PA_INVALID_ARGUMENT, "window_tokens is 64", "allowed: 0");
  CHECK(plan == nullptr);
  FP4PA_CHECK_C_REFUSED(fp4pa_run(nullptr, nullptr), FP4PA_NULL_POINTER, "plan is null");
  fp4pa_plan_destroy(nullptr);
  CHECK(fp4pa_plan_workspace_bytes(nullptr) == 0);
  CHECK(fp4pa_plan_num_workers(nullptr) == 0);
  CHECK(std::string(fp4pa_plan_backend(nullptr)).empty());
  FP4PA_CHECK_C_REFUSED(fp4pa_merge_states(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, FP4PA_F32, 1, 40, nullptr),
                        FP4PA_UNSUPPORTED_HEAD_DIM, "head_dim is 40");
}
