// Checks of an attention configuration and of a call's arguments that need no device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4pa/attention.hpp"

namespace fp4pa::api {

[[nodiscard]] Status validate(const AttentionConfig& config) noexcept;
/// @param on_host  whether lengths may be looked at, by which tensors without elements may be null
[[nodiscard]] Status validate(const AttentionConfig& config, std::size_t workspace_bytes, const AttentionArgs& args,
                              bool on_host = false) noexcept;

/// Query tokens that a call may have under the strides of its q and o: beyond them rows would overlap.
/// @pre validate
[[nodiscard]] std::int64_t tokens_apart(const AttentionConfig& config, const AttentionArgs& args) noexcept;
/// The same where the call's query tokens are known.
/// @errors kInvalidStrides
[[nodiscard]] Status validate_tokens(const AttentionConfig& config, const AttentionArgs& args, std::int64_t tokens) noexcept;

}  // namespace fp4pa::api
