// append and gather: rows of new tokens into their slots, and rows at slots back into plain tensors.
#include "core/paging/slot.hpp"
#include "cuda/cache_ops.hpp"
#include "cuda/cache_rows.cuh"
#include "cuda/device.hpp"

namespace fp4pa::cuda {
namespace {

struct Slots {
  core::SlotView view;
  std::int64_t size;
  std::int64_t limit;  // of the pool
  std::int32_t page_size;

  /// Whether token `t` has a slot inside the pool.
  [[nodiscard]] __device__ bool has(std::int64_t t) const { return view[t] >= 0 && view[t] < limit; }
};

struct AppendArgs {
  CacheTensor tensors[2];  // K, V
  PlainRows inputs[2];
  Slots slots;
  std::int32_t heads;
};

[[nodiscard]] Slots slots_of(const KvCacheDesc& cache, const api::SlotList& slots) {
  return {{slots.data, slots.type}, slots.size, cache.num_pages * cache.page_size, cache.page_size};
}

/// A warp per (token, head); blockIdx.y is the tensor.
__global__ void __launch_bounds__(kThreads) append_rows(const __grid_constant__ AppendArgs args) {
  __shared__ float rows[kWarps][kMaxRow];
  const CacheTensor& tensor = args.tensors[blockIdx.y];
  if (tensor.view.scale_along_tokens()) return;
  const std::int64_t items = args.slots.size * args.heads;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_id(); i < items; i += step) {
    const std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!args.slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(args.slots.view[token], args.slots.page_size);
    float* const x = rows[warp_id()];
    load_input(tensor, args.inputs[blockIdx.y], token, head, x);
    write_row(tensor, place.page, place.row, head, x);
  }
}

/// V scaled along tokens: a block per (token, head), and work only for tokens that begin a group.
__global__ void __launch_bounds__(kThreads) append_groups(const __grid_constant__ AppendArgs args) {
  extern __shared__ float group[];  // [tokens, head_dim]
  const CacheTensor& tensor = args.tensors[1];
  const Slots& slots = args.slots;
  const std::int64_t items = slots.size * args.heads;
  for (std::int64_t i = blockIdx.x; i < items; i += gridDim.x) {
    std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(slots.view[token], slots.page_size);
    if (place.row % tensor.view.token_group() != 0) continue;
    const int left = slots.page_size - place.row;
    const int limit = tensor.view.token_group() < left ? tensor.view.token_group() : left;
    const std::int64_t first_slot = slots.view[token];
    __syncthreads();
    int tokens = 0;
    for (; tokens < limit; ++tokens) {
      if (token == slots.size || slots.view[token] != first_slot + tokens) break;
      if (tokens % kWarps == warp_id()) {
        load_input(tensor, args.inputs[1], token, head, group + tokens * tensor.head_dim);
      }
      do {
        ++token;
      } while (token < slots.size && slots.view[token] < 0);
    }
    __syncthreads();
    write_group(tensor, place.page, place.row, head, group, tokens);
  }
}

__global__ void __launch_bounds__(kThreads) gather_rows(const __grid_constant__ AppendArgs args) {
  __shared__ float rows[kWarps][kMaxRow];
  const CacheTensor& tensor = args.tensors[blockIdx.y];
  const PlainRows& out = args.inputs[blockIdx.y];
  if (out.data == nullptr) return;
  const std::int64_t items = args.slots.size * args.heads;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_id(); i < items; i += step) {
    const std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!args.slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(args.slots.view[token], args.slots.page_size);
    float* const x = rows[warp_id()];
    read_row(tensor, place.page, place.row, head, x);
    for (int d = lane_id(); d < tensor.head_dim; d += 32) {
      core::store_plain_row(x + d, 1, out.dtype, out.element(token, head, d));
    }
  }
}

[[nodiscard]] unsigned blocks_for(std::int64_t items) {
  constexpr std::int64_t kMost = 1 << 16;  // the loops take the rest
  return static_cast<unsigned>(items < 1 ? 1 : items < kMost ? items : kMost);
}

}  // namespace

Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
              const ExecDesc& exec) noexcept {
  const AppendArgs args{{k_of(cache), v_of(cache)}, {rows_of(k), rows_of(v)}, slots_of(cache, slots), cache.num_kv_heads};
  auto* const stream = static_cast<cudaStream_t>(exec.stream);
  const std::int64_t items = slots.size * cache.num_kv_heads;
  append_rows<<<dim3(blocks_for((items + kWarps - 1) / kWarps), 2), kThreads, 0, stream>>>(args);
  if (const Status s = check(cudaGetLastError(), "launching append"); s != Status::kOk) return s;
  if (!args.tensors[1].view.scale_along_tokens()) return Status::kOk;
  const std::size_t shared = sizeof(float) * static_cast<std::size_t>(kMaxGroup * cache.head_dim);
  append_groups<<<blocks_for(items), kThreads, shared, stream>>>(args);
  return check(cudaGetLastError(), "launching append of groups");
}

Status gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
              const ExecDesc& exec) noexcept {
  const AppendArgs args{{k_of(cache), v_of(cache)}, {rows_of(k), rows_of(v)}, slots_of(cache, slots), cache.num_kv_heads};
  const std::int64_t items = slots.size * cache.num_kv_heads;
  gather_rows<<<dim3(blocks_for((items + kWarps - 1) / kWarps), 2), kThreads, 0, static_cast<cudaStream_t>(exec.stream)>>>(
      args);
  return check(cudaGetLastError(), "launching gather");
}

}  // namespace fp4pa::cuda
