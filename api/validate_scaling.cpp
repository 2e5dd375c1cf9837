#include "api/validate_scaling.hpp"

#include "api/error.hpp"

namespace fp4pa::api {

Status validate_scale_layout(const char* name, ScaleLayout layout) noexcept {
  if (layout == ScaleLayout::kLinear || layout == ScaleLayout::kBlocked) return Status::kOk;
  return fail(Status::kUnsupportedFormat, "%s is %d; allowed: 0 (linear), 1 (blocked_128x4)", name, static_cast<int>(layout));
}

Status validate_scale_rules(ScaleMode mode, Nvfp4Scale rule) noexcept {
  if (mode < ScaleMode::kFloor || mode > ScaleMode::kEven) {
    return fail(Status::kUnsupportedFormat, "scale_mode is %d; allowed: 0 (floor), 1 (ceil), 2 (rceil), 3 (even)", static_cast<int>(mode));
  }
  if (rule == Nvfp4Scale::kAmaxOver6 || rule == Nvfp4Scale::kFourOverSix) return Status::kOk;
  return fail(Status::kUnsupportedFormat, "nvfp4_scale is %d; allowed: 0 (amax_over_6), 1 (four_over_six)", static_cast<int>(rule));
}

Status validate_multiplier(const char* name, float value) noexcept {
  if (value >= 0x1p-126f && value <= 0x1p126f) return Status::kOk;
  return fail(Status::kInvalidGlobalScale, "%s is %g; allowed: 2^-126 to 2^126", name, static_cast<double>(value));
}

Status validate_multiplier(const char* name, BlockFormat format, float value) noexcept {
  if (format == BlockFormat::kNvfp4) return validate_multiplier(name, value);
  if (value == 1.0f) return Status::kOk;
  return fail(Status::kInvalidGlobalScale, "%s is %g; allowed for format %s: 1", name, static_cast<double>(value), name_of(format));
}

}  // namespace fp4pa::api
