// One decode step over an FP4 KV cache, from nothing: make a cache, append a sequence's keys and values, plan once, run
// for the newest token's query, and compare with the same attention written out in double precision.
//
//   c++ -std=c++20 decode_one_step.cpp $(pkg-config --cflags --libs fp4pa)
#include <fp4pa/fp4pa.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

namespace {

constexpr int kQHeads = 8, kKvHeads = 2, kHeadDim = 64, kPageSize = 16, kTokens = 100;
constexpr int kPages = (kTokens + kPageSize - 1) / kPageSize;

void check(fp4pa::Status status, const char* what) {
  if (status == fp4pa::Status::kOk) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, fp4pa::status_name(status), fp4pa::last_error_detail());
  std::exit(1);
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;

/// Memory at the alignment that workspaces need (pages need 16 bytes).
Memory aligned(std::size_t bytes) { return Memory(std::aligned_alloc(256, (bytes + 255) / 256 * 256)); }

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Attention of one query over keys and values [tokens, kv heads, head_dim], in double precision.
std::vector<double> reference(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v) {
  std::vector<double> o(static_cast<std::size_t>(kQHeads) * kHeadDim, 0.0);
  for (int h = 0; h < kQHeads; ++h) {
    const int kv = h / (kQHeads / kKvHeads);
    const auto at = [&](int token, int d) { return static_cast<std::size_t>((token * kKvHeads + kv) * kHeadDim + d); };
    std::vector<double> weight(kTokens);
    double largest = -INFINITY, total = 0.0;
    for (int t = 0; t < kTokens; ++t) {
      double score = 0.0;
      for (int d = 0; d < kHeadDim; ++d) score += double{q[static_cast<std::size_t>(h * kHeadDim + d)]} * k[at(t, d)];
      weight[static_cast<std::size_t>(t)] = score / std::sqrt(double{kHeadDim});
      largest = std::fmax(largest, weight[static_cast<std::size_t>(t)]);
    }
    for (double& w : weight) total += w = std::exp(w - largest);
    for (int t = 0; t < kTokens; ++t) {
      for (int d = 0; d < kHeadDim; ++d) {
        o[static_cast<std::size_t>(h * kHeadDim + d)] += weight[static_cast<std::size_t>(t)] / total * v[at(t, d)];
      }
    }
  }
  return o;
}

}  // namespace

int main() {
  // All memory here is the host's, so the back end is named: with none named, a library with CUDA or HIP takes the GPU, which
  // needs device memory.
  fp4pa::ExecDesc cpu;
  cpu.backend = "cpu";

  // A pool of NVFP4 pages, K and V side by side in each page.
  fp4pa::KvCacheDesc cache;
  cache.k.format = cache.v.format = fp4pa::KvFormat::kNvfp4;
  cache.num_kv_heads = kKvHeads;
  cache.head_dim = kHeadDim;
  cache.page_size = kPageSize;
  cache.num_pages = kPages;
  const std::int64_t page_bytes = fp4pa::set_interleaved_pages(cache, fp4pa::PageOrder::kHnd, nullptr);
  const Memory pool = aligned(static_cast<std::size_t>(page_bytes * cache.num_pages));
  fp4pa::set_interleaved_pages(cache, fp4pa::PageOrder::kHnd, pool.get());
  check(fp4pa::validate(cache), "validate");

  // The sequence owns the pages in reverse order; token t goes to row t % page_size of its page t / page_size.
  std::vector<std::int32_t> block_table(kPages), slots(kTokens);
  for (int p = 0; p < kPages; ++p) block_table[static_cast<std::size_t>(p)] = kPages - 1 - p;
  for (int t = 0; t < kTokens; ++t) {
    slots[static_cast<std::size_t>(t)] = block_table[static_cast<std::size_t>(t / kPageSize)] * kPageSize + t % kPageSize;
  }
  const std::vector<float> k = random_values(std::size_t{kTokens} * kKvHeads * kHeadDim, 1);
  const std::vector<float> v = random_values(k.size(), 2);
  const fp4pa::KvInput k_in{k.data(), fp4pa::DType::kF32, 0, 0}, v_in{v.data(), fp4pa::DType::kF32, 0, 0};
  check(fp4pa::append(cache, k_in, v_in, slots.data(), fp4pa::IndexType::kInt32, kTokens, cpu), "append");

  // Planned once for the largest call, then used for every step.
  fp4pa::AttentionConfig config;
  config.cache = cache;
  config.num_q_heads = kQHeads;
  config.q_dtype = config.o_dtype = fp4pa::DType::kF32;
  config.max_batch = config.max_q_tokens = config.max_q_len = 1;
  config.max_kv_len = kTokens;
  config.backend = "cpu";
  fp4pa::AttentionPlan plan;
  check(fp4pa::plan(config, &plan), "plan");

  const std::vector<float> q_values = random_values(std::size_t{kQHeads} * kHeadDim, 3);
  const Memory q = aligned(q_values.size() * sizeof(float)), o = aligned(q_values.size() * sizeof(float));
  const Memory workspace = aligned(plan.workspace_bytes() + 1);
  std::copy(q_values.begin(), q_values.end(), static_cast<float*>(q.get()));
  const std::int32_t qo_indptr[2] = {0, 1}, seq_lens[1] = {kTokens};
  fp4pa::AttentionArgs args;
  args.q = q.get();
  args.o = o.get();
  args.batch = 1;
  args.qo_indptr = qo_indptr;
  args.seq_lens = seq_lens;
  args.block_table = block_table.data();
  args.table_stride = kPages;
  args.workspace = workspace.get();
  args.workspace_bytes = plan.workspace_bytes();
  check(fp4pa::run(plan, args), "run");

  // Against attention over what the cache holds (the kernel's own error), and over the input (4 bits' as well).
  std::vector<float> k_held(k.size()), v_held(v.size());
  const fp4pa::KvOutput k_out{k_held.data(), fp4pa::DType::kF32, 0, 0}, v_out{v_held.data(), fp4pa::DType::kF32, 0, 0};
  check(fp4pa::gather(cache, slots.data(), fp4pa::IndexType::kInt32, kTokens, k_out, v_out, cpu), "gather");
  const auto relative_error = [&](const std::vector<double>& expected) {
    double difference = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double d = static_cast<const float*>(o.get())[i] - expected[i];
      difference += d * d;
      norm += expected[i] * expected[i];
    }
    return std::sqrt(difference / norm);
  };
  const double kernel_error = relative_error(reference(q_values, k_held, v_held));
  const double total_error = relative_error(reference(q_values, k, v));
  std::printf("fp4pa %s, back end %s\n", fp4pa::version_string(), plan.backend());
  std::printf("%d tokens in nvfp4, %d pages of %lld bytes (bf16: %d)\n", kTokens, kPages,
              static_cast<long long>(page_bytes), 2 * 2 * kPageSize * kKvHeads * kHeadDim);
  std::printf("relative error over the cache's contents %.1e, over the unquantised input %.1e\n", kernel_error, total_error);
  return kernel_error < 2e-3 ? 0 : 1;
}
