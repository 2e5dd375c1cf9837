// V scaled along tokens: a group of up to 32 (MXFP4) or 16 (NVFP4) tokens of a page, one scale per head_dim column.
//
//                column 0   1   2   ...              codes: row t at codes + t * token_stride, two columns a byte
//     token 0          x   x   x                     scales: one row of head_dim bytes for the whole group
//     token 1          x   x   x
//      ...             :   :   :
//     scale           s0  s1  s2
//
// Two columns share every byte of codes, so a pair of columns is the smallest piece that threads can work on without
// touching each other's bytes. A group may be cut short by the end of its page or of its sequence; the tokens it lacks
// count as zeros, which change neither a largest magnitude nor a squared error, and so are simply not there.
#pragma once

#include <cstdint>

#include "core/formats/block.hpp"
#include "core/macros.hpp"
#include "core/paging/encode_row.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

/// A group's tokens as floats: token t, column d at x[t * stride + d].
struct GroupValues {
  const float* x;
  std::int64_t stride;
  int tokens;  // 1 to the format's group
};

/// Scale of one column.
[[nodiscard]] FP4PA_FN std::uint8_t column_scale(KvFormat format, const GroupValues& group, int column, float global,
                                                 EncodeRule rule) {
  const float* const x = group.x + column;
  if (format == KvFormat::kNvfp4) return nvfp4_scale(x, group.tokens, global, rule.nvfp4_scale, group.stride);
  return e8m0_from_amax<E2M1>(group_amax(x, group.tokens, group.stride), rule.scale_mode);
}

[[nodiscard]] FP4PA_FN constexpr std::uint8_t fp4_code(KvFormat format, float x, std::uint8_t scale, float global) {
  return format == KvFormat::kNvfp4 ? e2m1_code_nvfp4(x, scale, global) : e2m1_code(x, scale);
}
[[nodiscard]] FP4PA_FN constexpr float fp4_value(KvFormat format, std::uint8_t code, std::uint8_t scale, float global) {
  return format == KvFormat::kNvfp4 ? nvfp4_value(code, scale, global) : mx_value<E2M1>(code, scale);
}

/// Columns 2 * pair and 2 * pair + 1.
/// @param codes   row of the group's first token
/// @param scales  the group's scale row
FP4PA_FN void encode_column_pair(KvFormat format, const GroupValues& group, int pair, float global, EncodeRule rule,
                                 std::uint8_t* codes, std::int64_t token_stride, std::uint8_t* scales) {
  const int even = 2 * pair;
  const std::uint8_t even_scale = column_scale(format, group, even, global, rule);
  const std::uint8_t odd_scale = column_scale(format, group, even + 1, global, rule);
  for (int t = 0; t < group.tokens; ++t) {
    const float* const x = group.x + t * group.stride + even;
    codes[t * token_stride + pair] =
        pack_e2m1(fp4_code(format, x[0], even_scale, global), fp4_code(format, x[1], odd_scale, global));
  }
  scales[even] = even_scale;
  scales[even + 1] = odd_scale;
}

/// All n columns.
FP4PA_FN void encode_group(KvFormat format, const GroupValues& group, int n, float global, EncodeRule rule,
                           std::uint8_t* codes, std::int64_t token_stride, std::uint8_t* scales) {
  for (int pair = 0; pair < n / 2; ++pair) {
    encode_column_pair(format, group, pair, global, rule, codes, token_stride, scales);
  }
}

/// One token of a group.
/// @param scales  the group's scale row, [n]
FP4PA_FN void decode_group_row(KvFormat format, const std::uint8_t* codes, const std::uint8_t* scales, int n,
                               float global, float* x) {
  for (int i = 0; i < n; ++i) x[i] = fp4_value(format, unpack_e2m1(codes[i / 2], i % 2), scales[i], global);
}

}  // namespace fp4pa::core
