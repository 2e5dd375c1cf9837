// The matrix product's kernels of sm_90a: for few rows of X, for many, and with decoded tiles for more.
#include "backends/sm90/gemm_few.hpp"
#include "backends/sm90/gemm_many.hpp"
#include "backends/sm90/gemm_sixteen.hpp"
#include "backends/sm90/gemm_tile.hpp"
#include "cuda/gemm_sm90.hpp"

namespace fp4pa::cuda {
namespace {

template <bool kNvfp4, bool kOwnSums>
__global__ void __launch_bounds__(sm90::kFewThreads, 1) gemm_few(const __grid_constant__ sm90::FewParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::FewBlock<kNvfp4, kOwnSums>(params, shared).run();
}
template <bool kNvfp4>
__global__ void __launch_bounds__(sm90::kFewThreads, 1) gemm_sixteen(const __grid_constant__ sm90::FewParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::SixteenBlock<kNvfp4>(params, shared).run();
}
template <bool kNvfp4, int kGroups, int kX>
__global__ void __launch_bounds__(128 * kGroups, 1) gemm_many(const __grid_constant__ sm90::ManyParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::ManyBlock<kNvfp4, kGroups, kX>(params, shared).run();
}
template <bool kNvfp4>
__global__ void __launch_bounds__(sm90::TileLayout::kThreads, 1) gemm_tile(const __grid_constant__ sm90::TileParams params) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  sm90::tile_block<kNvfp4>(params, shared);
}

}  // namespace

template <bool kNvfp4>
static const void* few_function(std::int64_t m) {
  return m <= 2                ? reinterpret_cast<const void*>(&gemm_few<kNvfp4, true>)
         : m <= sm90::kFewMostX ? reinterpret_cast<const void*>(&gemm_few<kNvfp4, false>)
                                : reinterpret_cast<const void*>(&gemm_sixteen<kNvfp4>);
}
const void* gemm_few_function(bool nvfp4, std::int64_t m) noexcept { return nvfp4 ? few_function<true>(m) : few_function<false>(m); }

template <bool kNvfp4, int kX>
static const void* many_function(int groups) {
  return groups == 2 ? reinterpret_cast<const void*>(&gemm_many<kNvfp4, 2, kX>) : reinterpret_cast<const void*>(&gemm_many<kNvfp4, 3, kX>);
}
const void* gemm_many_function(bool nvfp4, int groups, int x_rows) noexcept {
  if (x_rows == 128) {
    return nvfp4 ? reinterpret_cast<const void*>(&gemm_many<true, 3, 128>) : reinterpret_cast<const void*>(&gemm_many<false, 3, 128>);
  }
  if (x_rows == 32) return nvfp4 ? many_function<true, 32>(groups) : many_function<false, 32>(groups);
  return nvfp4 ? many_function<true, 64>(groups) : many_function<false, 64>(groups);
}

const void* gemm_tile_function(bool nvfp4) noexcept {
  return nvfp4 ? reinterpret_cast<const void*>(&gemm_tile<true>) : reinterpret_cast<const void*>(&gemm_tile<false>);
}

}  // namespace fp4pa::cuda
