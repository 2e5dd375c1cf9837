// copy_pages: whole pages, code rows and scale rows, and not one byte more. What lies between a page's rows need not belong
// to this cache.
#pragma once

#include "kernels/cache_ops.hpp"
#include "kernels/cache_rows.hpp"

namespace fp4pa::FP4PA_GPU {

/// Sixteen bytes that move at once.
struct alignas(16) Chunk {
  std::uint32_t words[4];
};

/// Rows at base + page * page_stride + i * outer_stride + j * inner_stride, each `bytes` long.
struct PageRows {
  std::uint8_t* base;
  std::int64_t page_stride, outer_stride, inner_stride;
  std::int64_t outer, inner;
  std::int32_t bytes;
};

struct CopyArgs {
  PageRows parts[4];
  std::int32_t num_parts;
  const std::int32_t* src;
  const std::int32_t* dst;
  std::int64_t num_copies;
  std::int64_t num_pages;
  std::int32_t blocks;  // of the launch, a part
};

inline PageRows code_rows(const KvCacheDesc& cache, const KvTensorDesc& tensor) {
  return {static_cast<std::uint8_t*>(tensor.data), tensor.page_stride_bytes, tensor.head_stride_bytes,
          tensor.token_stride_bytes, cache.num_kv_heads, cache.page_size,
          core::row_bytes(tensor.format, cache.head_dim)};
}
inline PageRows scale_rows(const KvCacheDesc& cache, const KvTensorDesc& tensor) {
  const std::int32_t group = 1 << core::token_group_shift(tensor.format, tensor.scale_axis);
  return {static_cast<std::uint8_t*>(tensor.scales), tensor.scale_page_stride_bytes, tensor.scale_head_stride_bytes,
          tensor.scale_token_stride_bytes, cache.num_kv_heads, (cache.page_size + group - 1) / group,
          core::scale_row_bytes(tensor.format, tensor.scale_axis, cache.head_dim)};
}

/// block_id_y() is the part. Code rows are whole 16-byte chunks at 16-byte addresses; scale rows are bytes.
FP4PA_KERNEL(copy_rows, kThreads, CopyArgs args) {
  const PageRows& r = args.parts[block_id_y()];
  const auto unaligned = reinterpret_cast<std::uintptr_t>(r.base) | static_cast<std::uintptr_t>(r.page_stride) |
                         static_cast<std::uintptr_t>(r.outer_stride) | static_cast<std::uintptr_t>(r.inner_stride) |
                         static_cast<std::uintptr_t>(r.bytes);
  const int unit = unaligned % 16 == 0 ? 16 : 1;
  const std::int64_t units = r.bytes / unit;
  for (std::int64_t c = block_id(); c < args.num_copies; c += args.blocks) {
    const std::int32_t src = args.src[c];
    const std::int32_t dst = args.dst[c];
    if (src < 0 || src >= args.num_pages || dst < 0 || dst >= args.num_pages) continue;
    for (std::int64_t i = thread_id(); i < r.outer * r.inner * units; i += kThreads) {
      const std::int64_t row = i / units;
      const std::int64_t at = row / r.inner * r.outer_stride + row % r.inner * r.inner_stride + i % units * unit;
      const std::uint8_t* const from = r.base + src * r.page_stride + at;
      std::uint8_t* const to = r.base + dst * r.page_stride + at;
      if (unit == 16) {
        *reinterpret_cast<Chunk*>(to) = *reinterpret_cast<const Chunk*>(from);
      } else {
        *to = *from;
      }
    }
  }
}

Status copy_pages(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst, std::int64_t num_copies,
                  const ExecDesc& exec) noexcept {
  if (num_copies <= 0) return Status::kOk;
  const auto blocks = static_cast<std::int32_t>(num_copies < 65536 ? num_copies : 65536);
  CopyArgs args{{}, 0, src, dst, num_copies, cache.num_pages, blocks};
  for (const KvTensorDesc* tensor : {&cache.k, &cache.v}) {
    args.parts[args.num_parts++] = code_rows(cache, *tensor);
    if (has_scales(tensor->format)) args.parts[args.num_parts++] = scale_rows(cache, *tensor);
  }
  return launch(copy_rows, grid(args.blocks, args.num_parts), kThreads, 0, exec.stream, args, "launching copy_pages");
}

}  // namespace fp4pa::FP4PA_GPU
