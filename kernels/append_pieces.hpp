// append by pieces, scales along head_dim.
#pragma once

#include "kernels/piece_columns.hpp"
#include "kernels/piece_encode.hpp"
#include "kernels/piece_rotate.hpp"

namespace fp4pa::FP4PA_GPU {

/// Threads of a block. Large code is not to be in too many places of a multiprocessor at once.
[[nodiscard]] FP4PA_FN constexpr int append_threads(PieceKind kind) {
  return bits_of(kind) == 4 && kind != PieceKind::kNvfp4FourOverSix ? 128 : kPieceThreads;
}
/// Blocks that a multiprocessor has registers for, some warps waiting while others work; 0: as the compiler sees fit.
[[nodiscard]] FP4PA_FN constexpr int append_blocks(PieceKind kind, DType dtype) {
  if (bits_of(kind) != 4 || dtype != DType::kBF16 || !Bf16Pairs::kThere) return 0;
  return kind == PieceKind::kNvfp4FourOverSix ? 3 : kind == PieceKind::kPerToken ? 7 : 8;
}

/// A thread writes 16 bytes of a row, which is 32 elements of four bits, or 8 or 16. What has scales takes eight tokens side by
/// side.
[[nodiscard]] FP4PA_FN constexpr PieceShape append_shape(PieceKind kind, DType dtype, bool rotated) {
  if (kind == PieceKind::kHalves && !rotated) return {8, 1, 4};
  if (bits_of(kind) == 4 && dtype != DType::kF32) return {32, 8, rotated ? 8u : 2u};
  return {16, has_scale(kind) ? 8u : 1u, dtype == DType::kF32 ? 2u : 4u};
}

/// Whether a thread takes its tokens one after another, of which there are then as many as PieceArgs says.
[[nodiscard]] FP4PA_FN constexpr bool append_in_turn(PieceShape shape, bool rotated) { return rotated && shape.elements == 32; }
/// A shape of `a`'s K, with no more tokens in turn than leave a device of `multiprocessors` threads enough.
[[nodiscard]] inline PieceShape filling(PieceShape shape, const AppendArgs& a, int multiprocessors) {
  const std::int64_t pieces = a.slots.size * a.heads * (a.tensors[0].head_dim / static_cast<int>(shape.elements));
  while (shape.tokens > 1 && pieces / shape.tokens < std::int64_t{multiprocessors} * 1024) shape.tokens /= 2;
  return shape;
}

/// Elements of a quantised format, or of a rotated 16-bit one. Threads and tokens without a slot work on what there is, for
/// their neighbours' sake.
/// @tparam kBlock  of rotate_pieces
template <DType kDType, PieceKind kKind, bool kRotated, int kBlock = 0>
FP4PA_DEVICE inline void append_column(const PieceArgs& args, const PieceThread& thread) {
  constexpr PieceShape kShape = append_shape(kKind, kDType, kRotated);
  constexpr int kN = kShape.elements;
  constexpr bool kInTurn = append_in_turn(kShape, kRotated);
  const CacheTensor& tensor = args.tensors[thread.which];
  const bool there = thread.index < args.threads[thread.which];
  const std::uint32_t of_thread = kInTurn ? args.of_thread[thread.which] : kShape.tokens;
  const PieceColumn column = column_of<kShape>(args, thread.which, there ? thread.index : 0, of_thread);
  const PieceTarget target = target_of<kKind>(tensor.view, column, scale_index(kKind, column.element));
  const bool first = is_nvfp4(kKind) || (kKind == PieceKind::kPerToken ? column.element == 0 : column.element % 32 == 0);
  const float global = tensor.view.global(static_cast<std::int32_t>(column.head));
  const float to_units = 1.0f / global;
  const std::uint32_t carry = kKind == PieceKind::kMxfp8 ? core::e8m0_carry<core::E4M3>(tensor.rule.scale_mode)
                                                         : core::e8m0_carry<core::E2M1>(tensor.rule.scale_mode);
  [[maybe_unused]] const int lanes = kKind == PieceKind::kPerToken ? tensor.head_dim / kN : 32 / kN;
  const bool f16 = tensor.view.format == KvFormat::kF16;
  const PlainRows& rows = args.rows[thread.which];
  const std::int64_t step = rows.token_stride * size_of(kDType);
  const auto* const from = static_cast<const std::uint8_t*>(
      rows.element(0, static_cast<std::int32_t>(column.head), static_cast<int>(column.element)));
  const auto load = [&](std::uint32_t u) {
    const std::uint32_t token = column.token + u * kShape.rows;
    RawPiece<kDType, kN> raw;
    raw.load(from + (token < args.tokens ? token : args.tokens - 1) * step);
    return raw;
  };
  const auto append = [&](const RawPiece<kDType, kN>& raw, std::uint32_t slot) {
    const PageRow at = page_row(args, slot);
    float x[kN];
    if constexpr (kRotated || bits_of(kKind) != 4) raw.values(x);
    const float norm = kRotated ? args.norm : 1.0f;
    if constexpr (kRotated) {
      rotate_pieces<kBlock>(x, tensor.rotation);
      if constexpr (kKind != PieceKind::kMxfp4 && kKind != PieceKind::kPerToken) {
        FP4PA_UNROLL
        for (int i = 0; i < kN; ++i) x[i] *= norm;
      }
    }
    PieceCodes out;
    constexpr Nvfp4Scale kChoice = kKind == PieceKind::kNvfp4 ? Nvfp4Scale::kAmaxOver6 : Nvfp4Scale::kFourOverSix;
    if constexpr (kKind == PieceKind::kMxfp4 || kKind == PieceKind::kPerToken) {
      if constexpr (kRotated) {
        out = encode_mxfp4_piece<false>(x, carry, lanes, norm);
      } else {
        out = encode_mxfp4_piece(raw, carry, lanes);
      }
    } else if constexpr (is_nvfp4(kKind)) {
      if constexpr (kRotated) {
        out = encode_nvfp4_piece<false, kChoice>(x, global, to_units);
      } else {
        out = encode_nvfp4_piece<kChoice>(raw, global, to_units);
      }
    } else if constexpr (kKind == PieceKind::kMxfp8) {
      out = encode_mxfp8_piece(x, carry);
    } else if constexpr (kKind == PieceKind::kFp8) {
      out.codes = encode_fp8_piece(x, global);
    }
    if (!there || !at.there) return;
    std::uint8_t* const codes = target.codes_at(at);
    if constexpr (kN * bits_of(kKind) == 64) {
      *reinterpret_cast<Words<8>*>(codes) = {{out.codes.w[0], out.codes.w[1]}};
    } else if constexpr (kN * bits_of(kKind) == 128) {
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
    if constexpr (is_nvfp4(kKind) && kN == 32) {
      std::uint8_t* const scales = target.scales_at(at);
      if (args.pairs_of_scales[thread.which]) {
        *reinterpret_cast<std::uint16_t*>(scales) = static_cast<std::uint16_t>(out.scales[0] | out.scales[1] << 8);
      } else {
        scales[0] = out.scales[0];
        scales[1] = out.scales[1];
      }
    } else if constexpr (has_scale(kKind)) {
      if (first) *target.scales_at(at) = out.scales[0];
    }
  };

  if constexpr (kInTurn) {  // no registers for a token on its way; other warps work meanwhile
    std::uint32_t token = column.token;
    const std::uint8_t* at = from + (token < args.tokens ? token : args.tokens - 1) * step;
    FP4PA_NO_UNROLL
    for (std::uint32_t u = 0; u < of_thread; ++u) {
      RawPiece<kDType, kN> raw;
      raw.load(at);
      append(raw, narrow_slot_of(args, token));
      token += kShape.rows;
      if (token < args.tokens) at += kShape.rows * step;
    }
  } else if constexpr (kRotated) {  // long code: a loop, in which the next token is on its way while this one is encoded
    RawPiece<kDType, kN> raw = load(0);
    std::uint32_t slot = narrow_slot_of(args, column.token);
    FP4PA_NO_UNROLL
    for (std::uint32_t u = 0; u < kShape.tokens; ++u) {
      const RawPiece<kDType, kN> next = load(u + 1);
      const std::uint32_t next_slot = narrow_slot_of(args, column.token + (u + 1) * kShape.rows);
      append(raw, slot);
      raw = next;
      slot = next_slot;
    }
  } else {
    RawPiece<kDType, kN> raws[kShape.tokens];
    FP4PA_UNROLL
    for (std::uint32_t u = 0; u < kShape.tokens; ++u) raws[u] = load(u);
    std::uint32_t slots[kShape.tokens];
    slots_of<kShape>(args, column.token, slots);
    FP4PA_UNROLL
    for (std::uint32_t u = 0; u < kShape.tokens; ++u) append(raws[u], slots[u]);
  }
}

/// Eight elements of a 16-bit format.
template <DType kDType>
FP4PA_DEVICE inline void append_halves(const PieceArgs& args, const PieceThread& thread) {
  constexpr PieceShape kShape = append_shape(PieceKind::kHalves, kDType, false);
  if (thread.index >= args.threads[thread.which]) return;
  const core::TensorView& view = args.tensors[thread.which].view;
  const PieceColumn column = column_of<kShape>(args, thread.which, thread.index);
  const PieceTarget target = target_of<PieceKind::kHalves>(view, column, 0);
  const bool f16 = view.format == KvFormat::kF16;
  const PlainRows& rows = args.rows[thread.which];
  const std::int64_t step = rows.token_stride * size_of(kDType);
  const auto* const from = static_cast<const std::uint8_t*>(
      rows.element(column.token, static_cast<std::int32_t>(column.head), static_cast<int>(column.element)));
  RawPiece<kDType, 8> raw[kShape.tokens];
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kShape.tokens; ++u) {
    if (column.token + u < args.tokens) raw[u].load(from + u * step);
  }
  std::uint32_t slots[kShape.tokens];
  slots_of<kShape>(args, column.token, slots);
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kShape.tokens; ++u) {
    const PageRow at = page_row(args, slots[u]);
    if (!at.there) continue;
    float x[8];
    raw[u].values(x);
    *reinterpret_cast<Words<16>*>(target.codes_at(at)) =
        f16 ? pack_piece_and_nan<DType::kF16>(x) : pack_piece_and_nan<DType::kBF16>(x);
  }
}

/// @tparam kRotation  whether K is rotated. Without it the kernel has no use for as many registers.
template <DType kDType, PieceKind kKind, bool kRotation>
FP4PA_KERNEL_OF_BLOCKS(append_pieces, append_threads(kKind), append_blocks(kKind, kDType), PieceArgs args) {
  allow_dependents();
  const PieceThread thread = piece_thread<append_threads(kKind)>(args);
  if (thread.index - static_cast<std::uint32_t>(thread_id()) >= args.threads[thread.which]) return;  // the other tensor has more
  if constexpr (kRotation) {
    switch (args.tensors[thread.which].rotation) {
      case 0: break;
      case 16: return append_column<kDType, kKind, true, 16>(args, thread);
      case 128: return append_column<kDType, kKind, true, 128>(args, thread);
      default: return append_column<kDType, kKind, true>(args, thread);
    }
  }
  if constexpr (kKind == PieceKind::kHalves) {
    append_halves<kDType>(args, thread);
  } else {
    append_column<kDType, kKind, false>(args, thread);
  }
}

template <PieceKind kKind, bool kRotation>
[[nodiscard]] inline PieceKernel append_of(DType dtype) {
  return {dtype == DType::kF32   ? append_pieces<DType::kF32, kKind, kRotation>
          : dtype == DType::kF16 ? append_pieces<DType::kF16, kKind, kRotation>
                                 : append_pieces<DType::kBF16, kKind, kRotation>,
          append_threads(kKind)};
}
template <bool kRotation>
[[nodiscard]] inline PieceKernel append_of(PieceKind kind, DType dtype) {
  switch (kind) {
    case PieceKind::kMxfp4: return append_of<PieceKind::kMxfp4, kRotation>(dtype);
    case PieceKind::kPerToken: return append_of<PieceKind::kPerToken, kRotation>(dtype);
    case PieceKind::kNvfp4: return append_of<PieceKind::kNvfp4, kRotation>(dtype);
    case PieceKind::kNvfp4FourOverSix: return append_of<PieceKind::kNvfp4FourOverSix, kRotation>(dtype);
    case PieceKind::kMxfp8: return append_of<PieceKind::kMxfp8, kRotation>(dtype);
    case PieceKind::kFp8: return append_of<PieceKind::kFp8, kRotation>(dtype);
    default: return append_of<PieceKind::kHalves, kRotation>(dtype);
  }
}
[[nodiscard]] inline PieceKernel append_of(const CacheTensor& t, DType dtype, bool rotation) {
  return rotation ? append_of<true>(kind_of(t), dtype) : append_of<false>(kind_of(t), dtype);
}
}  // namespace fp4pa::FP4PA_GPU
