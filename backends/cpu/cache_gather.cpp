// gather: the rows at a list of slots, dequantised into plain tensors.
#include <cstdint>

#include "api/error.hpp"
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_slots.hpp"
#include "backends/cpu/cache_tensor.hpp"
#include "backends/cpu/cache_threads.hpp"

namespace fp4pa::cpu {
namespace {

void gather_row(const CacheTensor& tensor, const core::SlotPlace& place, std::int64_t token, std::int32_t head,
                const KvOutput& output) {
  if (output.data == nullptr) return;
  alignas(64) float x[kMaxRow];
  tensor.read_row(place.page, place.row, head, x);
  const std::int64_t index = token * output.token_stride + head * output.head_stride;
  tensor.rows.store(x, tensor.head_dim, output.dtype, core::element_address(output.data, output.dtype, index));
}

Status gather_with(const RowKernels& rows, const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k,
                   const KvOutput& v, const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(check_slots("gather", cache, slots));
  const CacheTensor k_tensor = k_of(cache, rows);
  const CacheTensor v_tensor = v_of(cache, rows);
  const core::SlotView view = view_of(slots);
  const int threads = num_threads(exec, slots.size * cache.num_kv_heads, 64);
  for_each(threads, slots.size, [&](std::int64_t token) {
    if (view[token] < 0) return;
    const core::SlotPlace place = core::place_of(view[token], cache.page_size);
    for (std::int32_t head = 0; head < cache.num_kv_heads; ++head) {
      gather_row(k_tensor, place, token, head, k);
      gather_row(v_tensor, place, token, head, v);
    }
  });
  return Status::kOk;
}

}  // namespace

Status gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
              const ExecDesc& exec) noexcept {
  return gather_with(fastest_rows(), cache, slots, k, v, exec);
}

Status scalar::gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
                      const ExecDesc& exec) noexcept {
  return gather_with(kScalarRows, cache, slots, k, v, exec);
}

}  // namespace fp4pa::cpu
