// The warps of the matrix product for many rows of X that arrange codes as lanes take them (code_order.hpp), and do nothing else. Without
// them each lane would load what three others load as well, permute it and decode codes that are neighbours.
#pragma once

#include <cstdint>

#include "backends/sm90/code_order.hpp"
#include "backends/sm90/gemm_many_ring.hpp"

namespace fp4pa::sm90 {

/// Where codes lie, stage by stage as the engine brings them: no thread touches another's 16 bytes.
template <ManyLayout kLayout>
__device__ __forceinline__ void arrange_stages(const ManyRing<kLayout>& ring, std::uint8_t* shared, int stages) {
  constexpr int kPieces = ManyLayout::kRows * sm80::kCodeBytes / 16 / ManyLayout::kArrangers;
  const int thread = static_cast<int>(threadIdx.x) % ManyLayout::kArrangers;
  ManyTurn<kLayout> turn;
#pragma unroll 1
  for (int s = 0; s < stages; ++s, turn.next()) {
    auto* const codes = reinterpret_cast<uint4*>(shared + ring.slot(turn) + kLayout.x_bytes()) + thread;
    barrier_wait(ring.codes(turn), turn.parity);
    uint4 x[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) x[i] = codes[i * ManyLayout::kArrangers];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      std::uint32_t lanes[4];
      arrange_codes({x[i].x, x[i].y, x[i].z, x[i].w}, lanes);
      codes[i * ManyLayout::kArrangers] = make_uint4(lanes[0], lanes[1], lanes[2], lanes[3]);
    }
    barrier_arrive(ring.full(turn));
  }
}

}  // namespace fp4pa::sm90
