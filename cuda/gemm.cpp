// Launching a matrix product: X is prepared if it has to be, then one kernel computes the whole.
#include "cuda/gemm.hpp"

#include <algorithm>
#include <atomic>

#include "api/error.hpp"
#include "api/gemm_params.hpp"
#include "core/gemm/weight.hpp"
#include "cuda/device.hpp"
#include "cuda/gemm_kernels.hpp"
#include "cuda/gemm_native.hpp"
#include "cuda/gemm_sm90.hpp"

namespace fp4pa::cuda {
namespace {

using core::ceil_div;

struct Tiling {
  int x_tiles;  // eights of rows of X
  std::int32_t row_tiles, m_tiles, stages, splits;
};

/// A kernel's launch but for its parameters; `attributes` has room for two.
[[nodiscard]] cudaLaunchConfig_t launch_config(const Tiling& t, bool nvfp4, std::int64_t batch, bool overlap, cudaStream_t stream,
                                               cudaLaunchAttribute* attributes) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::int64_t{t.row_tiles} * t.m_tiles * t.splits), 1, static_cast<unsigned>(batch));
  config.blockDim = dim3(static_cast<unsigned>(sm80::gemm_rows(t.x_tiles)));
  config.dynamicSmemBytes = static_cast<std::size_t>(sm80::gemm_shared_bytes(nvfp4, t.x_tiles));
  config.stream = stream;
  config.attrs = attributes;
  if (t.splits > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs].val.clusterDim = {static_cast<unsigned>(t.splits), 1, 1};
    ++config.numAttrs;
  }
  if (overlap) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
    ++config.numAttrs;
  }
  return config;
}

/// Clusters of `t.splits` blocks that run at once; asked once for each kernel and device, since the answer depends on how many
/// multiprocessors each of the device's GPCs has left.
[[nodiscard]] int resident_clusters(const Tiling& t, bool nvfp4, const void* function, const DeviceProperties& device) {
  static std::atomic<int> known[kMaxDevices][2][9][sm80::kGemmMaxSplits + 1];
  std::atomic<int>* const slot =
      device.device < kMaxDevices ? &known[device.device][nvfp4 ? 1 : 0][t.x_tiles][t.splits] : nullptr;
  if (slot != nullptr && slot->load() > 0) return slot->load();
  cudaLaunchAttribute attributes[2];
  const cudaLaunchConfig_t config = launch_config(t, nvfp4, 1, false, nullptr, attributes);
  int clusters = 0;
  cudaError_t error = cudaSuccess;
  if (t.splits > 1) {
    error = cudaOccupancyMaxActiveClusters(&clusters, function, &config);
  } else {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&clusters, function, static_cast<int>(config.blockDim.x), config.dynamicSmemBytes);
    clusters *= device.multiprocessors;
  }
  if (error != cudaSuccess) {
    forget_error();
    return 0;
  }
  if (slot != nullptr) slot->store(clusters);
  return clusters;
}

/// The smallest block that holds X, up to 64 rows, and as many divisions of K as fill the device best.
[[nodiscard]] Tiling tiling_of(const LinearArgs& a, const DeviceProperties& device) {
  const bool nvfp4 = a.weight.format == BlockFormat::kNvfp4;
  Tiling t{};
  t.x_tiles = a.m <= 8 ? 1 : a.m <= 16 ? 2 : a.m <= 32 ? 4 : 8;
  while (t.x_tiles > 1 && sm80::gemm_shared_bytes(nvfp4, t.x_tiles) > device.shared_bytes) t.x_tiles /= 2;
  t.row_tiles = static_cast<std::int32_t>(ceil_div(a.weight.rows, sm80::gemm_rows(t.x_tiles)));
  t.m_tiles = static_cast<std::int32_t>(ceil_div(a.m, 8 * t.x_tiles));
  t.stages = static_cast<std::int32_t>(ceil_div(a.weight.cols, sm80::kGemmStage));
  t.splits = 1;
  return t;
}

/// @pre the kernel was given its shared memory
void choose_splits(Tiling& t, bool nvfp4, std::int64_t batch, const void* function, const DeviceProperties& device) {
  if (device.compute_capability < 90) return;
  constexpr std::int64_t kFixedStages = 3;  // what filling the ring and writing out cost, in stages
  const std::int64_t tiles = std::int64_t{t.row_tiles} * t.m_tiles * batch;
  Tiling candidate = t;
  std::int64_t best = 0;
  for (candidate.splits = 1; candidate.splits <= sm80::kGemmMaxSplits && candidate.splits <= t.stages; ++candidate.splits) {
    const int clusters = resident_clusters(candidate, nvfp4, function, device);
    if (clusters == 0) continue;
    const std::int64_t cost = ceil_div(tiles, clusters) * (ceil_div(t.stages, candidate.splits) + kFixedStages);
    if (best == 0 || cost < best) {
      best = cost;
      t.splits = candidate.splits;
    }
  }
}

[[nodiscard]] Status launch(const sm80::GemmParams& params, const Tiling& t, std::int64_t batch, bool nvfp4, const void* function,
                            bool overlap, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2];
  const cudaLaunchConfig_t config = launch_config(t, nvfp4, batch, overlap, stream, attributes);
  void* arguments[] = {const_cast<sm80::GemmParams*>(&params)};
  return check(cudaLaunchKernelExC(&config, function, arguments), "launching the matrix product");
}

}  // namespace

Status linear_workspace(const LinearArgs& args, const ExecDesc&, std::size_t* bytes) noexcept {
  *bytes = static_cast<std::size_t>(std::max(api::PreparedX::of(args).bytes, api::QuantisedX::of(args).bytes));
  return Status::kOk;
}

Status linear(const LinearArgs& a, const ExecDesc& exec) noexcept {
  DeviceProperties device{};
  FP4PA_RETURN_IF_FAILED(current_device(&device));
  if (is_native(a, device)) return linear_native(a, exec);
  auto* const stream = static_cast<cudaStream_t>(exec.stream);
  const Fp4Weight& weight = a.weight;
  const core::WeightLayout layout{weight.format, weight.scale_layout, weight.rows, weight.cols};
  const bool nvfp4 = weight.format == BlockFormat::kNvfp4;
  const bool quantise = a.activations == ActivationForm::kFp4;
  Tiling t = tiling_of(a, device);
  Sm90Division sm90{};
  FP4PA_RETURN_IF_FAILED(divide_sm90(a, device, &sm90));
  api::PreparedX prepared = api::PreparedX::of(a);
  prepared.paired = sm90.function == nullptr;
  auto* const memory = static_cast<std::uint8_t*>(a.workspace);

  // Rows that can be copied are multiplied where they lie: in f16, and by the kernels of sm_90 in bf16.
  const bool takes = a.x_dtype == DType::kF16 ? t.x_tiles <= 2 || sm90.function != nullptr : sm90.bf16;
  const bool as_it_is = !quantise && takes && has_whole_pieces(a);
  sm80::GemmParams p{};
  if (as_it_is) {
    p.x = static_cast<const std::uint16_t*>(a.x);
    p.x_row = weight.cols;
    p.x_cols = static_cast<std::int32_t>(weight.cols);
  } else {
    FP4PA_RETURN_IF_FAILED(prepare_x(a, prepared, exec));
    p.x = reinterpret_cast<const std::uint16_t*>(memory);
    p.x_row = prepared.cols;
    p.x_cols = static_cast<std::int32_t>(prepared.cols);
    p.x_inverse = reinterpret_cast<const float*>(memory + prepared.inverse);
    p.x_globals = prepared.has_globals ? reinterpret_cast<const float*>(memory + prepared.globals) : nullptr;
  }
  p.codes = static_cast<const std::uint8_t*>(weight.codes);
  p.scales = static_cast<const std::uint8_t*>(weight.scales);
  p.w_globals = weight.global_scale_ptr;
  p.w_global = weight.global_scale;
  p.code_batch = weight.batch == 1 ? 0 : layout.code_bytes();
  p.scale_batch = weight.batch == 1 ? 0 : layout.scale_bytes();
  p.row_bytes = layout.code_row_bytes();
  p.n = static_cast<std::int32_t>(weight.rows);
  p.groups = static_cast<std::int32_t>(layout.groups());
  p.scale_layout = weight.scale_layout;
  p.out = a.out;
  p.bias = a.bias;
  p.out_dtype = a.out_dtype;
  p.bias_dtype = a.bias_dtype;
  p.m = static_cast<std::int32_t>(a.m);

  // What prepared X did nothing else, and began when all before it had ended.
  if (sm90.function != nullptr) return launch_sm90(sm90, p, a.weight_settled || !as_it_is, a.batch, stream);

  const void* const function = gemm_function(nvfp4, t.x_tiles, !as_it_is);
  if (const Status s = check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  sm80::gemm_shared_bytes(nvfp4, t.x_tiles)),
                             "asking for shared memory");
      s != Status::kOk) {
    return s;
  }
  choose_splits(t, nvfp4, a.batch, function, device);
  p.stages = t.stages;
  p.splits = t.splits;
  p.row_tiles = t.row_tiles;
  const bool overlap = !as_it_is && device.compute_capability >= 90;
  return launch(p, t, a.batch, nvfp4, function, overlap, stream);
}

}  // namespace fp4pa::cuda
