// C = X W^T with W in FP4 and many rows of X on sm_90a, on wgmma with W from registers: two warpgroups of 64 rows of W each, and 32 to
// 256 rows of X.
//
// A third brings X, codes and scales in stages of 128 columns (gemm_many_fetch.hpp), the others decode and multiply
// (gemm_many_multiply.hpp). Rings of barriers are all that joins them (gemm_many_ring.hpp), so that one warpgroup decodes while the
// other's products run. Blocks of a cluster divide K, and their sums are added in shared memory in a fixed order
// (gemm_many_results.hpp).
#pragma once

#include <cstdint>

#include "backends/sm90/cluster.hpp"
#include "backends/sm90/gemm_many_fetch.hpp"
#include "backends/sm90/gemm_many_multiply.hpp"
#include "backends/sm90/gemm_many_results.hpp"

namespace fp4pa::sm90 {

template <ManyLayout kLayout>
__device__ __forceinline__ void many_block(const ManyParams& params, std::uint8_t* shared) {
  // Sums of 256 rows of X take registers of the fetching warps', until results are stored by all.
  constexpr bool kMoves = kLayout.x_rows > 192;
  constexpr int kEven = 168;
  const sm80::GemmParams& p = params.gemm;
  const int rank = rank_in_cluster();
  const int tile = cluster_index();
  const int m_tile = static_cast<int>(static_cast<std::uint32_t>(tile) / static_cast<std::uint32_t>(p.row_tiles));
  const int first = rank * params.block_stages;
  const ManyPart part{blockIdx.z, (tile - m_tile * p.row_tiles) * ManyLayout::kRows, m_tile * kLayout.x_rows, first,
                      params.block_stages < p.stages - first ? params.block_stages : p.stages - first};
  auto* const outside = reinterpret_cast<volatile std::uint32_t*>(shared + kLayout.outside());

  if (threadIdx.x < 32) {
    ManyRing<kLayout>(params, shared, part).set_up(static_cast<int>(threadIdx.x));
    if (threadIdx.x == 0) *outside = 0;
  }
  __syncthreads();
  const bool fetches = static_cast<int>(threadIdx.x) >= ManyLayout::kMultipliers;
  ManyMultiplier<kLayout> multiplier(params, shared, part);
  if (fetches) {
    if constexpr (kMoves) give_registers<56>();
    ManyFetcher<kLayout>(params, shared, part).run(params.early);
    if constexpr (kMoves) take_registers<kEven>();
  } else {
    if constexpr (kMoves) take_registers<224>();
    multiplier.run();
    cuda::wait_for_previous();
    cuda::allow_dependents();
    if constexpr (kMoves) give_registers<kEven>();
  }
  // Of all, and at one place in the code: racecheck does not follow a barrier of some, nor synccheck one in two places.
  __syncthreads();
  if (!fetches) multiplier.put_sums();
  __syncthreads();
  using Results = ManyResults<kLayout>;
  if (!kLayout.nvfp4 && *outside != 0) {
    Results::add_outside(p, shared, part);
    __syncthreads();
  }
  if (p.splits > 1) cluster_barrier();
  Results::store(p, shared, part, rank);
  if (p.splits > 1) leave_cluster();
}

}  // namespace fp4pa::sm90
