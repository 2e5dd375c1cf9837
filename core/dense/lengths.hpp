// A dense batch: sequences packed behind each other along the token dimension of Q and of K and V, and the tables that
// make a paged call of it.
//
// Contiguous keys are a paged cache whose pages follow each other: page p of sequence b is page first_page(b) + p. With
// one token a page that describes the caller's own memory as it lies. With larger pages (keys that the library writes
// itself) every sequence begins a page; first_page then needs no prefix sum, because
//   floor(begin[b + 1] / page) + 1 >= floor(begin[b] / page) + ceil(len[b] / page).
// Lengths may lie in device memory, so all of this is computed where they are, an entry at a time and in any order.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

struct DenseLengths {
  const std::int32_t* q_indptr;   // [batch + 1] from 0, or null: q_tokens / batch each
  const std::int32_t* kv_indptr;  // [batch + 1] from 0, or null: kv_tokens / batch each
  std::int32_t batch;
  std::int32_t q_tokens;
  std::int32_t kv_tokens;
  std::int32_t max_kv_len;        // of a sequence, that the plan has room for

  // What an indptr says is kept within the rows that exist: nothing outside them is ever read or written.
  [[nodiscard]] FP4PA_FN std::int32_t q_begin(std::int32_t b) const { return begin(q_indptr, q_tokens, b); }
  [[nodiscard]] FP4PA_FN std::int32_t kv_begin(std::int32_t b) const { return begin(kv_indptr, kv_tokens, b); }
  [[nodiscard]] FP4PA_FN std::int32_t kv_len(std::int32_t b) const {
    const std::int32_t len = kv_begin(b + 1) - kv_begin(b);
    return len > 0 ? len : 0;
  }
  /// The sequence that holds a row of Q: the last one that begins at or before it.
  [[nodiscard]] FP4PA_FN std::int32_t q_sequence(std::int32_t token) const {
    return last_at(q_indptr, q_tokens, token);
  }
  [[nodiscard]] FP4PA_FN std::int32_t kv_sequence(std::int32_t token) const {
    return last_at(kv_indptr, kv_tokens, token);
  }

  /// First of the pages of `page_size` tokens that sequence b has to itself; sequence `batch` is where they end.
  [[nodiscard]] FP4PA_FN std::int32_t first_page(std::int32_t b, std::int32_t page_size) const {
    return page_size == 1 ? kv_begin(b) : kv_begin(b) / page_size + b;
  }

 private:
  [[nodiscard]] FP4PA_FN std::int32_t begin(const std::int32_t* indptr, std::int32_t tokens, std::int32_t b) const {
    if (indptr == nullptr) return tokens / batch * b;
    const std::int32_t at = indptr[b];
    return at < 0 ? 0 : at < tokens ? at : tokens;
  }
  [[nodiscard]] FP4PA_FN std::int32_t last_at(const std::int32_t* indptr, std::int32_t tokens,
                                              std::int32_t token) const {
    std::int32_t low = 0;
    std::int32_t high = batch;  // the answer is in [low, high)
    while (high - low > 1) {
      const std::int32_t middle = low + (high - low) / 2;
      if (begin(indptr, tokens, middle) <= token) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

/// Pages that hold any `batch` sequences of `kv_tokens` tokens together.
[[nodiscard]] constexpr std::int64_t dense_pages(std::int64_t kv_tokens, std::int64_t batch, std::int32_t page_size) {
  const std::int64_t pages = page_size == 1 ? kv_tokens : kv_tokens / page_size + batch;
  return pages > 0 ? pages : 1;
}

/// The tables of the paged call.
struct DenseTables {
  std::int32_t* qo_indptr;  // [batch + 1]
  std::int32_t* seq_lens;   // [batch]
  std::int32_t* kv_indptr;  // [batch + 1] in pages
  std::int32_t* page_ids;   // [num_pages] 0, 1, 2, ...
  std::int64_t* slots;      // [kv_tokens], or null: where append puts each row of K and V
  std::int32_t page_size;
  std::int64_t num_pages;

  [[nodiscard]] FP4PA_FN std::int64_t entries(const DenseLengths& lengths) const {
    std::int64_t n = lengths.batch + std::int64_t{1};
    if (n < num_pages) n = num_pages;
    return slots != nullptr && n < lengths.kv_tokens ? lengths.kv_tokens : n;
  }
};

/// Entry i of every table that has one.
FP4PA_FN void fill_tables(const DenseLengths& lengths, const DenseTables& tables, std::int64_t i) {
  const auto index = static_cast<std::int32_t>(i);
  if (i <= lengths.batch) {
    tables.qo_indptr[i] = lengths.q_begin(index);
    tables.kv_indptr[i] = lengths.first_page(index, tables.page_size);
  }
  // Longer than planned, where nobody could be told: no keys at all, which shows, and not more than the workspace has room for.
  if (i < lengths.batch) tables.seq_lens[i] = lengths.kv_len(index) <= lengths.max_kv_len ? lengths.kv_len(index) : 0;
  if (i < tables.num_pages) tables.page_ids[i] = index;
  if (tables.slots != nullptr && i < lengths.kv_tokens) {
    const std::int32_t b = lengths.kv_sequence(index);
    const std::int32_t at = index - lengths.kv_begin(b);
    const bool exists = at >= 0 && at < lengths.kv_len(b);
    const std::int64_t first = std::int64_t{lengths.first_page(b, tables.page_size)} * tables.page_size;
    tables.slots[i] = exists ? first + at : -1;
  }
}

}  // namespace fp4pa::core
