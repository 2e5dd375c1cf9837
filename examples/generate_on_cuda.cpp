// Generation on an NVIDIA GPU, as an engine does it for one layer: prompts of several lengths go into an MXFP4 cache, one decode step
// (append the newest token, attend) is captured in a CUDA graph, and the graph is replayed token after token while lengths and slots
// in device memory change. At the end the CPU's back end reads the same pages, copied to the host, and has to find what the GPU found.
//
//   c++ -std=c++20 generate_on_cuda.cpp $(pkg-config --cflags --libs fp4pa) -I$CUDA_HOME/include -L$CUDA_HOME/lib64 -lcudart
#include <cuda_runtime_api.h>
#include <fp4pa/fp4pa.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace {

constexpr int kNoDevice = 77;  // what a test that cannot run here ends with
constexpr int kQHeads = 32, kKvHeads = 8, kHeadDim = 128, kPageSize = 64, kSteps = 100;
constexpr std::int32_t kPrompts[] = {1000, 1, 257, 64};
constexpr int kBatch = std::size(kPrompts);
constexpr int kMaxTokens = 1100, kPagesEach = (kMaxTokens + kPageSize - 1) / kPageSize;

void check(fp4pa::Status status, const char* what) {
  if (status == fp4pa::Status::kOk) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, fp4pa::status_name(status), fp4pa::last_error_detail());
  std::exit(1);
}
void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

struct CudaFree {
  void operator()(void* memory) const { cudaFree(memory); }
};
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

/// Device memory for `count` elements, at the alignment that cudaMalloc gives (256 bytes, enough for workspaces).
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    memory_.reset(memory);
  }
  T* get() const { return static_cast<T*>(memory_.get()); }
  /// From pageable memory: the values are taken before it returns, and arrive in the stream's order.
  void set(const std::vector<T>& values, cudaStream_t stream) const {
    check(cudaMemcpyAsync(get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream), "to the device");
  }
  std::vector<T> read(cudaStream_t stream) const {
    std::vector<T> values(count_);
    check(cudaMemcpyAsync(values.data(), get(), count_ * sizeof(T), cudaMemcpyDeviceToHost, stream), "to the host");
    check(cudaStreamSynchronize(stream), "what was enqueued");
    return values;
  }

 private:
  std::size_t count_;
  std::unique_ptr<void, CudaFree> memory_;
};

std::vector<float> random_values(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

fp4pa::KvInput rows_of(const OnDevice<float>& values) { return {values.get(), fp4pa::DType::kF32, 0, 0}; }

/// Pages [page][head], K and V side by side in each, in the memory given; null measures.
std::int64_t set_pages(fp4pa::KvCacheDesc& cache, void* pool) {
  return fp4pa::set_interleaved_pages(cache, fp4pa::PageOrder::kHnd, pool);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no CUDA device");
    return kNoDevice;
  }
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "a stream");
  fp4pa::ExecDesc exec;
  exec.backend = "cuda";
  exec.stream = stream;

  fp4pa::KvCacheDesc cache;
  cache.k.format = cache.v.format = fp4pa::KvFormat::kMxfp4;
  cache.num_kv_heads = kKvHeads;
  cache.head_dim = kHeadDim;
  cache.page_size = kPageSize;
  cache.num_pages = kBatch * kPagesEach;
  const auto pool_bytes = static_cast<std::size_t>(set_pages(cache, nullptr) * cache.num_pages);
  const OnDevice<std::uint8_t> pool(pool_bytes);
  set_pages(cache, pool.get());
  check(fp4pa::validate(cache), "validate");

  // Pages in any order: sequence b has every kBatch-th of the pool. A token's slot is its page times page_size plus its row there.
  std::vector<std::int32_t> table(static_cast<std::size_t>(kBatch) * kPagesEach);
  const auto page = [&](int b, int i) -> std::int32_t& { return table[static_cast<std::size_t>(b * kPagesEach + i)]; };
  for (int b = 0; b < kBatch; ++b) {
    for (int i = 0; i < kPagesEach; ++i) page(b, i) = i * kBatch + b;
  }
  const auto slot = [&](int b, int token) { return page(b, token / kPageSize) * kPageSize + token % kPageSize; };

  // All prompts in one append.
  std::mt19937 random(1);
  std::vector<std::int32_t> lengths(std::begin(kPrompts), std::end(kPrompts)), prompt_slots;
  for (int b = 0; b < kBatch; ++b) {
    for (int t = 0; t < kPrompts[b]; ++t) prompt_slots.push_back(slot(b, t));
  }
  {
    const std::size_t count = prompt_slots.size() * kKvHeads * kHeadDim;
    const OnDevice<float> k(count), v(count);
    const OnDevice<std::int32_t> slots(prompt_slots.size());
    k.set(random_values(count, random), stream);
    v.set(random_values(count, random), stream);
    slots.set(prompt_slots, stream);
    check(fp4pa::append(cache, rows_of(k), rows_of(v), slots.get(), fp4pa::IndexType::kInt32,
                        static_cast<std::int64_t>(prompt_slots.size()), exec), "append the prompts");
    check(cudaStreamSynchronize(stream), "append the prompts");
  }

  // A step's inputs and outputs stay where they are: a graph keeps pointers.
  const std::size_t kv_count = std::size_t{kBatch} * kKvHeads * kHeadDim, q_count = std::size_t{kBatch} * kQHeads * kHeadDim;
  const OnDevice<float> k(kv_count), v(kv_count), q(q_count), o(q_count);
  const OnDevice<std::int32_t> slots(kBatch), seq_lens(kBatch), qo_indptr(kBatch + 1), block_table(table.size());
  std::vector<std::int32_t> indptr(kBatch + 1);
  std::iota(indptr.begin(), indptr.end(), 0);
  qo_indptr.set(indptr, stream);
  block_table.set(table, stream);

  fp4pa::AttentionConfig config;
  config.cache = cache;
  config.num_q_heads = kQHeads;
  config.q_dtype = config.o_dtype = fp4pa::DType::kF32;
  config.max_batch = config.max_q_tokens = kBatch;
  config.max_q_len = 1;
  config.max_kv_len = kMaxTokens;
  config.backend = "cuda";
  fp4pa::AttentionPlan plan;
  check(fp4pa::plan(config, &plan), "plan");
  const OnDevice<std::uint8_t> workspace(plan.workspace_bytes() + 1);
  fp4pa::AttentionArgs args;
  args.q = q.get();
  args.o = o.get();
  args.batch = kBatch;
  args.qo_indptr = qo_indptr.get();
  args.seq_lens = seq_lens.get();
  args.block_table = block_table.get();
  args.table_stride = kPagesEach;
  args.workspace = workspace.get();
  args.workspace_bytes = plan.workspace_bytes();
  args.stream = stream;

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t step = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin the capture");
  check(fp4pa::append(cache, rows_of(k), rows_of(v), slots.get(), fp4pa::IndexType::kInt32, kBatch, exec), "append");
  check(fp4pa::run(plan, args), "run");
  check(cudaStreamEndCapture(stream, &graph), "end the capture");
  check(cudaGraphInstantiate(&step, graph, 0), "the graph");

  std::vector<float> last_q;
  for (int s = 0; s < kSteps; ++s) {
    std::vector<std::int32_t> newest(kBatch);
    for (int b = 0; b < kBatch; ++b) newest[static_cast<std::size_t>(b)] = slot(b, lengths[static_cast<std::size_t>(b)]++);
    last_q = random_values(q_count, random);
    k.set(random_values(kv_count, random), stream);
    v.set(random_values(kv_count, random), stream);
    q.set(last_q, stream);
    slots.set(newest, stream);
    seq_lens.set(lengths, stream);  // the newest token included
    check(cudaGraphLaunch(step, stream), "a step");
  }
  const std::vector<float> found = o.read(stream);

  // The same pages on the host, the same configuration, another back end.
  const std::vector<std::uint8_t> bytes = pool.read(stream);
  const auto aligned = [](std::size_t size) {
    return std::unique_ptr<void, Free>(std::aligned_alloc(256, (size + 255) / 256 * 256));
  };
  const auto host_pool = aligned(pool_bytes), host_q = aligned(q_count * sizeof(float)), host_o = aligned(q_count * sizeof(float));
  std::copy(bytes.begin(), bytes.end(), static_cast<std::uint8_t*>(host_pool.get()));
  std::copy(last_q.begin(), last_q.end(), static_cast<float*>(host_q.get()));
  set_pages(config.cache, host_pool.get());
  config.backend = "cpu";
  fp4pa::AttentionPlan host_plan;
  check(fp4pa::plan(config, &host_plan), "plan for the CPU");
  const auto host_workspace = aligned(host_plan.workspace_bytes() + 1);
  args.q = host_q.get();
  args.o = host_o.get();
  args.qo_indptr = indptr.data();
  args.seq_lens = lengths.data();
  args.block_table = table.data();
  args.workspace = host_workspace.get();
  args.workspace_bytes = host_plan.workspace_bytes();
  args.stream = nullptr;
  check(fp4pa::run(host_plan, args), "run on the CPU");

  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < q_count; ++i) {
    const double expected = static_cast<const float*>(host_o.get())[i];
    difference += (found[i] - expected) * (found[i] - expected);
    norm += expected * expected;
  }
  const double error = std::sqrt(difference / norm);
  std::printf("fp4pa %s: %d steps of %d sequences in mxfp4, by a graph\n", fp4pa::version_string(), kSteps, kBatch);
  std::printf("the last step, relative difference of cuda and cpu: %.1e\n", error);
  check(cudaGraphExecDestroy(step), "the graph");
  check(cudaGraphDestroy(graph), "the graph");
  check(cudaStreamDestroy(stream), "the stream");
  return error < 2e-3 ? 0 : 1;  // what is promised of O on any back end; 1.5e-4 on an H100, of which the CPU's own part is small
}
