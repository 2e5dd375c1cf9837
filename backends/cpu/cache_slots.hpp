// What append and gather ask of a slot mapping.
#pragma once

#include "api/validate_slots.hpp"
#include "core/paging/slot.hpp"

namespace fp4pa::cpu {

using api::check_groups;
using api::check_slots;
using core::next_token;

[[nodiscard]] inline core::SlotView view_of(const api::SlotList& slots) { return {slots.data, slots.type}; }

}  // namespace fp4pa::cpu
