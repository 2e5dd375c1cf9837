// Decode on the GPU against the memory: time, bytes that must be read, and their share of the read bandwidth that is measured
// in the same run.
//
//   fp4pa_gpu_bench [--formats mxfp4,nvfp4,fp8_e4m3,bf16] [--page 64] [--runs 40] [--q-len 1] [--recent] [--json FILE]
//
// Pages are shuffled, and runs walk over several sets of sequences of at least a GiB together, so that no run finds its keys in
// the second-level cache. Times are medians over single calls between events; a call is everything the library launches.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "fp4pa/fp4pa.hpp"
#include "perf/gpu_bandwidth.hpp"

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

template <class T>
T* allocate(std::size_t count) {
  void* p = nullptr;
  must(cudaMalloc(&p, std::max<std::size_t>(1, count * sizeof(T))), "cudaMalloc");
  return static_cast<T*>(p);
}
template <class T>
T* upload(const std::vector<T>& host) {
  T* device = allocate<T>(host.size());
  must(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  return device;
}

struct Options {
  std::vector<KvFormat> formats{KvFormat::kMxfp4, KvFormat::kNvfp4, KvFormat::kFp8E4m3, KvFormat::kBf16};
  int page = 64, runs = 40, q_len = 1;
  bool recent = false;
  std::string json;
};

struct Shape {
  const char* name;
  int batch, q_heads, kv_heads, tokens, head_dim;
  bool ragged;
};
constexpr Shape kShapes[] = {
    {"b64 64/8 8K", 64, 64, 8, 8192, 128, false},   {"b32 32/8 8K", 32, 32, 8, 8192, 128, false},
    {"b128 32/8 2K", 128, 32, 8, 2048, 128, false}, {"b8 64/8 32K", 8, 64, 8, 32768, 128, false},
    {"b1 32/8 128K", 1, 32, 8, 131072, 128, false}, {"b16 32/32 4K", 16, 32, 32, 4096, 128, false},
    {"ragged b64 32/8 to 32K", 64, 32, 8, 32768, 128, true},
    {"b32 32/8 8K D64", 32, 32, 8, 8192, 64, false}, {"b32 32/8 8K D256", 32, 32, 8, 8192, 256, false},
};

/// Random codes or scales of a format, finite and of moderate size.
std::vector<std::uint8_t> pattern(KvFormat format, bool scales, std::size_t bytes) {
  std::mt19937_64 random(1);
  std::vector<std::uint8_t> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto r = static_cast<std::uint8_t>(random() >> 32);
    if (scales) {
      out[i] = static_cast<std::uint8_t>(format == KvFormat::kNvfp4 ? 0x28 + r % 16 : 122 + r % 5);
    } else if (format == KvFormat::kFp8E4m3) {
      out[i] = static_cast<std::uint8_t>((r & 0x87) | 0x30);
    } else if (format == KvFormat::kBf16) {
      out[i] = static_cast<std::uint8_t>(i % 2 == 0 ? r : (r & 0x80) | 0x3f);
    } else if (format == KvFormat::kF16) {
      out[i] = static_cast<std::uint8_t>(i % 2 == 0 ? r : (r & 0x80) | 0x38);
    } else {
      out[i] = r;
    }
  }
  return out;
}

void* filled(KvFormat format, bool scales, std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  const std::vector<std::uint8_t> some = pattern(format, scales, std::min<std::int64_t>(bytes, 48'000'000));
  auto* device = allocate<std::uint8_t>(static_cast<std::size_t>(bytes));
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(some.size())) {
    const auto n = std::min<std::int64_t>(bytes - at, static_cast<std::int64_t>(some.size()));
    must(cudaMemcpy(device + at, some.data(), static_cast<std::size_t>(n), cudaMemcpyHostToDevice), "filling a pool");
  }
  return device;
}

KvCacheDesc make_cache(KvFormat format, const Shape& s, int page, std::int64_t pages) {
  KvCacheDesc c;
  c.k.format = c.v.format = format;
  c.num_kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.page_size = page;
  c.num_pages = pages;
  set_dense_strides(c, PageOrder::kHnd);
  for (KvTensorDesc* t : {&c.k, &c.v}) {
    t->data = filled(format, false, dense_data_bytes(c, *t));
    t->scales = filled(format, true, dense_scale_bytes(c, *t));
  }
  return c;
}
void release(KvCacheDesc& c) {
  for (KvTensorDesc* t : {&c.k, &c.v}) {
    cudaFree(t->data);
    cudaFree(t->scales);
  }
}

std::int64_t token_bytes(KvFormat format, int head_dim) {
  return 2 * (kv_data_bytes(format, head_dim) + kv_scale_bytes(format, VScaleAxis::kHeadDim, head_dim));
}

struct Timing {
  double median, low, high;  // microseconds; low and high are quartiles
};
Timing summary(std::vector<float> ms) {
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double q) { return 1e3 * ms[static_cast<std::size_t>(q * static_cast<double>(ms.size() - 1))]; };
  return {at(0.5), at(0.25), at(0.75)};
}

template <class F>
Timing time(int runs, F&& f) {
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  for (int i = 0; i < 5; ++i) f(i);
  std::vector<float> times;
  for (int i = 0; i < runs; ++i) {
    must(cudaEventRecord(begin), "event");
    f(i);
    must(cudaEventRecord(end), "event");
    must(cudaEventSynchronize(end), "run");
    float ms = 0.0f;
    must(cudaEventElapsedTime(&ms, begin, end), "event");
    times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return summary(times);
}

double measure_bandwidth() {
  constexpr std::int64_t kBytes = std::int64_t{4} << 30;
  int multiprocessors = 0;
  must(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "attribute");
  auto* data = allocate<std::uint8_t>(kBytes);
  auto* sink = allocate<unsigned>(1);
  must(cudaMemset(data, 0x5a, kBytes), "memset");
  double best = 0.0;
  for (const int per : {4, 8, 16}) {
    const Timing t = time(15, [&](int) { must(perf::launch_read(data, kBytes, sink, per * multiprocessors, nullptr), "read"); });
    best = std::max(best, kBytes / t.median * 1e-3);
  }
  cudaFree(data);
  cudaFree(sink);
  return best;  // GB/s
}

struct Result {
  std::string shape, format;
  Timing time;
  double bytes, bandwidth, share;
};

Result run_shape(const Options& o, const Shape& s, KvFormat format, double roofline) {
  std::mt19937_64 random(7);
  std::vector<std::int32_t> lens(static_cast<std::size_t>(s.batch), s.tokens);
  if (s.ragged) {
    for (std::int32_t& n : lens) {
      const double u = static_cast<double>(random() >> 11) * 0x1p-53;
      n = std::max(1, static_cast<int>(std::exp2(u * std::log2(static_cast<double>(s.tokens)))));
    }
  }
  const std::int64_t tokens = std::accumulate(lens.begin(), lens.end(), std::int64_t{0});
  const double bytes = static_cast<double>(tokens) * s.kv_heads * static_cast<double>(token_bytes(format, s.head_dim));
  const int sets = std::clamp(static_cast<int>((std::int64_t{1} << 30) / bytes) + 1, 1, 64);
  const int stride = (s.tokens + o.page - 1) / o.page;
  std::int64_t pages = 0;
  for (const std::int32_t n : lens) pages += (n + o.page - 1) / o.page;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(pages * sets));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);

  AttentionConfig c;
  c.cache = make_cache(format, s, o.page, pages * sets);
  c.num_q_heads = s.q_heads;
  c.max_batch = s.batch;
  c.max_q_tokens = s.batch * o.q_len;
  c.max_q_len = o.q_len;
  c.max_kv_len = s.tokens;
  c.backend = "cuda";
  AttentionArgs a;
  std::vector<std::int32_t*> tables;
  std::size_t next = 0;
  for (int set = 0; set < sets; ++set) {
    std::vector<std::int32_t> table(static_cast<std::size_t>(s.batch) * static_cast<std::size_t>(stride), 0);
    for (std::size_t b = 0; b < lens.size(); ++b) {
      for (int p = 0; p < (lens[b] + o.page - 1) / o.page; ++p) table[b * static_cast<std::size_t>(stride) + static_cast<std::size_t>(p)] = ids[next++];
    }
    tables.push_back(upload(table));
  }
  if (o.recent && is_fp4(format)) {
    c.two_tier = true;
    c.window_tokens = 64;
    c.group_tokens = 64;
    c.ring_pages = 2;
    c.recent = make_cache(KvFormat::kBf16, s, 64, 2 * s.batch);
    std::vector<std::int32_t> ring(static_cast<std::size_t>(2 * s.batch));
    std::iota(ring.begin(), ring.end(), 0);
    a.recent_table = upload(ring);
  }
  AttentionPlan plan;
  must(fp4pa::plan(c, &plan), "plan");
  std::vector<std::int32_t> indptr(static_cast<std::size_t>(s.batch) + 1);
  for (std::size_t b = 0; b < indptr.size(); ++b) indptr[b] = static_cast<std::int32_t>(b) * o.q_len;
  const std::size_t elements = static_cast<std::size_t>(s.batch) * static_cast<std::size_t>(o.q_len * s.q_heads * s.head_dim);
  const std::vector<std::uint8_t> q = pattern(KvFormat::kBf16, false, 2 * elements);
  auto* q_device = upload(q);
  auto* o_device = allocate<std::uint16_t>(elements);
  a.q = q_device;
  a.o = o_device;
  a.batch = s.batch;
  a.qo_indptr = upload(indptr);
  a.seq_lens = upload(lens);
  a.table_stride = stride;
  a.workspace = allocate<std::uint8_t>(plan.workspace_bytes());
  a.workspace_bytes = plan.workspace_bytes();
  const Timing t = time(o.runs, [&](int i) {
    a.block_table = tables[static_cast<std::size_t>(i % sets)];
    must(fp4pa::run(plan, a), "run");
  });
  must(cudaDeviceSynchronize(), "end of a shape");
  release(c.cache);
  if (c.two_tier) release(c.recent);
  for (std::int32_t* table : tables) cudaFree(table);
  for (const void* p : {static_cast<const void*>(q_device), static_cast<const void*>(o_device), static_cast<const void*>(a.qo_indptr),
                        static_cast<const void*>(a.seq_lens), static_cast<const void*>(a.workspace), static_cast<const void*>(a.recent_table)}) {
    cudaFree(const_cast<void*>(p));
  }
  const double bandwidth = bytes / t.median * 1e-3;
  return {s.name, name_of(format), t, bytes, bandwidth, bandwidth / roofline};
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) std::exit((std::fprintf(stderr, "%s needs a value\n", arg.c_str()), 2));
      return argv[++i];
    };
    if (arg == "--formats") {
      o.formats.clear();
      const std::string list = value() + ",";
      for (std::size_t at = 0, comma; (comma = list.find(',', at)) != std::string::npos; at = comma + 1) {
        for (int f = 0; f <= static_cast<int>(KvFormat::kF16); ++f) {
          if (list.substr(at, comma - at) == name_of(static_cast<KvFormat>(f))) o.formats.push_back(static_cast<KvFormat>(f));
        }
      }
    } else if (arg == "--page") {
      o.page = std::atoi(value().c_str());
    } else if (arg == "--runs") {
      o.runs = std::atoi(value().c_str());
    } else if (arg == "--q-len") {
      o.q_len = std::atoi(value().c_str());
    } else if (arg == "--recent") {
      o.recent = true;
    } else if (arg == "--json") {
      o.json = value();
    } else {
      std::exit((std::fprintf(stderr, "unknown option %s\n", arg.c_str()), 2));
    }
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const Options o = parse(argc, argv);
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, 0), "device");
  const double roofline = measure_bandwidth();
  std::printf("%s: read bandwidth %.0f GB/s; page %d, %d query token(s)%s\n", properties.name, roofline, o.page, o.q_len,
              o.recent ? ", recent window of 64" : "");
  std::printf("%-26s %-10s %10s %18s %10s %8s\n", "shape", "format", "us", "quartiles", "GB/s", "share");
  std::vector<Result> results;
  for (const Shape& s : kShapes) {
    for (const KvFormat f : o.formats) {
      results.push_back(run_shape(o, s, f, roofline));
      const Result& r = results.back();
      std::printf("%-26s %-10s %10.1f %8.1f - %7.1f %10.0f %7.1f%%\n", r.shape.c_str(), r.format.c_str(), r.time.median,
                  r.time.low, r.time.high, r.bandwidth, 100.0 * r.share);
      std::fflush(stdout);
    }
  }
  if (o.json.empty()) return 0;
  std::FILE* file = std::fopen(o.json.c_str(), "w");
  if (file == nullptr) return 1;
  std::fprintf(file, "{\"device\": \"%s\", \"read_gb_s\": %.1f, \"page\": %d, \"q_len\": %d, \"recent\": %s, \"runs\": %d,\n \"results\": [\n",
               properties.name, roofline, o.page, o.q_len, o.recent ? "true" : "false", o.runs);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result& r = results[i];
    std::fprintf(file,
                 "  {\"shape\": \"%s\", \"format\": \"%s\", \"us\": %.2f, \"us_q1\": %.2f, \"us_q3\": %.2f, \"bytes\": %.0f, "
                 "\"gb_s\": %.1f, \"share\": %.4f}%s\n",
                 r.shape.c_str(), r.format.c_str(), r.time.median, r.time.low, r.time.high, r.bytes, r.bandwidth, r.share,
                 i + 1 < results.size() ? "," : "");
  }
  std::fprintf(file, " ]}\n");
  std::fclose(file);
  return 0;
}
