// Launching a native product: X is quantised by the kernel that quantises weights, then one kernel computes the whole.
#include "cuda/gemm_native.hpp"

#include "api/error.hpp"
#include "api/gemm_params.hpp"
#include "core/gemm/weight.hpp"
#include "cuda/gemm.hpp"
#include "cuda/variants.hpp"

namespace fp4pa::cuda {
namespace {

constexpr std::int64_t kStage = 128;  // columns

using core::ceil_div;

}  // namespace

bool is_native(const LinearArgs& args, const DeviceProperties& device) noexcept {
  return args.activations == ActivationForm::kFp4 && has_native_kernels(device.compute_capability);
}

Status linear_native(const LinearArgs& a, const ExecDesc& exec) noexcept {
  const api::QuantisedX x = api::QuantisedX::of(a);
  FP4PA_RETURN_IF_FAILED(quantize_weight(x.request(a), exec));

  const int x_tiles = a.m <= 8 ? 1 : a.m <= 16 ? 2 : a.m <= 32 ? 4 : 8;
  const NativeGemm kernel = native_gemm(a.weight.format == BlockFormat::kNvfp4, x_tiles);
  core::GemmParams p = api::gemm_params(a);
  x.put_into(a, &p);
  p.stages = static_cast<std::int32_t>(ceil_div(a.weight.cols, kStage));
  p.row_tiles = static_cast<std::int32_t>(ceil_div(a.weight.rows, kernel.rows));
  const dim3 grid(static_cast<unsigned>(p.row_tiles * ceil_div(a.m, kernel.x_rows)), static_cast<unsigned>(a.batch));
  void* arguments[] = {&p};
  return check(cudaLaunchKernel(kernel.function, grid, dim3(static_cast<unsigned>(kernel.threads)), arguments,
                                static_cast<std::size_t>(kernel.shared_bytes), static_cast<cudaStream_t>(exec.stream)),
               "launching the matrix product");
}

}  // namespace fp4pa::cuda
