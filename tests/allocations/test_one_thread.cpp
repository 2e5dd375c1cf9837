// What one CPU thread does is a plain call: from the second time on it allocates nothing of which there is no status, and waits for
// nobody.
#include <doctest/doctest.h>

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "tests/allocations/counting.hpp"

using namespace fp4pa;

namespace {

/// Zeros, aligned as everything that takes a pointer wants it.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : data_(new (std::align_val_t{256}) std::byte[bytes + 256]()) {}
  [[nodiscard]] void* data() const { return data_.get(); }

 private:
  struct Delete {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{256}); }
  };
  std::unique_ptr<std::byte[], Delete> data_;
};

constexpr std::size_t kPlenty = 1 << 16;

KvCacheDesc cache_in(const std::vector<Memory>& memory, KvFormat format) {
  KvCacheDesc c;
  c.k.format = c.v.format = format;
  c.num_kv_heads = 2;
  c.head_dim = 64;
  c.page_size = 32;
  c.num_pages = 8;
  set_dense_strides(c, PageOrder::kHnd);
  c.k.data = memory[0].data();
  c.v.data = memory[1].data();
  if (has_scales(format)) {
    c.k.scales = memory[2].data();
    c.v.scales = memory[3].data();
  }
  return c;
}

std::vector<Memory> four() {
  std::vector<Memory> memory;
  for (int i = 0; i < 4; ++i) memory.emplace_back(kPlenty);
  return memory;
}

template <class Call>
void check_allocations(const Call& call, long expected) {
  const Status first = call();
  INFO(std::string(last_error_detail()));
  REQUIRE(first == Status::kOk);
  Status second;
  long count;
  {
    const allocations::Watch watch;
    second = call();
    count = watch.count();
  }
  CHECK(second == Status::kOk);
  CHECK(count == expected);
}

/// Every kind of call with num_threads = 1, through check(call, its allocations).
template <class Check>
void each_call(const Check& check) {
  ExecDesc one{"cpu"};
  one.num_threads = 1;
  const std::vector<Memory> pages = four(), old_pages = four(), recent_pages = four(), rows = four();
  const KvCacheDesc cache = cache_in(pages, KvFormat::kMxfp4);
  const KvInput k{rows[0].data(), DType::kBF16}, v{rows[1].data(), DType::kBF16};
  std::vector<std::int32_t> slots(200);
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int32_t>(i);
  const auto tokens = static_cast<std::int64_t>(slots.size());
  check([&] { return append(cache, k, v, slots.data(), IndexType::kInt32, tokens, one); });
  const KvOutput k_out{rows[2].data(), DType::kBF16}, v_out{rows[3].data(), DType::kBF16};
  check([&] { return gather(cache, slots.data(), IndexType::kInt32, tokens, k_out, v_out, one); });
  const std::int32_t from[2] = {0, 1}, to[2] = {6, 7};
  check([&] { return copy_pages(cache, from, to, 2, one); }, 1);  // to check the ids in, or kInternal

  TwoTierDesc tiers;
  tiers.old_tier = cache_in(old_pages, KvFormat::kMxfp4);
  tiers.recent = cache_in(recent_pages, KvFormat::kBf16);
  tiers.ring_pages = 4;
  const std::int32_t indptr[2] = {0, 100}, lengths[1] = {0}, table[4] = {0, 1, 2, 3};
  check([&] { return append_two_tier(tiers, k, v, indptr, lengths, 1, 100, table, 4, table, one); });

  AttentionConfig config;
  config.cache = cache;
  config.num_q_heads = 4;
  config.max_batch = 1;
  config.max_q_tokens = config.max_q_len = 2;
  config.max_kv_len = 200;
  config.kv_split_tokens = 64;  // several units, and their merge
  config.backend = "cpu";
  config.num_threads = 1;
  AttentionPlan attention;
  REQUIRE(plan(config, &attention) == Status::kOk);
  const Memory workspace(attention.workspace_bytes());
  AttentionArgs args;
  const std::int32_t queries[2] = {0, 2}, keys[1] = {200}, block_table[7] = {0, 1, 2, 3, 4, 5, 6};
  args.q = rows[0].data();
  args.o = rows[2].data();
  args.batch = 1;
  args.qo_indptr = queries;
  args.seq_lens = keys;
  args.block_table = block_table;
  args.table_stride = 7;
  args.workspace = workspace.data();
  args.workspace_bytes = attention.workspace_bytes();
  check([&] { return run(attention, args); });
  const auto floats = [&](std::size_t i) { return static_cast<float*>(rows[i].data()); };
  check([&] { return merge_states(floats(0), floats(1), floats(0), floats(1), floats(2), floats(3), DType::kF32, 200, 64, one); });

  DenseAttentionConfig dense;
  dense.num_q_heads = dense.num_kv_heads = 2;
  dense.head_dim = 64;
  dense.smooth_k = true;
  dense.limits = {1, 80, 80, 80, 80};
  dense.backend = "cpu";
  dense.num_threads = 1;
  DenseAttentionPlan dense_plan;
  REQUIRE(plan_dense_attention(dense, &dense_plan) == Status::kOk);
  const Memory dense_workspace(dense_plan.workspace_bytes());
  DenseAttentionArgs dense_args;
  dense_args.q = rows[0].data();
  dense_args.k = k;
  dense_args.v = v;
  dense_args.o = rows[2].data();
  dense_args.lse = floats(3);
  dense_args.rows = {1, 80, 80};
  dense_args.workspace = dense_workspace.data();
  dense_args.workspace_bytes = dense_plan.workspace_bytes();
  check([&] { return run_dense_attention(dense_plan, dense_args); });

  const QuantizeConfig mxfp4;
  check([&] { return quantize(mxfp4, rows[0].data(), DType::kF32, 128, 64, rows[2].data(), rows[3].data(), one); });
  check([&] { return dequantize(mxfp4, rows[2].data(), rows[3].data(), 128, 64, rows[0].data(), DType::kF32, one); });

  QuantizeConfig nvfp4;
  nvfp4.format = BlockFormat::kNvfp4;
  LinearArgs linear;
  float global = 0.0f;
  const std::vector<Memory> weight = four();
  check([&] {
    return fp4_quantize_weight(nvfp4, rows[0].data(), DType::kF32, 64, 128, 1, weight[0].data(), weight[1].data(), &global, &linear.weight, one);
  });
  linear.x = rows[1].data();
  linear.out = rows[2].data();
  linear.m = 3;
  linear.activations = ActivationForm::kFp4;
  std::size_t bytes = 0;
  REQUIRE(fp4_linear_workspace(linear, &bytes, one) == Status::kOk);
  const Memory linear_workspace(bytes);
  linear.workspace = linear_workspace.data();
  linear.workspace_bytes = bytes;
  check([&] { return fp4_linear(linear, one); });
}

}  // namespace

TEST_CASE("allocations: a call of one thread does without") {
  each_call([](const auto& call, long expected = 0) { check_allocations(call, expected); });
}

TEST_CASE("allocations: a call of one thread is no matter of the team that its caller belongs to") {
  // A barrier or a shared loop of OpenMP's inside the call would be this team's, whose other thread never comes.
  int calls = 0;
#pragma omp parallel num_threads(2)
  {
    if (omp_get_thread_num() == 0) {
      each_call([&](const auto& call, long = 0) { calls += call() == Status::kOk; });
    }
  }
  CHECK(calls == 11);
}
