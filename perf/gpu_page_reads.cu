// How fast pages can be read at all: a kernel that walks a decode call's pages and computes nothing, beside one that reads as many
// bytes in a row. What attention could reach if everything else cost nothing.
//
//   nvcc -std=c++20 -O3 -arch=native -o gpu_page_reads perf/gpu_page_reads.cu && ./gpu_page_reads
//
// MXFP4 at head_dim 128, pages of 64 tokens: 4096 bytes of codes and 256 of scales for K and for V, KV heads side by side in a page,
// each of the four parts an array of its own. Every warp takes an equal run of (sequence, KV head, page), as the schedule's workers do.
// Printed: the median of ten calls in us between events, and TB/s. Pages are in order, or shuffled.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kHeads = 8, kCodes = 4096, kScales = 256;
constexpr std::int64_t kPageBytes = kHeads * 2 * (kCodes + kScales);

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

struct Sum {
  uint4 x{};
  __device__ void add(uint4 y) { x = {x.x ^ y.x, x.y ^ y.y, x.z ^ y.z, x.w ^ y.w}; }
  /// Never true of the pools here, so that nothing is written, and nothing left out.
  __device__ void keep(uint4* to) const {
    if (x.x == 0x12345678u && x.y == 0x9abcdef0u) *to = x;
  }
};

__device__ uint4 load(const std::uint8_t* from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from));
  return x;
}

template <int kLoads>
__device__ void add_all(Sum& sum, const std::uint8_t* from, std::int64_t stride) {
  uint4 x[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) x[i] = load(from + i * stride);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) sum.add(x[i]);
}

__global__ void __launch_bounds__(kThreads)
    read_pages(const std::uint8_t* pool, std::int64_t pages_in_pool, const int* table, std::int64_t pages, std::int64_t batch, uint4* out) {
  const int lane = threadIdx.x % 32;
  const std::int64_t worker = blockIdx.x * std::int64_t{kWarps} + threadIdx.x / 32, workers = std::int64_t{gridDim.x} * kWarps;
  const std::int64_t total = batch * kHeads * pages;
  const std::uint8_t* const k = pool;
  const std::uint8_t* const v = k + pages_in_pool * kHeads * kCodes;
  const std::uint8_t* const k_scales = v + pages_in_pool * kHeads * kCodes;
  const std::uint8_t* const v_scales = k_scales + pages_in_pool * kHeads * kScales;
  Sum sum;
  for (std::int64_t i = total * worker / workers; i < total * (worker + 1) / workers; ++i) {
    const std::int64_t unit = i / pages;
    const std::int64_t row = table[unit / kHeads * pages + i % pages] * kHeads + unit % kHeads;
    add_all<8>(sum, k + row * kCodes + lane * 16, 512);
    add_all<8>(sum, v + row * kCodes + lane * 16, 512);
    sum.add(load((lane < 16 ? k_scales : v_scales) + row * kScales + lane % 16 * 16));
  }
  sum.keep(out);
}

__global__ void __launch_bounds__(kThreads) read_in_a_row(const std::uint8_t* from, std::int64_t bytes, uint4* out) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads * 16;
  Sum sum;
  std::int64_t at = (blockIdx.x * std::int64_t{kThreads} + threadIdx.x) * 16;
  for (; at + 7 * stride < bytes; at += 8 * stride) add_all<8>(sum, from + at, stride);
  for (; at < bytes; at += stride) sum.add(load(from + at));
  sum.keep(out);
}

template <class F>
double median_us(F&& call) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<double> us;
  for (int i = 0; i < 13; ++i) {
    check(cudaEventRecord(begin));
    call();
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) us.push_back(1e3 * ms);
  }
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

void measure(std::int64_t batch, std::int64_t tokens, int blocks, uint4* out) {
  const std::int64_t pages = tokens / 64, in_pool = 2 * batch * pages, bytes = batch * pages * kPageBytes;
  std::vector<int> in_order(static_cast<std::size_t>(in_pool));
  std::iota(in_order.begin(), in_order.end(), 0);
  std::vector<int> shuffled = in_order;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(1));
  std::uint8_t* pool;
  int* table;
  check(cudaMalloc(&pool, in_pool * kPageBytes));
  check(cudaMemset(pool, 1, in_pool * kPageBytes));
  check(cudaMalloc(&table, batch * pages * sizeof(int)));
  const auto time = [&](const std::vector<int>& ids) {
    check(cudaMemcpy(table, ids.data(), batch * pages * sizeof(int), cudaMemcpyHostToDevice));
    return median_us([&] { read_pages<<<blocks, kThreads>>>(pool, in_pool, table, pages, batch, out); });
  };
  const double row = median_us([&] { read_in_a_row<<<blocks, kThreads>>>(pool, bytes, out); });
  const double order = time(in_order), shuffle = time(shuffled);
  const auto print = [&](const char* name, double us) { std::printf("  %s %.1f us, %.2f TB/s", name, us, 1e-6 * static_cast<double>(bytes) / us); };
  std::printf("batch %lld, %lld tokens, %d blocks:", static_cast<long long>(batch), static_cast<long long>(tokens), blocks);
  print("in a row", row);
  print("pages in order", order);
  print("pages shuffled", shuffle);
  std::printf("\n");
  check(cudaFree(pool));
  check(cudaFree(table));
}

}  // namespace

int main() {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));
  uint4* out;
  check(cudaMalloc(&out, sizeof *out));
  std::printf("%s\n", device.name);
  for (const auto& [batch, tokens] : {std::pair{64, 8192}, {32, 8192}, {128, 2048}, {8, 32768}, {1, 131072}}) {
    for (const int blocks : {4, 6}) measure(batch, tokens, blocks * device.multiProcessorCount, out);
  }
}
