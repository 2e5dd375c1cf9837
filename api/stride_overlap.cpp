// The nesting rule of stride_overlap.hpp, in arithmetic that saturates: strides come from outside.
#include "api/stride_overlap.hpp"

#include <algorithm>
#include <array>

#include "api/saturating.hpp"

namespace fp4pa::api {

StrideCheck check_strides(std::span<const StridedDim> dims, std::int64_t row_bytes) noexcept {
  std::array<const StridedDim*, 4> order{};
  std::size_t count = 0;
  for (const StridedDim& dim : dims) {
    if (dim.size > 1 && count < order.size()) order[count++] = &dim;
  }
  // A stable order of equal strides makes the message the same everywhere. At most four: an insertion sort will do.
  for (std::size_t i = 1; i < count; ++i) {
    for (std::size_t j = i; j > 0 && order[j]->stride_bytes < order[j - 1]->stride_bytes; --j) {
      std::swap(order[j], order[j - 1]);
    }
  }

  StrideCheck check;
  check.span_bytes = row_bytes;
  for (std::size_t i = 0; i < count; ++i) {
    if (order[i]->stride_bytes < check.span_bytes) {
      check.disjoint = false;
      check.dim = order[i];
      check.needed_bytes = check.span_bytes;
      return check;
    }
    check.span_bytes =
        saturating_add(check.span_bytes, saturating_mul(order[i]->size - 1, order[i]->stride_bytes));
  }
  return check;
}

}  // namespace fp4pa::api
