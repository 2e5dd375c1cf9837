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

/// What kernels on pieces are compiled for: formats, and rules that change the loop.
enum class PieceKind { kMxfp4, kPerToken, kNvfp4, kNvfp4FourOverSix, kMxfp8, kFp8, kHalves };
[[nodiscard]] inline PieceKind kind_of(const CacheTensor& t) {
  switch (t.view.format) {
    case KvFormat::kMxfp4: return PieceKind::kMxfp4;
    case KvFormat::kE8m0PerToken: return PieceKind::kPerToken;
    case KvFormat::kNvfp4:
      return t.rule.nvfp4_scale == Nvfp4Scale::kAmaxOver6 ? PieceKind::kNvfp4 : PieceKind::kNvfp4FourOverSix;
    case KvFormat::kMxfp8: return PieceKind::kMxfp8;
    case KvFormat::kFp8E4m3: return PieceKind::kFp8;
    default: return PieceKind::kHalves;
  }
}
[[nodiscard]] FP4PA_FN constexpr bool is_nvfp4(PieceKind kind) {
  return kind == PieceKind::kNvfp4 || kind == PieceKind::kNvfp4FourOverSix;
}
/// Bits of an element.
[[nodiscard]] FP4PA_FN constexpr int bits_of(PieceKind kind) {
  return kind == PieceKind::kHalves ? 16 : kind == PieceKind::kFp8 || kind == PieceKind::kMxfp8 ? 8 : 4;
}
/// The group that a scale along head_dim covers.
[[nodiscard]] FP4PA_FN constexpr std::uint32_t scale_index(PieceKind kind, std::uint32_t element) {
  return is_nvfp4(kind) ? element / 16 : kind == PieceKind::kPerToken ? 0 : element / 32;
}
[[nodiscard]] FP4PA_FN constexpr bool has_scale(PieceKind kind) { return kind != PieceKind::kFp8 && kind != PieceKind::kHalves; }

/// append and gather by pieces: a thread has one piece of a row, of kTokensOfThread tokens one after another. Blocks of K and V take
/// turns, so that a K that is rotated and a V that is not share the machine.
struct PieceArgs {
  CacheTensor tensors[2];  // K, V
  PlainRows rows[2];
  core::SlotView slots;
  std::uint32_t tokens;
  std::uint32_t limit;       // slots of the pool
  std::uint32_t threads[2];  // that have work
  core::Divisor page_size;
  core::Divisor per_token[2];  // pieces of a token
  core::Divisor per_head[2];   // and of one head of it
  std::int32_t only;  // tensor that is done: 0, 1, or 2 for both
  std::int32_t words_of_scales;  // whether eight scales of V along tokens are a load
};
constexpr std::uint32_t kTokensOfThread = 4;

/// A thread's share: `element` on of `head`, of the tokens from `token` on.
struct PieceColumn {
  std::uint32_t token, head, element;
};
FP4PA_DEVICE inline PieceColumn column_of(const PieceArgs& args, int which, std::uint32_t thread, int elements) {
  const std::uint32_t tokens = args.per_token[which].quotient(thread);
  const std::uint32_t piece = thread - tokens * args.per_token[which].divisor;
  const std::uint32_t head = args.per_head[which].quotient(piece);
  return {tokens * kTokensOfThread, head, (piece - head * args.per_head[which].divisor) * static_cast<std::uint32_t>(elements)};
}

/// n * stride, of a stride that fits 32 bits.
[[nodiscard]] FP4PA_DEVICE inline std::uint64_t steps(std::uint32_t n, std::int64_t stride) {
  return std::uint64_t{n} * static_cast<std::uint32_t>(stride);
}

/// Slots, of tokens past the last one too: those have none.
struct PageRow {
  std::uint32_t page, row;
  bool there;
};
[[nodiscard]] FP4PA_DEVICE inline std::uint64_t slot_of(const PieceArgs& args, std::uint32_t token) {
  return token < args.tokens ? static_cast<std::uint64_t>(args.slots[token]) : ~std::uint64_t{0};
}
/// Of a thread's tokens.
FP4PA_DEVICE inline void slots_of(const PieceArgs& args, std::uint32_t token, std::uint64_t (&slots)[kTokensOfThread]) {
  // Both words of a slot, or one twice: without a branch, so that all loads are under way together.
  const bool wide = args.slots.type == IndexType::kInt64;
  const int shift = wide ? 3 : 2;
  const int upper = wide ? 4 : 0;
  std::uint32_t low[kTokensOfThread];
  std::uint32_t high[kTokensOfThread];
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kTokensOfThread; ++u) {
    const std::uint32_t at = token + u < args.tokens ? token + u : args.tokens - 1;
    const auto* const from = static_cast<const std::uint8_t*>(args.slots.data) + (std::uint64_t{at} << shift);
    low[u] = *reinterpret_cast<const std::uint32_t*>(from);
    high[u] = *reinterpret_cast<const std::uint32_t*>(from + upper);
  }
  sync_warp();  // what stands before it stays before it: a compiler would wait for one slot after another to spare registers
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kTokensOfThread; ++u) {
    const std::uint32_t sign = wide ? high[u] : static_cast<std::uint32_t>(static_cast<std::int32_t>(low[u]) >> 31);
    slots[u] = token + u < args.tokens ? std::uint64_t{sign} << 32 | low[u] : ~std::uint64_t{0};
  }
}
[[nodiscard]] FP4PA_DEVICE inline PageRow page_row(const PieceArgs& args, std::uint64_t slot) {
  const std::uint32_t low = static_cast<std::uint32_t>(slot) & 0x7fffffffu;
  const std::uint32_t page = args.page_size.quotient(low);
  return {page, low - page * args.page_size.divisor, slot < args.limit};
}

/// Where the codes and the scales of a head's piece lie in any page and row.
struct PieceTarget {
  std::uint8_t* codes;
  std::uint8_t* scales;
  std::uint32_t page_stride, token_stride, scale_page_stride, scale_token_stride;

  [[nodiscard]] FP4PA_DEVICE std::uint8_t* codes_at(const PageRow& at) const {
    return codes + steps(at.page, page_stride) + steps(at.row, token_stride);
  }
  [[nodiscard]] FP4PA_DEVICE std::uint8_t* scales_at(const PageRow& at, int shift = 0) const {
    return scales + steps(at.page, scale_page_stride) + steps(at.row >> shift, scale_token_stride);
  }
};
/// @param scale  index of the piece's scale in its row
template <PieceKind kKind>
[[nodiscard]] FP4PA_DEVICE inline PieceTarget target_of(const core::TensorView& v, const PieceColumn& at, std::uint32_t scale) {
  return {v.data + steps(at.head, v.head_stride) + at.element * bits_of(kKind) / 8,
          v.scales + steps(at.head, v.scale_head_stride) + scale,
          static_cast<std::uint32_t>(v.page_stride),
          static_cast<std::uint32_t>(v.token_stride),
          static_cast<std::uint32_t>(v.scale_page_stride),
          static_cast<std::uint32_t>(v.scale_token_stride)};
}

/// This thread's tensor, and its number among the threads of that.
struct PieceThread {
  int which;
  std::uint32_t index;
};
[[nodiscard]] FP4PA_DEVICE inline PieceThread piece_thread(const PieceArgs& args) {
  const auto block = static_cast<std::uint32_t>(block_id());
  const bool both = args.only == 2;
  return {both ? static_cast<int>(block % 2) : args.only,
          (both ? block / 2 : block) * kPieceThreads + static_cast<std::uint32_t>(thread_id())};
}

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
    if (has_scale(kKind) && first) *target.scales_at(at) = out.scale;
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

/// V scaled along tokens by pieces: a thread has eight columns of a head and the groups that begin in kGroup of the input's tokens.
/// It reads a group twice, for its scales and for its codes; the second time it is in a cache.
template <DType kDType>
struct GroupColumns {
  const PieceArgs& args;
  PieceColumn column;
  const std::uint8_t* from;  // the columns of token 0
  std::int64_t step;
  std::uint64_t first_slot;
  std::uint32_t first_token;
  int limit;  // tokens that the group can have

  FP4PA_DEVICE void values(std::uint32_t token, float (&x)[8]) const {
    RawPiece<kDType, 8> raw;
    raw.load(from + token * step);
    raw.values(x);
  }
  /// Whether the input has the whole group, kGroup tokens, one after another.
  template <int kGroup>
  [[nodiscard]] FP4PA_DEVICE bool whole() const {
    bool whole = limit == kGroup && first_token + kGroup <= args.tokens;
    for (std::uint32_t t = 1; t < kGroup; ++t) whole = whole && slot_of(args, first_token + t) == first_slot + t;
    return whole;
  }
  /// f(row, x) for the tokens there are; padding may stand between them.
  template <int kGroup, class F>
  FP4PA_DEVICE void each(bool whole, const F& f) const {
    if (whole) {
      constexpr int kAhead = 8;
      FP4PA_NO_UNROLL
      for (int t = 0; t < kGroup; t += kAhead) {
        RawPiece<kDType, 8> raw[kAhead];
        FP4PA_UNROLL
        for (int i = 0; i < kAhead; ++i) raw[i].load(from + (first_token + static_cast<std::uint32_t>(t + i)) * step);
        FP4PA_UNROLL
        for (int i = 0; i < kAhead; ++i) {
          float x[8];
          raw[i].values(x);
          f(t + i, x);
        }
      }
      return;
    }
    std::uint32_t token = first_token;
    FP4PA_NO_UNROLL
    for (int row = 0; row < limit; ++row) {
      if (token >= args.tokens || slot_of(args, token) != first_slot + static_cast<std::uint32_t>(row)) return;
      float x[8];
      values(token, x);
      f(row, x);
      do {
        ++token;
      } while (token < args.tokens && args.slots[token] < 0);
    }
  }
};

template <DType kDType, int kGroup>
FP4PA_DEVICE inline void append_group_columns(const GroupColumns<kDType>& group, const PageRow& at) {
  const PieceArgs& args = group.args;
  const CacheTensor& tensor = args.tensors[1];
  constexpr bool kNvfp4 = kGroup == 16;
  const bool whole = group.template whole<kGroup>();
  std::uint32_t twice[8] = {};
  group.template each<kGroup>(whole, [&](int, const float (&x)[8]) {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t magnitude = core::float_bits(x[i]) << 1;
      twice[i] = magnitude > twice[i] ? magnitude : twice[i];
    }
  });
  const float to_units = kNvfp4 ? 1.0f / tensor.view.global(static_cast<std::int32_t>(group.column.head)) : 1.0f;
  const std::uint32_t units = core::float_bits(to_units);
  bool direct = kDType == DType::kBF16 && (units & 0x007fffffu) == 0 && units >= 0x20000000u && units < 0x60000000u;
  std::uint32_t nan = 0;  // nibbles of columns
  std::uint8_t scales[8];
  float factors[8];
  FP4PA_UNROLL
  for (int i = 0; i < 8; ++i) {
    const float amax = core::float_from_bits(twice[i] >> 1);
    if constexpr (kNvfp4) {
      scales[i] = core::nvfp4_candidates_in_units(amax, to_units, Nvfp4Scale::kAmaxOver6).six;
      factors[i] = scales[i] == 0 ? 0.0f : near_reciprocal(ue4m3_scale(scales[i])) * core::kE2m1HalfUnit;
      direct = direct && scales[i] != 0x7e;
    } else {
      scales[i] = core::e8m0_from_amax<core::E2M1>(amax, tensor.rule.scale_mode);
      factors[i] = core::e8m0_reciprocal(scales[i]) * core::kE2m1HalfUnit;
    }
    if (scales[i] == (kNvfp4 ? core::UE4M3::kNan : core::E8M0::kNan)) nan |= 0xfu << (4 * i);
  }
  if (direct) {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) factors[i] *= to_units;
  }

  const PieceTarget target = target_of<PieceKind::kMxfp4>(tensor.view, group.column, group.column.element);
  std::uint8_t* const codes = target.codes_at(at);
  constexpr float kLimit = kNvfp4 ? 2688.0f : core::float_from_bits(core::kFloatInfBits);  // see encode_nvfp4_piece
  group.template each<kGroup>(whole, [&](int row, const float (&x)[8]) {
    float y[8];
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) {
      float t = x[i];
      if (!direct) {
        t = t * to_units;
        t = core::odd_bf16(t > kLimit ? kLimit : t < -kLimit ? -kLimit : t);
      }
      y[i] = nan != 0 && ((nan >> (4 * i)) & 1u) != 0 ? 0.0f : t * factors[i];
    }
    const std::uint32_t halves[4] = {pack_f16(y[0], y[4]), pack_f16(y[1], y[5]), pack_f16(y[2], y[6]), pack_f16(y[3], y[7])};
    *reinterpret_cast<std::uint32_t*>(codes + steps(static_cast<std::uint32_t>(row), target.token_stride)) =
        (core::e2m1_codes(halves) & ~nan) | (0x77777777u & nan);
  });
  std::uint8_t* const to = target.scales_at(at, tensor.view.scale_shift);
  if (args.words_of_scales != 0) {
    Words<8> words{};
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) words.w[i / 4] |= std::uint32_t{scales[i]} << (8 * (i % 4));
    *reinterpret_cast<Words<8>*>(to) = words;
  } else {
    FP4PA_UNROLL
    for (int i = 0; i < 8; ++i) to[i] = scales[i];
  }
}

template <DType kDType>
FP4PA_KERNEL(append_group_pieces, kPieceThreads, PieceArgs args) {
  const std::uint32_t thread = static_cast<std::uint32_t>(block_id()) * kPieceThreads + static_cast<std::uint32_t>(thread_id());
  if (thread >= args.threads[1]) return;
  const CacheTensor& tensor = args.tensors[1];
  const auto group_tokens = static_cast<std::uint32_t>(tensor.view.token_group());
  PieceColumn column = column_of(args, 1, thread, 8);
  column.token = column.token / kTokensOfThread * group_tokens;
  const PlainRows& rows = args.rows[1];
  GroupColumns<kDType> group{
      args,
      column,
      static_cast<const std::uint8_t*>(rows.element(0, static_cast<std::int32_t>(column.head), static_cast<int>(column.element))),
      rows.token_stride * size_of(kDType),
      0,
      0,
      0};
  FP4PA_NO_UNROLL
  for (std::uint32_t token = column.token, end = token + group_tokens; token < end; ++token) {
    const std::uint64_t slot = slot_of(args, token);
    const PageRow at = page_row(args, slot);
    if (!at.there || at.row % group_tokens != 0) continue;
    const std::uint32_t left = args.page_size.divisor - at.row;
    group.first_slot = slot;
    group.first_token = token;
    group.limit = static_cast<int>(left < group_tokens ? left : group_tokens);
    if (group_tokens == 16) {
      append_group_columns<kDType, 16>(group, at);
    } else {
      append_group_columns<kDType, 32>(group, at);
    }
  }
}

/// Pieces of 16 bytes of output.
template <DType kDType, PieceKind kKind, bool kAlongTokens>
FP4PA_DEVICE inline void gather_column(const PieceArgs& args, const PieceThread& thread) {
  constexpr int kN = 16 / size_of(kDType);
  const core::TensorView& view = args.tensors[thread.which].view;
  const PieceColumn column = column_of(args, thread.which, thread.index, kN);
  const PieceTarget target =
      target_of<kKind>(view, column, kAlongTokens ? column.element : scale_index(kKind, column.element));
  const KvFormat format = view.format;
  const float global = view.global(static_cast<std::int32_t>(column.head));
  const PlainRows& rows = args.rows[thread.which];
  const std::int64_t step = rows.token_stride * size_of(kDType);
  auto* const to = static_cast<std::uint8_t*>(
      rows.element(column.token, static_cast<std::int32_t>(column.head), static_cast<int>(column.element)));

  std::uint64_t slots[kTokensOfThread];
  slots_of(args, column.token, slots);
  PageRow at[kTokensOfThread];
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kTokensOfThread; ++u) at[u] = page_row(args, slots[u]);
  using Codes = Words<kN * bits_of(kKind) / 8>;
  Codes codes[kTokensOfThread];
  std::uint8_t scales[kTokensOfThread];
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kTokensOfThread; ++u) {
    if (!at[u].there) continue;
    codes[u] = *reinterpret_cast<const Codes*>(target.codes_at(at[u]));
    if (has_scale(kKind) && !kAlongTokens) scales[u] = *target.scales_at(at[u]);
  }
  sync_warp();
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kTokensOfThread; ++u) {
    if (!at[u].there) continue;
    auto* const out = reinterpret_cast<Words<16>*>(to + u * step);
    float x[kN];
    if constexpr (kKind == PieceKind::kHalves) {
      halves_piece(codes[u], format, x);
      *out = pack_piece_and_nan<kDType>(x);
    } else {
      if constexpr (bits_of(kKind) == 8) {
        e4m3_piece(codes[u], x);
      } else {
        e2m1_piece(codes[u], x);
      }
      if constexpr (kAlongTokens) {
        float factors[kN];
        scale_piece(target.scales_at(at[u], view.scale_shift), is_nvfp4(kKind), args.words_of_scales != 0, factors);
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
      *out = pack_piece<kDType>(x);
    }
  }
}

template <DType kDType, PieceKind kKind>
FP4PA_KERNEL(gather_pieces, kPieceThreads, PieceArgs args) {
  const PieceThread thread = piece_thread(args);
  if (thread.index >= args.threads[thread.which]) return;
  if constexpr (kKind == PieceKind::kMxfp4 || kKind == PieceKind::kNvfp4) {
    if (args.tensors[thread.which].view.scale_along_tokens()) {
      gather_column<kDType, kKind, true>(args, thread);
      return;
    }
  }
  gather_column<kDType, kKind, false>(args, thread);
}

/// Whether strides in bytes fit 32 bits.
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
  PieceArgs out{};
  out.slots = a.slots.view;
  out.tokens = static_cast<std::uint32_t>(a.slots.size);
  out.limit = static_cast<std::uint32_t>(a.slots.limit);
  out.page_size = core::Divisor::of(static_cast<std::uint32_t>(a.slots.page_size));
  for (int i = 0; i < 2; ++i) {
    out.tensors[i] = a.tensors[i];
    out.rows[i] = a.inputs[i];
    const auto per_head = static_cast<std::uint32_t>(a.tensors[i].head_dim / (i == 0 ? k_elements : v_elements));
    out.per_head[i] = core::Divisor::of(per_head);
    out.per_token[i] = core::Divisor::of(per_head * static_cast<std::uint32_t>(a.heads));
    out.threads[i] = (out.tokens + kTokensOfThread - 1) / kTokensOfThread * out.per_token[i].divisor;
  }
  const core::TensorView& v = a.tensors[1].view;
  out.words_of_scales =
      aligned(v.scales, 8) && v.scale_page_stride % 8 == 0 && v.scale_token_stride % 8 == 0 && v.scale_head_stride % 8 == 0;
  return out;
}
/// Whether 32 bits count the pieces, of four elements at the least, and the pool's slots.
[[nodiscard]] inline bool few(const AppendArgs& a) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return a.slots.limit < kMost && a.slots.size <= (kMost - 1) / (std::int64_t{a.heads} * 64) - 4;
}
using PieceKernel = void (*)(PieceArgs);
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
template <PieceKind kKind>
[[nodiscard]] inline PieceKernel gather_of(DType dtype) {
  return dtype == DType::kF32   ? gather_pieces<DType::kF32, kKind>
         : dtype == DType::kF16 ? gather_pieces<DType::kF16, kKind>
                                : gather_pieces<DType::kBF16, kKind>;
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
/// K and V in one launch where one kernel serves both. A tensor without threads is left out.
[[nodiscard]] inline Status launch_pieces(PieceKernel k, PieceKernel v, PieceArgs args, const ExecDesc& exec,
                                          const char* doing) noexcept {
  const auto one = [&](PieceKernel kernel, int only) {
    args.only = only;
    const std::int64_t threads = only == 2 ? (args.threads[0] > args.threads[1] ? args.threads[0] : args.threads[1])
                                           : args.threads[only];
    const std::int64_t blocks = (threads + kPieceThreads - 1) / kPieceThreads;
    return launch(kernel, grid(only == 2 ? 2 * blocks : blocks), kPieceThreads, 0, exec.stream, args, doing);
  };
  if (k == v && args.threads[0] != 0 && args.threads[1] != 0) return one(k, 2);
  const Status s = args.threads[0] != 0 ? one(k, 0) : Status::kOk;
  return s != Status::kOk || args.threads[1] == 0 ? s : one(v, 1);
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
  if (few(args) && fits(0) && (groups || fits(1))) {
    PieceArgs pieces = piece_args(args, append_elements(args.tensors[0]), append_elements(args.tensors[1]));
    if (groups) pieces.threads[1] = 0;
    s = launch_pieces(append_of(kind_of(args.tensors[0]), k.dtype), append_of(kind_of(args.tensors[1]), v.dtype), pieces, exec,
                      "launching append");
  } else {
    s = launch(append_rows, grid(args.blocks, 2), kThreads, 0, exec.stream, args, "launching append");
  }
  if (s != Status::kOk || !groups) return s;
  if (few(args) && fits(1) && (args.tensors[1].view.format == KvFormat::kMxfp4 || cache.nvfp4_scale == Nvfp4Scale::kAmaxOver6)) {
    PieceArgs pieces = piece_args(args, 8, 8);
    const auto group = static_cast<std::uint32_t>(args.tensors[1].view.token_group());
    pieces.threads[1] = (pieces.tokens + group - 1) / group * pieces.per_token[1].divisor;
    return launch(FP4PA_OF_DTYPE(v.dtype, append_group_pieces), grid((pieces.threads[1] + kPieceThreads - 1) / kPieceThreads),
                  kPieceThreads, 0, exec.stream, pieces, "launching append of groups");
  }
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
  if (few(args) && fits(0) && fits(1)) {
    PieceArgs pieces = piece_args(args, 16 / size_of(k.dtype), 16 / size_of(v.dtype));
    for (int i = 0; i < 2; ++i) {
      if (args.inputs[i].data == nullptr) pieces.threads[i] = 0;
    }
    return launch_pieces(gather_of(kind_of(args.tensors[0]), k.dtype), gather_of(kind_of(args.tensors[1]), v.dtype), pieces, exec,
                         "launching gather");
  }
  return launch(gather_rows, grid(args.blocks, 2), kThreads, 0, exec.stream, args, "launching gather");
}

}  // namespace fp4pa::FP4PA_GPU
