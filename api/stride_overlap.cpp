// The nesting rule of stride_overlap.hpp, in arithmetic that saturates: strides come from outside.
#include "api/stride_overlap.hpp"

#include <algorithm>
#include <array>

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

/// Rows that nest, and what the innermost `n` dimensions of them span.
struct Nest {
  SortedDims sorted;
  std::array<std::int64_t, kMostDims + 1> spans{};

  explicit Nest(const StridedRows& rows) noexcept : sorted(rows.dims) {
    spans[0] = rows.row_bytes;
    for (std::size_t i = 0; i < sorted.count; ++i) {
      spans[i + 1] = spans[i] + (sorted.dims[i]->size - 1) * sorted.dims[i]->stride_bytes;
    }
  }
};

/// The innermost dimensions of a nest, as a block of rows.
struct Block {
  const Nest* nest;
  std::size_t depth;

  [[nodiscard]] std::int64_t span() const noexcept { return nest->spans[depth]; }
  [[nodiscard]] std::int64_t size() const noexcept { return nest->sorted.dims[depth - 1]->size; }
  [[nodiscard]] std::int64_t stride() const noexcept { return depth == 0 ? 0 : nest->sorted.dims[depth - 1]->stride_bytes; }
  [[nodiscard]] Block inner() const noexcept { return {nest, depth - 1}; }
};

[[nodiscard]] constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept { return a / b - (a % b < 0 ? 1 : 0); }
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return -floor_div(-a, b); }

/// The search of rows_overlap: pairs of blocks, of which only those are opened whose spans meet. With equal strides that is at most two
/// steps of a dimension, and with different ones it may be many: the number of pairs is bounded.
class Search {
 public:
  /// @param offset  of b's first byte behind a's
  [[nodiscard]] bool meet(Block a, Block b, std::int64_t offset) noexcept {
    if (offset >= a.span() || -offset >= b.span() || --pairs_left_ < 0) return false;
    if (a.depth == 0 && b.depth == 0) return true;
    if (a.stride() < b.stride()) return meet(b, a, -offset);
    const bool together = a.stride() == b.stride();  // what counts is how many steps b is ahead
    const Block in_b = together ? b.inner() : b;
    const std::int64_t stride = a.stride();
    // b's block against the one that is `step` strides behind a's first; negative if b has stepped.
    std::int64_t first = ceil_div(offset - a.inner().span() + 1, stride);
    std::int64_t last = floor_div(offset + in_b.span() - 1, stride);
    first = std::max(first, together ? 1 - b.size() : 0);
    last = std::min(last, a.size() - 1);
    for (std::int64_t step = first; step <= last && pairs_left_ > 0; ++step) {
      if (meet(a.inner(), in_b, offset - step * stride)) return true;
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
  if (at_b - at_a >= static_cast<std::uintptr_t>(nest_a.spans[nest_a.sorted.count])) return false;
  return Search().meet({&nest_a, nest_a.sorted.count}, {&nest_b, nest_b.sorted.count}, static_cast<std::int64_t>(at_b - at_a));
}

}  // namespace fp4pa::api
