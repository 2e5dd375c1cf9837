// The device's half of the schedule: prefix sums over sequences of the costs that core/schedule defines. Items and merges are
// then found by arithmetic, by whoever needs them.
#include "cuda/dependency.cuh"
#include "cuda/kernels.hpp"

namespace fp4pa::cuda {
namespace {

constexpr int kMaxThreads = 512;

/// One block. A thread sums a run of sequences, the block scans the sums, and the thread writes its run's prefixes.
__global__ void __launch_bounds__(kMaxThreads) schedule(const __grid_constant__ core::WorkList list) {
  __shared__ core::SequenceCost sums[kMaxThreads];
  allow_dependents();
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int run = (list.batch + threads - 1) / threads;
  const int begin = thread * run < list.batch ? thread * run : list.batch;
  const int end = begin + run < list.batch ? begin + run : list.batch;

  core::SequenceCost own{0, 0};
  for (int b = begin; b < end; ++b) {
    const core::SequenceCost cost = core::sequence_cost(list.shape(b), list.partition, list.num_kv_heads);
    own.cost += cost.cost;
    own.slots += cost.slots;
  }
  sums[thread] = own;
  __syncthreads();
  for (int distance = 1; distance < threads; distance *= 2) {
    core::SequenceCost sum = sums[thread];
    if (thread >= distance) {
      sum.cost += sums[thread - distance].cost;
      sum.slots += sums[thread - distance].slots;
    }
    __syncthreads();
    sums[thread] = sum;
    __syncthreads();
  }

  core::SequenceCost before{sums[thread].cost - own.cost, sums[thread].slots - own.slots};
  for (int b = begin; b < end; ++b) {
    list.partition.cost_prefix[b] = before.cost;
    list.partition.slot_prefix[b] = before.slots;
    const core::SequenceCost cost = core::sequence_cost(list.shape(b), list.partition, list.num_kv_heads);
    before.cost += cost.cost;
    before.slots += cost.slots;
  }
  if (thread == threads - 1) {
    list.partition.cost_prefix[list.batch] = sums[thread].cost;
    list.partition.slot_prefix[list.batch] = sums[thread].slots;
  }
}

}  // namespace

cudaError_t launch_schedule(const core::WorkList& list, cudaStream_t stream) noexcept {
  const int threads = list.batch < kMaxThreads ? (list.batch + 31) / 32 * 32 : kMaxThreads;
  schedule<<<1, static_cast<unsigned>(threads > 0 ? threads : 32), 0, stream>>>(list);
  return cudaGetLastError();
}

}  // namespace fp4pa::cuda
