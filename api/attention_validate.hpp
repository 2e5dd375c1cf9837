// Checks of an attention configuration and of a call's arguments that need no device memory.
#pragma once

#include "fp4pa/attention.hpp"

namespace fp4pa::api {

[[nodiscard]] Status validate(const AttentionConfig& config) noexcept;
[[nodiscard]] Status validate(const AttentionConfig& config, std::size_t workspace_bytes,
                              const AttentionArgs& args) noexcept;

}  // namespace fp4pa::api
