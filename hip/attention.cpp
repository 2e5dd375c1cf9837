#include "hip/attention.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "api/attention_params.hpp"
#include "api/error.hpp"
#include "hip/device.hpp"
#include "hip/instances.hpp"
#include "hip/kernels.hpp"
#include "kernels/finding.hpp"
#include "kernels/refusals.hpp"

namespace fp4pa::hip {
namespace {

// CMake writes a translation unit for each row it counted.
static_assert(kNumInstances == FP4PA_HIP_INSTANCES);

template <int... index>
std::array<const void*, sizeof...(index)> functions(std::integer_sequence<int, index...>) {
  return {attend_function<index>()...};
}
const void* function_of(int instance) {
  static const auto kFunctions = functions(std::make_integer_sequence<int, kNumInstances>());
  return kFunctions[static_cast<std::size_t>(instance)];
}

const char* name_of_architecture(unsigned architecture) { return architecture == kGfx950 ? "gfx950" : "gfx942"; }
api::PlannedDevice planned_device(const DeviceProperties& d) {
  return {static_cast<std::int32_t>(d.architecture), d.multiprocessors, d.shared_bytes};
}
void name_device(std::int32_t architecture, char (&text)[40]) {
  std::snprintf(text, sizeof text, "%s", name_of_architecture(static_cast<unsigned>(architecture)));
}

/// Asks for a block's LDS to be as large as the device has it, where a launch needs more than the 64 KiB that are always given. A
/// runtime without that limit need not know the question: whatever it answers, the launch shows.
void allow_shared(const void* function, int bytes, const DeviceProperties& device) {
  constexpr int kAlwaysGiven = 64 << 10;
  if (bytes <= kAlwaysGiven) return;
  if (hipFuncSetAttribute(function, hipFuncAttributeMaxDynamicSharedMemorySize, device.shared_bytes) != hipSuccess) forget_error();
}

Status validate_device_data(const api::RunRequest& r, const core::AttentionParams& params, Stream stream) {
  const AttentionConfig& c = r.config;
  const CheckLimits limits = limits_of(c, r.args);
  Finding* const finding = finding_in(r);
  Finding found{};
  hipError_t error = launch_check(params, limits, finding, stream);
  if (error == hipSuccess) error = read_behind(stream, &found, finding, sizeof found);
  FP4PA_RETURN_IF_FAILED(check(error, "checking lengths and tables"));
  return status_of(found, c);
}

}  // namespace

Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept {
  DeviceProperties device{};
  FP4PA_RETURN_IF_FAILED(current_device(&device));
  const int instance = select_fitting(config, device.architecture == kGfx950, device.shared_bytes);
  if (config.matrix_path == MatrixPath::kNative && (instance < 0 || !is_native(kInstances[instance]))) {
    return refuse_native(config, name_of_architecture(device.architecture));
  }
  if (instance < 0) return refuse_formats(config);
  const Launch launch = launch_of(kInstances[instance], config, device.shared_bytes);
  if (launch.layout.bytes > device.shared_bytes) return refuse_shared_bytes(config, launch.layout.bytes, device.shared_bytes);
  // As many blocks as registers were allotted for and shared memory holds. Blocks need not be resident together.
  const int fit = device.multiprocessor_shared_bytes / launch.layout.bytes;
  const int blocks = std::clamp(fit, 1, kInstances[instance].blocks);

  choice->variant = instance;
  choice->num_workers = blocks * device.multiprocessors;
  choice->tile_rows = rows_of(kInstances[instance]);
  choice->device = planned_device(device);
  choice->workspace_bytes = workspace_bytes(config, *choice);
  return Status::kOk;
}

Status run(const api::RunRequest& request) noexcept {
  DeviceProperties device{};
  FP4PA_RETURN_IF_FAILED(current_device(&device));
  FP4PA_RETURN_IF_FAILED(check_device(request.choice.device, planned_device(device), name_device));
  const int instance = request.choice.variant;
  auto* const stream = static_cast<Stream>(request.args.stream);
  const Launch launch = launch_of(kInstances[instance], request.config, device.shared_bytes);
  const core::AttentionParams params = api::make_params(request);
  AttendArgs args{params, api::work_list(params), launch.layout,
                  core::Divisor::of(static_cast<std::uint32_t>(launch.warps))};

  if (request.config.validate_device_data) {
    FP4PA_RETURN_IF_FAILED(validate_device_data(request, params, stream));
  }
  if (!request.args.same_lengths || request.config.validate_device_data) {
    FP4PA_RETURN_IF_FAILED(check(launch_schedule(args.list, stream), "launching the schedule"));
  }
  void* arguments[] = {&args};
  allow_shared(function_of(instance), launch.layout.bytes, device);
  const hipError_t error = hipLaunchKernel(function_of(instance), dim3(static_cast<unsigned>(request.choice.num_workers)),
                                           dim3(static_cast<unsigned>(64 * launch.warps)), arguments,
                                           static_cast<std::size_t>(launch.layout.bytes), stream);
  FP4PA_RETURN_IF_FAILED(check(error, "launching the attention"));
  return check(launch_merge(args, stream), "launching the merge");
}

}  // namespace fp4pa::hip
