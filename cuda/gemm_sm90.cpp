#include "cuda/gemm_sm90.hpp"

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "api/error.hpp"
#include "backends/sm90/operand_tile.hpp"
#include "core/gemm/weight.hpp"

namespace fp4pa::cuda {
namespace {

using core::ceil_div;

[[nodiscard]] cudaLaunchConfig_t launch_config(const Sm90Division& d, std::int64_t batch, cudaStream_t stream,
                                               cudaLaunchAttribute (&attributes)[2]) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::int64_t{d.row_tiles} * d.m_tiles * d.splits), 1, static_cast<unsigned>(batch));
  config.blockDim = dim3(static_cast<unsigned>(d.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(d.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  if (d.splits > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(d.splits), 1, 1};
  }
  return config;
}

/// Clusters of `splits` blocks that run at once, a block a multiprocessor: fewer than the multiprocessors would give, since a cluster
/// stays within a GPC. Asked once for each device, of one kernel with all of the shared memory.
[[nodiscard]] int resident_clusters(int splits, const DeviceProperties& device) {
  if (splits == 1) return device.multiprocessors;
  static std::atomic<int> known[kMaxDevices][sm80::kGemmMaxSplits + 1];
  std::atomic<int>* const slot = device.device < kMaxDevices ? &known[device.device][splits] : nullptr;
  if (slot != nullptr && slot->load() > 0) return slot->load();
  Sm90Division d{};
  d.function = gemm_few_function(false, false, 1, sm90::FewForm::kAny);
  d.row_tiles = d.m_tiles = 1;
  d.splits = splits;
  d.threads = sm90::kFewThreads;
  d.shared_bytes = device.shared_bytes;
  cudaLaunchAttribute attributes[2];
  const cudaLaunchConfig_t config = launch_config(d, 1, nullptr, attributes);
  int clusters = 0;
  if (cudaFuncSetAttribute(d.function, cudaFuncAttributeMaxDynamicSharedMemorySize, device.shared_bytes) != cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&clusters, d.function, &config) != cudaSuccess) {
    forget_error();
    return 0;
  }
  if (slot != nullptr) slot->store(clusters);
  return clusters;
}

/// The division of least cost, which is that of its blocks that run one after the other.
struct Cheapest {
  const DeviceProperties& device;
  std::int64_t batch;
  Sm90Division best{};
  double least = 0;

  /// How often the device is filled with blocks; 0: it has no room for a cluster.
  [[nodiscard]] std::int64_t waves(const Sm90Division& d) const {
    const int clusters = resident_clusters(d.splits, device);
    return clusters == 0 ? 0 : ceil_div(std::int64_t{d.row_tiles} * d.m_tiles * batch, clusters);
  }
  /// @param block    cost of one, in any unit
  /// @param between  from one to the next
  void consider(const Sm90Division& d, double block, double between = 0) {
    const auto times = static_cast<double>(waves(d));
    const double cost = times * block + (times - 1) * between;
    if (times > 0 && (best.function == nullptr || cost < least)) {
      least = cost;
      best = d;
    }
  }
};

/// Whether a product is plain but for its blocks (FewForm).
[[nodiscard]] bool is_plain(const LinearArgs& a) {
  const Fp4Weight& w = a.weight;
  const core::WeightLayout layout{w.format, w.scale_layout, w.rows, w.cols};
  return w.cols % sm80::kGemmStage == 0 && w.scale_layout == ScaleLayout::kLinear && layout.groups() % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(w.scales) % 16 == 0 && a.activations == ActivationForm::k16Bit && has_whole_pieces(a) &&
         a.out_dtype != DType::kF32 && (a.bias == nullptr || a.bias_dtype != DType::kF32);
}
/// Which kernel of up to 16 rows of X takes a plain product that is divided so, in blocks of 64 rows of W a warp.
[[nodiscard]] sm90::FewForm form_of(const LinearArgs& a, bool nvfp4, const Sm90Division& d) {
  const bool wide = d.row_groups > 1;
  if (d.splits > 2 || (wide && (d.splits == 1 || a.m <= 4))) return sm90::FewForm::kAny;
  const bool whole_pieces = d.block_stages % (nvfp4 ? 2 : 4) == 0;  // of scales, 16 bytes
  if (a.weight.rows % sm90::few_rows(d.row_groups) != 0 || !whole_pieces) return sm90::FewForm::kAny;
  if (d.splits == 1) return sm90::FewForm::kPlain;
  return wide ? sm90::FewForm::kWideHalves : sm90::FewForm::kHalves;
}

/// What blocks of up to so many rows of X cost, in microseconds on an H200, fitted to divisions of 1406 products so that the cheapest is the
/// fastest (docs/gemm_log.md, "Costs of few rows").
struct FewCosts {
  int most_x;
  double turn;     // of all warps, at a stage each of 64 rows of W
  double x;        // a row of X, a stage
  double pair;     // two blocks that divide K
  double more;     // each block beyond two
  double group;    // each row group beyond one
  double any;      // a kernel that does not know that a product is plain
  double between;  // blocks of a multiprocessor
};
constexpr FewCosts kFewCosts[] = {
    {2, 1.72, 0.0019, 0.14, 0.06, 0.21, 0.86, 1.6},
    {4, 1.11, 0.0037, 0.04, 0.14, 0.24, 0.74, 2.5},
    {8, 1.79, 0.0017, 0.28, 0.17, 0.19, 0.57, 2.5},
    {16, 1.60, 0.0075, 0.20, 0.12, 0.43, 0.53, 1.9},
};

void consider_few_division(const FewCosts& costs, Sm90Division d, sm90::FewForm form, Cheapest& cheapest) {
  constexpr double kOtherTiles = 0.3;
  constexpr double kAlone = 4.0;  // from block to block where a multiprocessor has room for one
  // Where clusters of three or five all run at once, two of their blocks on a multiprocessor leave others idle.
  if ((d.splits == 3 || d.splits == 5) && cheapest.waves(d) == 1) {
    d.shared_bytes = std::max(d.shared_bytes, cheapest.device.shared_bytes / 2 + 1);
  }
  double block = costs.turn * d.block_stages * d.row_groups * d.tiles / (sm90::kFewWarps * sm90::kFewTiles);
  block += costs.x * d.x_rows * d.block_stages + costs.group * (d.row_groups - 1);
  if (d.splits > 1) block += costs.pair + costs.more * (d.splits - 2);
  if (form == sm90::FewForm::kAny) block += costs.any;
  if (d.tiles != sm90::kFewTiles) block += kOtherTiles;
  cheapest.consider(d, block, d.tiles > sm90::kFewTiles ? kAlone : costs.between);
}

void consider_few(const LinearArgs& a, bool nvfp4, Sm90Division d, Cheapest& cheapest) {
  const bool few = a.m <= sm90::kFewMostX;
  const bool plain = is_plain(a);
  const FewCosts& costs = *std::find_if(std::begin(kFewCosts), std::end(kFewCosts), [&](const FewCosts& c) { return a.m <= c.most_x; });
  d.few = true;
  d.x_rows = static_cast<std::int32_t>(a.m);
  d.m_tiles = 1;
  d.threads = sm90::kFewThreads;
  for (d.row_groups = 1; d.row_groups <= sm90::kFewMostRowGroups; d.row_groups *= 2) {
    if (!few && !sm90::sixteen_takes(d.row_groups, a.weight.rows, a.weight.cols)) break;
    d.row_tiles = static_cast<std::int32_t>(ceil_div(a.weight.rows, sm90::few_rows(d.row_groups)));
    for (d.splits = 1; d.splits <= std::min(sm80::kGemmMaxSplits, d.stages); ++d.splits) {
      if (!d.divide_stages() || d.block_stages > sm90::kFewMostStages) continue;
      d.shared_bytes = few ? sm90::few_shared_bytes(nvfp4, d.row_groups, d.block_stages, d.x_rows)
                           : sm90::sixteen_shared_bytes(nvfp4, d.row_groups, d.block_stages, d.x_rows);
      if (d.shared_bytes > cheapest.device.shared_bytes) continue;
      const sm90::FewForm form = plain ? form_of(a, nvfp4, d) : sm90::FewForm::kAny;
      d.function = gemm_few_function(nvfp4, d.bf16, a.m, form);
      consider_few_division(costs, d, form, cheapest);
    }
  }
  if (!plain || a.m > sm90::kFewPairedX || d.stages > sm90::kFewMostStages) return;
  d.row_groups = d.splits = 1;
  d.block_stages = d.stages;
  for (const int tiles : sm90::kFewOtherTiles) {
    d.tiles = tiles;
    d.row_tiles = static_cast<std::int32_t>(ceil_div(a.weight.rows, sm90::few_rows(1, tiles)));
    d.shared_bytes = sm90::few_shared_bytes(nvfp4, 1, d.stages, d.x_rows, tiles);
    if (a.weight.rows < sm90::few_rows(1, tiles) || d.shared_bytes > cheapest.device.shared_bytes) continue;
    d.function = gemm_few_tiles_function(nvfp4, d.bf16, tiles);
    consider_few_division(costs, d, sm90::FewForm::kPlain, cheapest);
  }
}

/// In nanoseconds on an H200, fitted to all divisions of 259 products: of a stage, of a block beside its stages, and of a cluster. Times are
/// within 7 % for 95 of 100 of them (docs/gemm_log.md, "Costs of many rows").
void consider_many(const LinearArgs& a, bool nvfp4, Sm90Division d, Cheapest& cheapest) {
  constexpr struct {
    int x_rows;
    double stage, block;
  } kShapes[] = {{32, 480, 1450}, {64, 535, 2050}, {128, 725, 3000}, {192, 915, 4200}, {256, 1170, 5500}};
  constexpr double kCluster = 750;
  constexpr double kClusterBlock = 200;  // for each block beyond two
  for (const auto& shape : kShapes) {
    const sm90::ManyLayout layout{shape.x_rows, nvfp4, d.bf16};
    d.x_rows = layout.x_rows;
    d.w_rows = layout.kRows;
    d.threads = layout.threads();
    d.function = gemm_many_function(layout);
    d.shared_bytes = layout.shared_bytes();
    if (d.shared_bytes > cheapest.device.shared_bytes) continue;
    d.row_tiles = static_cast<std::int32_t>(ceil_div(a.weight.rows, d.w_rows));
    d.m_tiles = static_cast<std::int32_t>(ceil_div(a.m, d.x_rows));
    for (d.splits = 1; d.splits <= std::min(sm80::kGemmMaxSplits, d.stages); ++d.splits) {
      if (!d.divide_stages()) continue;
      const double cluster = d.splits > 1 ? kCluster + kClusterBlock * (d.splits - 2) : 0;
      cheapest.consider(d, d.block_stages * shape.stage + shape.block + cluster);
    }
  }
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, found without linking to the driver; null if it has none.
[[nodiscard]] EncodeTiled encode_tiled() noexcept {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) forget_error();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(found) : nullptr;
  }();
  return function;
}

/// A matrix in boxes, as gemm_many is given it.
[[nodiscard]] bool describe(CUtensorMapDataType type, CUtensorMapSwizzle swizzle, const void* data, std::int64_t columns, std::int64_t rows,
                            std::int64_t row_bytes, int box_columns, int box_rows, sm90::TensorMap* out) noexcept {
  static_assert(sizeof(CUtensorMap) == sizeof *out && alignof(CUtensorMap) <= alignof(sm90::TensorMap));
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const auto pitch = static_cast<cuuint64_t>(row_bytes);
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t step[2] = {1, 1};
  return encode_tiled()(reinterpret_cast<CUtensorMap*>(out), type, 2, const_cast<void*>(data), size, &pitch, box, step,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

Status divide_sm90(const LinearArgs& a, const DeviceProperties& device, Sm90Division* out) noexcept {
  *out = {};
  const bool nvfp4 = a.weight.format == BlockFormat::kNvfp4;
  const core::WeightLayout layout{a.weight.format, a.weight.scale_layout, a.weight.rows, a.weight.cols};
  if (device.compute_capability != 90 || layout.code_row_bytes() % 16 != 0) return Status::kOk;
  Sm90Division d{};
  d.stages = static_cast<std::int32_t>(ceil_div(a.weight.cols, sm80::kGemmStage));
  d.bf16 = a.activations == ActivationForm::k16Bit && a.x_dtype == DType::kBF16 && has_whole_pieces(a);
  Cheapest cheapest{device, a.batch};
  // Rows of all products are counted in 32 bits.
  const bool describable = encode_tiled() != nullptr && a.batch * std::max(a.m, a.weight.rows) < (std::int64_t{1} << 31);
  if (a.m <= sm90::kSixteenX) {
    if (describable) consider_few(a, nvfp4, d, cheapest);
  } else if (describable) {
    consider_many(a, nvfp4, d, cheapest);
  }
  *out = cheapest.best;
  if (out->function == nullptr) return Status::kOk;
  return check(cudaFuncSetAttribute(out->function, cudaFuncAttributeMaxDynamicSharedMemorySize, device.shared_bytes),
               "asking for shared memory");
}

Status launch_sm90(const Sm90Division& d, const sm80::GemmParams& params, bool early, std::int64_t batch, cudaStream_t stream) noexcept {
  cudaLaunchAttribute attributes[2];
  const cudaLaunchConfig_t config = launch_config(d, batch, stream, attributes);
  sm80::GemmParams gemm = params;
  gemm.stages = d.stages;
  gemm.splits = d.splits;
  gemm.row_tiles = d.row_tiles;
  sm90::FewParams few{{}, gemm, d.row_groups, d.block_stages, sm90::few_scale_mask(gemm), early};
  const auto block_rows = static_cast<std::int32_t>(ceil_div(gemm.m, d.m_tiles));
  sm90::ManyParams many{{}, {}, gemm, d.block_stages, block_rows, early};
  const CUtensorMapDataType x_type = d.bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto describe_codes = [&](int box_rows, sm90::TensorMap* out) {
    return describe(CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_64B, gemm.codes, gemm.row_bytes,
                    gemm.code_batch == 0 ? gemm.n : batch * gemm.n, gemm.row_bytes, sm80::kCodeBytes, box_rows, out);
  };
  const bool described = !d.few ? describe_codes(d.w_rows, &many.w) &&
                                      describe(x_type, CU_TENSOR_MAP_SWIZZLE_128B, gemm.x, gemm.x_cols, batch * gemm.m, gemm.x_row * 2,
                                               sm90::kPanelDims, block_rows, &many.x)
                         : describe_codes(sm90::few_box_rows(gemm.m, d.tiles), &few.w);
  if (!described) {
    return api::fail(Status::kDeviceError, "describing an operand of %d rows of x to the copy engine: the driver refused", gemm.m);
  }
  void* arguments[] = {d.few ? static_cast<void*>(&few) : &many};
  return check(cudaLaunchKernelExC(&config, d.function, arguments), "launching the matrix product");
}

}  // namespace fp4pa::cuda
