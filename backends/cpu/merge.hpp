// merge_states on the CPU: an entry of the api::Backend table.
#pragma once

#include "api/backend.hpp"

namespace fp4pa::cpu {

[[nodiscard]] Status merge_states(const api::MergeRequest& request, const ExecDesc& exec) noexcept;

}  // namespace fp4pa::cpu
