// Rows of K or V that a caller hands in or wants back: strides of 0 written out, and what is wrong with them.
#pragma once

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "api/error.hpp"
#include "api/row_strides.hpp"
#include "api/saturating.hpp"
#include "api/stride_overlap.hpp"
#include "api/validate.hpp"

namespace fp4pa::api {

/// Strides of 0 stand for dense [num_tokens, num_kv_heads, head_dim]; from here on they are written out.
template <typename Rows>
[[nodiscard]] Rows with_dense_defaults(Rows rows, const KvCacheDesc& cache) noexcept {
  const RowStrides strides = with_dense_defaults({rows.token_stride, rows.head_stride}, cache.num_kv_heads, cache.head_dim);
  rows.token_stride = strides.token;
  rows.head_stride = strides.head;
  return rows;
}

/// A KvInput or a KvOutput that is not null, with its strides written out.
template <typename Rows>
[[nodiscard]] Status validate_rows(const char* name, const Rows& rows, const KvCacheDesc& cache,
                                   std::int64_t num_tokens) noexcept {
  char field[16];
  std::snprintf(field, sizeof field, "%s.dtype", name);
  FP4PA_RETURN_IF_FAILED(api::validate_dtype(field, rows.dtype));
  std::snprintf(field, sizeof field, "%s.data", name);
  FP4PA_RETURN_IF_FAILED(api::validate_pointer(field, rows.data, size_of(rows.dtype)));

  const std::array<api::StridedDim, 2> dims = {
      {{"token_stride", num_tokens, rows.token_stride}, {"head_stride", cache.num_kv_heads, rows.head_stride}}};
  for (const api::StridedDim& dim : dims) {
    if (dim.stride_bytes < 0) {
      return fail(Status::kInvalidStrides, "%s.%s is %" PRId64 "; allowed: not negative (0 = dense)", name, dim.name,
                  dim.stride_bytes);
    }
  }
  // In elements here, and not in bytes: the rule is the same.
  const api::StrideCheck check = api::check_strides(dims, cache.head_dim);
  if (!check.disjoint) {
    // With one head a token stride of 0 is the head stride.
    const bool one_stride = cache.num_kv_heads == 1 && rows.token_stride == rows.head_stride;
    return fail(Status::kInvalidStrides,
                "%s.%s is %" PRId64 ", so that rows of %" PRId32 " elements overlap; allowed: 0 (dense) or at least %" PRId64,
                name, one_stride ? "head_stride" : check.dim->name, check.dim->stride_bytes, cache.head_dim, check.needed_bytes);
  }
  if (check.span_bytes > api::kMostBytes / size_of(rows.dtype)) {
    return fail(Status::kInvalidStrides, "%s.token_stride is %" PRId64 ", which over %" PRId64
                " tokens leaves the address space; allowed: spans that fit",
                name, rows.token_stride, num_tokens);
  }
  return Status::kOk;
}

}  // namespace fp4pa::api
