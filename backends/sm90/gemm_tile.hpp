// C = X W^T with W in FP4 and many rows of X on sm_90a, on wgmma with both operands in shared memory: a block has 128 rows of
// each.
//
// Two teams of four warps decode W to f16 (gemm_tile_decode.hpp), once for the block's rows of X, into a ring of slots of 64
// columns whose X the copy engine brings; two warpgroups multiply (gemm_tile_multiply.hpp). Codes come through a ring of their own,
// further ahead. Nobody waits for a barrier of the block (gemm_tile_ring.hpp). Blocks of a cluster divide K, and their sums are
// added in shared memory in the order of K (gemm_tile_results.hpp).
#pragma once

#include <cstdint>

#include "backends/sm90/gemm_tile_decode.hpp"
#include "backends/sm90/gemm_tile_multiply.hpp"

namespace fp4pa::sm90 {

template <bool kNvfp4>
__device__ __forceinline__ void tile_block(const TileParams& params, std::uint8_t* shared) {
  const sm80::GemmParams& p = params.gemm;
  const int rank = static_cast<int>(blockIdx.x) % p.splits;
  const int tile = static_cast<int>(blockIdx.x) / p.splits;
  const auto stage = [&](int r) { return static_cast<int>(static_cast<std::int64_t>(p.stages) * r / p.splits); };
  const TilePart part{blockIdx.z, tile % p.row_tiles * TileLayout::kWRows, tile / p.row_tiles * TileLayout::kXRows, stage(rank),
                      stage(rank + 1) - stage(rank)};
  auto* const outside = reinterpret_cast<volatile std::uint32_t*>(shared + TileLayout::kOutside);

  if (threadIdx.x < 32) {
    TileRing(params, shared, part).set_up(static_cast<int>(threadIdx.x));
    if (threadIdx.x == 0) *outside = 0;
  }
  cuda::allow_dependents();
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= 32 * TileLayout::kMultipliers) {
    TileDecoder<kNvfp4>(params, shared, part).run(params.prepared);
  } else {
    TileMultiplier<kNvfp4> multiplier(params, shared, part);
    multiplier.run();
    cuda::wait_for_previous();
    multiplier.put_sums();
  }
  __syncthreads();
  using Results = TileResults<kNvfp4>;
  if (!kNvfp4 && *outside != 0) {
    Results::add_outside(p, shared, part);
    __syncthreads();
  }
  const auto meet = [&] {
    if (p.splits > 1) asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
  };
  meet();
  Results::store(p, shared, part, rank);
  meet();  // nobody leaves while its sums are being read
}

}  // namespace fp4pa::sm90
