// Checking a slot mapping before anything is written through it.
#pragma once

#include "api/backend.hpp"
#include "core/paging/slot.hpp"

namespace fp4pa::cpu {

[[nodiscard]] inline core::SlotView view_of(const api::SlotList& slots) { return {slots.data, slots.type}; }

/// Every slot is negative or inside the pool.
/// @errors kSlotOutOfRange, with the first token that is not
[[nodiscard]] Status check_slots(const char* operation, const KvCacheDesc& cache, const api::SlotList& slots) noexcept;

/// For V scaled along tokens: the call's tokens form runs of ascending slots, each beginning at a group's first row and
/// made of whole groups; only the last group that a run writes to its page may lack rows.
/// @pre check_slots passed
/// @errors kIncompleteGroup, with the token and its slot
[[nodiscard]] Status check_groups(const KvCacheDesc& cache, const api::SlotList& slots, std::int32_t group) noexcept;

/// Index of the next token with a slot, from `token` on; the list's size if there is none.
[[nodiscard]] inline std::int64_t next_token(const core::SlotView& slots, std::int64_t token, std::int64_t size) {
  while (token < size && slots[token] < 0) ++token;
  return token;
}

}  // namespace fp4pa::cpu
