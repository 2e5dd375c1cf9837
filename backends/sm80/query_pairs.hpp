// The two dims of a query that share a register, and quads of a row cut into such pairs.
//
// A register of a 16-bit operand holds two dims: neighbours, or, next to FP4 keys, p and p + 4 of eight, as they fall out of
// the decoding (convert.hpp). A lane that has read dims 4l .. 4l+3 has two of those pairs itself, or with its neighbour l ^ 1.
#pragma once

#include "backends/sm80/convert.hpp"
#include "core/simt/kv_kind.hpp"

namespace fp4pa::sm80 {

[[nodiscard]] FP4PA_FN constexpr int pair_distance(core::KvKind kind) { return core::is_fp4(kind) ? 4 : 1; }

/// First dim of pair i of a row.
[[nodiscard]] FP4PA_FN constexpr int pair_first_dim(core::KvKind kind, int i) {
  return pair_distance(kind) == 4 ? i / 4 * 8 + i % 4 : 2 * i;
}

/// Calls store(lane, first dim, low, high) for both pairs of every lane.
/// @param quad  lane l: dims base + 4l .. base + 4l + 3
template <class E, class Quad, class Store>
FP4PA_FN void each_query_pair(E& exec, core::KvKind kind, int base, const Quad& quad, Store&& store) {
  using Lane = typename E::Lane;
  if (pair_distance(kind) == 1) {
    exec.each_lane([&](Lane lane) {
      const int dim = base + 4 * lane.id;
      store(lane, dim, quad[lane][0], quad[lane][1]);
      store(lane, dim + 2, quad[lane][2], quad[lane][3]);
    });
    return;
  }
  // An even lane gives away its upper two dims for its neighbour's lower two.
  typename E::template PerLane<float> give[2];
  exec.each_lane([&](Lane lane) {
    FP4PA_UNROLL
    for (int i = 0; i < 2; ++i) give[i][lane] = lane.id % 2 == 0 ? quad[lane][2 + i] : quad[lane][i];
  });
  FP4PA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const typename E::template PerLane<float> got = exec.shuffle_xor(give[i], 1);
    exec.each_lane([&](Lane lane) {
      const bool even = lane.id % 2 == 0;
      const int dim = base + lane.id / 2 * 8 + (even ? i : 2 + i);
      store(lane, dim, even ? quad[lane][i] : got[lane], even ? got[lane] : quad[lane][2 + i]);
    });
  }
}

}  // namespace fp4pa::sm80
