// plan and run on HIP: entries of the api::Backend table.
#pragma once

#include "api/backend.hpp"

namespace fp4pa::hip {

[[nodiscard]] Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept;

/// Three launches on the caller's stream: schedule, attention, merge. Allocates nothing and waits for nothing, except that
/// with validate_device_data it waits for the check's answer, so that such a run cannot be captured.
/// @errors kDeviceError, and with validate_device_data what the CPU back end reports
[[nodiscard]] Status run(const api::RunRequest& request) noexcept;

}  // namespace fp4pa::hip
