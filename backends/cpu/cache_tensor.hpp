// One tensor of a cache (its K or its V) as the CPU's append and gather see it: a view, how to encode into it, and
// the kernels to do it with.
#pragma once

#include <cstdint>

#include "backends/cpu/cache_rows.hpp"
#include "core/paging/plain_row.hpp"
#include "core/paging/tensor_view.hpp"
#include "fp4pa/cache.hpp"

namespace fp4pa::cpu {

struct CacheTensor {
  core::TensorView view;
  core::EncodeRule rule;
  std::int32_t head_dim;
  std::int32_t rotation;  // Hadamard block applied before encoding; 0 for V
  const RowKernels& rows;

  /// `head_dim` floats of row (token, head) of an input, rotated.
  void load_input(const KvInput& input, std::int64_t token, std::int32_t head, float* x) const {
    const std::int64_t index = token * input.token_stride + head * input.head_stride;
    rows.load(core::element_address(input.data, input.dtype, index), input.dtype, head_dim, x);
    if (rotation != 0) rows.rotate(x, head_dim, rotation);
  }

  void write_row(std::int64_t page, std::int32_t row, std::int32_t head, const float* x) const {
    std::uint8_t* const scales = view.scales == nullptr ? nullptr : view.mutable_scale_row(page, row, head);
    rows.encode(view.format, x, head_dim, view.global(head), rule, view.mutable_row(page, row, head), scales);
  }

  /// @param first_row  row of the page at which the group begins
  void write_group(std::int64_t page, std::int32_t first_row, std::int32_t head, const core::GroupValues& group) const {
    rows.encode_group(view.format, group, head_dim, view.global(head), rule, view.mutable_row(page, first_row, head),
                      view.token_stride, view.mutable_scale_row(page, first_row, head));
  }

  void read_row(std::int64_t page, std::int32_t row, std::int32_t head, float* x) const {
    const std::uint8_t* const scales = view.scales == nullptr ? nullptr : view.scale_row(page, row, head);
    const auto decode = view.scale_along_tokens() ? rows.decode_group_row : rows.decode;
    decode(view.format, view.row(page, row, head), scales, head_dim, view.global(head), x);
  }

  /// core::round_through of a row: what it would be, had it been written here and read back.
  void round_through(std::int32_t head, float* x) const {
    alignas(64) std::uint8_t codes[2 * kMaxRow];
    const float global = view.global(head);
    rows.encode(view.format, x, head_dim, global, rule, codes, nullptr);
    rows.decode(view.format, codes, nullptr, head_dim, global, x);
  }
};

[[nodiscard]] inline CacheTensor k_of(const KvCacheDesc& cache, const RowKernels& rows) {
  return {core::make_view(cache.k),
          {cache.scale_mode, cache.nvfp4_scale},
          cache.head_dim,
          static_cast<std::int32_t>(cache.rotation),
          rows};
}
[[nodiscard]] inline CacheTensor v_of(const KvCacheDesc& cache, const RowKernels& rows) {
  return {core::make_view(cache.v), {cache.scale_mode, cache.nvfp4_scale}, cache.head_dim, 0, rows};
}

}  // namespace fp4pa::cpu
