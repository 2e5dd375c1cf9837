// append_two_tier by pieces of sixteen elements (piece.hpp), for plain rows at addresses of 16 bytes and a recent tier of 16 bits: a thread
// reads a piece from the ring or from the input and writes it to either tier. Any combination of formats is one kernel, whose branches are
// the same for a whole block. (With E4M3 in the recent tier clang keeps parts of a piece in an AMD GPU's memory.)
#pragma once

#include "kernels/piece_columns.hpp"
#include "kernels/two_tier_share.hpp"

namespace fp4pa::FP4PA_GPU {

inline constexpr int kTierPiece = 16;

/// Sixteen elements of bf16 or f16 as they lie in a cache.
struct TierCodes {
  std::uint32_t w[8];

  FP4PA_DEVICE void load(const std::uint8_t* row, int element) {
    const auto* const from = reinterpret_cast<const Words<16>*>(row + 2 * element);
    set(0, from[0]);
    set(1, from[1]);
  }
  FP4PA_DEVICE void store(std::uint8_t* row, int element) const {
    auto* const to = reinterpret_cast<Words<16>*>(row + 2 * element);
    to[0] = four(0);
    to[1] = four(1);
  }
  FP4PA_DEVICE void encode(KvFormat format, const float (&x)[16]) {
    FP4PA_UNROLL
    for (int i = 0; i < 2; ++i) {
      float y[8];
      FP4PA_UNROLL
      for (int j = 0; j < 8; ++j) y[j] = x[8 * i + j];
      set(i, format == KvFormat::kF16 ? pack_piece_and_nan<DType::kF16>(y) : pack_piece_and_nan<DType::kBF16>(y));
    }
  }
  FP4PA_DEVICE void decode(KvFormat format, float (&x)[16]) const {
    FP4PA_UNROLL
    for (int i = 0; i < 2; ++i) {
      float y[8];
      halves_piece<8>(four(i), format, y);
      FP4PA_UNROLL
      for (int j = 0; j < 8; ++j) x[8 * i + j] = y[j];
    }
  }

 private:
  [[nodiscard]] FP4PA_DEVICE Words<16> four(int i) const { return {{w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]}}; }
  FP4PA_DEVICE void set(int i, const Words<16>& words) {
    FP4PA_UNROLL
    for (int j = 0; j < 4; ++j) w[4 * i + j] = words.w[j];
  }
};

/// Sixteen elements of an input's row as they lie.
FP4PA_DEVICE inline void load_tier_input(const PlainRows& rows, std::int64_t token, std::int32_t head, int element, float (&x)[16]) {
  const void* const from = rows.element(token, head, element);
  const auto load = [&](auto raw) {
    raw.load(from);
    raw.values(x);
  };
  switch (rows.dtype) {
    case DType::kF32: return load(RawPiece<DType::kF32, 16>{});
    case DType::kF16: return load(RawPiece<DType::kF16, 16>{});
    case DType::kBF16: return load(RawPiece<DType::kBF16, 16>{});
  }
}
/// All lanes of a warp call it.
FP4PA_DEVICE inline void rotate_tier_piece(const CacheTensor& tensor, float (&x)[16]) {
  if (tensor.rotation == 16) {
    rotate_pieces<16>(x, 16);
  } else {
    rotate_pieces<0>(x, tensor.rotation);
  }
  const float norm = core::hadamard_norm(tensor.rotation);
  FP4PA_UNROLL
  for (int i = 0; i < 16; ++i) x[i] *= norm;
}

/// Sixteen elements of token t as the recent tier holds it, or would hold it; all lanes of a warp call it. Zeros, if its place in the ring is
/// outside of the pool.
FP4PA_DEVICE inline void recent_piece(const TwoTierArgs& a, int which, const Sequence& seq, std::int32_t t, std::int32_t head, int element,
                                      float (&x)[16]) {
  const CacheTensor& recent = a.recent[which];
  const bool held = t < seq.step.length_before;
  TierCodes codes{};
  if (held) {
    const RowPlace at = ring_place(a, seq, t);
    if (at.page >= 0) codes.load(recent.view.row(at.page, at.row, head), element);
  } else {
    load_tier_input(a.inputs[which], seq.first_input + (t - seq.step.length_before), head, element, x);
  }
  if (recent.rotation != 0) rotate_tier_piece(recent, x);  // for the lanes of other rows' sake also where it came from the ring
  if (!held) codes.encode(recent.view.format, x);
  codes.decode(recent.view.format, x);
}

/// Encodes a piece of a row whose scales run along head_dim, and writes it if it is `there`; all lanes of a warp call it.
FP4PA_DEVICE inline void write_piece(const CacheTensor& tensor, PieceKind kind, bool there, RowPlace at, std::int32_t head, int element,
                                     float (&x)[16]) {
  const float global = tensor.view.global(head);
  PieceCodes out{};
  switch (kind) {
    case PieceKind::kMxfp4: out = encode_mxfp4_piece<false>(x, core::e8m0_carry<core::E2M1>(tensor.rule.scale_mode), 2); break;
    case PieceKind::kPerToken:
      out = encode_mxfp4_piece<false>(x, core::e8m0_carry<core::E2M1>(tensor.rule.scale_mode), tensor.head_dim / 16);
      break;
    case PieceKind::kNvfp4: out = encode_nvfp4_piece<false, Nvfp4Scale::kAmaxOver6>(x, global, 1.0f / global); break;
    case PieceKind::kNvfp4FourOverSix: out = encode_nvfp4_piece<false, Nvfp4Scale::kFourOverSix>(x, global, 1.0f / global); break;
    case PieceKind::kFp8: out.codes = encode_fp8_piece(x, global); break;
    case PieceKind::kMxfp8: out = encode_mxfp8_piece(x, core::e8m0_carry<core::E4M3>(tensor.rule.scale_mode)); break;
    default: break;
  }
  if (!there) return;
  std::uint8_t* const codes = tensor.view.mutable_row(at.page, at.row, head);
  if (bits_of(kind) == 16) {
    TierCodes plain;
    plain.encode(tensor.view.format, x);
    return plain.store(codes, element);
  }
  if (bits_of(kind) == 4) {
    *reinterpret_cast<Words<8>*>(codes + element / 2) = {{out.codes.w[0], out.codes.w[1]}};
  } else {
    *reinterpret_cast<Words<16>*>(codes + element) = out.codes;
  }
  if (!has_scale(kind)) return;
  const int group = is_nvfp4(kind) ? 16 : kind == PieceKind::kPerToken ? tensor.head_dim : 32;
  if (element % group == 0) tensor.view.mutable_scale_row(at.page, at.row, head)[element / group] = out.scales[0];
}

/// Rows of a tensor's head, dealt to the block's threads a piece each: f(row, element, there). Threads without one work on the last row, for
/// their neighbours' sake.
template <class F>
FP4PA_DEVICE inline void for_each_tier_piece(const CacheTensor& tensor, std::int32_t rows, F&& f) {
  const int of_row = tensor.head_dim / kTierPiece;
  const std::int64_t pieces = std::int64_t{rows} * of_row;
  for (std::int64_t first = 0; first < pieces; first += kThreads) {
    const std::int64_t piece = first + thread_id();
    const bool there = piece < pieces;
    const auto row = there ? static_cast<std::int32_t>(piece / of_row) : rows - 1;
    f(row, static_cast<int>(piece % of_row) * kTierPiece, there);
  }
}

}  // namespace fp4pa::FP4PA_GPU
