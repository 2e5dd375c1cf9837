// MXFP8 rows that become bf16: E4M3 has four significant bits and a power of two only moves them, so that the values are the
// same (but for magnitudes below 2^-126, of which bf16 keeps multiples of 2^-133).
#pragma once

#include <cstdint>

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

}  // namespace fp4pa::core
