// MXFP8 rows to bf16: E4M3 has four significant bits and a power of two only moves them, so that the values are the
// same (but for magnitudes below 2^-126, of which bf16 keeps multiples of 2^-133).
#pragma once

#include <cstdint>

#include "core/formats/block.hpp"
#include "core/formats/half.hpp"
#include "core/macros.hpp"

namespace fp4pa::core {

/// A [tokens, heads, head_dim] tensor of E4M3 codes and one E8M0 scale per 32 of them; strides in bytes.
struct Mxfp8Rows {
  const std::uint8_t* codes;
  std::int64_t token_stride;
  std::int64_t head_stride;
  const std::uint8_t* scales;
  std::int64_t scale_token_stride;
  std::int64_t scale_head_stride;
};

/// Elements first .. first + count - 1 of group `group` of a row to bf16.
/// @param out  of the whole group, [32]
FP4PA_FN void expand_piece(const Mxfp8Rows& rows, std::int64_t token, std::int32_t head, std::int32_t group, int first,
                           int count, std::uint16_t* out) {
  const std::uint8_t* const codes = rows.codes + token * rows.token_stride + head * rows.head_stride + group * 32;
  const std::uint8_t scale = rows.scales[token * rows.scale_token_stride + head * rows.scale_head_stride + group];
  for (int i = first; i < first + count; ++i) out[i] = f32_to_bf16(mx_value<E4M3>(codes[i], scale));
}

}  // namespace fp4pa::core
