// append_two_tier: what leaves the window into the old tier, then the new tokens into the ring. Two launches, because the
// second overwrites rows of the ring that the first reads. core/paging/two_tier.hpp has the picture.
#pragma once

#include <algorithm>

#include "kernels/two_tier_pieces.hpp"

namespace fp4pa::FP4PA_GPU {

/// Token t as the recent tier holds it, or would hold it, for the warp.
FP4PA_DEVICE inline void recent_value(const TwoTierArgs& a, int which, const Sequence& seq, std::int32_t t, std::int32_t head,
                             float* x) {
  const CacheTensor& recent = a.recent[which];
  if (t < seq.step.length_before) {
    read_row(recent, a.ring.page(seq.index, t / a.recent_page_size), t % a.recent_page_size, head, x);
    return;
  }
  load_input(recent, a.inputs[which], seq.first_input + (t - seq.step.length_before), head, x);
  const float global = recent.view.global(head);
  for (int d = lane_id(); d < recent.head_dim; d += kLanes) x[d] = core::round_through(recent.view.format, x[d], global);
  sync_warp();
}

/// What leaves the window: a block per share of the new tokens, head and tensor.
/// @tparam kPieces  whether pieces serve; else a warp has a row
template <bool kPieces>
FP4PA_KERNEL(quantise_left, kThreads, TwoTierArgs a) {
  FP4PA_DYNAMIC_SHARED(float, shared);  // [tokens of a piece, or warps, head_dim]
  for_each_share(a, [&](const Sequence& seq, std::int32_t begin, std::int32_t end) {
    const std::int32_t first = quantised_tokens(begin, a.window_tokens, a.group_tokens);
    const std::int32_t last = quantised_tokens(end, a.window_tokens, a.group_tokens);
    if (first == last) return;
    for_each_column(a, [&](int which, std::int32_t head) {
      const CacheTensor& tensor = a.old_tier[which];
      if (tensor.view.scale_along_tokens()) {
        for (std::int64_t piece = a.cut.piece_of(first); piece < a.cut.piece_of(last); ++piece) {
          const RowPlace at = old_place(a, seq, piece);
          if (at.page < 0) continue;
          const std::int32_t t = a.cut.first_token(piece);
          const std::int32_t tokens = a.cut.tokens(piece);
          sync_block();
          if constexpr (kPieces) {
            for_each_tier_piece(tensor, tokens, [&](std::int32_t row, int element, bool there) {
              float x[16] = {};
              recent_piece(a, which, seq, t + row, head, element, x);
              if (!there) return;
              for (int i = 0; i < 16; ++i) shared[row * tensor.head_dim + element + i] = x[i];
            });
          } else {
            for (int row = warp_id(); row < tokens; row += kWarps) {
              recent_value(a, which, seq, t + row, head, shared + row * tensor.head_dim);
            }
          }
          sync_block();
          write_group(tensor, at.page, at.row, head, shared, tokens);
        }
        return;
      }
      const auto place = [&](std::int32_t t) { return RowPlace{old_place(a, seq, a.cut.piece_of(t)).page, t % a.old_page_size}; };
      if constexpr (kPieces) {
        for_each_tier_piece(tensor, last - first, [&](std::int32_t row, int element, bool there) {
          const RowPlace at = place(first + row);
          float x[16] = {};
          recent_piece(a, which, seq, first + row, head, element, x);
          write_piece(tensor, a.kinds[which], there && at.page >= 0, at, head, element, x);
        });
      } else {
        float* const x = shared + warp_id() * tensor.head_dim;
        for (std::int32_t t = first + warp_id(); t < last; t += kWarps) {
          const RowPlace at = place(t);
          if (at.page < 0) continue;
          recent_value(a, which, seq, t, head, x);
          write_row(tensor, at.page, at.row, head, x);
        }
      }
    });
  });
}

/// The new tokens that the ring has room for: blocks as above.
template <bool kPieces>
FP4PA_KERNEL(keep_recent, kThreads, TwoTierArgs a) {
  FP4PA_SHARED float rows[kWarps][kMaxRow];
  for_each_share(a, [&](const Sequence& seq, std::int32_t begin, std::int32_t end) {
    const std::int32_t first = begin > seq.step.first_kept ? begin : seq.step.first_kept;
    if (first >= end) return;
    for_each_column(a, [&](int which, std::int32_t head) {
      const CacheTensor& tensor = a.recent[which];
      const PlainRows& input = a.inputs[which];
      if constexpr (kPieces) {
        for_each_tier_piece(tensor, end - first, [&](std::int32_t row, int element, bool there) {
          const std::int32_t t = first + row;
          const RowPlace at = ring_place(a, seq, t);
          float x[16];
          load_tier_input(input, seq.first_input + (t - seq.step.length_before), head, element, x);
          if (tensor.rotation != 0) rotate_tier_piece(tensor, x);
          if (!there || at.page < 0) return;
          TierCodes codes;
          codes.encode(tensor.view.format, x);
          codes.store(tensor.view.mutable_row(at.page, at.row, head), element);
        });
      } else {
        float* const x = rows[warp_id()];
        for (std::int32_t t = first + warp_id(); t < end; t += kWarps) {
          const RowPlace at = ring_place(a, seq, t);
          if (at.page < 0) continue;
          load_input(tensor, input, seq.first_input + (t - seq.step.length_before), head, x);
          write_row(tensor, at.page, at.row, head, x);
        }
      }
    });
  });
}

Status append_two_tier(const api::TwoTierAppend& r, const ExecDesc& exec) noexcept {
  DeviceProperties device{};
  if (const Status s = current_device(&device); s != Status::kOk) return s;
  const KvCacheDesc& old_tier = r.cache.old_tier;
  const KvCacheDesc& recent = r.cache.recent;
  TwoTierArgs args{{k_of(old_tier), v_of(old_tier)},
                   {k_of(recent), v_of(recent)},
                   {rows_of(r.k), rows_of(r.v)},
                   {r.old_table, r.old_table_stride, nullptr, 0},
                   {r.recent_table, r.cache.ring_pages, nullptr, r.cache.ring_pages},
                   old_tier.num_pages,
                   recent.num_pages,
                   r.indptr,
                   r.seq_lens,
                   r.batch,
                   r.num_tokens,
                   r.cache.window_tokens,
                   r.cache.group_tokens,
                   old_tier.page_size,
                   recent.page_size,
                   old_tier.num_kv_heads,
                   {old_tier.page_size, v_of(old_tier).view.token_group()},
                   core::ring_tokens(r.cache.ring_pages, recent.page_size),
                   {},
                   1,
                   1};
  bool pieces = true;
  for (int i = 0; i < 2; ++i) {
    args.kinds[i] = kind_of(args.old_tier[i]);
    pieces = pieces && aligned(args.inputs[i]) && in_lanes(args.old_tier[i]) && kind_of(args.recent[i]) == PieceKind::kHalves;
  }
  // A block has so many tokens as leave the device eight blocks a multiprocessor, and up to 64.
  constexpr std::int64_t kMostColumns = 65535;
  const std::int64_t columns = std::min(2 * std::int64_t{args.heads}, kMostColumns);
  const std::int64_t share = r.num_tokens * columns / (8 * std::int64_t{device.multiprocessors});
  args.share = static_cast<std::int32_t>(std::clamp<std::int64_t>(share, 1, 64));
  args.columns = static_cast<std::int32_t>(columns);
  const std::int64_t blocks = std::max<std::int64_t>((r.num_tokens + args.share - 1) / args.share, 1);
  const std::size_t row_bytes = sizeof(float) * static_cast<std::size_t>(old_tier.head_dim);
  const bool groups = args.old_tier[1].view.scale_along_tokens();
  const std::size_t shared = groups ? kMaxGroup * row_bytes : pieces ? 0 : kWarps * row_bytes;
  const Status s = launch(pieces ? quantise_left<true> : quantise_left<false>, grid(blocks, columns), kThreads, shared, exec.stream, args,
                          "launching append_two_tier's quantisation");
  if (s != Status::kOk) return s;
  return launch(pieces ? keep_recent<true> : keep_recent<false>, grid(blocks, columns), kThreads, 0, exec.stream, args,
                "launching append_two_tier's copy into the ring");
}

}  // namespace fp4pa::FP4PA_GPU
