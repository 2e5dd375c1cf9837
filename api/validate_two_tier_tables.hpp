// The tables of append_two_tier, checked before anything is written through them.
#pragma once

#include "api/backend.hpp"
#include "core/paging/page_table.hpp"
#include "core/paging/two_tier.hpp"

namespace fp4pa::api {

/// The page tables of a call.
struct TwoTierTables {
  core::PageTable old_pages;
  core::PageTable ring;
};
[[nodiscard]] TwoTierTables tables_of(const TwoTierAppend& r) noexcept;

/// What the call does to a sequence.
[[nodiscard]] core::TwoTierStep step_of(const TwoTierAppend& r, std::int32_t seq) noexcept;

/// An indptr in host memory: from 0, not decreasing, to at most num_tokens.
/// @errors kInvalidIndptr
[[nodiscard]] Status check_two_tier_indptr(const std::int32_t* indptr, std::int32_t batch, std::int64_t num_tokens) noexcept;

/// Counts ascend and stay inside the input, lengths have their pages, and those pages are in the pools. Tables in host memory.
/// @errors kInvalidIndptr, kInvalidSize, kLengthExceedsTable, kBlockIdOutOfRange
[[nodiscard]] Status check_two_tier(const TwoTierAppend& r) noexcept;

/// check_two_tier of tables in the memory of a GPU, which are read back behind what the stream was given before.
/// @errors and kBackendUnavailable, kInternal (no memory for the tables), what reading ends with
[[nodiscard]] Status check_device_two_tier(const Backend& backend, const TwoTierAppend& r, void* stream) noexcept;

}  // namespace fp4pa::api
