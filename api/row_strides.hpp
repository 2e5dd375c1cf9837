// The strides that a caller leaves at 0, written out: one rule for every [tokens, heads, row] tensor.
#pragma once

#include <cstdint>

#include "api/saturating.hpp"

namespace fp4pa::api {

struct RowStrides {
  std::int64_t token, head;
};

/// A head stride of 0 stands for a row, a token stride of 0 for the heads of one token behind each other, however far apart
/// those are. Nobody need have checked the strides yet.
[[nodiscard]] constexpr RowStrides with_dense_defaults(RowStrides s, std::int64_t heads, std::int64_t row) noexcept {
  if (s.head == 0) s.head = row;
  // A negative head stride is refused later; it must not overflow here.
  if (s.token == 0) s.token = saturating_mul(heads, s.head < 0 ? 0 : s.head);
  return s;
}

}  // namespace fp4pa::api
