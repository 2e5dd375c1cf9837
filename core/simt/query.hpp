// Bringing the queries of a work item into operand form.
//
// A row is read into shared memory as f32, rotated there as K was, and handed to the shim, which rounds it to its operand
// type in the order of dims that the keys' format wants. No scale is multiplied in before the rounding: a row is only moved by
// a power of two, so that an f16 or bf16 query is represented exactly. Everything that multiplies a whole row of
// scores - sm_scale, K's decode multiplier, the power of two, the operand's own unit - is one factor per row.
//
// A query that its operand type does not hold exactly (f32, rotated, f16 before bf16 keys) is the sum of two terms, each an
// operand, and is multiplied twice, or with both side by side (SideBySide::kTerms). Its scores are then as good as
// f32's; with logits of tens, a single rounded term would show in the LSE.
#pragma once

#include <bit>
#include <cstdint>

#include "core/attention/params.hpp"
#include "core/attention/row_map.hpp"
#include "core/formats/hadamard.hpp"
#include "core/formats/half.hpp"
#include "core/formats/minifloat.hpp"
#include "core/simt/exec.hpp"
#include "core/simt/kv_kind.hpp"
#include "core/simt/peers.hpp"

namespace fp4pa::core {

/// How a shim wants queries for keys of a kind.
struct QueryForm {
  /// Binade that a row's largest element is moved to, for operands of narrow range; kAsIs: not moved.
  int binade;
  float unit;  ///< multiplier from what the instruction sums to the true product
  bool bf16;   ///< the operand type; f16 otherwise
  static constexpr int kAsIs = 1000;
};

/// Operands that a query is the sum of.
[[nodiscard]] FP4PA_FN int query_terms(DType query, Rotation rotation, bool operand_is_bf16) {
  if (query == DType::kF32 || rotation != Rotation::kNone) return 2;
  return operand_is_bf16 && query == DType::kF16 ? 2 : 1;
}

/// Whether queries come as codes with scales: none but kernels for MXFP8 keys know of it.
template <KvKind kKey>
[[nodiscard]] FP4PA_FN bool queries_have_scales(const AttentionParams& p) {
  return kKey == KvKind::kMxfp8 && p.q_scales.data != nullptr;
}

/// The bits of an element, and what they say.
template <class E>
FP4PA_FN std::uint32_t load_query_bits(E& exec, const HeadTensor& q, std::int64_t index) {
  if (q.dtype == DType::kF32) return exec.template load_global<std::uint32_t>(static_cast<const std::uint32_t*>(q.data) + index);
  return exec.template load_global<std::uint16_t>(static_cast<const std::uint16_t*>(q.data) + index);
}
/// The value of a query's 16 bits, by the device's instruction where it has one: the same value.
template <class E>
[[nodiscard]] FP4PA_FN float query_half(DType dtype, std::uint32_t bits) {
  const auto half = static_cast<std::uint16_t>(bits);
  if (dtype == DType::kBF16) return bf16_to_f32(half);
  if constexpr (requires { E::f16_to_f32(half); }) {
    return E::f16_to_f32(half);
  } else {
    return f16_to_f32(half);
  }
}
template <class E>
[[nodiscard]] FP4PA_FN float query_element(DType dtype, std::uint32_t bits) {
  return dtype == DType::kF32 ? std::bit_cast<float>(bits) : query_half<E>(dtype, bits);
}

/// A query row as quads: lane l holds elements 4l .. 4l+3 of every 4 * kLanes. Whether rows can be read so in single loads.
[[nodiscard]] FP4PA_FN bool query_rows_are_quads(const HeadTensor& q) {
  const int bytes = q.dtype == DType::kF32 ? 4 : 2;
  const auto address = reinterpret_cast<std::uintptr_t>(q.data) | static_cast<std::uintptr_t>(q.token_stride * bytes) |
                       static_cast<std::uintptr_t>(q.head_stride * bytes);
  return address % (4 * bytes) == 0;
}

struct alignas(16) FourFloats {
  float value[4];
};
/// Eight elements of 16 bits.
struct alignas(16) QueryChunk {
  std::uint32_t word[4];
};
/// Whether rows of 16 bits begin on chunks.
[[nodiscard]] FP4PA_FN bool query_rows_are_chunks(const HeadTensor& q) {
  const auto address = reinterpret_cast<std::uintptr_t>(q.data) | static_cast<std::uintptr_t>(q.token_stride * 2) |
                       static_cast<std::uintptr_t>(q.head_stride * 2);
  return q.dtype != DType::kF32 && address % sizeof(QueryChunk) == 0;
}

/// Four elements of a row as they lie in memory: of 32 bits, or of 16 in the first two words.
struct QuadBits {
  std::uint32_t word[4];
};

/// Asks for four elements of a row, in one load where `aligned`. Nobody waits for them until they are looked at.
/// @tparam kHalves  the query is known to be of 16 bits
template <bool kHalves, class E>
[[nodiscard]] FP4PA_FN QuadBits load_query_quad(E& exec, const HeadTensor& q, bool aligned, std::int64_t index) {
  struct alignas(8) Halves {
    std::uint32_t pair[2];
  };
  if (!kHalves && q.dtype == DType::kF32) {
    const auto* const from = static_cast<const std::uint32_t*>(q.data) + index;
    if (aligned) {
      const auto x = exec.template load_global<QueryChunk>(from);
      return {{x.word[0], x.word[1], x.word[2], x.word[3]}};
    }
    QuadBits x;
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) x.word[i] = exec.template load_global<std::uint32_t>(from + i);
    return x;
  }
  const auto* const from = static_cast<const std::uint16_t*>(q.data) + index;
  if (aligned) {
    const auto x = exec.template load_global<Halves>(from);
    return {{x.pair[0], x.pair[1], 0, 0}};
  }
  std::uint32_t x[4];
  FP4PA_UNROLL
  for (int i = 0; i < 4; ++i) x[i] = exec.template load_global<std::uint16_t>(from + i);
  return {{x[0] | x[1] << 16, x[2] | x[3] << 16, 0, 0}};
}

/// What they say.
template <bool kHalves, class E>
FP4PA_FN void query_quad(DType dtype, const QuadBits& bits, float (&out)[4]) {
  FP4PA_UNROLL
  for (int i = 0; i < 4; ++i) {
    out[i] = !kHalves && dtype == DType::kF32 ? std::bit_cast<float>(bits.word[i])
                                              : query_half<E>(dtype, bits.word[i / 2] >> (i % 2 * 16) & 0xffffu);
  }
}

/// magnitude_bits of the largest element that the quads of kLanes neighbouring lanes hold.
template <int kLanes, class E>
[[nodiscard]] FP4PA_FN typename E::template PerLane<std::uint32_t> largest_of_quads(
    E& exec, const typename E::template PerLane<float[4]>& x) {
  typename E::template PerLane<std::uint32_t> amax;
  exec.each_lane([&](auto lane) {
    amax[lane] = 0;
    FP4PA_UNROLL
    for (int i = 0; i < 4; ++i) amax[lane] = Larger()(magnitude_bits(x[lane][i]), amax[lane]);
  });
  combine_peers<kLanes - 1>(exec, amax, Larger());
  return amax;
}

/// The power of two that moves a row to the binade its operand form asks for.
/// @param amax  magnitude_bits of the row's largest element
[[nodiscard]] FP4PA_FN int query_shift(QueryForm form, std::uint32_t amax) {
  if (form.binade == QueryForm::kAsIs) return 0;
  const int exponent = static_cast<int>(amax >> 23) - 127;
  const int shift = form.binade - exponent;
  return exponent == -127 ? 0 : shift > 126 ? 126 : shift < -126 ? -126 : shift;
}

/// The butterflies of hadamard.hpp on one row in shared memory, spread over the lanes; the norm is left to the caller.
template <class E>
FP4PA_FN void rotate_row(E& exec, std::uint32_t row, int head_dim, int block) {
  for (int distance = 1; distance < block; distance *= 2) {
    exec.warp_barrier();
    exec.each_lane([&](auto lane) {
      for (int i = lane.id; i < head_dim / 2; i += E::kLanes) {
        const int low = 2 * i - (i & (distance - 1));  // of the pair; blocks of 2 * distance, a power of two
        const std::uint32_t a_at = row + 4 * low;
        const std::uint32_t b_at = a_at + 4 * distance;
        const float a = exec.template load_shared<float>(lane, a_at);
        const float b = exec.template load_shared<float>(lane, b_at);
        exec.template store_shared<float>(lane, a_at, a + b);
        exec.template store_shared<float>(lane, b_at, a - b);
      }
    });
  }
}

/// The same butterflies on rows in registers, in quads as query_quad leaves them: two distances within a lane, the others
/// between lanes. A block is never longer than the lanes' 4 * kLanes elements.
/// @param rows  of the kRows that exist
template <class E, int kRows, int kQuads>
FP4PA_FN void rotate_quads(E& exec, typename E::template PerLane<float[kRows][kQuads][4]>& x, int rows, int block) {
  exec.each_lane([&](auto lane) {
    FP4PA_UNROLL
    for (int i = 0; i < kRows * kQuads; ++i) {
      float(&quad)[4] = x[lane][i / kQuads][i % kQuads];
      const float sum[2] = {quad[0] + quad[1], quad[2] + quad[3]};
      const float difference[2] = {quad[0] - quad[1], quad[2] - quad[3]};
      quad[0] = sum[0] + sum[1];
      quad[1] = difference[0] + difference[1];
      quad[2] = sum[0] - sum[1];
      quad[3] = difference[0] - difference[1];
    }
  });
  FP4PA_NO_UNROLL
  for (int distance = 4; distance < block; distance *= 2) {
    FP4PA_UNROLL
    for (int i = 0; i < kRows; ++i) {
      if (i >= rows) break;
      FP4PA_UNROLL
      for (int k = 0; k < 4 * kQuads; ++k) {
        typename E::template PerLane<float> own;
        exec.each_lane([&](auto lane) { own[lane] = x[lane][i][k / 4][k % 4]; });
        const auto peer = exec.shuffle_xor(own, distance / 4);
        exec.each_lane([&](auto lane) {
          const bool upper = (lane.id & (distance / 4)) != 0;
          x[lane][i][k / 4][k % 4] = peer[lane] + (upper ? -own[lane] : own[lane]);
        });
      }
    }
  }
}

/// One query row to f32 in shared memory, rotated but for the norm, which is returned in `factor`'s place with everything
/// else that multiplies the row. Rows that do not exist become zeros.
struct QueryRow {
  float to_operand;  // multiplier of the elements before rounding
  float factor;      // multiplier of the scores
};

template <class E>
FP4PA_FN QueryRow load_query_row(E& exec, const AttentionParams& p, Rotation rotation, const RowMap& rows, int row,
                                 std::uint32_t scratch, QueryForm form, float multiplier) {
  const bool exists = row < rows.num_rows;
  const std::int64_t at = exists ? rows.token(row) * p.q.token_stride + rows.head(row) * p.q.head_stride : 0;
  exec.each_lane([&](auto lane) {
    // All elements are asked for before the first is waited for.
    constexpr int kMost = 256 / E::kLanes;
    std::uint32_t x[kMost];
    FP4PA_UNROLL
    for (int i = 0; i < kMost; ++i) {
      const int d = lane.id + i * E::kLanes;
      x[i] = exists && d < p.head_dim ? load_query_bits(exec, p.q, at + d) : 0;
    }
    FP4PA_UNROLL
    for (int i = 0; i < kMost; ++i) {
      const int d = lane.id + i * E::kLanes;
      if (d < p.head_dim) exec.template store_shared<float>(lane, scratch + 4 * d, query_element<E>(p.q.dtype, x[i]));
    }
  });
  float norm = 1.0f;
  if (rotation != Rotation::kNone) {
    const int block = static_cast<int>(rotation);
    rotate_row(exec, scratch, p.head_dim, block);
    norm = hadamard_norm(block);
  }
  exec.warp_barrier();
  if (form.binade == QueryForm::kAsIs) return {norm, multiplier * form.unit};

  typename E::template PerLane<std::uint32_t> amax;
  exec.each_lane([&](auto lane) {
    amax[lane] = 0;
    for (int d = lane.id; d < p.head_dim; d += E::kLanes) {
      const std::uint32_t bits = magnitude_bits(exec.template load_shared<float>(lane, scratch + 4 * d) * norm);
      amax[lane] = bits > amax[lane] ? bits : amax[lane];
    }
  });
  const int shift = query_shift(form, exec.reduce_max(amax));
  return {norm * exp2_exact(shift), multiplier * form.unit * exp2_exact(-shift)};
}

}  // namespace fp4pa::core
