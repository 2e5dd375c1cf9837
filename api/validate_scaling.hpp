// How tensors are scaled, as caches, quantisers and products have it in common. As validate.hpp.
#pragma once

#include "fp4pa/quantize.hpp"
#include "fp4pa/status.hpp"

namespace fp4pa::api {

/// @param name  of the parameter, for the message
/// @errors kUnsupportedFormat
[[nodiscard]] Status validate_scale_layout(const char* name, ScaleLayout layout) noexcept;
/// How a group's scale is chosen.
/// @errors kUnsupportedFormat
[[nodiscard]] Status validate_scale_rules(ScaleMode mode, Nvfp4Scale rule) noexcept;
/// A decode multiplier of a format that has one. Beyond 2^-126 and 2^126 its reciprocal is no normal number, and NaN is none.
/// @errors kInvalidGlobalScale
[[nodiscard]] Status validate_multiplier(const char* name, float value) noexcept;
/// The same, of any format: 1 where it has none.
[[nodiscard]] Status validate_multiplier(const char* name, BlockFormat format, float value) noexcept;

}  // namespace fp4pa::api
