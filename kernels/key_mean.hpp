// K smoothing on words: a thread has 16 bytes of a head's dims and walks tokens, so that sums are those of core/dense/key_mean.hpp to
// the bit: each dim's own, in its order. What addresses or strides exclude takes core's functions, an element a thread (dense.hpp).
#pragma once

#include "core/dense/key_mean.hpp"
#include "core/divisor.hpp"
#include "kernels/piece.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kMeanThreads = 128;
constexpr std::int32_t kMeanRun = 32;  // tokens that a thread centres

/// Blocks are chunks or runs of tokens (x) by a token's pieces (y).
struct MeanPieceArgs {
  core::KeyMean mean;
  core::Divisor pieces_of_head;
  std::uint32_t pieces;  // of a token: all heads'
};

template <DType kDType>
inline constexpr int kDimsOfPiece = 16 / size_of(kDType);

/// Whether every piece of a head of `x` is an aligned word of 16 bytes.
[[nodiscard]] inline bool has_pieces(const core::HeadTensor& x) {
  const std::int64_t size = size_of(x.dtype);
  return aligned(x.data, 16) && x.token_stride * size % 16 == 0 && x.head_stride * size % 16 == 0;
}

/// A thread's piece of a token.
struct MeanPiece {
  std::int32_t head;
  std::int32_t dim;
  bool exists;
};
template <DType kDType>
[[nodiscard]] FP4PA_DEVICE inline MeanPiece piece_of_thread(const MeanPieceArgs& args) {
  const auto piece = static_cast<std::uint32_t>(block_id_y() * kMeanThreads + thread_id());
  const std::uint32_t head = args.pieces_of_head.quotient(piece);
  return {static_cast<std::int32_t>(head),
          static_cast<std::int32_t>(piece - head * args.pieces_of_head.divisor) * kDimsOfPiece<kDType>, piece < args.pieces};
}

/// Calls f(token, its values) for the tokens of [begin, end), in order; kAhead of them are on their way together.
template <DType kDType, int kAhead, class F>
FP4PA_DEVICE inline void walk_keys(const core::HeadTensor& k, const MeanPiece& p, std::int32_t begin, std::int32_t end, F&& f) {
  constexpr int kDims = kDimsOfPiece<kDType>;
  using Piece = RawPiece<kDType, kDims>;
  const std::int64_t step = k.token_stride * size_of(kDType);
  const auto* from = static_cast<const std::uint8_t*>(
      core::element_address(k.data, kDType, begin * k.token_stride + p.head * k.head_stride + p.dim));
  std::int32_t token = begin;
  for (; token + kAhead <= end; token += kAhead) {
    Piece raw[kAhead];
    FP4PA_UNROLL
    for (int i = 0; i < kAhead; ++i) raw[i].load(from + i * step);
    FP4PA_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      float x[kDims];
      raw[i].values(x);
      f(token + i, x);
    }
    from += kAhead * step;
  }
  FP4PA_NO_UNROLL
  for (; token < end; ++token) {
    Piece raw;
    raw.load(from);
    float x[kDims];
    raw.values(x);
    f(token, x);
    from += step;
  }
}

/// kN floats at an address of 16 bytes' alignment.
template <int kN>
FP4PA_DEVICE inline void load_floats(const float* from, float (&x)[kN]) {
  RawPiece<DType::kF32, kN> raw;
  raw.load(from);
  raw.values(x);
}
template <int kN>
FP4PA_DEVICE inline void store_floats(const float (&x)[kN], float* to) {
  FP4PA_UNROLL
  for (int i = 0; i < kN; i += 4) {
    const float four[4] = {x[i], x[i + 1], x[i + 2], x[i + 3]};
    *reinterpret_cast<Words<16>*>(to + i) = pack_piece<DType::kF32>(four);
  }
}

template <DType kDType>
FP4PA_KERNEL_OF_BLOCKS(sum_key_pieces, kMeanThreads, 5, MeanPieceArgs args) {
  constexpr int kDims = kDimsOfPiece<kDType>;
  constexpr int kAhead = 16;
  const core::KeyMean& m = args.mean;
  const MeanPiece p = piece_of_thread<kDType>(args);
  if (!p.exists) return;
  const core::MeanChunk chunk = m.chunk(block_id());
  float sum[kDims] = {};
  walk_keys<kDType, kAhead>(m.k, p, chunk.begin, chunk.end, [&](std::int32_t, const float (&x)[kDims]) {
    FP4PA_UNROLL
    for (int d = 0; d < kDims; ++d) sum[d] += x[d];
  });
  store_floats(sum, m.sums + m.row(block_id(), p.head) + p.dim);
}

template <DType kDType>
FP4PA_KERNEL(subtract_mean_pieces, kMeanThreads, MeanPieceArgs args) {
  constexpr int kDims = kDimsOfPiece<kDType>;
  constexpr int kAhead = 8;
  const core::KeyMean& m = args.mean;
  const MeanPiece p = piece_of_thread<kDType>(args);
  if (!p.exists) return;
  const std::int32_t begin = block_id() * kMeanRun;
  const std::int32_t end = begin + kMeanRun < m.lengths.kv_tokens ? begin + kMeanRun : m.lengths.kv_tokens;
  for (std::int32_t token = begin; token < end;) {
    const std::int32_t b = m.lengths.kv_sequence(token);
    const std::int32_t next = b + 1 < m.lengths.batch ? m.lengths.kv_begin(b + 1) : end;
    const std::int32_t stop = next <= token ? token + 1 : next < end ? next : end;  // an indptr may be anything
    float mean[kDims];
    load_floats(m.mean + m.row(b, p.head) + p.dim, mean);
    walk_keys<kDType, kAhead>(m.k, p, token, stop, [&](std::int32_t at, const float (&x)[kDims]) {
      float centred[kDims];
      FP4PA_UNROLL
      for (int d = 0; d < kDims; ++d) centred[d] = x[d] - mean[d];
      store_floats(centred, m.centred + m.row(at, p.head) + p.dim);
    });
    token = stop;
  }
}

struct RestorePieceArgs {
  core::KeyMean mean;
  core::HeadTensor q;
  core::Divisor q_heads;
  core::Divisor group_heads;  // query heads of a KV head
  std::uint32_t rows;
  float sm_scale;
  float* lse;
};
/// A thread per row of queries, as core::restore_lse.
template <DType kDType>
FP4PA_KERNEL(restore_lse_pieces, kMeanThreads, RestorePieceArgs args) {
  constexpr int kDims = kDimsOfPiece<kDType>;
  const core::KeyMean& m = args.mean;
  const auto row = static_cast<std::uint32_t>(block_id()) * kMeanThreads + static_cast<std::uint32_t>(thread_id());
  if (row >= args.rows) return;
  const std::uint32_t token = args.q_heads.quotient(row);
  const std::uint32_t head = row - token * args.q_heads.divisor;
  const float* const mean = m.mean + m.row(m.lengths.q_sequence(static_cast<std::int32_t>(token)),
                                           static_cast<std::int32_t>(args.group_heads.quotient(head)));
  const auto* const q = static_cast<const std::uint8_t*>(
      core::element_address(args.q.data, kDType, token * args.q.token_stride + head * args.q.head_stride));
  float dot = 0.0f;
  FP4PA_NO_UNROLL
  for (std::int32_t d = 0; d < m.head_dim; d += 4 * kDims) {
    RawPiece<kDType, 4 * kDims> raw;
    raw.load(q + d * size_of(kDType));
    float x[4 * kDims];
    raw.values(x);
    float of_mean[4 * kDims];
    load_floats(mean + d, of_mean);
    FP4PA_UNROLL
    for (int i = 0; i < 4 * kDims; ++i) dot += x[i] * of_mean[i];
  }
  args.lse[row] += args.sm_scale * dot;
}

}  // namespace fp4pa::FP4PA_GPU
