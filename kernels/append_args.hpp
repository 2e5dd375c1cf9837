// What append and gather are told.
#pragma once

#include "core/paging/slot.hpp"
#include "kernels/cache_ops.hpp"
#include "kernels/cache_rows.hpp"

namespace fp4pa::FP4PA_GPU {

struct Slots {
  core::SlotView view;
  std::int64_t size;
  std::int64_t limit;  // of the pool
  std::int32_t page_size;

  /// Whether token `t` has a slot inside the pool.
  [[nodiscard]] FP4PA_DEVICE bool has(std::int64_t t) const { return view[t] >= 0 && view[t] < limit; }
};

struct AppendArgs {
  CacheTensor tensors[2];  // K, V
  PlainRows inputs[2];
  Slots slots;
  std::int32_t heads;
  std::int32_t blocks;  // of the launch; each walks over what is left
};

[[nodiscard]] inline Slots slots_of(const KvCacheDesc& cache, const api::SlotList& slots) {
  return {{slots.data, slots.type}, slots.size, cache.num_pages * cache.page_size, cache.page_size};
}

}  // namespace fp4pa::FP4PA_GPU
