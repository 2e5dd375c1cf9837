// Whether the rows that a set of strides describes are disjoint.
//
// Strides must nest: taken from the smallest to the largest, each has to clear everything that the smaller ones span.
//
//     |row|   |row|   |row|        |row|   |row|   |row|
//     <- s0 ->
//     <------- span of dim 0 ---->
//     <------------- s1 ---------->              s1 >= span of dim 0
//
// Every slice and every permutation of an array nests, so HND, NHD and interleaved pages all do. Nesting implies that no two
// rows share a byte. The converse does not hold: rows can also interlock like the teeth of two combs (strides 2 and 3 over
// single bytes). Such a layout comes from no array, and is refused with the ones that overlap.
#pragma once

#include <cstdint>
#include <span>

namespace fp4pa::api {

/// One dimension of rows: how many, and how far apart.
struct StridedDim {
  const char* name;  ///< of the stride, for messages
  std::int64_t size;
  std::int64_t stride_bytes;
};

struct StrideCheck {
  bool disjoint = true;
  const StridedDim* dim = nullptr;     ///< the first dimension whose stride is too small
  std::int64_t needed_bytes = 0;       ///< what that stride must be at least
  std::int64_t span_bytes = 0;         ///< if disjoint: from the first byte to the last of all rows; saturates
};

/// The rows of one array in memory.
struct StridedRows {
  const void* base;
  std::span<const StridedDim> dims;
  std::int64_t row_bytes;
};

/// @param dims       at most 4, sizes of at least 1; a dimension of size 1 may have any stride
/// @param row_bytes  contiguous bytes of a row, at least 1
[[nodiscard]] StrideCheck check_strides(std::span<const StridedDim> dims, std::int64_t row_bytes) noexcept;

/// Whether a row of one array and a row of another share a byte. Arrays may lie within each other, as the parts of interleaved pages do.
/// True is always true. False may be wrong where thousands of rows of one lie within the span of the other at unrelated strides: the search
/// is cut short there. Parts of pages, and of tokens, have a stride in common and are decided in a few steps.
/// @pre check_strides calls each of them disjoint, with a span of at most kMostBytes that does not wrap around the address space
[[nodiscard]] bool rows_overlap(const StridedRows& a, const StridedRows& b) noexcept;

}  // namespace fp4pa::api
