// The inner loops of the memory operations as a table, so that append, gather and quantise are written once and run
// either on core's functions (the definition) or on SIMD versions of them, bit for bit the same. The one exception: the
// payload of a NaN that comes out of a sum (rotation), or out of a product (decoding), is whatever the processor makes
// of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/paging/encode_group.hpp"
#include "core/paging/encode_row.hpp"
#include "fp4pa/quantize.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::cpu {

/// Every function takes n elements, n a multiple of 16 and at most kMaxRow unless it says otherwise.
struct RowKernels {
  void (*load)(const void* row, DType dtype, int n, float* out);
  void (*store)(const float* x, int n, DType dtype, void* row);
  void (*rotate)(float* x, int n, int block);

  /// As core::encode_row and core::decode_row.
  void (*encode)(KvFormat format, const float* x, int n, float global, core::EncodeRule rule, std::uint8_t* codes,
                 std::uint8_t* scales);
  void (*decode)(KvFormat format, const std::uint8_t* codes, const std::uint8_t* scales, int n, float global, float* x);

  /// As core::encode_group and core::decode_group_row.
  void (*encode_group)(KvFormat format, const core::GroupValues& group, int n, float global, core::EncodeRule rule,
                       std::uint8_t* codes, std::int64_t token_stride, std::uint8_t* scales);
  void (*decode_group_row)(KvFormat format, const std::uint8_t* codes, const std::uint8_t* scales, int n, float global,
                           float* x);

  /// MXFP8 blocks of 32; n a multiple of 32.
  void (*encode_mxfp8)(const float* x, int n, ScaleMode mode, std::uint8_t* codes, std::uint8_t* scales);
  void (*decode_mxfp8)(const std::uint8_t* codes, const std::uint8_t* scales, int n, float* x);
};

/// Longest row that a kernel is handed: a head's head_dim, or a piece of a tensor's row.
inline constexpr int kMaxRow = 256;
/// Most tokens of a group scaled along tokens.
inline constexpr int kMaxGroup = 32;

/// core's own functions.
extern const RowKernels kScalarRows;
/// The fastest for this machine.
[[nodiscard]] const RowKernels& fastest_rows() noexcept;

}  // namespace fp4pa::cpu
