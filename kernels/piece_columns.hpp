// append and gather by pieces (piece.hpp): a thread has one piece of a row, a column, of several tokens, so that what belongs to a head
// and to a thread is computed once. Neighbouring threads have neighbouring columns, and then neighbouring tokens or heads.
//
// This is the way where it is possible: plain rows at 16-byte addresses, strides that fit 32 bits, a pool of less than 2^31 slots.
// append_rows and gather_rows (cache_append.hpp) do everything else.
#pragma once

#include "core/divisor.hpp"
#include "kernels/append_args.hpp"
#include "kernels/piece.hpp"

namespace fp4pa::FP4PA_GPU {

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

/// How rows are shared out: threads have `elements` of a row, of `tokens` tokens that are `rows` apart. Threads of a head follow
/// each other for `rows` tokens, whose scales of a few bytes are written together where slots follow each other; then comes the
/// next head.
struct PieceShape {
  std::uint32_t elements, rows, tokens;
  [[nodiscard]] FP4PA_FN constexpr std::uint32_t all_tokens() const { return rows * tokens; }
};

/// Blocks of K and V take turns, so that a K that is rotated and a V that is not share the machine.
struct PieceArgs {
  CacheTensor tensors[2];  // K, V
  PlainRows rows[2];
  core::SlotView slots;
  std::uint32_t tokens;
  std::uint32_t limit;       // slots of the pool
  std::uint32_t threads[2];  // that have work
  core::Divisor page_size;
  core::Divisor per_row[2];     // threads of a row
  core::Divisor per_head[2];    // and of a head's rows that stand together
  core::Divisor per_tokens[2];  // and of all heads'
  std::int32_t only;  // tensor that is done: 0, 1, or 2 for both
  float norm;         // of K's rotation
  std::uint32_t of_thread[2];  // tokens
  bool words_of_scales;     // whether eight scales of V along tokens are one access
  bool pairs_of_scales[2];  // whether two scales along head_dim are
};

/// A thread's share: `element` on of `head`, of the tokens from `token` on.
struct PieceColumn {
  std::uint32_t token, head, element;
};
/// @param of_thread  tokens of a thread
template <PieceShape kShape>
FP4PA_DEVICE inline PieceColumn column_of(const PieceArgs& args, int which, std::uint32_t thread,
                                          std::uint32_t of_thread = kShape.tokens) {
  const std::uint32_t tokens = args.per_tokens[which].quotient(thread);
  const std::uint32_t in_tokens = thread - tokens * args.per_tokens[which].divisor;
  const std::uint32_t head = args.per_head[which].quotient(in_tokens);
  const std::uint32_t in_head = in_tokens - head * args.per_head[which].divisor;
  const std::uint32_t row = kShape.rows == 1 ? 0 : args.per_row[which].quotient(in_head);
  return {tokens * (kShape.rows * of_thread) + row, head, (in_head - row * args.per_row[which].divisor) * kShape.elements};
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
inline constexpr std::uint32_t kNoSlot = ~0u;
/// A slot inside the pool, or kNoSlot or another one outside, of the words of an index.
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t narrow_slot(bool wide, std::uint32_t low, std::uint32_t high) {
  return wide && high != 0 ? kNoSlot : low;
}
[[nodiscard]] FP4PA_DEVICE inline std::uint64_t slot_of(const PieceArgs& args, std::uint32_t token) {
  return token < args.tokens ? static_cast<std::uint64_t>(args.slots[token]) : ~std::uint64_t{0};
}
[[nodiscard]] FP4PA_DEVICE inline std::uint32_t narrow_slot_of(const PieceArgs& args, std::uint32_t token) {
  const std::uint64_t slot = slot_of(args, token);
  return narrow_slot(true, static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(slot >> 32));
}
/// Of a thread's tokens.
template <PieceShape kShape>
FP4PA_DEVICE inline void slots_of(const PieceArgs& args, std::uint32_t token, std::uint32_t (&slots)[kShape.tokens]) {
  // Both words of a slot, or one twice: without a branch, so that all loads are under way together.
  const bool wide = args.slots.type == IndexType::kInt64;
  const int shift = wide ? 3 : 2;
  const int upper = wide ? 4 : 0;
  std::uint32_t low[kShape.tokens];
  std::uint32_t high[kShape.tokens];
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kShape.tokens; ++u) {
    const std::uint32_t wanted = token + u * kShape.rows;
    const std::uint32_t at = wanted < args.tokens ? wanted : args.tokens - 1;
    const auto* const from = static_cast<const std::uint8_t*>(args.slots.data) + (std::uint64_t{at} << shift);
    low[u] = *reinterpret_cast<const std::uint32_t*>(from);
    high[u] = *reinterpret_cast<const std::uint32_t*>(from + upper);
  }
  sync_warp();  // what stands before it stays before it: a compiler would wait for one slot after another to spare registers
  FP4PA_UNROLL
  for (std::uint32_t u = 0; u < kShape.tokens; ++u) {
    slots[u] = token + u * kShape.rows < args.tokens ? narrow_slot(wide, low[u], high[u]) : kNoSlot;
  }
}
/// @param slot  any below 2^31 is divided; a larger one is not there
[[nodiscard]] FP4PA_DEVICE inline PageRow page_row(const PieceArgs& args, std::uint32_t slot) {
  const std::uint32_t low = slot & 0x7fffffffu;
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

/// This thread's tensor, and its number among the threads of that, in blocks of kThreads.
struct PieceThread {
  int which;
  std::uint32_t index;
};
template <int kThreads>
[[nodiscard]] FP4PA_DEVICE inline PieceThread piece_thread(const PieceArgs& args) {
  const auto block = static_cast<std::uint32_t>(block_id());
  const bool both = args.only == 2;
  return {both ? static_cast<int>(block % 2) : args.only,
          (both ? block / 2 : block) * kThreads + static_cast<std::uint32_t>(thread_id())};
}

/// Whether strides in bytes fit 32 bits.
[[nodiscard]] inline bool narrow(std::int64_t stride) { return stride < (std::int64_t{1} << 32); }
[[nodiscard]] inline bool narrow(const core::TensorView& v) {
  return narrow(v.page_stride) && narrow(v.token_stride) && narrow(v.head_stride) && narrow(v.scale_page_stride) &&
         narrow(v.scale_token_stride) && narrow(v.scale_head_stride);
}
/// Whether every row of scales begins at a multiple of `bytes`.
[[nodiscard]] inline bool scales_at_multiples(const core::TensorView& v, std::int64_t bytes) {
  return aligned(v.scales, static_cast<std::uintptr_t>(bytes)) && v.scale_page_stride % bytes == 0 &&
         v.scale_token_stride % bytes == 0 && v.scale_head_stride % bytes == 0;
}
/// Whether plain rows begin at multiples of 16 bytes.
[[nodiscard]] inline bool aligned(const PlainRows& r) {
  return aligned(r.data, 16) && r.token_stride * size_of(r.dtype) % 16 == 0 && r.head_stride * size_of(r.dtype) % 16 == 0;
}
/// A group of lanes that halves evenly.
[[nodiscard]] inline bool in_lanes(const CacheTensor& t) {
  return t.view.format != KvFormat::kE8m0PerToken || (t.head_dim & (t.head_dim - 1)) == 0;
}

[[nodiscard]] inline PieceArgs piece_args(const AppendArgs& a, PieceShape k, PieceShape v) {
  PieceArgs out{};
  out.slots = a.slots.view;
  out.tokens = static_cast<std::uint32_t>(a.slots.size);
  out.limit = static_cast<std::uint32_t>(a.slots.limit);
  out.page_size = core::Divisor::of(static_cast<std::uint32_t>(a.slots.page_size));
  for (int i = 0; i < 2; ++i) {
    const PieceShape& shape = i == 0 ? k : v;
    out.tensors[i] = a.tensors[i];
    out.rows[i] = a.inputs[i];
    const std::uint32_t per_row = static_cast<std::uint32_t>(a.tensors[i].head_dim) / shape.elements;
    const std::uint32_t per_tokens = per_row * shape.rows * static_cast<std::uint32_t>(a.heads);
    out.per_row[i] = core::Divisor::of(per_row);
    out.per_head[i] = core::Divisor::of(per_row * shape.rows);
    out.per_tokens[i] = core::Divisor::of(per_tokens);
    out.threads[i] = (out.tokens + shape.all_tokens() - 1) / shape.all_tokens() * per_tokens;
    out.of_thread[i] = shape.tokens;
    out.pairs_of_scales[i] = scales_at_multiples(a.tensors[i].view, 2);
  }
  if (a.tensors[0].rotation != 0) out.norm = core::hadamard_norm(a.tensors[0].rotation);
  out.words_of_scales = scales_at_multiples(a.tensors[1].view, 8);
  return out;
}
/// Whether 32 bits count the pieces, of four elements at the least, and the pool's slots.
[[nodiscard]] inline bool few(const AppendArgs& a) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return a.slots.limit < kMost && a.slots.size <= (kMost - 1) / (std::int64_t{a.heads} * 64) - 64;
}
struct PieceKernel {
  void (*run)(PieceArgs);
  int threads = kPieceThreads;  // of a block
};
/// K and V in one launch where one kernel serves both. A tensor without threads is left out.
[[nodiscard]] inline Status launch_pieces(PieceKernel k, PieceKernel v, PieceArgs args, const ExecDesc& exec,
                                          const char* doing) noexcept {
  const auto one = [&](PieceKernel kernel, int only) {
    args.only = only;
    const std::int64_t threads = only == 2 ? (args.threads[0] > args.threads[1] ? args.threads[0] : args.threads[1])
                                           : args.threads[only];
    const std::int64_t blocks = (threads + kernel.threads - 1) / kernel.threads;
    return launch(kernel.run, grid(only == 2 ? 2 * blocks : blocks), kernel.threads, 0, exec.stream, args, doing);
  };
  if (k.run == v.run && args.threads[0] != 0 && args.threads[1] != 0) return one(k, 2);
  const Status s = args.threads[0] != 0 ? one(k, 0) : Status::kOk;
  return s != Status::kOk || args.threads[1] == 0 ? s : one(v, 1);
}

}  // namespace fp4pa::FP4PA_GPU
