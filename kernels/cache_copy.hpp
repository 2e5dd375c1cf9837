// copy_pages: whole pages, code rows and scale rows, and not one byte more. What lies between a page's rows need not belong
// to this cache; rows with nothing between them are copied as one.
#pragma once

#include "kernels/cache_ops.hpp"
#include "kernels/cache_rows.hpp"
#include "kernels/piece.hpp"

namespace fp4pa::FP4PA_GPU {

/// Rows at base + page * page_stride + i * outer_stride + j * inner_stride, each `bytes` long.
struct PageRows {
  std::uint8_t* base;
  std::int64_t page_stride, outer_stride, inner_stride;
  std::int64_t outer, inner;
  std::int64_t bytes;

  /// Rows that follow each other as one: those of a dense page all become one.
  [[nodiscard]] PageRows merged() const {
    PageRows r = *this;
    const auto merge = [&](std::int64_t& count, std::int64_t stride) {
      if (count != 1 && stride != r.bytes) return;
      r.bytes *= count;
      count = 1;
    };
    merge(r.inner, r.inner_stride);
    merge(r.outer, r.outer_stride);
    merge(r.inner, r.inner_stride);
    return r;
  }
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

/// As piece.hpp's of sixteen bytes; these stay there of themselves.
FP4PA_DEVICE inline std::uint32_t in_registers(std::uint32_t x) { return x; }
FP4PA_DEVICE inline std::uint8_t in_registers(std::uint8_t x) { return x; }

/// The rows of a page in units.
template <class Unit>
FP4PA_DEVICE inline void copy_in_units(const PageRows& r, const std::uint8_t* from, std::uint8_t* to) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Unit));
  const std::int64_t rows = r.outer * r.inner;
  const std::int64_t of_row = r.bytes / kBytes;
  if (rows == 1) {  // several of a thread's on their way at once
    constexpr int kAtOnce = 4;
    const auto* const source = reinterpret_cast<const Unit*>(from);
    auto* const target = reinterpret_cast<Unit*>(to);
    for (std::int64_t first = thread_id(); first < of_row; first += kAtOnce * kThreads) {
      Unit units[kAtOnce];
      FP4PA_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        const std::int64_t unit = first + u * kThreads;
        units[u] = source[unit < of_row ? unit : first];
      }
      FP4PA_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        const std::int64_t unit = first + u * kThreads;
        if (unit < of_row) target[unit] = in_registers(units[u]);
      }
    }
    return;
  }
  for (std::int64_t unit = thread_id(); unit < rows * of_row; unit += kThreads) {
    const std::int64_t row = unit / of_row;
    const std::int64_t at = row / r.inner * r.outer_stride + row % r.inner * r.inner_stride + unit % of_row * kBytes;
    *reinterpret_cast<Unit*>(to + at) = *reinterpret_cast<const Unit*>(from + at);
  }
}

/// block_id_y() is the part. Codes are whole 16 bytes at addresses of 16; scales may lie anywhere.
FP4PA_KERNEL(copy_rows, kThreads, CopyArgs args) {
  const PageRows& r = args.parts[block_id_y()];
  const auto unaligned = reinterpret_cast<std::uintptr_t>(r.base) | static_cast<std::uintptr_t>(r.page_stride) |
                         static_cast<std::uintptr_t>(r.outer == 1 ? 0 : r.outer_stride) |
                         static_cast<std::uintptr_t>(r.inner == 1 ? 0 : r.inner_stride) | static_cast<std::uintptr_t>(r.bytes);
  for (std::int64_t c = block_id(); c < args.num_copies; c += args.blocks) {
    const std::int32_t src = args.src[c];
    const std::int32_t dst = args.dst[c];
    if (src < 0 || src >= args.num_pages || dst < 0 || dst >= args.num_pages) continue;
    const std::uint8_t* const from = r.base + src * r.page_stride;
    std::uint8_t* const to = r.base + dst * r.page_stride;
    if (unaligned % 16 == 0) {
      copy_in_units<Words<16>>(r, from, to);
    } else if (unaligned % 4 == 0) {
      copy_in_units<std::uint32_t>(r, from, to);
    } else {
      copy_in_units<std::uint8_t>(r, from, to);
    }
  }
}

Status copy_pages(const KvCacheDesc& cache, const std::int32_t* src, const std::int32_t* dst, std::int64_t num_copies,
                  const ExecDesc& exec) noexcept {
  if (num_copies <= 0) return Status::kOk;
  const auto blocks = static_cast<std::int32_t>(num_copies < 65536 ? num_copies : 65536);
  CopyArgs args{{}, 0, src, dst, num_copies, cache.num_pages, blocks};
  for (const KvTensorDesc* tensor : {&cache.k, &cache.v}) {
    args.parts[args.num_parts++] = code_rows(cache, *tensor).merged();
    if (has_scales(tensor->format)) args.parts[args.num_parts++] = scale_rows(cache, *tensor).merged();
  }
  return launch(copy_rows, grid(args.blocks, args.num_parts), kThreads, 0, exec.stream, args, "launching copy_pages");
}

}  // namespace fp4pa::FP4PA_GPU
