// One number of the lanes that share something.
#pragma once

#include <cstdint>

#include "core/macros.hpp"

namespace fp4pa::core {

/// x of every lane becomes what `combine` makes of it and of those of all lanes whose number differs from its own in kBits alone.
template <int kBits, class E, class PerLane, class F>
FP4PA_FN void combine_peers(E& exec, PerLane& x, F&& combine) {
  FP4PA_UNROLL
  for (int bit = 1; bit < E::kLanes; bit *= 2) {
    if ((kBits & bit) == 0) continue;
    const PerLane peer = exec.shuffle_xor(x, bit);
    exec.each_lane([&](auto lane) { x[lane] = combine(x[lane], peer[lane]); });
  }
}

/// The larger of two magnitudes, given by their bits.
struct Larger {
  [[nodiscard]] FP4PA_FN std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return b > a ? b : a; }
};

}  // namespace fp4pa::core
