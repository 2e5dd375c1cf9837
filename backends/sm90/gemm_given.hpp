// How much a block of a cluster may be given by those that divide K with it. No device code.
#pragma once

#include "backends/sm80/gemm_params.hpp"
#include "core/macros.hpp"

namespace fp4pa::sm90 {

/// Where the cluster's blocks take turns at `pieces`, and each has room for its own from all blocks: the most of any number of blocks.
[[nodiscard]] FP4PA_FN constexpr int most_given(int pieces) {
  int most = 0;
  for (int splits = 1; splits <= sm80::kGemmMaxSplits; ++splits) {
    const int given = (pieces + splits - 1) / splits * splits;
    most = given > most ? given : most;
  }
  return most;
}

}  // namespace fp4pa::sm90
