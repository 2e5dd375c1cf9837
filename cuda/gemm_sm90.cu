// The matrix product's kernels of sm_90a: for few rows of X, for up to 16, and for more.
#include "backends/sm90/gemm_few.hpp"
#include "backends/sm90/gemm_many.hpp"
#include "backends/sm90/gemm_sixteen.hpp"
#include "cuda/gemm_sm90.hpp"

namespace fp4pa::cuda {
namespace {

template <bool kNvfp4, bool kBf16, int kParts, sm90::FewForm kForm>
__global__ void __launch_bounds__(sm90::kFewThreads, 8 / kParts <= sm90::kFewPairedX ? 2 : 1) gemm_few(const __grid_constant__ sm90::FewParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::FewBlock<kNvfp4, kParts, kBf16, kForm>(params, shared).run();
}
template <bool kNvfp4, bool kBf16, sm90::FewForm kForm>
__global__ void __launch_bounds__(sm90::kFewThreads, 1) gemm_sixteen(const __grid_constant__ sm90::FewParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::SixteenBlock<kNvfp4, kBf16, kForm>(params, shared).run();
}
// nvcc 13.0 cannot name a kernel whose template's argument is a layout.
template <bool kNvfp4, bool kBf16, int kX>
__global__ void __launch_bounds__(sm90::ManyLayout{kX, kNvfp4, kBf16}.threads(), 1) gemm_many(const __grid_constant__ sm90::ManyParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::many_block<sm90::ManyLayout{kX, kNvfp4, kBf16}>(params, shared);
}

}  // namespace

template <bool kNvfp4, bool kBf16, sm90::FewForm kForm>
static const void* few_function(std::int64_t m) {
  if constexpr (kForm != sm90::FewForm::kWideHalves) {
    if (m <= 2) return reinterpret_cast<const void*>(&gemm_few<kNvfp4, kBf16, 4, kForm>);
    if (m <= 4) return reinterpret_cast<const void*>(&gemm_few<kNvfp4, kBf16, 2, kForm>);
  } else if (m <= 4) {
    return nullptr;
  }
  return m <= sm90::kFewMostX ? reinterpret_cast<const void*>(&gemm_few<kNvfp4, kBf16, 1, kForm>)
                              : reinterpret_cast<const void*>(&gemm_sixteen<kNvfp4, kBf16, kForm>);
}
template <bool kNvfp4, bool kBf16>
static const void* few_function(std::int64_t m, sm90::FewForm form) {
  switch (form) {
    case sm90::FewForm::kPlain:
      return few_function<kNvfp4, kBf16, sm90::FewForm::kPlain>(m);
    case sm90::FewForm::kHalves:
      return few_function<kNvfp4, kBf16, sm90::FewForm::kHalves>(m);
    case sm90::FewForm::kWideHalves:
      return few_function<kNvfp4, kBf16, sm90::FewForm::kWideHalves>(m);
    case sm90::FewForm::kAny:
      break;
  }
  return few_function<kNvfp4, kBf16, sm90::FewForm::kAny>(m);
}
const void* gemm_few_function(bool nvfp4, bool bf16, std::int64_t m, sm90::FewForm form) noexcept {
  if (bf16) return nvfp4 ? few_function<true, true>(m, form) : few_function<false, true>(m, form);
  return nvfp4 ? few_function<true, false>(m, form) : few_function<false, false>(m, form);
}

template <int kX>
static const void* many_function(const sm90::ManyLayout& layout) {
  const auto of = [&]<bool kNvfp4>() {
    return layout.bf16 ? reinterpret_cast<const void*>(&gemm_many<kNvfp4, true, kX>)
                       : reinterpret_cast<const void*>(&gemm_many<kNvfp4, false, kX>);
  };
  return layout.nvfp4 ? of.template operator()<true>() : of.template operator()<false>();
}
const void* gemm_many_function(const sm90::ManyLayout& layout) noexcept {
  switch (layout.x_rows) {
    case 32:
      return many_function<32>(layout);
    case 64:
      return many_function<64>(layout);
    case 128:
      return many_function<128>(layout);
    case 192:
      return many_function<192>(layout);
    case 256:
      return many_function<256>(layout);
  }
  return nullptr;
}

}  // namespace fp4pa::cuda
