// The two dims of a query that share a register, and rows cut into such pairs.
//
// A register of a 16-bit operand holds two dims: neighbours, or, next to FP4 keys, p and p + 4 of eight, as they fall out of
// the decoding (convert.hpp). A lane that has read dims 4l .. 4l+3 has two of those pairs itself, or with its neighbour l ^ 1.
#pragma once

#include "backends/sm80/convert.hpp"
#include "core/simt/kv_kind.hpp"

namespace fp4pa::sm80 {

[[nodiscard]] FP4PA_FN constexpr std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) { return (a & 0xffffu) | b << 16; }
[[nodiscard]] FP4PA_FN constexpr std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) { return a >> 16 | (b & 0xffff0000u); }

[[nodiscard]] FP4PA_FN constexpr int pair_distance(core::KvKind kind) { return core::is_fp4(kind) ? 4 : 1; }

/// Eight dims of 16 bits, brought from their natural order to the other, or back.
FP4PA_FN constexpr void pair_dims(std::uint32_t (&word)[4]) {
  const std::uint32_t x[4] = {word[0], word[1], word[2], word[3]};
  word[0] = low_halves(x[0], x[2]);
  word[1] = high_halves(x[0], x[2]);
  word[2] = low_halves(x[1], x[3]);
  word[3] = high_halves(x[1], x[3]);
}
FP4PA_FN constexpr void unpair_dims(std::uint32_t (&word)[4]) {
  const std::uint32_t x[4] = {word[0], word[1], word[2], word[3]};
  word[0] = low_halves(x[0], x[1]);
  word[1] = low_halves(x[2], x[3]);
  word[2] = high_halves(x[0], x[1]);
  word[3] = high_halves(x[2], x[3]);
}

/// First dim of pair i of a row.
[[nodiscard]] FP4PA_FN constexpr int pair_first_dim(core::KvKind kind, int i) {
  return pair_distance(kind) == 4 ? i / 4 * 8 + i % 4 : 2 * i;
}

/// Calls store(lane, first dim, low, high) for every pair of a row that lies in shared memory as f32, times `multiplier`.
template <class E, class Store>
FP4PA_FN void each_pair_of_row(E& exec, core::KvKind kind, std::uint32_t row, int head_dim, float multiplier, Store&& store) {
  exec.each_lane([&](auto lane) {
    for (int i = lane.id; i < head_dim / 2; i += E::kLanes) {
      const int dim = pair_first_dim(kind, i);
      const auto element = [&](int d) { return exec.template load_shared<float>(lane, row + 4 * d) * multiplier; };
      store(lane, dim, element(dim), element(dim + pair_distance(kind)));
    }
  });
}

/// The same of a row of kHeadDim in quads, for both pairs of every lane.
/// @param quad  lane l: dims base + 4l .. base + 4l + 3
template <int kHeadDim, class E, class Quad, class Store>
FP4PA_FN void each_pair_of_quads(E& exec, core::KvKind kind, int base, const Quad& quad, Store&& to) {
  using Lane = typename E::Lane;
  const auto store = [&](Lane lane, int dim, float low, float high) {
    if (kHeadDim % (4 * E::kLanes) != 0 && dim >= kHeadDim) return;  // lanes without a quad
    to(lane, dim, low, high);
  };
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

/// Stores a pair as the sum of `terms` operands, of which the t-th goes to at(t).
template <class E, class At>
FP4PA_FN void store_pair(E& exec, typename E::Lane lane, bool bf16, float low, float high, int terms, At&& at) {
  const std::uint32_t word = bf16 ? pack_bf16(low, high) : pack_f16(low, high);
  exec.template store_shared<std::uint32_t>(lane, at(0), word);
  if (terms == 1) return;
  const std::uint32_t rest = bf16 ? pack_bf16_rest(low, high, word) : pack_f16_rest(low, high, word);
  exec.template store_shared<std::uint32_t>(lane, at(1), rest);
}

}  // namespace fp4pa::sm80
