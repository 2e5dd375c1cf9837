// Launching a matrix product: X is quantised, split into terms or prepared in f16, then one kernel computes the whole.
#include "hip/gemm.hpp"

#include "api/error.hpp"
#include "api/gemm_params.hpp"
#include "core/gemm/weight.hpp"
#include "hip/gemm_shims.hpp"

namespace fp4pa::hip {
namespace {

constexpr std::int64_t kStage = 128;  // columns

using core::ceil_div;

struct Sizes {
  int rows, x_rows, threads, shared_bytes;
};
template <GemmPath path, int kXTiles>
constexpr Sizes sizes() {
  using Block = core::GemmBlock<GemmSizes<path, kXTiles>>;
  static_assert(Block::kSharedBytes <= 64 * 1024, "gfx942 has no more");
  return {Block::kRows, Block::kXRows, gemm_threads<path, kXTiles>, Block::kSharedBytes};
}
template <GemmPath path>
constexpr Sizes sizes_for(int x_tiles) {
  return x_tiles == 1 ? sizes<path, 1>() : x_tiles == 2 ? sizes<path, 2>() : sizes<path, 4>();
}
constexpr Sizes sizes_of(GemmPath path, int x_tiles) {
  if (path == GemmPath::kNativeMxfp4) return sizes_for<GemmPath::kNativeMxfp4>(x_tiles);
  if (path == GemmPath::kTermsMxfp4) return sizes_for<GemmPath::kTermsMxfp4>(x_tiles);
  return sizes_for<GemmPath::kDecodeMxfp4>(x_tiles);  // the two ways to decode differ in no size
}

[[nodiscard]] GemmPath path_of(const LinearArgs& a, unsigned architecture) {
  if (a.weight.format == BlockFormat::kNvfp4) return GemmPath::kDecodeNvfp4;
  if (architecture != kGfx950) return GemmPath::kDecodeMxfp4;
  return a.activations == ActivationForm::k16Bit ? GemmPath::kTermsMxfp4 : GemmPath::kNativeMxfp4;
}

/// X as codes and scales.
[[nodiscard]] Status quantise(const LinearArgs& a, const ExecDesc& exec, core::GemmParams* p) {
  const api::QuantisedX x = api::QuantisedX::of(a);
  x.put_into(a, p);
  return quantize_weight(x.request(a), exec);
}

/// X as E4M3 terms.
[[nodiscard]] Status split(const LinearArgs& a, const ExecDesc& exec, core::GemmParams* p) {
  const api::SplitX x = api::SplitX::of(a);
  x.put_into(a, p);
  return split_x(a, x, exec);
}

[[nodiscard]] Status prepare(const LinearArgs& a, unsigned architecture, const ExecDesc& exec, core::GemmParams* p) {
  api::PreparedX x = api::PreparedX::of(a);
  x.paired = takes_paired_x(architecture == kGfx950);
  x.put_into(a, p);
  return prepare_x(a, x, exec);
}

}  // namespace

// Of the way that the current device takes: X in terms is 2.5 times as large as X that was prepared. linear() is refused a workspace
// that was measured for another kind of device and is too small.
Status linear_workspace(const LinearArgs& args, const ExecDesc&, std::size_t* bytes) noexcept {
  const GemmPath path = path_of(args, current_architecture());
  *bytes = static_cast<std::size_t>(path == GemmPath::kNativeMxfp4  ? api::QuantisedX::of(args).bytes
                                    : path == GemmPath::kTermsMxfp4 ? api::SplitX::of(args).bytes
                                                                    : api::PreparedX::of(args).bytes);
  return Status::kOk;
}

Status linear(const LinearArgs& a, const ExecDesc& exec) noexcept {
  DeviceProperties device{};
  FP4PA_RETURN_IF_FAILED(current_device(&device));
  const GemmPath path = path_of(a, device.architecture);
  core::GemmParams p = api::gemm_params(a);
  const Status s = path == GemmPath::kNativeMxfp4  ? quantise(a, exec, &p)
                   : path == GemmPath::kTermsMxfp4 ? split(a, exec, &p)
                                                   : prepare(a, device.architecture, exec, &p);
  if (s != Status::kOk) return s;

  const int x_tiles = a.m <= 16 ? 1 : a.m <= 32 ? 2 : 4;
  const Sizes size = sizes_of(path, x_tiles);
  p.stages = static_cast<std::int32_t>(ceil_div(a.weight.cols, kStage));
  p.row_tiles = static_cast<std::int32_t>(ceil_div(a.weight.rows, size.rows));
  const dim3 grid(static_cast<unsigned>(p.row_tiles * ceil_div(a.m, size.x_rows)), static_cast<unsigned>(a.batch));
  void* arguments[] = {&p};
  return check(hipLaunchKernel(gemm_function(path, x_tiles), grid, dim3(static_cast<unsigned>(size.threads)), arguments,
                               static_cast<std::size_t>(size.shared_bytes), static_cast<Stream>(exec.stream)),
               "launching the matrix product");
}

}  // namespace fp4pa::hip
