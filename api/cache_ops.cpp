// The public cache operations: check everything that can be checked without reading the back end's memory, pick a back
// end, call through its table. What only the memory can tell (slots, page ids, lengths) is the back end's to check, before
// it writes.
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "api/backend.hpp"
#include "api/error.hpp"
#include "api/saturating.hpp"
#include "api/select.hpp"
#include "api/validate.hpp"
#include "api/validate_page_copies.hpp"
#include "api/validate_rows.hpp"
#include "api/validate_slots.hpp"
#include "api/validate_two_tier_tables.hpp"

namespace fp4pa {
namespace {

using api::Backend;
using api::fail;
using api::validate_rows;
using api::with_dense_defaults;

[[nodiscard]] Status validate_count(const char* name, std::int64_t count) noexcept {
  if (count >= 0) return Status::kOk;
  return fail(Status::kInvalidSize, "%s is %" PRId64 "; allowed: 0 or more", name, count);
}

[[nodiscard]] Status validate_slots(const void* slots, IndexType type) noexcept {
  if (type != IndexType::kInt32 && type != IndexType::kInt64) {
    return fail(Status::kUnsupportedFormat, "slot_type is %d; allowed: 0 (int32), 1 (int64)", static_cast<int>(type));
  }
  return api::validate_pointer("slots", slots, type == IndexType::kInt32 ? 4 : 8);
}

[[nodiscard]] Status validate_indices(const char* name, const std::int32_t* indices) noexcept {
  return api::validate_pointer(name, indices, alignof(std::int32_t));
}

/// A back end that has the function `entry`; on the host's own back ends the global scales are looked at as well.
template <typename Entry>
[[nodiscard]] Status select_for(const ExecDesc& exec, Entry Backend::*entry, const char* name, const KvCacheDesc& cache,
                                const Backend** backend) noexcept {
  FP4PA_RETURN_IF_FAILED(api::select_backend(exec, entry, name, backend));
  return api::runs_on_host(**backend) ? api::validate_host_global_scales(cache) : Status::kOk;
}

}  // namespace

Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const void* slots, IndexType slot_type,
              std::int64_t num_tokens, const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(validate(cache));
  FP4PA_RETURN_IF_FAILED(validate_count("num_tokens", num_tokens));
  const KvInput k_rows = with_dense_defaults(k, cache);
  const KvInput v_rows = with_dense_defaults(v, cache);
  if (num_tokens > 0) {
    FP4PA_RETURN_IF_FAILED(validate_rows("k", k_rows, cache, num_tokens));
    FP4PA_RETURN_IF_FAILED(validate_rows("v", v_rows, cache, num_tokens));
    FP4PA_RETURN_IF_FAILED(validate_slots(slots, slot_type));
  }
  const Backend* backend = nullptr;
  FP4PA_RETURN_IF_FAILED(select_for(exec, &Backend::append, "append", cache, &backend));
  if (num_tokens == 0) return Status::kOk;
  const api::SlotList list{slots, slot_type, num_tokens};
  if (exec.validate_device_data && !api::runs_on_host(*backend)) {
    const std::int32_t group = kv_token_group(cache.v.format, cache.v.scale_axis);
    FP4PA_RETURN_IF_FAILED(api::check_device_slots(*backend, "append", cache, list, group, exec.stream));
  }
  return backend->append(cache, k_rows, v_rows, list, exec);
}

Status append_two_tier(const TwoTierDesc& cache, const KvInput& k, const KvInput& v, const std::int32_t* indptr,
                       const std::int32_t* seq_lens, std::int32_t batch, std::int64_t num_tokens,
                       const std::int32_t* old_table, std::int64_t old_table_stride, const std::int32_t* recent_table,
                       const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(validate(cache));
  FP4PA_RETURN_IF_FAILED(validate_count("num_tokens", num_tokens));
  FP4PA_RETURN_IF_FAILED(validate_count("batch", batch));
  if (num_tokens > 0 && batch == 0) {
    return fail(Status::kInvalidSize, "batch is 0 with num_tokens %" PRId64 "; allowed: at least 1", num_tokens);
  }
  const KvInput k_rows = with_dense_defaults(k, cache.recent);
  const KvInput v_rows = with_dense_defaults(v, cache.recent);
  if (num_tokens > 0) {
    FP4PA_RETURN_IF_FAILED(validate_rows("k", k_rows, cache.recent, num_tokens));
    FP4PA_RETURN_IF_FAILED(validate_rows("v", v_rows, cache.recent, num_tokens));
    FP4PA_RETURN_IF_FAILED(validate_indices("indptr", indptr));
    FP4PA_RETURN_IF_FAILED(validate_indices("seq_lens", seq_lens));
    if (old_table_stride < 0) {
      return fail(Status::kInvalidSize, "old_table_stride is %" PRId64 "; allowed: 0 or more", old_table_stride);
    }
    FP4PA_RETURN_IF_FAILED(api::validate_table_stride("old_table_stride", old_table_stride, batch));
    // A cache whose sequences all still fit their window has no old pages and may have no table for them.
    if (old_table_stride > 0) {
      FP4PA_RETURN_IF_FAILED(validate_indices("old_table", old_table));
    }
    FP4PA_RETURN_IF_FAILED(validate_indices("recent_table", recent_table));
  }
  const Backend* backend = nullptr;
  if (const Status s = select_for(exec, &Backend::append_two_tier, "append_two_tier", cache.old_tier, &backend);
      s != Status::kOk) {
    return s;
  }
  if (api::runs_on_host(*backend)) {
    FP4PA_RETURN_IF_FAILED(api::validate_host_global_scales(cache.recent));
  }
  if (num_tokens == 0) {
    // Nothing to do is no error, but an indptr that says otherwise is: rows that it names are nowhere.
    if (indptr == nullptr || !api::runs_on_host(*backend)) return Status::kOk;
    FP4PA_RETURN_IF_FAILED(validate_indices("indptr", indptr));
    return api::check_two_tier_indptr(indptr, batch, num_tokens);
  }
  const api::TwoTierAppend request{cache,      k_rows,    v_rows,           indptr,      seq_lens, batch,
                                   num_tokens, old_table, old_table_stride, recent_table};
  if (exec.validate_device_data && !api::runs_on_host(*backend)) {
    FP4PA_RETURN_IF_FAILED(api::check_device_two_tier(*backend, request, exec.stream));
  }
  return backend->append_two_tier(request, exec);
}

Status gather(const KvCacheDesc& cache, const void* slots, IndexType slot_type, std::int64_t num_tokens,
              const KvOutput& k, const KvOutput& v, const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(validate(cache));
  FP4PA_RETURN_IF_FAILED(validate_count("num_tokens", num_tokens));
  const KvOutput k_rows = with_dense_defaults(k, cache);
  const KvOutput v_rows = with_dense_defaults(v, cache);
  if (num_tokens > 0) {
    if (k.data == nullptr && v.data == nullptr) {
      return fail(Status::kNullPointer, "k.data and v.data are both null; at least one is needed");
    }
    if (k.data != nullptr) {
      FP4PA_RETURN_IF_FAILED(validate_rows("k", k_rows, cache, num_tokens));
    }
    if (v.data != nullptr) {
      FP4PA_RETURN_IF_FAILED(validate_rows("v", v_rows, cache, num_tokens));
    }
    FP4PA_RETURN_IF_FAILED(validate_slots(slots, slot_type));
  }
  const Backend* backend = nullptr;
  FP4PA_RETURN_IF_FAILED(select_for(exec, &Backend::gather, "gather", cache, &backend));
  if (num_tokens == 0) return Status::kOk;
  const api::SlotList list{slots, slot_type, num_tokens};
  if (exec.validate_device_data && !api::runs_on_host(*backend)) {
    FP4PA_RETURN_IF_FAILED(api::check_device_slots(*backend, "gather", cache, list, 1, exec.stream));
  }
  return backend->gather(cache, list, k_rows, v_rows, exec);
}

Status copy_pages(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst, std::int64_t num_copies,
                  const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(validate(cache));
  FP4PA_RETURN_IF_FAILED(validate_count("num_copies", num_copies));
  if (num_copies >= cache.num_pages) {  // nobody reads src and dst that far
    return api::fail(Status::kInvalidSize, "num_copies is %lld; allowed: 0 to %lld, since destinations are distinct and no sources",
                     static_cast<long long>(num_copies), static_cast<long long>(cache.num_pages - 1));
  }
  if (num_copies > 0) {
    FP4PA_RETURN_IF_FAILED(validate_indices("src", src));
    FP4PA_RETURN_IF_FAILED(validate_indices("dst", dst));
  }
  const Backend* backend = nullptr;
  const Status found = api::select_backend(exec, &Backend::copy_pages, "copy_pages", &backend);
  if (found != Status::kOk || num_copies == 0) return found;
  if (exec.validate_device_data && !api::runs_on_host(*backend)) {
    FP4PA_RETURN_IF_FAILED(api::check_device_page_copies(*backend, cache, src, dst, num_copies, exec.stream));
  }
  return backend->copy_pages(cache, src, dst, num_copies, exec);
}

Status merge_states(const void* oa, const float* lse_a, const void* ob, const float* lse_b, void* o, float* lse,
                    DType dtype, std::int64_t rows, std::int32_t head_dim, const ExecDesc& exec) noexcept {
  FP4PA_RETURN_IF_FAILED(api::validate_head_dim(head_dim));
  FP4PA_RETURN_IF_FAILED(api::validate_dtype("dtype", dtype));
  FP4PA_RETURN_IF_FAILED(validate_count("rows", rows));
  if (rows > 0) {
    if (api::saturating_mul(rows, std::int64_t{head_dim} * size_of(dtype)) == api::kSaturated) {
      return fail(Status::kInvalidSize, "rows is %" PRId64 "; allowed: what fits the address space", rows);
    }
    for (const auto& [name, tensor] : {std::pair<const char*, const void*>{"oa", oa}, {"ob", ob}, {"o", o}}) {
      FP4PA_RETURN_IF_FAILED(api::validate_pointer(name, tensor, size_of(dtype)));
    }
    for (const auto& [name, values] : {std::pair<const char*, const float*>{"lse_a", lse_a}, {"lse_b", lse_b}, {"lse", lse}}) {
      FP4PA_RETURN_IF_FAILED(api::validate_pointer(name, values, alignof(float)));
    }
  }
  const Backend* backend = nullptr;
  const Status found = api::select_backend(exec, &Backend::merge_states, "merge_states", &backend);
  if (found != Status::kOk || rows == 0) return found;
  return backend->merge_states({oa, ob, lse_a, lse_b, o, lse, dtype, rows, head_dim}, exec);
}

}  // namespace fp4pa
