// append and gather: rows of new tokens into their slots, and rows at slots back into plain tensors.
#pragma once

#include "core/divisor.hpp"
#include "core/paging/slot.hpp"
#include "kernels/cache_ops.hpp"
#include "kernels/cache_rows.hpp"
#include "kernels/piece.hpp"

namespace fp4pa::FP4PA_GPU {

struct Slots {
  core::SlotView view;
  std::int64_t size;
  std::int64_t limit;  // of the pool
  std::int32_t page_size;

  /// Whether token `t` has a slot inside the pool.
  [[nodiscard]] FP4PA_DEVICE bool has(std::int64_t t) const { return view[t] >= 0 && view[t] < limit; }
};

struct AppendArgs {
  CacheTensor tensors[2];  // K, V
  PlainRows inputs[2];
  Slots slots;
  std::int32_t heads;
  std::int32_t blocks;  // of the launch; each walks over what is left
};

[[nodiscard]] inline Slots slots_of(const KvCacheDesc& cache, const api::SlotList& slots) {
  return {{slots.data, slots.type}, slots.size, cache.num_pages * cache.page_size, cache.page_size};
}

/// A warp per (token, head); block_id_y() is the tensor.
FP4PA_KERNEL(append_rows, kThreads, AppendArgs args) {
  FP4PA_SHARED float rows[kWarps][kMaxRow];
  const CacheTensor& tensor = args.tensors[block_id_y()];
  if (tensor.view.scale_along_tokens()) return;
  const std::int64_t items = args.slots.size * args.heads;
  const std::int64_t step = std::int64_t{args.blocks} * kWarps;
  for (std::int64_t i = std::int64_t{block_id()} * kWarps + warp_id(); i < items; i += step) {
    const std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!args.slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(args.slots.view[token], args.slots.page_size);
    float* const x = rows[warp_id()];
    load_input(tensor, args.inputs[block_id_y()], token, head, x);
    write_row(tensor, place.page, place.row, head, x);
  }
}

/// V scaled along tokens: a block per (token, head), and work only for tokens that begin a group.
FP4PA_KERNEL(append_groups, kThreads, AppendArgs args) {
  FP4PA_DYNAMIC_SHARED(float, group);  // [tokens, head_dim]
  const CacheTensor& tensor = args.tensors[1];
  const Slots& slots = args.slots;
  const std::int64_t items = slots.size * args.heads;
  for (std::int64_t i = block_id(); i < items; i += args.blocks) {
    std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(slots.view[token], slots.page_size);
    if (place.row % tensor.view.token_group() != 0) continue;
    const int left = slots.page_size - place.row;
    const int limit = tensor.view.token_group() < left ? tensor.view.token_group() : left;
    const std::int64_t first_slot = slots.view[token];
    sync_block();
    int tokens = 0;
    for (; tokens < limit; ++tokens) {
      if (token == slots.size || slots.view[token] != first_slot + tokens) break;
      if (tokens % kWarps == warp_id()) {
        load_input(tensor, args.inputs[1], token, head, group + tokens * tensor.head_dim);
      }
      do {
        ++token;
      } while (token < slots.size && slots.view[token] < 0);
    }
    sync_block();
    write_group(tensor, place.page, place.row, head, group, tokens);
  }
}

FP4PA_KERNEL(gather_rows, kThreads, AppendArgs args) {
  FP4PA_SHARED float rows[kWarps][kMaxRow];
  const CacheTensor& tensor = args.tensors[block_id_y()];
  const PlainRows& out = args.inputs[block_id_y()];
  if (out.data == nullptr) return;
  const std::int64_t items = args.slots.size * args.heads;
  const std::int64_t step = std::int64_t{args.blocks} * kWarps;
  for (std::int64_t i = std::int64_t{block_id()} * kWarps + warp_id(); i < items; i += step) {
    const std::int64_t token = i / args.heads;
    const auto head = static_cast<std::int32_t>(i % args.heads);
    if (!args.slots.has(token)) continue;
    const core::SlotPlace place = core::place_of(args.slots.view[token], args.slots.page_size);
    float* const x = rows[warp_id()];
    read_row(tensor, place.page, place.row, head, x);
    for (int d = lane_id(); d < tensor.head_dim; d += kLanes) {
      core::store_plain_row(x + d, 1, out.dtype, out.element(token, head, d));
    }
  }
}

/// append and gather by pieces: a thread per piece, tensors in y.
struct PieceArgs {
  CacheTensor tensors[2];  // K, V
  PlainRows rows[2];
  core::SlotView slots;
  std::uint32_t limit;      // slots of the pool
  std::uint32_t pieces[2];  // of all tokens
  core::Divisor page_size;
  core::Divisor per_row[2];  // pieces of a token's head
  core::Divisor heads;
};

/// Where a piece belongs.
struct PiecePlace {
  std::uint32_t token, head, element;
  std::uint32_t page, row;
  bool has_slot;
};
FP4PA_DEVICE inline PiecePlace place_of(const PieceArgs& args, int which, std::uint32_t piece, int elements) {
  PiecePlace at;
  const std::uint32_t token_head = args.per_row[which].quotient(piece);
  at.element = (piece - token_head * args.per_row[which].divisor) * static_cast<std::uint32_t>(elements);
  at.token = args.heads.quotient(token_head);
  at.head = token_head - at.token * args.heads.divisor;
  at.has_slot = false;
  at.page = at.row = 0;
  if (piece >= args.pieces[which]) return at;
  const auto slot = static_cast<std::uint64_t>(args.slots[at.token]);
  at.has_slot = slot < args.limit;
  at.page = args.page_size.quotient(static_cast<std::uint32_t>(slot) & 0x7fffffffu);
  at.row = static_cast<std::uint32_t>(slot) - at.page * args.page_size.divisor;
  return at;
}
/// Offsets of a row whose strides fit 32 bits.
[[nodiscard]] FP4PA_DEVICE inline std::int64_t offset_of(const PiecePlace& at, std::int64_t page_stride, std::int64_t token_stride,
                                                         std::int64_t head_stride) {
  const auto product = [](std::uint32_t n, std::int64_t stride) {
    return static_cast<std::int64_t>(std::uint64_t{n} * static_cast<std::uint32_t>(stride));
  };
  return product(at.page, page_stride) + product(at.row, token_stride) + product(at.head, head_stride);
}
[[nodiscard]] FP4PA_DEVICE inline std::uint8_t* codes_of(const core::TensorView& v, const PiecePlace& at) {
  return v.data + offset_of(at, v.page_stride, v.token_stride, v.head_stride);
}
[[nodiscard]] FP4PA_DEVICE inline std::uint8_t* scales_of(const core::TensorView& v, const PiecePlace& at) {
  PiecePlace scale_row = at;
  scale_row.row >>= v.scale_shift;
  return v.scales + offset_of(scale_row, v.scale_page_stride, v.scale_token_stride, v.scale_head_stride);
}
[[nodiscard]] FP4PA_DEVICE inline void* plain_of(const PlainRows& r, const PiecePlace& at) {
  return r.element(at.token, static_cast<std::int32_t>(at.head), static_cast<int>(at.element));
}

/// A piece of a quantised format. Threads without a token work on zeros, for their neighbours' sake.
template <DType kDType>
FP4PA_DEVICE inline void append_codes(const PieceArgs& args, int which, std::uint32_t piece) {
  const CacheTensor& tensor = args.tensors[which];
  const core::TensorView& view = tensor.view;
  const PiecePlace at = place_of(args, which, piece, 16);
  float x[16] = {};
  if (piece < args.pieces[which]) load_piece<kDType>(plain_of(args.rows[which], at), x);
  const bool rotated = tensor.rotation != 0;
  if (rotated) rotate_pieces(x, tensor.rotation);
  constexpr bool kFewBits = kDType == DType::kBF16;
  const float global = at.has_slot ? view.global(static_cast<std::int32_t>(at.head)) : 1.0f;
  PieceCodes out;
  switch (view.format) {
    case KvFormat::kMxfp4:
    case KvFormat::kE8m0PerToken: {
      const int lanes = view.format == KvFormat::kMxfp4 ? 2 : tensor.head_dim / 16;
      out = kFewBits && !rotated ? encode_mxfp4_piece<true>(x, tensor.rule.scale_mode, lanes)
                                 : encode_mxfp4_piece<false>(x, tensor.rule.scale_mode, lanes);
      break;
    }
    case KvFormat::kNvfp4:
      out = kFewBits && !rotated ? encode_nvfp4_piece<true>(x, global, tensor.rule.nvfp4_scale)
                                 : encode_nvfp4_piece<false>(x, global, tensor.rule.nvfp4_scale);
      break;
    case KvFormat::kMxfp8: out = encode_mxfp8_piece(x, tensor.rule.scale_mode); break;
    default: out.codes = encode_fp8_piece(x, global); break;
  }
  if (!at.has_slot) return;
  std::uint8_t* const codes = codes_of(view, at);
  if (is_fp4(view.format)) {
    *reinterpret_cast<Words<8>*>(codes + at.element / 2) = {{out.codes.w[0], out.codes.w[1]}};
  } else {
    *reinterpret_cast<Words<16>*>(codes + at.element) = out.codes;
  }
  if (view.scales == nullptr) return;
  const auto group = static_cast<std::uint32_t>(view.format == KvFormat::kE8m0PerToken ? tensor.head_dim
                                                : view.format == KvFormat::kNvfp4      ? 16
                                                                                       : 32);
  const std::uint32_t index = group == 16 ? at.element / 16 : group == 32 ? at.element / 32 : 0;
  if (index * group == at.element) scales_of(view, at)[index] = out.scale;
}

/// A piece of eight elements of a 16-bit format.
template <DType kDType>
FP4PA_DEVICE inline void append_halves(const PieceArgs& args, int which, std::uint32_t piece) {
  const core::TensorView& view = args.tensors[which].view;
  const PiecePlace at = place_of(args, which, piece, 8);
  if (!at.has_slot) return;
  float x[8];
  load_piece<kDType>(plain_of(args.rows[which], at), x);
  auto* const to = reinterpret_cast<Words<16>*>(codes_of(view, at) + 2 * at.element);
  *to = view.format == KvFormat::kF16 ? pack_piece_and_nan<DType::kF16>(x) : pack_piece_and_nan<DType::kBF16>(x);
}
/// The same, rotated: sixteen elements.
template <DType kDType>
FP4PA_DEVICE inline void append_rotated_halves(const PieceArgs& args, int which, std::uint32_t piece) {
  const CacheTensor& tensor = args.tensors[which];
  const PiecePlace at = place_of(args, which, piece, 16);
  float x[16] = {};
  if (piece < args.pieces[which]) load_piece<kDType>(plain_of(args.rows[which], at), x);
  rotate_pieces(x, tensor.rotation);
  if (!at.has_slot) return;
  auto* const to = reinterpret_cast<Words<16>*>(codes_of(tensor.view, at) + 2 * at.element);
  FP4PA_UNROLL
  for (int i = 0; i < 2; ++i) {
    float y[8];
    FP4PA_UNROLL
    for (int j = 0; j < 8; ++j) y[j] = x[8 * i + j];
    to[i] = tensor.view.format == KvFormat::kF16 ? pack_piece_and_nan<DType::kF16>(y) : pack_piece_and_nan<DType::kBF16>(y);
  }
}

[[nodiscard]] FP4PA_FN constexpr bool is_16_bits(KvFormat format) {
  return format == KvFormat::kBf16 || format == KvFormat::kF16;
}
/// Elements of a piece that append writes.
[[nodiscard]] FP4PA_FN constexpr int append_elements(const CacheTensor& tensor) {
  return is_16_bits(tensor.view.format) && tensor.rotation == 0 ? 8 : 16;
}

template <DType kDType>
FP4PA_KERNEL(append_pieces, kPieceThreads, PieceArgs args) {
  const int which = block_id_y();
  const CacheTensor& tensor = args.tensors[which];
  const std::uint32_t first = static_cast<std::uint32_t>(block_id()) * kPieceThreads;
  if (first >= args.pieces[which]) return;
  const std::uint32_t piece = first + static_cast<std::uint32_t>(thread_id());
  if (!is_16_bits(tensor.view.format)) {
    append_codes<kDType>(args, which, piece);
  } else if (tensor.rotation == 0) {
    append_halves<kDType>(args, which, piece);
  } else {
    append_rotated_halves<kDType>(args, which, piece);
  }
}

/// Pieces of 16 bytes of output.
template <DType kDType>
FP4PA_KERNEL(gather_pieces, kPieceThreads, PieceArgs args) {
  constexpr int kN = 16 / size_of(kDType);
  const int which = block_id_y();
  const CacheTensor& tensor = args.tensors[which];
  const core::TensorView& view = tensor.view;
  const std::uint32_t piece = static_cast<std::uint32_t>(block_id()) * kPieceThreads + static_cast<std::uint32_t>(thread_id());
  if (args.rows[which].data == nullptr || piece >= args.pieces[which]) return;
  const PiecePlace at = place_of(args, which, piece, kN);
  if (!at.has_slot) return;
  const float global = view.global(static_cast<std::int32_t>(at.head));
  const std::uint8_t* const codes = codes_of(view, at);
  float x[kN];
  switch (view.format) {
    case KvFormat::kBf16:
    case KvFormat::kF16: {
      const auto words = *reinterpret_cast<const Words<2 * kN>*>(codes + 2 * at.element);
      FP4PA_UNROLL
      for (int i = 0; i < kN; ++i) {
        const auto half = static_cast<std::uint16_t>(words.w[i / 2] >> (16 * (i % 2)));
        x[i] = view.format == KvFormat::kBf16 ? core::bf16_to_f32(half) : core::f16_to_f32(half);
      }
      *static_cast<Words<16>*>(plain_of(args.rows[which], at)) = pack_piece_and_nan<kDType>(x);
      return;
    }
    case KvFormat::kFp8E4m3:
    case KvFormat::kMxfp8: load_e4m3(codes + at.element, x); break;
    default: load_e2m1(codes + at.element / 2, x); break;
  }
  const bool nvfp4 = view.format == KvFormat::kNvfp4;
  if (view.scale_along_tokens()) {
    const std::uint8_t* const scales = scales_of(view, at) + at.element;
    FP4PA_UNROLL
    for (int i = 0; i < kN; ++i) {
      x[i] = x[i] * (nvfp4 ? core::UE4M3::decode(scales[i]) : core::E8M0::decode(scales[i]));
    }
  } else if (view.scales != nullptr) {
    const std::uint32_t index = nvfp4 ? at.element / 16 : view.format == KvFormat::kE8m0PerToken ? 0 : at.element / 32;
    const std::uint8_t scale = scales_of(view, at)[index];
    const float factor = nvfp4 ? core::UE4M3::decode(scale) : core::E8M0::decode(scale);
    FP4PA_UNROLL
    for (int i = 0; i < kN; ++i) x[i] = x[i] * factor;
  }
  FP4PA_UNROLL
  for (int i = 0; i < kN; ++i) x[i] = x[i] * global;
  *static_cast<Words<16>*>(plain_of(args.rows[which], at)) = pack_piece<kDType>(x);
}

/// Whether a stride of bytes fits 32 bits.
[[nodiscard]] inline bool narrow(std::int64_t stride) { return stride < (std::int64_t{1} << 32); }
[[nodiscard]] inline bool narrow(const core::TensorView& v) {
  return narrow(v.page_stride) && narrow(v.token_stride) && narrow(v.head_stride) && narrow(v.scale_page_stride) &&
         narrow(v.scale_token_stride) && narrow(v.scale_head_stride);
}
/// Whether plain rows begin at multiples of 16 bytes.
[[nodiscard]] inline bool aligned(const PlainRows& r) {
  return aligned(r.data, 16) && r.token_stride * size_of(r.dtype) % 16 == 0 && r.head_stride * size_of(r.dtype) % 16 == 0;
}
/// A group of lanes that halves evenly.
[[nodiscard]] inline bool in_lanes(const CacheTensor& t) {
  return t.view.format != KvFormat::kE8m0PerToken || (t.head_dim & (t.head_dim - 1)) == 0;
}

/// @param elements  of a piece of K and of V
[[nodiscard]] inline PieceArgs piece_args(const AppendArgs& a, int k_elements, int v_elements) {
  const auto tokens = static_cast<std::uint32_t>(a.slots.size);
  const auto heads = static_cast<std::uint32_t>(a.heads);
  PieceArgs out{{a.tensors[0], a.tensors[1]},
                {a.inputs[0], a.inputs[1]},
                a.slots.view,
                static_cast<std::uint32_t>(a.slots.limit),
                {},
                core::Divisor::of(static_cast<std::uint32_t>(a.slots.page_size)),
                {},
                core::Divisor::of(heads)};
  for (int i = 0; i < 2; ++i) {
    out.per_row[i] = core::Divisor::of(static_cast<std::uint32_t>(a.tensors[i].head_dim / (i == 0 ? k_elements : v_elements)));
    out.pieces[i] = tokens * heads * out.per_row[i].divisor;
  }
  return out;
}
/// Whether 32 bits count the pieces, of four elements at the least, and the pool's slots.
[[nodiscard]] inline bool few(const AppendArgs& a) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return a.slots.limit < kMost && a.slots.size <= (kMost - 1) / (std::int64_t{a.heads} * 64);
}
[[nodiscard]] inline Status launch_pieces(void (*const kernel)(PieceArgs), const PieceArgs& args, const ExecDesc& exec,
                                          const char* doing) noexcept {
  const std::int64_t most = args.pieces[0] > args.pieces[1] ? args.pieces[0] : args.pieces[1];
  return launch(kernel, grid((most + kPieceThreads - 1) / kPieceThreads, 2), kPieceThreads, 0, exec.stream, args, doing);
}

[[nodiscard]] inline std::int32_t blocks_for(std::int64_t items) {
  constexpr std::int64_t kMost = 1 << 16;
  return static_cast<std::int32_t>(items < 1 ? 1 : items < kMost ? items : kMost);
}

Status append(const KvCacheDesc& cache, const KvInput& k, const KvInput& v, const api::SlotList& slots,
              const ExecDesc& exec) noexcept {
  const std::int64_t items = slots.size * cache.num_kv_heads;
  AppendArgs args{{k_of(cache), v_of(cache)}, {rows_of(k), rows_of(v)}, slots_of(cache, slots), cache.num_kv_heads,
                  blocks_for((items + kWarps - 1) / kWarps)};
  const bool groups = args.tensors[1].view.scale_along_tokens();
  const auto fits = [&](int i) {
    return aligned(args.inputs[i]) && narrow(args.tensors[i].view) && in_lanes(args.tensors[i]);
  };
  Status s;
  if (few(args) && k.dtype == v.dtype && fits(0) && (groups || fits(1))) {
    PieceArgs pieces = piece_args(args, append_elements(args.tensors[0]), append_elements(args.tensors[1]));
    if (groups) pieces.pieces[1] = 0;
    s = launch_pieces(FP4PA_OF_DTYPE(k.dtype, append_pieces), pieces, exec, "launching append");
  } else {
    s = launch(append_rows, grid(args.blocks, 2), kThreads, 0, exec.stream, args, "launching append");
  }
  if (s != Status::kOk || !groups) return s;
  args.blocks = blocks_for(items);
  const std::size_t shared = sizeof(float) * static_cast<std::size_t>(kMaxGroup * cache.head_dim);
  return launch(append_groups, grid(args.blocks), kThreads, shared, exec.stream, args, "launching append of groups");
}

Status gather(const KvCacheDesc& cache, const api::SlotList& slots, const KvOutput& k, const KvOutput& v,
              const ExecDesc& exec) noexcept {
  const std::int64_t items = slots.size * cache.num_kv_heads;
  const AppendArgs args{{k_of(cache), v_of(cache)}, {rows_of(k), rows_of(v)}, slots_of(cache, slots), cache.num_kv_heads,
                        blocks_for((items + kWarps - 1) / kWarps)};
  const auto fits = [&](int i) {
    const PlainRows& r = args.inputs[i];
    return r.data == nullptr || (aligned(r) && narrow(args.tensors[i].view));
  };
  if (few(args) && (k.data == nullptr || v.data == nullptr || k.dtype == v.dtype) && fits(0) && fits(1)) {
    const DType dtype = k.data == nullptr ? v.dtype : k.dtype;
    const int elements = 16 / size_of(dtype);
    return launch_pieces(FP4PA_OF_DTYPE(dtype, gather_pieces), piece_args(args, elements, elements), exec, "launching gather");
  }
  return launch(gather_rows, grid(args.blocks, 2), kThreads, 0, exec.stream, args, "launching gather");
}

}  // namespace fp4pa::FP4PA_GPU
