// One row of a cache on the device: a warp reads it into shared memory, rotates it there, and its lanes encode or decode
// pieces of it with the functions of core/paging.
//
// A piece is what can be encoded alone: a group that shares a scale, or eight elements where there is none. Since the
// functions are core's own, and this is compiled without fused multiply-add, bytes are equal to the CPU's.
#pragma once

#include <cstdint>

#include "core/formats/hadamard.hpp"
#include "core/paging/encode_group.hpp"
#include "core/paging/encode_row.hpp"
#include "core/paging/plain_row.hpp"
#include "core/paging/tensor_view.hpp"
#include "fp4pa/cache.hpp"

namespace fp4pa::FP4PA_GPU {

inline constexpr int kMaxRow = 256;   // head_dim
inline constexpr int kMaxGroup = 32;  // tokens scaled together
inline constexpr int kWarps = 4;      // of a block of the cache operations
inline constexpr int kThreads = kLanes * kWarps;

/// One tensor of a cache (its K or its V), and how to encode into it.
struct CacheTensor {
  core::TensorView view;
  core::EncodeRule rule;
  std::int32_t head_dim;
  std::int32_t rotation;  // Hadamard block applied before encoding; 0 for V
};

[[nodiscard]] inline CacheTensor k_of(const KvCacheDesc& cache) {
  return {core::make_view(cache.k), {cache.scale_mode, cache.nvfp4_scale}, cache.head_dim,
          static_cast<std::int32_t>(cache.rotation)};
}
[[nodiscard]] inline CacheTensor v_of(const KvCacheDesc& cache) {
  return {core::make_view(cache.v), {cache.scale_mode, cache.nvfp4_scale}, cache.head_dim, 0};
}

/// Plain rows: new tokens to be encoded, or decoded ones to be written.
struct PlainRows {
  void* data;
  DType dtype;
  std::int64_t token_stride;  // elements
  std::int64_t head_stride;

  [[nodiscard]] FP4PA_DEVICE void* element(std::int64_t token, std::int32_t head, int d) const {
    return core::element_address(data, dtype, token * token_stride + head * head_stride + d);
  }
};
[[nodiscard]] inline PlainRows rows_of(const KvInput& in) {
  return {const_cast<void*>(in.data), in.dtype, in.token_stride, in.head_stride};
}
[[nodiscard]] inline PlainRows rows_of(const KvOutput& out) {
  return {out.data, out.dtype, out.token_stride, out.head_stride};
}

[[nodiscard]] FP4PA_DEVICE inline int lane_id() { return thread_id() % kLanes; }
[[nodiscard]] FP4PA_DEVICE inline int warp_id() { return thread_id() / kLanes; }

/// The transform of hadamard.hpp, its butterflies spread over the warp's lanes: every value passes the same additions.
FP4PA_DEVICE inline void rotate(float* x, int n, int block) {
  for (int distance = 1; distance < block; distance *= 2) {
    sync_warp();
    for (int i = lane_id(); i < n / 2; i += kLanes) {
      const int low = i / distance * 2 * distance + i % distance;
      const float a = x[low];
      const float b = x[low + distance];
      x[low] = a + b;
      x[low + distance] = a - b;
    }
  }
  sync_warp();
  const float norm = core::hadamard_norm(block);
  for (int i = lane_id(); i < n; i += kLanes) x[i] *= norm;
}

/// Row (token, head) of an input as floats, rotated; readable by the whole warp.
FP4PA_DEVICE inline void load_input(const CacheTensor& tensor, const PlainRows& input, std::int64_t token, std::int32_t head,
                                  float* x) {
  sync_warp();
  for (int d = lane_id(); d < tensor.head_dim; d += kLanes) {
    core::load_plain_row(input.element(token, head, d), input.dtype, 1, x + d);
  }
  if (tensor.rotation != 0) rotate(x, tensor.head_dim, tensor.rotation);
  sync_warp();
}

/// Elements that are encoded together along head_dim.
[[nodiscard]] FP4PA_DEVICE inline int piece_elements(KvFormat format, int head_dim) {
  const int group = core::row_group(format, head_dim);
  return group != 0 ? group : 8;
}

/// Encodes a row whose scales run along head_dim.
FP4PA_DEVICE inline void write_row(const CacheTensor& tensor, std::int64_t page, std::int32_t row, std::int32_t head,
                                 const float* x) {
  const KvFormat format = tensor.view.format;
  const int piece = piece_elements(format, tensor.head_dim);
  std::uint8_t* const codes = tensor.view.mutable_row(page, row, head);
  std::uint8_t* const scales = tensor.view.scales == nullptr ? nullptr : tensor.view.mutable_scale_row(page, row, head);
  const float global = tensor.view.global(head);
  for (int p = lane_id(); p * piece < tensor.head_dim; p += kLanes) {
    core::encode_row(format, x + p * piece, piece, global, tensor.rule, codes + core::row_bytes(format, p * piece),
                     scales == nullptr ? nullptr : scales + p);
  }
}

/// Decodes a row, of either scale axis, to floats that the whole warp may read.
FP4PA_DEVICE inline void read_row(const CacheTensor& tensor, std::int64_t page, std::int32_t row, std::int32_t head, float* x) {
  constexpr int kPiece = 8;
  const KvFormat format = tensor.view.format;
  const std::uint8_t* const codes = tensor.view.row(page, row, head);
  const std::uint8_t* const scales = tensor.view.scales == nullptr ? nullptr : tensor.view.scale_row(page, row, head);
  const float global = tensor.view.global(head);
  sync_warp();
  for (int p = lane_id(); p * kPiece < tensor.head_dim; p += kLanes) {
    const int d = p * kPiece;
    const std::uint8_t* const piece = codes + core::row_bytes(format, d);
    if (tensor.view.scale_along_tokens()) {
      core::decode_group_row(format, piece, scales + d, kPiece, global, x + d);
    } else if (is_fp4(format)) {
      const std::uint8_t scale = scales[d / core::row_group(format, tensor.head_dim)];
      for (int i = 0; i < kPiece; ++i) {
        x[d + i] = core::fp4_value(format, core::unpack_e2m1(piece[i / 2], i % 2), scale, global);
      }
    } else if (format == KvFormat::kMxfp8) {
      core::decode_mxfp8(piece, kPiece, scales[d / 32], x + d);
    } else {
      core::decode_row(format, piece, nullptr, kPiece, global, x + d);
    }
  }
  sync_warp();
}

/// Encodes a group of tokens with one scale per column; called by a whole block of kThreads, which may read `x` [tokens,
/// head_dim].
FP4PA_DEVICE inline void write_group(const CacheTensor& tensor, std::int64_t page, std::int32_t first_row, std::int32_t head,
                                   const float* x, int tokens) {
  const core::GroupValues group{x, tensor.head_dim, tokens};
  for (int pair = thread_id(); 2 * pair < tensor.head_dim; pair += kThreads) {
    core::encode_column_pair(tensor.view.format, group, pair, tensor.view.global(head), tensor.rule,
                             tensor.view.mutable_row(page, first_row, head), tensor.view.token_stride,
                             tensor.view.mutable_scale_row(page, first_row, head));
  }
}

}  // namespace fp4pa::FP4PA_GPU
