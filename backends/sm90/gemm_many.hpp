// C = X W^T with W in FP4 and many rows of X on sm_90a, on wgmma with W from registers: two warpgroups of 64 rows of W each, and 32 to
// 256 rows of X.
//
// A third brings X, codes and scales in stages of 128 columns (gemm_many_fetch.hpp), with up to 128 rows of X a fourth arranges codes
// (gemm_many_arrange.hpp), and those two decode and multiply (gemm_many_multiply.hpp). Rings of barriers are all that joins them
// (gemm_many_ring.hpp), so that one warpgroup decodes while the other's products run. Blocks of a cluster divide K; each is given the
// others' sums of what it brings out, and adds them up in the order of K (gemm_many_results.hpp). The other warps leave before.
#pragma once

#include <cstdint>

#include "backends/sm90/cluster.hpp"
#include "backends/sm90/gemm_many_arrange.hpp"
#include "backends/sm90/gemm_many_fetch.hpp"
#include "backends/sm90/gemm_many_multiply.hpp"
#include "backends/sm90/gemm_many_results.hpp"

namespace fp4pa::sm90 {

template <ManyLayout kLayout>
__device__ __forceinline__ void many_block(const ManyParams& params, std::uint8_t* shared) {
  // Sums of 256 rows of X take registers of the fetching warps'.
  constexpr bool kMoves = kLayout.x_rows > 192;
  const sm80::GemmParams& p = params.gemm;
  auto* const outside = reinterpret_cast<volatile std::uint32_t*>(shared + kLayout.outside());

  // What copies wait for comes first; nobody but this thread has anything else to wait for. Scales are asked for meanwhile.
  if (threadIdx.x == 0) {
    ManyRing<kLayout>::set_up(shared);
    *outside = 0;
  }
  if (threadIdx.x == ManyLayout::kMultipliers) {
    prefetch_map(params.x);
    prefetch_map(params.w);
  }
  const int rank = rank_in_cluster();
  const int tile = cluster_index();
  const int m_tile = static_cast<int>(static_cast<std::uint32_t>(tile) / static_cast<std::uint32_t>(p.row_tiles));
  const int first = rank * params.block_stages;
  const int first_x = m_tile * params.block_rows;
  const ManyPart part{blockIdx.z, (tile - m_tile * p.row_tiles) * ManyLayout::kRows, first_x,
                      params.block_rows < p.m - first_x ? params.block_rows : p.m - first_x, first,
                      params.block_stages < p.stages - first ? params.block_stages : p.stages - first};
  const bool fetches = static_cast<int>(threadIdx.x) >= ManyLayout::kMultipliers;
  const bool arranges = kLayout.arranged() && static_cast<int>(threadIdx.x) >= ManyLayout::kMultipliers + ManyLayout::kFetchers;
  ManyFetcher<kLayout> fetcher(params, shared, part);
  if (fetches && !arranges) fetcher.begin(params.early);
  __syncthreads();  // at one place in the code: synccheck does not follow a barrier in two

  if (arranges) {
    cuda::wait_for_previous();
    cuda::allow_dependents();
    arrange_stages<kLayout>(ManyRing<kLayout>(params, shared, part), shared, part.stages);
    return;
  }
  if (fetches) {
    if constexpr (kMoves) give_registers<72>();
    fetcher.run();
    const int warp = static_cast<int>(threadIdx.x) - ManyLayout::kMultipliers;
    if (warp < ManyLayout::kMultipliers / 32) ManyResults<kLayout>::expect(p, shared, rank, warp);
    return;
  }
  ManyMultiplier<kLayout> multiplier(params, shared, part);
  multiplier.fetch(params.early);
  if constexpr (kMoves) take_registers<216>();
  multiplier.run();
  const ManyResults<kLayout> results(p, shared, part, rank);
  if (!kLayout.nvfp4 && *outside != 0) results.add_outside(multiplier.sums());
  if (results.alone()) {
    results.store_own(multiplier.sums());
    return;
  }
  arrive_at_cluster();
  wait_for_cluster();
  results.give(multiplier.sums());
  results.store();
}

}  // namespace fp4pa::sm90
