#include "cuda/attention.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "api/attention_params.hpp"
#include "api/error.hpp"
#include "cuda/device.hpp"
#include "cuda/kernels.hpp"
#include "cuda/launch_shape.hpp"
#include "kernels/finding.hpp"
#include "kernels/refusals.hpp"

namespace fp4pa::cuda {
namespace {

// CMake writes a translation unit for each row it counted.
static_assert(simt::kNumInstances == FP4PA_CUDA_INSTANCES && sm120::kNumInstances == FP4PA_CUDA_NATIVE_INSTANCES &&
              sm90::kNumInstances == FP4PA_CUDA_SM90_INSTANCES);

template <int... index>
std::array<const void*, sizeof...(index)> functions(std::integer_sequence<int, index...>) {
  return {attend_function<index>()...};
}
const void* function_of(int instance) {
  static const auto kFunctions = functions(std::make_integer_sequence<int, kNumVariants>());
  return kFunctions[static_cast<std::size_t>(instance)];
}

api::PlannedDevice planned_device(const DeviceProperties& d) { return {d.compute_capability, d.multiprocessors, d.shared_bytes}; }
void name_device(std::int32_t compute_capability, char (&text)[40]) {
  std::snprintf(text, sizeof text, "compute capability %d.%d", compute_capability / 10, compute_capability % 10);
}

/// Lets a kernel use all the shared memory it may ask for, once per device: the runtime (13.0) keeps that for the kernel and the
/// device, and a context that is new (cudaDeviceReset, cuCtxCreate) has it too.
Status prepare(int instance, const DeviceProperties& device) {
  static std::array<std::array<std::atomic<bool>, kNumVariants>, kMaxDevices> prepared{};
  const bool known = device.device < kMaxDevices;
  if (known && prepared[device.device][instance].load(std::memory_order_acquire)) return Status::kOk;
  const cudaError_t error = cudaFuncSetAttribute(function_of(instance), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 device.shared_bytes);
  FP4PA_RETURN_IF_FAILED(check(error, "raising the kernel's shared memory"));
  if (known) prepared[device.device][instance].store(true, std::memory_order_release);
  return Status::kOk;
}

/// The next number that no other launch of this process has, and of what else a workspace may hold one in 2^64; never 0.
std::uint64_t new_mark() {
  static std::atomic<std::uint64_t> next{static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count())};
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  // splitmix64 (Steele, Lea and Flood 2014): different numbers stay different.
  std::uint64_t x = next.fetch_add(1, std::memory_order_relaxed) * kGolden;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x != 0 ? x : kGolden;
}

Status validate_device_data(const api::RunRequest& r, const core::AttentionParams& params, cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  FP4PA_RETURN_IF_FAILED(check(cudaStreamIsCapturing(stream, &capture), "looking at the stream"));
  // A captured run cannot answer; the plan's other runs can.
  if (capture != cudaStreamCaptureStatusNone) return Status::kOk;
  const AttentionConfig& c = r.config;
  const CheckLimits limits = limits_of(c, r.args);
  Finding* const finding = finding_in(r);
  Finding found{};
  cudaError_t error = launch_check(params, limits, finding, stream);
  if (error == cudaSuccess) error = cudaMemcpyAsync(&found, finding, sizeof found, cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  FP4PA_RETURN_IF_FAILED(check(error, "checking lengths and tables"));
  return status_of(found, c);
}

}  // namespace

Status plan(const AttentionConfig& config, api::PlanChoice* choice) noexcept {
  DeviceProperties device{};
  FP4PA_RETURN_IF_FAILED(current_device(&device));
  const int instance = select_variant(config, device.compute_capability, device.shared_bytes);
  if (instance < 0 && config.matrix_path == MatrixPath::kNative) {
    char name[40];
    name_device(device.compute_capability, name);
    return refuse_native(config, name);
  }
  if (instance < 0) return refuse_formats(config);
  const Launch launch = launch_shape(instance, config, planned_device(device)).launch;
  if (launch.shared_bytes() > device.shared_bytes) return refuse_shared_bytes(config, launch.shared_bytes(), device.shared_bytes);
  FP4PA_RETURN_IF_FAILED(prepare(instance, device));
  int blocks = 0;
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, function_of(instance), threads_of(instance, launch), static_cast<std::size_t>(launch.shared_bytes()));
  FP4PA_RETURN_IF_FAILED(check(error, "asking for the kernel's occupancy"));
  if (blocks == 0) return api::fail(Status::kInternal, "instance %d does not fit on a multiprocessor", instance);

  choice->variant = instance;
  choice->num_workers = blocks * launch.workers * device.multiprocessors;
  choice->tile_rows = simt::rows_of(shape_of(instance));
  choice->device = planned_device(device);
  choice->workspace_bytes = workspace_bytes(config, *choice);
  return Status::kOk;
}

Status run(const api::RunRequest& request) noexcept {
  DeviceProperties device{};
  FP4PA_RETURN_IF_FAILED(current_device(&device));
  FP4PA_RETURN_IF_FAILED(check_device(request.choice.device, planned_device(device), name_device));
  const int instance = request.choice.variant;
  FP4PA_RETURN_IF_FAILED(prepare(instance, device));
  auto* const stream = static_cast<cudaStream_t>(request.args.stream);
  const auto [launch, overhead_tiles, sharers, finds, may_be_even, whole] = launch_shape(instance, request.config, planned_device(device));
  core::AttentionParams params = api::make_params(request);
  params.partition.overhead_tiles = overhead_tiles;
  const bool dependent = device.compute_capability >= 90;
  if (sharers != 0) {
    const std::int32_t least_keys = launch.warps * shape_of(instance).tile_keys;
    params.partition.sharers = core::Divisor::of(static_cast<std::uint32_t>(sharers));
    params.partition.least_tiles = core::Divisor::of(static_cast<std::uint32_t>(std::max(1, least_keys / core::kScheduleTokens)));
  }
  AttendArgs args{params, api::work_list(params), launch.layout, core::Divisor::of(static_cast<std::uint32_t>(launch.warps))};
  void* arguments[] = {&args};
  const auto attend = [&](dim3 blocks, bool after_another, int cluster) {
    return check(cuda::launch(function_of(instance), blocks, threads_of(instance, launch), launch.shared_bytes(), after_another,
                              arguments, stream, cluster),
                 "launching the attention");
  };

  if (request.config.validate_device_data) {
    FP4PA_RETURN_IF_FAILED(validate_device_data(request, params, stream));
  }
  if (sharers != 0) return attend(dim3(sharers, params.num_kv_heads, params.batch), false, sharers);
  core::Partition& cut = args.list.partition;
  if (finds) cut.finders = core::Divisor::of(static_cast<std::uint32_t>(cut.num_workers));
  bool alone = false;  // the attention is the only kernel
  if (may_be_even) {
    const core::EvenCut even = even_cut(request.config, std::int64_t{params.batch} * params.num_kv_heads, cut.num_workers);
    cut.even = core::Divisor::of(static_cast<std::uint32_t>(even.parts));
    cut.even_rounds = whole ? 0 : even.rounds;
    // Units that an even cut leaves whole are many: what a line divides of them its workers merge. Few have more parts, which a kernel
    // merges sooner: docs/cuda_log.md, "One kernel".
    alone = even.parts == 1;
    if (alone && !whole) cut.mark = new_mark();
  }
  const auto blocks = static_cast<unsigned>(cut.num_workers / launch.workers);
  const bool scheduled = finds || (request.args.same_lengths && !request.config.validate_device_data);
  if (!scheduled) {
    FP4PA_RETURN_IF_FAILED(check(launch_schedule(args.list, stream), "launching the schedule"));
  }
  if (const Status s = attend(dim3(blocks), dependent && !scheduled, 1); s != Status::kOk || alone) return s;
  return check(launch_merge(args, device.multiprocessors, dependent, stream), "launching the merge");
}

cudaError_t launch(const void* function, dim3 blocks, int threads, int shared_bytes, bool dependent, void** arguments,
                   cudaStream_t stream, int cluster) noexcept {
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelExC(&config, function, arguments);
}

}  // namespace fp4pa::cuda
