// gather by pieces.
#pragma once

#include "kernels/piece_columns.hpp"
#include "kernels/piece_decode.hpp"

namespace fp4pa::FP4PA_GPU {

/// A thread writes 16 bytes of four tokens: side by side those whose codes and scales share what is read at once.
[[nodiscard]] FP4PA_FN constexpr PieceShape gather_shape(PieceKind kind, DType dtype) {
  return {static_cast<std::uint32_t>(16 / size_of(dtype)), has_scale(kind) ? 8u : 1u, 4};
}

template <DType kDType, PieceKind kKind, bool kAlongTokens>
FP4PA_DEVICE inline void gather_column(const PieceArgs& args, const PieceThread& thread) {
  constexpr PieceShape kShape = gather_shape(kKind, kDType);
  constexpr int kN = kShape.elements;
  const core::TensorView& view = args.tensors[thread.which].view;
  const PieceColumn column = column_of<kShape>(args, thread.which, thread.index);
  const PieceTarget target =
      target_of<kKind>(view, column, kAlongTokens ? column.element : scale_index(kKind, column.element));
  const KvFormat format = view.format;
  const float global = view.global(static_cast<std::int32_t>(column.head));
  const PlainRows& rows = args.rows[thread.which];
  const std::int64_t step = rows.token_stride * size_of(kDType) * kShape.rows;
  auto* const to = kept(static_cast<std::uint8_t*>(
      rows.element(column.token, static_cast<std::int32_t>(column.head), static_cast<int>(column.element))));

  std::uint32_t slots[kShape.tokens];
  slots_of<kShape>(args, column.token, slots);
  PageRow at[kShape.tokens];
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kShape.tokens; ++u) {
    // Without a branch, so that the loads of all are one run of instructions: who has no slot reads the first.
    const bool there = slots[u] < args.limit;
    at[u] = page_row(args, there ? slots[u] : 0);
    at[u].there = there;
  }
  using Codes = Words<kN * bits_of(kKind) / 8>;
  Codes codes[kShape.tokens];
  std::uint8_t scales[kShape.tokens];
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kShape.tokens; ++u) {
    codes[u] = *reinterpret_cast<const Codes*>(target.codes_at(at[u]));
    if (has_scale(kKind) && !kAlongTokens) scales[u] = *target.scales_at(at[u]);
  }
  sync_warp();
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kShape.tokens; ++u) {
    Words<16> out;
    float x[kN];
    if constexpr (kKind == PieceKind::kHalves) {
      halves_piece(codes[u], format, x);
      out = pack_piece_and_nan<kDType>(x);
    } else if constexpr (bits_of(kKind) == 4 && kDType == DType::kBF16 && Bf16Pairs::kThere) {
      std::uint32_t factors[4];
      if constexpr (kAlongTokens) {
        const Words<8> eight = scale_words<8>(target.scales_at(at[u], view.scale_shift), args.words_of_scales);
        if constexpr (is_nvfp4(kKind)) {
          float values[8];
          scale_values(eight, true, values);
          FP4PA_UNROLL
          for (int i = 0; i < 4; ++i) factors[i] = pack_bf16(values[2 * i], values[2 * i + 1]);
        } else {
          FP4PA_UNROLL
          for (int i = 0; i < 4; ++i) {
            factors[i] = core::bf16_of_e8m0<Bf16Pairs>(Bf16Pairs::bytes(eight.w[i / 2], 0, i % 2 == 0 ? 0x4140u : 0x4342u));
          }
        }
      } else {
        const float factor = is_nvfp4(kKind) ? ue4m3_scale(scales[u]) : core::E8M0::decode(scales[u]);
        FP4PA_UNROLL
        for (int i = 0; i < 4; ++i) factors[i] = pack_bf16(factor, factor);
      }
      out = e2m1_bf16_piece(codes[u].w[0], factors, is_nvfp4(kKind), global);
    } else {
      if constexpr (bits_of(kKind) == 8) {
        e4m3_piece(codes[u], x);
      } else {
        e2m1_piece(codes[u], x);
      }
      if constexpr (kAlongTokens) {
        float factors[kN];
        scale_values(scale_words<kN>(target.scales_at(at[u], view.scale_shift), args.words_of_scales), is_nvfp4(kKind), factors);
        FP4PA_UNROLL
        for (int i = 0; i < kN; ++i) x[i] *= factors[i];
      } else if constexpr (has_scale(kKind)) {
        const float factor = is_nvfp4(kKind) ? ue4m3_scale(scales[u]) : core::E8M0::decode(scales[u]);
        FP4PA_UNROLL
        for (int i = 0; i < kN; ++i) x[i] *= factor;
      }
      if constexpr (is_nvfp4(kKind) || kKind == PieceKind::kFp8) {
        FP4PA_UNROLL
        for (int i = 0; i < kN; ++i) x[i] *= global;
      }
      out = pack_piece<kDType>(x);
    }
    if (at[u].there) *reinterpret_cast<Words<16>*>(to + u * step) = out;
  }
}

template <DType kDType, PieceKind kKind>
FP4PA_KERNEL(gather_pieces, kPieceThreads, PieceArgs args) {
  const PieceThread thread = piece_thread<kPieceThreads>(args);
  if (thread.index >= args.threads[thread.which]) return;
  if constexpr (kKind == PieceKind::kMxfp4 || kKind == PieceKind::kNvfp4) {
    if (args.tensors[thread.which].view.scale_along_tokens()) {
      gather_column<kDType, kKind, true>(args, thread);
      return;
    }
  }
  gather_column<kDType, kKind, false>(args, thread);
}

template <PieceKind kKind>
[[nodiscard]] inline PieceKernel gather_of(DType dtype) {
  return {dtype == DType::kF32   ? gather_pieces<DType::kF32, kKind>
          : dtype == DType::kF16 ? gather_pieces<DType::kF16, kKind>
                                 : gather_pieces<DType::kBF16, kKind>};
}
/// How the scale was chosen does not matter any more.
[[nodiscard]] inline PieceKernel gather_of(PieceKind kind, DType dtype) {
  switch (kind) {
    case PieceKind::kMxfp4: return gather_of<PieceKind::kMxfp4>(dtype);
    case PieceKind::kPerToken: return gather_of<PieceKind::kPerToken>(dtype);
    case PieceKind::kNvfp4:
    case PieceKind::kNvfp4FourOverSix: return gather_of<PieceKind::kNvfp4>(dtype);
    case PieceKind::kMxfp8: return gather_of<PieceKind::kMxfp8>(dtype);
    case PieceKind::kFp8: return gather_of<PieceKind::kFp8>(dtype);
    default: return gather_of<PieceKind::kHalves>(dtype);
  }
}
}  // namespace fp4pa::FP4PA_GPU
