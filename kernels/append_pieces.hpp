// append by pieces, scales along head_dim. A row's scale bytes are stored one by one: collecting four tokens' scales in words by
// shuffles was measured on an H200 and was no faster.
#pragma once

#include "kernels/piece_columns.hpp"

namespace fp4pa::FP4PA_GPU {

/// Sixteen elements of a quantised format, or of a rotated 16-bit one. Threads and tokens without a slot work on what there is, for
/// their neighbours' sake.
template <DType kDType, PieceKind kKind, bool kRotated>
FP4PA_DEVICE inline void append_column(const PieceArgs& args, const PieceThread& thread) {
  const CacheTensor& tensor = args.tensors[thread.which];
  const bool there = thread.index < args.threads[thread.which];
  const PieceColumn column = column_of(args, thread.which, there ? thread.index : 0, 16);
  const PieceTarget target = target_of<kKind>(tensor.view, column, scale_index(kKind, column.element));
  const bool first = is_nvfp4(kKind) || (kKind == PieceKind::kPerToken ? column.element == 0 : column.element % 32 == 0);
  const float global = tensor.view.global(static_cast<std::int32_t>(column.head));
  const float to_units = 1.0f / global;
  const std::uint32_t carry = kKind == PieceKind::kMxfp8 ? core::e8m0_carry<core::E4M3>(tensor.rule.scale_mode)
                                                         : core::e8m0_carry<core::E2M1>(tensor.rule.scale_mode);
  const int lanes = kKind == PieceKind::kPerToken ? tensor.head_dim / 16 : 2;
  const bool f16 = tensor.view.format == KvFormat::kF16;
  const PlainRows& rows = args.rows[thread.which];
  const std::int64_t step = rows.token_stride * size_of(kDType);
  const auto* from = static_cast<const std::uint8_t*>(
      rows.element(column.token, static_cast<std::int32_t>(column.head), static_cast<int>(column.element)));
  constexpr bool kFewBits = kDType == DType::kBF16 && !kRotated;

  // The next token is on its way while this one is encoded.
  RawPiece<kDType, 16> next;
  next.load(from);
  std::uint64_t slots[kTokensOfThread];
  slots_of(args, column.token, slots);
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kTokensOfThread; ++u) {
    const RawPiece<kDType, 16> raw = next;
    const PageRow at = page_row(args, slots[u]);
    if (u + 1 < kTokensOfThread && column.token + u + 1 < args.tokens) next.load(from += step);
    float x[16];
    raw.values(x);
    if constexpr (kRotated) rotate_pieces(x, tensor.rotation);
    PieceCodes out;
    if constexpr (kKind == PieceKind::kMxfp4 || kKind == PieceKind::kPerToken) {
      out = encode_mxfp4_piece<kFewBits>(x, carry, lanes);
    } else if constexpr (kKind == PieceKind::kNvfp4) {
      out = encode_nvfp4_piece<kFewBits, Nvfp4Scale::kAmaxOver6>(x, global, to_units);
    } else if constexpr (kKind == PieceKind::kNvfp4FourOverSix) {
      out = encode_nvfp4_piece<kFewBits, Nvfp4Scale::kFourOverSix>(x, global, to_units);
    } else if constexpr (kKind == PieceKind::kMxfp8) {
      out = encode_mxfp8_piece(x, carry);
    } else if constexpr (kKind == PieceKind::kFp8) {
      out.codes = encode_fp8_piece(x, global);
    }
    if (!there || !at.there) continue;
    std::uint8_t* const codes = target.codes_at(at);
    if constexpr (bits_of(kKind) == 4) {
      *reinterpret_cast<Words<8>*>(codes) = {{out.codes.w[0], out.codes.w[1]}};
    } else if constexpr (bits_of(kKind) == 8) {
      *reinterpret_cast<Words<16>*>(codes) = out.codes;
    } else {
      FP4PA_UNROLL
      for (int i = 0; i < 2; ++i) {
        float y[8];
        FP4PA_UNROLL
        for (int j = 0; j < 8; ++j) y[j] = x[8 * i + j];
        reinterpret_cast<Words<16>*>(codes)[i] =
            f16 ? pack_piece_and_nan<DType::kF16>(y) : pack_piece_and_nan<DType::kBF16>(y);
      }
    }
    if constexpr (has_scale(kKind)) {
      if (first) *target.scales_at(at) = out.scale;
    }
  }
}

/// Eight elements of a 16-bit format.
template <DType kDType>
FP4PA_DEVICE inline void append_halves(const PieceArgs& args, const PieceThread& thread) {
  if (thread.index >= args.threads[thread.which]) return;
  const core::TensorView& view = args.tensors[thread.which].view;
  const PieceColumn column = column_of(args, thread.which, thread.index, 8);
  const PieceTarget target = target_of<PieceKind::kHalves>(view, column, 0);
  const bool f16 = view.format == KvFormat::kF16;
  const PlainRows& rows = args.rows[thread.which];
  const std::int64_t step = rows.token_stride * size_of(kDType);
  const auto* const from = static_cast<const std::uint8_t*>(
      rows.element(column.token, static_cast<std::int32_t>(column.head), static_cast<int>(column.element)));
  RawPiece<kDType, 8> raw[kTokensOfThread];
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kTokensOfThread; ++u) {
    if (column.token + u < args.tokens) raw[u].load(from + u * step);
  }
  std::uint64_t slots[kTokensOfThread];
  slots_of(args, column.token, slots);
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kTokensOfThread; ++u) {
    const PageRow at = page_row(args, slots[u]);
    if (!at.there) continue;
    float x[8];
    raw[u].values(x);
    *reinterpret_cast<Words<16>*>(target.codes_at(at)) =
        f16 ? pack_piece_and_nan<DType::kF16>(x) : pack_piece_and_nan<DType::kBF16>(x);
  }
}

/// Elements of a piece that append writes.
[[nodiscard]] inline int append_elements(const CacheTensor& tensor) {
  return is_16_bits(tensor.view.format) && tensor.rotation == 0 ? 8 : 16;
}

template <DType kDType, PieceKind kKind>
FP4PA_KERNEL(append_pieces, kPieceThreads, PieceArgs args) {
  const PieceThread thread = piece_thread(args);
  if (args.tensors[thread.which].rotation != 0) {
    append_column<kDType, kKind, true>(args, thread);
  } else if constexpr (kKind == PieceKind::kHalves) {
    append_halves<kDType>(args, thread);
  } else {
    append_column<kDType, kKind, false>(args, thread);
  }
}

template <PieceKind kKind>
[[nodiscard]] inline PieceKernel append_of(DType dtype) {
  return dtype == DType::kF32   ? append_pieces<DType::kF32, kKind>
         : dtype == DType::kF16 ? append_pieces<DType::kF16, kKind>
                                : append_pieces<DType::kBF16, kKind>;
}
[[nodiscard]] inline PieceKernel append_of(PieceKind kind, DType dtype) {
  switch (kind) {
    case PieceKind::kMxfp4: return append_of<PieceKind::kMxfp4>(dtype);
    case PieceKind::kPerToken: return append_of<PieceKind::kPerToken>(dtype);
    case PieceKind::kNvfp4: return append_of<PieceKind::kNvfp4>(dtype);
    case PieceKind::kNvfp4FourOverSix: return append_of<PieceKind::kNvfp4FourOverSix>(dtype);
    case PieceKind::kMxfp8: return append_of<PieceKind::kMxfp8>(dtype);
    case PieceKind::kFp8: return append_of<PieceKind::kFp8>(dtype);
    default: return append_of<PieceKind::kHalves>(dtype);
  }
}
}  // namespace fp4pa::FP4PA_GPU
