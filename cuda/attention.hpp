// plan and run on CUDA: entries of the api::Backend table.
#pragma once

#include "api/backend.hpp"

namespace fp4pa::cuda {

[[nodiscard]] Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept;

/// One to three launches on the caller's stream: schedule, attention, merge; the first and the last where they have something to do. Allocates nothing and waits for nothing, except that
/// with validate_device_data, outside a capture, it waits for the check's answer.
/// @errors kDeviceError, and with validate_device_data what the CPU back end reports
[[nodiscard]] Status run(const api::RunRequest& request) noexcept;

}  // namespace fp4pa::cuda
