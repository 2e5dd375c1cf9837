// copy_pages: whole pages, code rows and scale rows, and not one byte more.
//
// A page is two or three nested strides, and what lies between its rows need not belong to this cache (interleaved
// pages, another layer's K between two heads). So only rows are copied; but rows that happen to touch are copied
// together, which makes a dense page one memcpy per tensor.
#include <cstdint>
#include <cstring>
#include <utility>

#include "api/error.hpp"
#include "api/validate_page_copies.hpp"
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_threads.hpp"
#include "core/paging/tensor_view.hpp"

namespace fp4pa::cpu {
namespace {

// Rows at base + i * outer_stride + j * inner_stride, each `bytes` long, relative to a page.
struct PageRows {
  std::uint8_t* base;
  std::int64_t page_stride;
  std::int64_t outer_stride, inner_stride;
  std::int64_t outer, inner;
  std::int64_t bytes;
};

// Puts the smaller stride innermost and joins rows that touch.
PageRows joined(PageRows r) {
  if (r.inner == 1 || (r.outer > 1 && r.outer_stride < r.inner_stride)) {
    std::swap(r.outer_stride, r.inner_stride);
    std::swap(r.outer, r.inner);
  }
  if (r.inner_stride == r.bytes) {
    r.bytes *= r.inner;
    r.inner = 1;
  }
  if (r.inner == 1 && r.outer_stride == r.bytes) {
    r.bytes *= r.outer;
    r.outer = 1;
  }
  return r;
}

PageRows code_rows(const KvCacheDesc& cache, const KvTensorDesc& tensor) {
  return joined({static_cast<std::uint8_t*>(tensor.data), tensor.page_stride_bytes, tensor.head_stride_bytes,
                 tensor.token_stride_bytes, cache.num_kv_heads, cache.page_size,
                 core::row_bytes(tensor.format, cache.head_dim)});
}

PageRows scale_rows(const KvCacheDesc& cache, const KvTensorDesc& tensor) {
  const std::int32_t group = 1 << core::token_group_shift(tensor.format, tensor.scale_axis);
  return joined({static_cast<std::uint8_t*>(tensor.scales), tensor.scale_page_stride_bytes,
                 tensor.scale_head_stride_bytes, tensor.scale_token_stride_bytes, cache.num_kv_heads,
                 (cache.page_size + group - 1) / group,
                 core::scale_row_bytes(tensor.format, tensor.scale_axis, cache.head_dim)});
}

void copy_rows(const PageRows& r, std::int64_t src, std::int64_t dst) {
  for (std::int64_t i = 0; i < r.outer; ++i) {
    for (std::int64_t j = 0; j < r.inner; ++j) {
      const std::int64_t offset = i * r.outer_stride + j * r.inner_stride;
      std::memcpy(r.base + dst * r.page_stride + offset, r.base + src * r.page_stride + offset,
                  static_cast<std::size_t>(r.bytes));
    }
  }
}

}  // namespace

Status copy_pages(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst, std::int64_t num_copies,
                  const ExecDesc& exec) noexcept {
  if (num_copies <= 0) return Status::kOk;
  FP4PA_RETURN_IF_FAILED(api::check_page_copies(cache, src, dst, num_copies));

  PageRows parts[4];
  int num_parts = 0;
  for (const KvTensorDesc* tensor : {&cache.k, &cache.v}) {
    parts[num_parts++] = code_rows(cache, *tensor);
    if (has_scales(tensor->format)) parts[num_parts++] = scale_rows(cache, *tensor);
  }

  const int threads = num_threads(exec, num_copies);
  for_each(threads, num_copies, [&](std::int64_t i) {
    for (int part = 0; part < num_parts; ++part) copy_rows(parts[part], src[i], dst[i]);
  });
  return Status::kOk;
}

}  // namespace fp4pa::cpu
