// Slots: a token's place in a pool as one number, page * page_size + row, which is what engines hand to append.
//
// int32 slots are common and end at 2^31 tokens; int64 ones are what vLLM uses. Both are widened on reading, and a
// negative slot means "this token is padding".
#pragma once

#include <cstdint>

#include "core/macros.hpp"
#include "fp4pa/types.hpp"

namespace fp4pa::core {

struct SlotPlace {
  std::int64_t page;
  std::int32_t row;
};

[[nodiscard]] FP4PA_FN constexpr SlotPlace place_of(std::int64_t slot, std::int32_t page_size) {
  const std::int64_t page = slot / page_size;
  return {page, static_cast<std::int32_t>(slot - page * page_size)};
}

/// A slot mapping of either width, [num_tokens].
struct SlotView {
  const void* data;
  IndexType type;

  [[nodiscard]] FP4PA_FN std::int64_t operator[](std::int64_t token) const {
    return type == IndexType::kInt64 ? static_cast<const std::int64_t*>(data)[token]
                                     : static_cast<const std::int32_t*>(data)[token];
  }
};

/// Index of the next token with a slot, from `token` on; the list's size if there is none.
[[nodiscard]] FP4PA_FN std::int64_t next_token(const SlotView& slots, std::int64_t token, std::int64_t size) {
  while (token < size && slots[token] < 0) ++token;
  return token;
}

}  // namespace fp4pa::core
