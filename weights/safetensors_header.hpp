// The JSON header of a safetensors file; safetensors.hpp says what is checked.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "weights/safetensors.hpp"

namespace fp4pa::safetensors {

/// Every tensor lies within the buffer and is as large as it says; whether together they tile it is not looked at.
/// @param buffer  the bytes that follow the header
/// Throws Error.
[[nodiscard]] Contents read_header(std::string_view text, std::span<const std::byte> buffer);

}  // namespace fp4pa::safetensors
