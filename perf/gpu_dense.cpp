// Dense and MXFP8 attention on the GPU: time of whole calls and the rate of their two products.
//
//   fp4pa_gpu_dense [--batch 4] [--length 2048] [--heads 32] [--kv-heads 32] [--head-dim 128] [--runs 20]
//
// For each row causal and not. Times are medians over single calls between events; a call is everything the library
// launches, quantising or expanding included. FLOP: 4 a query head, visible key, query and head_dim element.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "fp4pa/fp4pa.hpp"

namespace {

using namespace fp4pa;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void must(Status status, const char* what) {
  if (status == Status::kOk) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, status_name(status), last_error_detail());
  std::exit(1);
}

struct Options {
  int batch = 4, length = 2048, heads = 32, kv_heads = 32, head_dim = 128, runs = 20;
};

/// Device memory of `bytes` random bytes, each `(byte & keep) | set`.
std::uint8_t* random_bytes(std::size_t bytes, std::uint8_t keep, std::uint8_t set) {
  std::mt19937_64 random(7);
  std::vector<std::uint8_t> host(bytes);
  for (std::uint8_t& b : host) b = static_cast<std::uint8_t>((random() & keep) | set);
  void* device = nullptr;
  must(cudaMalloc(&device, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  must(cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice), "upload");
  return static_cast<std::uint8_t*>(device);
}
/// bf16 of +-2^-1 to 2^1.
std::uint8_t* random_bf16(std::size_t count) {
  std::mt19937_64 random(9);
  std::vector<std::uint16_t> host(count);
  for (std::uint16_t& x : host) x = static_cast<std::uint16_t>((random() & 0x80ff) | 0x3f00);
  void* device = nullptr;
  must(cudaMalloc(&device, count * 2), "cudaMalloc");
  must(cudaMemcpy(device, host.data(), count * 2, cudaMemcpyHostToDevice), "upload");
  return static_cast<std::uint8_t*>(device);
}

/// Median microseconds of a call.
double median_us(int runs, const std::function<void()>& call) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  std::vector<float> us;
  for (int i = 0; i < runs + 3; ++i) {
    must(cudaEventRecord(begin), "event");
    call();
    must(cudaEventRecord(end), "event");
    must(cudaEventSynchronize(end), "run");
    float ms = 0.0f;
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i >= 3) us.push_back(1e3f * ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

void report(const Options& o, const std::string& name, bool causal, double us) {
  const double pairs = causal ? 0.5 * o.length * (o.length + 1.0) : double(o.length) * o.length;
  const double flop = 4.0 * o.batch * o.heads * pairs * o.head_dim;
  std::printf("%-28s %-10s %10.1f us %8.1f TFLOP/s\n", name.c_str(), causal ? "causal" : "all keys", us, flop / us * 1e-6);
  std::fflush(stdout);
}

template <class Config>
Config config_of(const Options& o, bool causal) {
  Config c;
  c.num_q_heads = o.heads;
  c.num_kv_heads = o.kv_heads;
  c.head_dim = o.head_dim;
  c.causal = causal;
  c.limits = {o.batch, o.batch * o.length, o.length, o.batch * o.length, o.length};
  c.backend = "cuda";
  return c;
}
void* workspace_of(std::size_t bytes) {
  void* workspace = nullptr;
  must(cudaMalloc(&workspace, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  return workspace;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  const std::pair<const char*, int*> options[] = {{"--batch", &o.batch},       {"--length", &o.length},
                                                  {"--heads", &o.heads},       {"--kv-heads", &o.kv_heads},
                                                  {"--head-dim", &o.head_dim}, {"--runs", &o.runs}};
  for (int i = 1; i < argc; i += 2) {
    bool known = false;
    for (const auto& [name, value] : options) {
      if (std::strcmp(argv[i], name) != 0 || i + 1 == argc) continue;
      *value = std::atoi(argv[i + 1]);
      known = *value > 0;
    }
    if (!known) {
      std::fprintf(stderr, "%s: allowed: --batch, --length, --heads, --kv-heads, --head-dim, --runs, each with a positive number\n",
                   argv[i]);
      return 2;
    }
  }
  const auto tokens = static_cast<std::size_t>(o.batch) * static_cast<std::size_t>(o.length);
  const std::size_t q_count = tokens * static_cast<std::size_t>(o.heads * o.head_dim);
  const std::size_t kv_count = tokens * static_cast<std::size_t>(o.kv_heads * o.head_dim);
  const DenseBatch rows{o.batch, static_cast<int>(tokens), static_cast<int>(tokens), nullptr, nullptr};
  void* const out = workspace_of(q_count * 2);
  std::printf("batch %d, %d tokens, %d query heads over %d KV heads of %d\n", o.batch, o.length, o.heads, o.kv_heads, o.head_dim);

  std::uint8_t* const q = random_bf16(q_count);
  std::uint8_t* const k = random_bf16(kv_count);
  std::uint8_t* const v = random_bf16(kv_count);
  for (const KvFormat format : {KvFormat::kBf16, KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kMxfp8}) {
    for (const bool smooth : {false, true}) {
      if (smooth && format == KvFormat::kBf16) continue;
      for (const bool causal : {false, true}) {
        auto c = config_of<DenseAttentionConfig>(o, causal);
        c.k_format = c.v_format = format;
        c.smooth_k = smooth;
        DenseAttentionPlan plan;
        must(plan_dense_attention(c, &plan), "plan_dense_attention");
        DenseAttentionArgs args;
        args.q = q;
        args.k = {k, DType::kBF16, 0, 0};
        args.v = {v, DType::kBF16, 0, 0};
        args.o = out;
        args.rows = rows;
        args.workspace = workspace_of(plan.workspace_bytes());
        args.workspace_bytes = plan.workspace_bytes();
        const double us = median_us(o.runs, [&] { must(run_dense_attention(plan, args), "run_dense_attention"); });
        report(o, std::string("dense ") + name_of(format) + (smooth ? ", smooth_k" : ""), causal, us);
        cudaFree(args.workspace);
      }
    }
  }

  // E4M3 below 2, scales of 2^-2 to 2^1.
  Mxfp8AttentionArgs args;
  args.q = {random_bytes(q_count, 0xbf, 0x00), 0, 0, random_bytes(q_count / 32, 0x03, 124), 0, 0};
  args.k = {random_bytes(kv_count, 0xbf, 0x00), 0, 0, random_bytes(kv_count / 32, 0x03, 124), 0, 0};
  args.v = {random_bytes(kv_count, 0xbf, 0x00), 0, 0, random_bytes(kv_count / 32, 0x03, 124), 0, 0};
  args.o = out;
  args.rows = rows;
  for (const Mxfp8Decode decode : {Mxfp8Decode::kPerTile, Mxfp8Decode::kOnce}) {
    for (const bool causal : {false, true}) {
      auto c = config_of<Mxfp8AttentionConfig>(o, causal);
      c.decode = decode;
      Mxfp8AttentionPlan plan;
      must(plan_mxfp8_attention(c, &plan), "plan_mxfp8_attention");
      args.workspace = workspace_of(plan.workspace_bytes());
      args.workspace_bytes = plan.workspace_bytes();
      const double us = median_us(o.runs, [&] { must(run_mxfp8_attention(plan, args), "run_mxfp8_attention"); });
      report(o, std::string("mxfp8, ") + name_of(decode), causal, us);
      cudaFree(args.workspace);
    }
  }
  return 0;
}
