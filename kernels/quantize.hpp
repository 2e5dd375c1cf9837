// quantize, dequantize: a thread per piece of a tensor, in words (piece.hpp), where addresses allow; else a thread per group, with
// core's block encoders.
#pragma once

#include <type_traits>

#include "core/divisor.hpp"
#include "core/formats/block.hpp"
#include "core/formats/scale_layout.hpp"
#include "core/math.hpp"
#include "core/paging/encode_group.hpp"
#include "core/paging/plain_row.hpp"
#include "kernels/cache_ops.hpp"
#include "kernels/piece_encode.hpp"

namespace fp4pa::FP4PA_GPU {

constexpr int kGroupThreads = 128;
constexpr int kGroupElements = 32;
/// A thread's elements in shared memory: in loops over them a register would have to be indexed by a variable. A row's end
/// is left empty, so that threads at the same element are in different banks.
constexpr int kGroupPitch = kGroupElements + 1;

struct TensorArgs {
  QuantizeConfig config;
  void* plain;
  DType dtype;
  std::int64_t rows, cols;
  std::uint8_t* codes;
  std::uint8_t* scales;

  [[nodiscard]] FP4PA_FN int group() const { return config.format == BlockFormat::kNvfp4 ? 16 : 32; }
  [[nodiscard]] FP4PA_FN std::int64_t groups_per_row() const { return cols / group(); }
  [[nodiscard]] FP4PA_DEVICE std::uint8_t* scale_of(std::int64_t index) const {
    if (config.scale_layout == ScaleLayout::kLinear) return scales + index;
    const std::int64_t row = index / groups_per_row();
    return scales + core::blocked_scale_offset(row, index - row * groups_per_row(), groups_per_row());
  }
  [[nodiscard]] FP4PA_DEVICE std::uint8_t* codes_of(std::int64_t index) const {
    const std::int64_t element = index * group();
    return codes + (config.format == BlockFormat::kMxfp8 ? element : element / 2);
  }
};

FP4PA_KERNEL(quantize_groups, kGroupThreads, TensorArgs args) {
  const std::int64_t index = std::int64_t{block_id()} * kGroupThreads + thread_id();
  if (index >= args.rows * args.groups_per_row()) return;
  FP4PA_SHARED float groups[kGroupThreads][kGroupPitch];
  float* const x = groups[thread_id()];
  const int n = args.group();
  core::load_plain_row(core::element_address(args.plain, args.dtype, index * n), args.dtype, n, x);
  const QuantizeConfig& c = args.config;
  switch (c.format) {
    case BlockFormat::kMxfp4: *args.scale_of(index) = core::encode_e2m1_e8m0(x, n, c.scale_mode, args.codes_of(index)); break;
    case BlockFormat::kNvfp4:
      *args.scale_of(index) = core::encode_nvfp4(x, c.global_scale, c.nvfp4_scale, args.codes_of(index));
      break;
    case BlockFormat::kMxfp8: *args.scale_of(index) = core::encode_mxfp8(x, n, c.scale_mode, args.codes_of(index)); break;
  }
}

FP4PA_KERNEL(dequantize_groups, kGroupThreads, TensorArgs args) {
  const std::int64_t index = std::int64_t{block_id()} * kGroupThreads + thread_id();
  if (index >= args.rows * args.groups_per_row()) return;
  FP4PA_SHARED float groups[kGroupThreads][kGroupPitch];
  float* const x = groups[thread_id()];
  const int n = args.group();
  const std::uint8_t scale = *args.scale_of(index);
  switch (args.config.format) {
    case BlockFormat::kMxfp4: core::decode_e2m1_e8m0(args.codes_of(index), n, scale, x); break;
    case BlockFormat::kNvfp4: core::decode_nvfp4(args.codes_of(index), scale, args.config.global_scale, x); break;
    case BlockFormat::kMxfp8: core::decode_mxfp8(args.codes_of(index), n, scale, x); break;
  }
  core::store_plain_row(x, n, args.dtype, core::element_address(args.plain, args.dtype, index * n));
}

struct TensorPieceArgs {
  TensorArgs tensor;
  std::uint32_t pieces;
  core::Divisor groups_per_row;
  float to_units;  // 1 / config.global_scale

  [[nodiscard]] FP4PA_DEVICE std::uint8_t* scale_of(std::uint32_t group) const {
    if (tensor.config.scale_layout == ScaleLayout::kLinear) return tensor.scales + group;
    const std::uint32_t row = groups_per_row.quotient(group);
    return tensor.scales +
           core::blocked_scale_offset_32(row, group - row * groups_per_row.divisor, groups_per_row.divisor);
  }
};

/// A thread per sixteen elements. Those past the end work on zeros, for their neighbours' sake.
template <DType kDType>
FP4PA_KERNEL(quantize_pieces, kPieceThreads, TensorPieceArgs args) {
  const TensorArgs& t = args.tensor;
  const std::uint32_t piece = static_cast<std::uint32_t>(block_id()) * kPieceThreads + static_cast<std::uint32_t>(thread_id());
  const bool there = piece < args.pieces;
  RawPiece<kDType, 16> raw{};
  if (there) raw.load(core::element_address(t.plain, kDType, std::int64_t{piece} * 16));
  const QuantizeConfig& c = t.config;
  if (c.format == BlockFormat::kMxfp8) {
    float x[16];
    raw.values(x);
    const PieceCodes out = encode_mxfp8_piece(x, core::e8m0_carry<core::E4M3>(c.scale_mode));
    if (!there) return;
    reinterpret_cast<Words<16>*>(t.codes)[piece] = out.codes;
    if (piece % 2 == 0) *args.scale_of(piece / 2) = out.scales[0];
    return;
  }
  const bool nvfp4 = c.format == BlockFormat::kNvfp4;
  const PieceCodes out = encode_fp4_piece(raw, c, c.global_scale, args.to_units);
  if (!there) return;
  reinterpret_cast<Words<8>*>(t.codes)[piece] = {{out.codes.w[0], out.codes.w[1]}};
  if (nvfp4) {
    *args.scale_of(piece) = out.scales[0];
  } else if (piece % 2 == 0) {
    *args.scale_of(piece / 2) = out.scales[0];
  }
}

constexpr int kDequantizedPieces = 4;  // of a thread

/// Pieces of 16 bytes of output.
template <DType kDType>
FP4PA_KERNEL(dequantize_pieces, kPieceThreads, TensorPieceArgs args) {
  constexpr int kN = 16 / size_of(kDType);
  const TensorArgs& t = args.tensor;
  const std::uint32_t first = static_cast<std::uint32_t>(block_id()) * (kPieceThreads * kDequantizedPieces) +
                              static_cast<std::uint32_t>(thread_id());
  const BlockFormat format = t.config.format;
  const std::uint32_t pieces_per_group = static_cast<std::uint32_t>(t.group()) / kN;
  const std::uint32_t shift = pieces_per_group == 8 ? 3 : pieces_per_group == 4 ? 2 : 1;
  const bool nvfp4 = format == BlockFormat::kNvfp4;
  const float global = nvfp4 ? t.config.global_scale : 1.0f;
  const bool mxfp8 = format == BlockFormat::kMxfp8;
  Words<kN> codes[kDequantizedPieces];  // of E2M1 the first half
  std::uint8_t scale[kDequantizedPieces];
  FP4PA_UNROLL
  for (int u = 0; u < kDequantizedPieces; ++u) {
    const std::uint32_t wanted = first + static_cast<std::uint32_t>(u) * kPieceThreads;
    const std::uint32_t piece = wanted < args.pieces ? wanted : args.pieces - 1;
    if (mxfp8) {
      codes[u] = reinterpret_cast<const Words<kN>*>(t.codes)[piece];
    } else {
      codes[u].w[0] = reinterpret_cast<const Words<kN / 2>*>(t.codes)[piece].w[0];
    }
    scale[u] = *args.scale_of(piece >> shift);
  }
  FP4PA_UNROLL
  for (int u = 0; u < kDequantizedPieces; ++u) {
    const std::uint32_t piece = first + static_cast<std::uint32_t>(u) * kPieceThreads;
    if (piece >= args.pieces) break;
    const float factor = nvfp4 ? ue4m3_scale(scale[u]) : core::E8M0::decode(scale[u]);
    if constexpr (kDType == DType::kBF16 && Bf16Pairs::kThere) {
      if (!mxfp8) {
        const std::uint32_t pair = pack_bf16(factor, factor);
        static_cast<Words<16>*>(t.plain)[piece] = e2m1_bf16_piece(codes[u].w[0], {pair, pair, pair, pair}, nvfp4, global);
        continue;
      }
    }
    float x[kN];
    if (mxfp8) {
      e4m3_piece(codes[u], x);
    } else {
      Words<kN / 2> half;
      half.w[0] = static_cast<std::remove_reference_t<decltype(half.w[0])>>(codes[u].w[0]);
      e2m1_piece(half, x);
    }
    FP4PA_UNROLL
    for (int i = 0; i < kN; ++i) x[i] = x[i] * factor * global;
    static_cast<Words<16>*>(t.plain)[piece] = pack_piece<kDType>(x);
  }
}

/// Whether the addresses are those that pieces need.
[[nodiscard]] inline bool in_pieces(const TensorArgs& t) {
  return aligned(t.plain, 16) && aligned(t.codes, t.config.format == BlockFormat::kMxfp8 ? 16 : 8) &&
         t.rows <= (std::int64_t{1} << 31) / t.cols * 4;
}
[[nodiscard]] inline Status launch_tensor_pieces(void (*const kernel)(TensorPieceArgs), const TensorArgs& t, int elements, int per_thread,
                                          const ExecDesc& exec, const char* doing) noexcept {
  const std::int64_t pieces = t.rows * t.cols / elements;
  const TensorPieceArgs args{t, static_cast<std::uint32_t>(pieces), core::Divisor::of(static_cast<std::uint32_t>(t.groups_per_row())),
                             1.0f / t.config.global_scale};
  const std::int64_t per_block = std::int64_t{kPieceThreads} * per_thread;
  return launch(kernel, grid((pieces + per_block - 1) / per_block), kPieceThreads, 0, exec.stream, args, doing);
}

[[nodiscard]] inline std::int64_t blocks_of(const TensorArgs& args) {
  return (args.rows * args.groups_per_row() + kGroupThreads - 1) / kGroupThreads;
}

Status quantize(const QuantizeConfig& config, const void* x, DType dtype, std::int64_t rows, std::int64_t cols,
                void* codes, void* scales, const ExecDesc& exec) noexcept {
  const TensorArgs args{config, const_cast<void*>(x), dtype, rows, cols, static_cast<std::uint8_t*>(codes),
                        static_cast<std::uint8_t*>(scales)};
  const bool padded = rows % core::kScaleAtomRows != 0 || args.groups_per_row() % core::kScaleAtomGroups != 0;
  if (config.scale_layout == ScaleLayout::kBlocked && padded) {
    const std::size_t bytes = core::blocked_scale_size(rows, args.groups_per_row());
    if (const Status s = clear(scales, bytes, exec.stream, "clearing the scales' padding"); s != Status::kOk) return s;
  }
  if (in_pieces(args)) {
    return launch_tensor_pieces(FP4PA_OF_DTYPE(dtype, quantize_pieces), args, 16, 1, exec, "launching quantize");
  }
  return launch(quantize_groups, grid(blocks_of(args)), kGroupThreads, 0, exec.stream, args, "launching quantize");
}

Status dequantize(const QuantizeConfig& config, const void* codes, const void* scales, std::int64_t rows,
                  std::int64_t cols, void* y, DType dtype, const ExecDesc& exec) noexcept {
  const TensorArgs args{config, y, dtype, rows, cols, static_cast<std::uint8_t*>(const_cast<void*>(codes)),
                        static_cast<std::uint8_t*>(const_cast<void*>(scales))};
  if (in_pieces(args)) {
    return launch_tensor_pieces(FP4PA_OF_DTYPE(dtype, dequantize_pieces), args, 16 / size_of(dtype), kDequantizedPieces, exec,
                         "launching dequantize");
  }
  return launch(dequantize_groups, grid(blocks_of(args)), kGroupThreads, 0, exec.stream, args, "launching dequantize");
}

}  // namespace fp4pa::FP4PA_GPU
