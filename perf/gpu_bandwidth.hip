// The read bandwidth of an AMD GPU, by the plainest kernel there is, as in gpu_bandwidth.cu. Compiled, and never run so far.
#include "hip/words.hpp"

#include "perf/gpu_bandwidth.hpp"

namespace fp4pa::perf {
namespace {

using Words = unsigned __attribute__((ext_vector_type(4)));
constexpr int kThreads = 512;

struct ReadArgs {
  const Words* data;
  std::int64_t count;
  unsigned* sink;
  int blocks;
};

FP4PA_KERNEL(read, kThreads, ReadArgs args) {
  Words sum = 0;
  const std::int64_t step = std::int64_t{args.blocks} * kThreads;
  std::int64_t i = std::int64_t{hip::block_id()} * kThreads + hip::thread_id();
  for (; i + 3 * step < args.count; i += 4 * step) {
    const Words a = __builtin_nontemporal_load(args.data + i);
    const Words b = __builtin_nontemporal_load(args.data + i + step);
    const Words c = __builtin_nontemporal_load(args.data + i + 2 * step);
    const Words d = __builtin_nontemporal_load(args.data + i + 3 * step);
    sum ^= a ^ b ^ c ^ d;
  }
  for (; i < args.count; i += step) sum ^= args.data[i];
  const unsigned all = sum.x ^ sum.y ^ sum.z ^ sum.w;
  if (all == 0x12345679u) *args.sink = all;  // never, but the compiler cannot know
}

}  // namespace

hipError_t launch_read(const void* data, std::int64_t bytes, void* sink, int blocks, hipStream_t stream) {
  const ReadArgs args{static_cast<const Words*>(data), bytes / 16, static_cast<unsigned*>(sink), blocks};
  return hip::launch(read, hip::grid(blocks), kThreads, 0, stream, args);
}

}  // namespace fp4pa::perf
