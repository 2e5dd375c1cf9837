// The nesting rule of stride_overlap.hpp, in arithmetic that saturates: strides come from outside.
#include "api/stride_overlap.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "api/saturating.hpp"

namespace fp4pa::api {
namespace {

constexpr std::size_t kMostDims = 4;

/// The dimensions that have more than one row, from the smallest stride to the largest.
struct SortedDims {
  std::array<const StridedDim*, kMostDims> dims{};
  std::size_t count = 0;

  explicit SortedDims(std::span<const StridedDim> all) noexcept {
    for (const StridedDim& dim : all) {
      if (dim.size > 1 && count < dims.size()) dims[count++] = &dim;
    }
    // A stable order of equal strides makes the message the same everywhere. At most four: an insertion sort will do.
    for (std::size_t i = 1; i < count; ++i) {
      for (std::size_t j = i; j > 0 && dims[j]->stride_bytes < dims[j - 1]->stride_bytes; --j) std::swap(dims[j], dims[j - 1]);
    }
  }
};

/// A row, or blocks of the level below at a stride.
struct Level {
  std::int64_t span;  ///< of all of it
  std::int64_t stride = 0, size = 1;

  [[nodiscard]] bool is_row() const noexcept { return stride == 0; }
};

/// Rows that nest, by levels: a row, the innermost dimension of rows, and so on outwards.
class Nest {
 public:
  explicit Nest(const StridedRows& rows) noexcept {
    const SortedDims sorted(rows.dims);
    levels_[0] = {rows.row_bytes};
    for (std::size_t i = 0; i < sorted.count; ++i) {
      const StridedDim& dim = *sorted.dims[i];
      levels_[i + 1] = {levels_[i].span + (dim.size - 1) * dim.stride_bytes, dim.stride_bytes, dim.size};
    }
    outermost_ = &levels_[sorted.count];
  }
  Nest(const Nest&) = delete;
  /// The level below one that is no row stands in front of it.
  [[nodiscard]] const Level* outermost() const noexcept { return outermost_; }

 private:
  std::array<Level, kMostDims + 1> levels_{};
  const Level* outermost_;
};

[[nodiscard]] constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept { return a / b - (a % b < 0 ? 1 : 0); }
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return -floor_div(-a, b); }

/// The search of rows_overlap: pairs of blocks, of which only those are opened whose spans meet. With equal strides that is at most two
/// steps of a dimension, and with different ones it may be many: the number of pairs is bounded.
class Search {
 public:
  /// @param offset  of b's first byte behind a's
  [[nodiscard]] bool meet(const Level* a, const Level* b, std::int64_t offset) noexcept {
    if (offset >= a->span || -offset >= b->span || --pairs_left_ < 0) return false;
    if (a->is_row() && b->is_row()) return true;
    if (a->stride < b->stride) return meet(b, a, -offset);
    const bool together = a->stride == b->stride;  // what counts is how many steps b is ahead
    const Level* const in_a = a - 1;
    const Level* const in_b = together ? b - 1 : b;
    const std::int64_t stride = a->stride;
    // b's block against the one that is `step` strides behind a's first; negative if b has stepped.
    std::int64_t first = ceil_div(offset - in_a->span + 1, stride);
    std::int64_t last = floor_div(offset + in_b->span - 1, stride);
    first = std::max(first, together ? 1 - b->size : 0);
    last = std::min(last, a->size - 1);
    for (std::int64_t step = first; step <= last && pairs_left_ > 0; ++step) {
      if (meet(in_a, in_b, offset - step * stride)) return true;
    }
    return false;
  }

 private:
  int pairs_left_ = 4096;
};

}  // namespace

StrideCheck check_strides(std::span<const StridedDim> dims, std::int64_t row_bytes) noexcept {
  const SortedDims order(dims);
  StrideCheck check;
  check.span_bytes = row_bytes;
  for (std::size_t i = 0; i < order.count; ++i) {
    const StridedDim* const dim = order.dims[i];
    if (dim->stride_bytes < check.span_bytes) {
      check.disjoint = false;
      check.dim = dim;
      check.needed_bytes = check.span_bytes;
      return check;
    }
    check.span_bytes = saturating_add(check.span_bytes, saturating_mul(dim->size - 1, dim->stride_bytes));
  }
  return check;
}

bool rows_overlap(const StridedRows& a, const StridedRows& b) noexcept {
  const auto at_a = reinterpret_cast<std::uintptr_t>(a.base);
  const auto at_b = reinterpret_cast<std::uintptr_t>(b.base);
  if (at_b < at_a) return rows_overlap(b, a);
  const Nest nest_a(a), nest_b(b);
  // Beyond a's span no row of a is left, so that the rest is in small numbers.
  if (at_b - at_a >= static_cast<std::uintptr_t>(nest_a.outermost()->span)) return false;
  return Search().meet(nest_a.outermost(), nest_b.outermost(), static_cast<std::int64_t>(at_b - at_a));
}

}  // namespace fp4pa::api
