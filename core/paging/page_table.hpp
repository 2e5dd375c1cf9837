// Which page of the pool holds a sequence's p-th page: block table, CSR and the recent tier's ring behind one question.
//
//   block table  pages [batch, row_stride]            page(b, p) = pages[b * row_stride + p]
//   CSR          pages [total], indptr [batch + 1]     page(b, p) = pages[indptr[b] + p]
//   ring         pages [batch, row_stride]            page(b, p) = pages[b * row_stride + p % ring_pages]
//
// A ring has no end: its logical pages count on, so that the token index alone says where a token of the recent tier
// lies.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

struct PageTable {
  const std::int32_t* pages;
  std::int64_t row_stride;     // entries; not read with an indptr
  const std::int32_t* indptr;  // null: a block table or a ring
  std::int32_t ring_pages;     // 0: not a ring

  [[nodiscard]] FP4PA_FN std::int32_t page(std::int32_t seq, std::int32_t logical_page) const {
    const std::int64_t row = indptr != nullptr ? indptr[seq] : seq * row_stride;
    const std::int32_t column = ring_pages != 0 ? logical_page % ring_pages : logical_page;
    return pages[row + column];
  }

  /// Entries of a sequence's row: how many logical pages may be asked for (of a ring: how many are distinct).
  [[nodiscard]] FP4PA_FN std::int64_t capacity(std::int32_t seq) const {
    if (indptr != nullptr) return static_cast<std::int64_t>(indptr[seq + 1]) - indptr[seq];
    return ring_pages != 0 ? ring_pages : row_stride;
  }
};

}  // namespace fp4pa::core
