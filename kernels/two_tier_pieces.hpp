// append_two_tier by pieces (piece.hpp), for plain rows at addresses of 16 bytes and a recent tier of 16 bits: a thread reads a piece from
// the ring or from the input and writes it to either tier. Any combination of formats is one kernel, or where V's scales run along tokens
// another, whose branches are the same for a whole block. (With E4M3 in the recent tier clang keeps parts of a piece in an AMD GPU's memory.)
#pragma once

#include <type_traits>

#include "kernels/column_scales.hpp"
#include "kernels/piece_encode.hpp"
#include "kernels/piece_rotate.hpp"
#include "kernels/two_tier_share.hpp"

namespace fp4pa::FP4PA_GPU {

/// f(integral_constant of a DType), for a recent tier of 16 bits.
template <class F>
FP4PA_DEVICE inline void with_dtype(KvFormat format, F&& f) {
  if (format == KvFormat::kF16) {
    f(std::integral_constant<DType, DType::kF16>());
  } else {
    f(std::integral_constant<DType, DType::kBF16>());
  }
}

/// kN elements of an input's row.
template <int kN>
FP4PA_DEVICE inline void load_tier_input(const PlainRows& rows, std::int64_t token, std::int32_t head, int element, float (&x)[kN]) {
  const void* const from = rows.element(token, head, element);
  const auto load = [&](auto raw) {
    raw.load(from);
    raw.values(x);
  };
  switch (rows.dtype) {
    case DType::kF32: return load(RawPiece<DType::kF32, kN>{});
    case DType::kF16: return load(RawPiece<DType::kF16, kN>{});
    case DType::kBF16: return load(RawPiece<DType::kBF16, kN>{});
  }
}
/// All lanes of a warp call it.
template <int kN>
FP4PA_DEVICE inline void rotate_tier_piece(const CacheTensor& tensor, float (&x)[kN]) {
  if (tensor.rotation == 16) {
    rotate_pieces<16>(x, 16);
  } else {
    rotate_pieces<0>(x, tensor.rotation);
  }
  const float norm = core::hadamard_norm(tensor.rotation);
  FP4PA_UNROLL
  for (int i = 0; i < kN; ++i) x[i] *= norm;
}
/// Elements as a recent tier holds them.
template <DType kRecent, int kN>
[[nodiscard]] FP4PA_DEVICE inline RawPiece<kRecent, kN> tier_codes(const float (&x)[kN]) {
  RawPiece<kRecent, kN> raw;
  FP4PA_UNROLL
  for (int i = 0; i < kN / 8; ++i) {
    float y[8];
    FP4PA_UNROLL
    for (int j = 0; j < 8; ++j) y[j] = x[8 * i + j];
    raw.words[i] = pack_piece_and_nan<kRecent>(y);
  }
  return raw;
}

/// Elements of token t as the recent tier holds them, or would hold them; all lanes of a warp call it. Zeros, if the token's place in the
/// ring is outside of the pool.
template <DType kRecent, int kN>
[[nodiscard]] FP4PA_DEVICE inline RawPiece<kRecent, kN> recent_piece(const TwoTierArgs& a, int which, const Sequence& seq, std::int32_t t,
                                                                     std::int32_t head, int element) {
  const CacheTensor& recent = a.recent[which];
  const PlainRows& rows = a.inputs[which];
  const bool held = t < seq.step.length_before;
  const bool as_it_is = rows.dtype == kRecent && recent.rotation == 0;
  const std::int64_t token = seq.first_input + (t - seq.step.length_before);
  RawPiece<kRecent, kN> raw{};
  if (held) {
    const RowPlace at = ring_place(a, seq, t);
    if (at.page >= 0) raw.load(recent.view.row(at.page, at.row, head) + 2 * element);
  } else if (as_it_is) {
    raw.load(rows.element(token, head, element));
  }
  if (as_it_is) return raw;
  float x[kN] = {};
  if (!held) load_tier_input(rows, token, head, element, x);
  if constexpr (kN >= 16) {
    if (recent.rotation != 0) rotate_tier_piece(recent, x);  // V, which is not rotated, may be taken by eights
  }
  return held ? raw : tier_codes<kRecent>(x);
}

/// Encodes a piece of a row whose scales run along head_dim to four bits, and writes it if it is `there`; all lanes of a warp call it.
template <DType kRecent>
FP4PA_DEVICE inline void write_piece(const CacheTensor& tensor, PieceKind kind, bool there, RowPlace at, std::int32_t head, int element,
                                     const RawPiece<kRecent, 32>& raw) {
  const std::uint32_t carry = core::e8m0_carry<core::E2M1>(tensor.rule.scale_mode);
  const float global = tensor.view.global(head);
  PieceCodes out{};
  switch (kind) {
    case PieceKind::kNvfp4: out = encode_nvfp4_piece<Nvfp4Scale::kAmaxOver6>(raw, global, 1.0f / global); break;
    case PieceKind::kNvfp4FourOverSix: out = encode_nvfp4_piece<Nvfp4Scale::kFourOverSix>(raw, global, 1.0f / global); break;
    default: out = encode_mxfp4_piece(raw, carry, kind == PieceKind::kPerToken ? tensor.head_dim / 32 : 1); break;
  }
  if (!there) return;
  *reinterpret_cast<Words<16>*>(tensor.view.mutable_row(at.page, at.row, head) + element / 2) = out.codes;
  std::uint8_t* const scales = tensor.view.mutable_scale_row(at.page, at.row, head);
  if (is_nvfp4(kind)) {
    scales[element / 16] = out.scales[0];
    scales[element / 16 + 1] = out.scales[1];
  } else if (kind == PieceKind::kMxfp4) {
    scales[element / 32] = out.scales[0];
  } else if (element == 0) {
    scales[0] = out.scales[0];
  }
}
/// The same to eight bits and more.
template <DType kRecent>
FP4PA_DEVICE inline void write_piece(const CacheTensor& tensor, PieceKind kind, bool there, RowPlace at, std::int32_t head, int element,
                                     const RawPiece<kRecent, 16>& raw) {
  float x[16];
  raw.values(x);
  PieceCodes out{};
  if (kind == PieceKind::kFp8) out.codes = encode_fp8_piece(x, tensor.view.global(head));
  if (kind == PieceKind::kMxfp8) out = encode_mxfp8_piece(x, core::e8m0_carry<core::E4M3>(tensor.rule.scale_mode));
  if (!there) return;
  std::uint8_t* const codes = tensor.view.mutable_row(at.page, at.row, head);
  if (bits_of(kind) == 16) {
    return with_dtype(tensor.view.format, [&](auto dtype) {
      const auto plain = tier_codes<decltype(dtype)::value>(x);
      FP4PA_UNROLL
      for (int i = 0; i < 2; ++i) reinterpret_cast<Words<16>*>(codes + 2 * element)[i] = plain.words[i];
    });
  }
  *reinterpret_cast<Words<16>*>(codes + element) = out.codes;
  if (kind == PieceKind::kMxfp8 && element % 32 == 0) tensor.view.mutable_scale_row(at.page, at.row, head)[element / 32] = out.scales[0];
}

/// Encodes V's `tokens` tokens from t on, which share scales, for a head, and writes them at `at`; a whole block calls it. Eight neighbouring
/// lanes have eight columns, every eighth token each.
template <DType kRecent, int kGroup>
FP4PA_DEVICE inline void write_tier_group(const TwoTierArgs& a, const Sequence& seq, std::int32_t t, std::int32_t tokens, std::int32_t head,
                                          RowPlace at) {
  constexpr int kLanesOfGroup = 8;
  constexpr int kRowsOfLane = kGroup / kLanesOfGroup;
  const CacheTensor& tensor = a.old_tier[1];
  for (int first = 0; first < tensor.head_dim; first += kThreads) {
    const int thread = first + thread_id();
    const bool there = thread < tensor.head_dim;
    const int element = there ? thread / kLanesOfGroup * kLanesOfGroup : 0;
    const int lane = thread % kLanesOfGroup;
    RawPiece<kRecent, 8> raw[kRowsOfLane] = {};
    float amax[8] = {};
    FP4PA_UNROLL
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int row = lane + i * kLanesOfGroup;
      if (row < tokens) raw[i] = recent_piece<kRecent, 8>(a, 1, seq, t + row, head, element);
      float x[8];
      raw[i].values(x);
      FP4PA_UNROLL
      for (int j = 0; j < 8; ++j) amax[j] = larger_magnitude(amax[j], x[j]);
    }
    FP4PA_UNROLL
    for (int j = 0; j < 8; ++j) amax[j] = amax_of_lanes(amax[j], kLanesOfGroup);
    const ColumnScales<kRecent, kGroup == 16> scales(tensor, static_cast<std::uint32_t>(head), amax);
    FP4PA_UNROLL
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int row = lane + i * kLanesOfGroup;
      const std::uint32_t codes = scales.template codes<true, false>(raw[i]);
      if (!there || row >= tokens) continue;
      *reinterpret_cast<std::uint32_t*>(tensor.view.mutable_row(at.page, at.row + row, head) + element / 2) = codes;
    }
    if (!there || lane != 0) continue;
    std::uint8_t* const to = tensor.view.mutable_scale_row(at.page, at.row, head) + element;
    store_scales(to, scales.scales, reinterpret_cast<std::uintptr_t>(to) % 8 == 0);
  }
}

/// Rows of a head, dealt to the block's threads a piece of kN elements each: f(row, element, there). Threads without one work on the last row,
/// for their neighbours' sake.
template <int kN, class F>
FP4PA_DEVICE inline void for_each_tier_piece(const TwoTierArgs& a, std::int32_t rows, F&& f) {
  const core::Divisor& per_row = a.per_row[kN / 32];
  const std::uint32_t pieces = static_cast<std::uint32_t>(rows) * per_row.divisor;
  for (std::uint32_t first = 0; first < pieces; first += kThreads) {
    const std::uint32_t piece = first + thread_id();
    const std::uint32_t row = per_row.quotient(piece);
    const bool there = piece < pieces;
    f(there ? static_cast<std::int32_t>(row) : rows - 1, static_cast<int>(piece - row * per_row.divisor) * kN, there);
  }
}

}  // namespace fp4pa::FP4PA_GPU
