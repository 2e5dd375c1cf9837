// Weights to codes and X to quantised f16 in pieces of sixteen elements (piece.hpp): rows of whole groups, at addresses of 16 bytes.
// The bytes are those of gemm_quantize.hpp.
#pragma once

#include "core/divisor.hpp"
#include "core/formats/scale_layout.hpp"
#include "kernels/gemm_args.hpp"
#include "kernels/piece_encode.hpp"

namespace fp4pa::FP4PA_GPU {

/// Whether a matrix is whole pieces, of MXFP4 in pairs, and few enough to be counted in 32 bits.
[[nodiscard]] inline bool in_fp4_pieces(BlockFormat format, const void* plain, std::int64_t rows, std::int64_t cols) {
  return cols % (format == BlockFormat::kNvfp4 ? 16 : 32) == 0 && aligned(plain, 16) && rows <= (std::int64_t{1} << 31) / cols;
}

struct WeightPieceArgs {
  WeightArgs weight;
  std::uint32_t pieces;  // of a matrix
  core::Divisor groups_per_row;
};

/// A thread per piece; batches in y. Those past the end work on zeros, for their neighbours' sake.
template <DType kDType>
FP4PA_KERNEL(quantize_weight_pieces, kPieceThreads, WeightPieceArgs args) {
  const WeightArgs& w = args.weight;
  const core::WeightLayout layout{w.config.format, w.config.scale_layout, w.rows, w.cols};
  const std::uint32_t piece = static_cast<std::uint32_t>(block_id()) * kPieceThreads + static_cast<std::uint32_t>(thread_id());
  const std::int64_t b = block_id_y();
  const bool there = piece < args.pieces;
  RawPiece<kDType, 16> raw{};
  if (there) raw.load(core::element_address(w.w, kDType, b * w.rows * w.cols + std::int64_t{piece} * 16));
  const float global = w.globals != nullptr ? w.globals[b] : w.config.global_scale;
  const PieceCodes out = encode_fp4_piece(raw, w.config, global, 1.0f / global);
  if (!there) return;
  reinterpret_cast<Words<8>*>(w.codes + b * layout.code_bytes())[piece] = {{out.codes.w[0], out.codes.w[1]}};
  const bool nvfp4 = w.config.format == BlockFormat::kNvfp4;
  if (!nvfp4 && piece % 2 != 0) return;
  const std::uint32_t group = nvfp4 ? piece : piece / 2;
  std::int64_t at = group;
  if (w.config.scale_layout == ScaleLayout::kBlocked) {
    const std::uint32_t row = args.groups_per_row.quotient(group);
    at = core::blocked_scale_offset_32(row, group - row * args.groups_per_row.divisor, args.groups_per_row.divisor);
  }
  w.scales[b * layout.scale_bytes() + at] = out.scales[0];
}

/// The largest finite magnitude of a piece, as bits of f32.
template <DType kDType>
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t finite_amax(const RawPiece<kDType, 16>& raw) {
  constexpr std::uint32_t kInf = kDType == DType::kF32 ? core::kFloatInfBits : kDType == DType::kF16 ? 0x7c00u : core::kFloatInfBits >> 16;
  std::uint32_t most = 0;
  const auto take = [&](std::uint32_t magnitude) { most = magnitude < kInf && magnitude > most ? magnitude : most; };
  FP4PA_UNROLL
  for (int i = 0; i < 4 * RawPiece<kDType, 16>::kLoads; ++i) {
    const std::uint32_t word = raw.words[i / 4].w[i % 4];
    if constexpr (kDType == DType::kF32) {
      take(word & 0x7fffffffu);
    } else {
      take(word & 0x7fffu);
      take(word >> 16 & 0x7fffu);
    }
  }
  if constexpr (kDType == DType::kF32) return most;
  if constexpr (kDType == DType::kBF16) return most << 16;
  return core::float_bits(core::f16_to_f32(static_cast<std::uint16_t>(most)));
}

/// A row of X in x, a share of its pieces in y: quantised, decoded but for the tensor's multiplier, and brought to f16 by row_scale.
/// The row is read twice, the second time from a cache.
template <DType kDType>
FP4PA_KERNEL(prepare_pieces, kGemmThreads, PrepareArgs p) {
  allow_dependents();
  const std::int64_t row = p.first_row + block_id();
  const std::int64_t b = row / p.m;
  const void* const from = core::element_address(p.x, kDType, row * p.cols);
  const auto load = [&](int piece) {
    RawPiece<kDType, 16> raw{};
    if (16 * piece < p.cols) raw.load(core::element_address(from, kDType, std::int64_t{piece} * 16));
    return raw;
  };
  const bool nvfp4 = p.format == BlockFormat::kNvfp4;
  float global = p.global;
  if (nvfp4 && global == 0.0f) global = core::nvfp4_global_scale(p.amax[b]);

  const auto pieces = static_cast<int>(p.out_cols / 16);
  std::uint32_t bits = 0;
  for (int piece = thread_id(); piece < pieces; piece += kGemmThreads) {
    const std::uint32_t of_piece = finite_amax(load(piece));
    bits = of_piece > bits ? of_piece : bits;
  }
  bits = block_max(bits);
  // NVFP4's values are in units of the multiplier.
  const float scale = core::row_scale(core::float_from_bits(bits) / (nvfp4 ? global : 1.0f));
  if (block_id_y() == 0 && thread_id() == 0) {
    p.inverse[row] = 1.0f / scale;
    if (p.globals != nullptr && row == b * p.m) p.globals[b] = global;
  }

  const QuantizeConfig config{p.format, ScaleLayout::kLinear, p.scale_mode, p.nvfp4_scale, global};
  const float to_units = 1.0f / global;
  // All lanes of a warp take part until the last has no piece: they exchange magnitudes.
  for (int first = block_id_y() * kGemmThreads; first < pieces; first += kGemmThreads * p.shares) {
    const int piece = first + thread_id();
    const PieceCodes quantised = encode_fp4_piece(load(piece), config, global, to_units);
    if (piece >= pieces) continue;
    const float factor = nvfp4 ? ue4m3_scale(quantised.scales[0]) : core::E8M0::decode(quantised.scales[0]);
    auto* const out = reinterpret_cast<FourWords*>(p.out + row * p.out_cols + std::int64_t{piece} * 16);
    FP4PA_UNROLL
    for (int i = 0; i < 2; ++i) {
      float x[8];
      e2m1_piece<8>(Words<4>{{quantised.codes.w[i]}}, x);
      FP4PA_UNROLL
      for (int e = 0; e < 8; ++e) x[e] *= factor;
      out[i] = eight_to_f16(p, x, scale);
    }
  }
}

}  // namespace fp4pa::FP4PA_GPU
