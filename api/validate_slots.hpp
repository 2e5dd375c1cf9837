// Slot mappings, checked before anything is written through them.
#pragma once

#include "api/backend.hpp"

namespace fp4pa::api {

/// Every slot is negative or inside the pool.
/// @errors kSlotOutOfRange, with the first token that is not
[[nodiscard]] Status check_slots(const char* operation, const KvCacheDesc& cache, const SlotList& slots) noexcept;

/// For V scaled along tokens: the call's tokens form runs of ascending slots, each beginning at a group's first row and
/// made of whole groups; only the last group that a run writes to its page may lack rows.
/// @pre check_slots passed
/// @errors kIncompleteGroup, with the token and its slot
[[nodiscard]] Status check_groups(const KvCacheDesc& cache, const SlotList& slots, std::int32_t group) noexcept;

/// check_slots of a list in the memory of a GPU, which is read back behind what the stream was given before.
/// @param group  tokens for check_groups; 1: it is left out
/// @errors kSlotOutOfRange, kIncompleteGroup, kBackendUnavailable, kInternal (no memory for the slots), what reading ends with
[[nodiscard]] Status check_device_slots(const Backend& backend, const char* operation, const KvCacheDesc& cache,
                                        const SlotList& slots, std::int32_t group, void* stream) noexcept;

}  // namespace fp4pa::api
