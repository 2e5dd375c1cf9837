// append: new tokens into their slots, rotated and quantised on the way, in one pass over the input.
//
// The work is (token, head) pairs. For V scaled along tokens the pair of a group's first token does the whole group and
// the others do nothing: the check of the slots has made sure that a group's tokens follow their first, so that no list
// of groups is needed, and nothing is allocated.
#include <algorithm>
#include <cstdint>

#include "api/error.hpp"
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_slots.hpp"
#include "backends/cpu/cache_tensor.hpp"
#include "backends/cpu/cache_threads.hpp"

namespace fp4pa::cpu {
namespace {

// Writes the group that begins at `token`, which has a slot at a group's first row.
void append_group(const CacheTensor& tensor, const KvInput& input, const api::SlotList& slots, std::int64_t token,
                  const core::SlotPlace& place, std::int32_t page_size, std::int32_t head) {
  const core::SlotView view = view_of(slots);
  const std::int32_t limit = std::min(tensor.view.token_group(), page_size - place.row);
  const std::int64_t first_slot = view[token];
  alignas(64) float x[kMaxGroup * kMaxRow];
  int tokens = 0;
  for (; tokens < limit; ++tokens) {
    if (token == slots.size || view[token] != first_slot + tokens) break;
    tensor.load_input(input, token, head, x + tokens * tensor.head_dim);
    token = next_token(view, token + 1, slots.size);
  }
  tensor.write_group(place.page, place.row, head, {x, tensor.head_dim, tokens});
}

void append_token(const CacheTensor& tensor, const KvInput& input, const api::SlotList& slots, std::int64_t token,
                  const core::SlotPlace& place, std::int32_t page_size, std::int32_t head) {
  if (tensor.view.scale_along_tokens()) {
    if (place.row % tensor.view.token_group() == 0) {
      append_group(tensor, input, slots, token, place, page_size, head);
    }
    return;
  }
  alignas(64) float x[kMaxRow];
  tensor.load_input(input, token, head, x);
  tensor.write_row(place.page, place.row, head, x);
}

Status append_with(const RowKernels& rows, const KvCacheDesc& cache, const KvInput& k, const KvInput& v,
                   const api::SlotList& slots, const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(check_slots("append", cache, slots));
  const CacheTensor k_tensor = k_of(cache, rows);
  const CacheTensor v_tensor = v_of(cache, rows);
  if (v_tensor.view.scale_along_tokens()) {
    const Status s = check_groups(cache, slots, v_tensor.view.token_group());
    if (s != Status::kOk) return s;
  }

  const core::SlotView view = view_of(slots);
  // A thread that does 64 rows of 128 elements earns its waking.
  const int threads = num_threads(exec, slots.size * cache.num_kv_heads, 64);
  for_each(threads, slots.size, [&](std::int64_t token) {
    const std::int64_t slot = view[token];
    if (slot < 0) return;
    const core::SlotPlace place = core::place_of(slot, cache.page_size);
    for (std::int32_t head = 0; head < cache.num_kv_heads; ++head) {
      append_token(k_tensor, k, slots, token, place, cache.page_size, head);
      append_token(v_tensor, v, slots, token, place, cache.page_size, head);
    }
  });
  return Status::kOk;
}

}  // namespace

Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
              const ExecDesc& exec) noexcept {
  return append_with(fastest_rows(), cache, k, v, slots, exec);
}

Status scalar::append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
                      const ExecDesc& exec) noexcept {
  return append_with(kScalarRows, cache, k, v, slots, exec);
}

}  // namespace fp4pa::cpu
