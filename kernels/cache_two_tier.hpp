// append_two_tier: what leaves the window into the old tier, then the new tokens into the ring. Two launches, because the
// second overwrites rows of the ring that the first reads. core/paging/two_tier.hpp has the picture.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/two_tier_pieces.hpp"

namespace fp4pa::FP4PA_GPU {

/// Token t as the recent tier holds it, or would hold it, for the warp.
FP4PA_DEVICE inline void recent_value(const TwoTierArgs& a, int which, const Sequence& seq, std::int32_t t, std::int32_t head,
                             float* x) {
  const CacheTensor& recent = a.recent[which];
  if (t < seq.step.length_before) {
    const RowPlace at = ring_place(a, seq, t);
    read_row(recent, at.page, at.row, head, x);
    return;
  }
  load_input(recent, a.inputs[which], seq.first_input + (t - seq.step.length_before), head, x);
  const float global = recent.view.global(head);
  for (int d = lane_id(); d < recent.head_dim; d += kLanes) x[d] = core::round_through(recent.view.format, x[d], global);
  sync_warp();
}

/// How rows are dealt to threads.
enum class RowsGo {
  kByWarps,   ///< a warp has a row
  kByPieces,  ///< V's scales run along head_dim
  kByGroups,  ///< along tokens; K's rows go by pieces
};

/// Blocks that a multiprocessor has registers for; 0: as the compiler sees fit. More blocks hide more of the waiting for pages' numbers and
/// rows, which is worth what kByGroups spills for them.
[[nodiscard]] FP4PA_FN constexpr int quantising_blocks(RowsGo way) {
  return way == RowsGo::kByPieces ? 8 : way == RowsGo::kByGroups ? 6 : 0;
}

/// What leaves the window: a block per share of the new tokens, head and tensor.
template <RowsGo kWay>
FP4PA_KERNEL_OF_BLOCKS(quantise_left, kThreads, quantising_blocks(kWay), TwoTierArgs a) {
  FP4PA_DYNAMIC_SHARED(float, shared);  // [tokens of a group, or warps, head_dim], where a warp has a row
  for_each_share(a, [&](const Sequence& seq, std::int32_t begin, std::int32_t end) {
    const std::int32_t first = quantised_tokens(begin, a.window_tokens, a.group_tokens);
    const std::int32_t last = quantised_tokens(end, a.window_tokens, a.group_tokens);
    if (first == last) return;
    for_each_column(a, [&](int which, std::int32_t head) {
      const CacheTensor& tensor = a.old_tier[which];
      if (kWay != RowsGo::kByPieces && tensor.view.scale_along_tokens()) {
        for (std::int32_t t = first, tokens = 0; t < last; t += tokens) {
          tokens = group_of(a, split(a.old_page, t).row).tokens;
          const RowPlace at = old_place(a, seq, t);
          if (at.page < 0) continue;
          if constexpr (kWay == RowsGo::kByGroups) {
            with_dtype(a.recent[which].view.format, [&](auto dtype) {
              if (tensor.view.token_group() == 16) {
                write_tier_group<decltype(dtype)::value, 16>(a, seq, t, tokens, head, at);
              } else {
                write_tier_group<decltype(dtype)::value, 32>(a, seq, t, tokens, head, at);
              }
            });
          } else if constexpr (kWay == RowsGo::kByWarps) {
            sync_block();
            for (int row = warp_id(); row < tokens; row += kWarps) {
              recent_value(a, which, seq, t + row, head, shared + row * tensor.head_dim);
            }
            sync_block();
            write_group(tensor, at.page, at.row, head, shared, tokens);
          }
        }
        return;
      }
      if constexpr (kWay != RowsGo::kByWarps) {
        const auto pieces = [&](auto of_row) {
          constexpr int kN = decltype(of_row)::value;
          for_each_tier_piece<kN>(a, last - first, [&](std::int32_t row, int element, bool there) {
            const RowPlace at = old_place(a, seq, first + row);
            with_dtype(a.recent[which].view.format, [&](auto dtype) {
              const auto piece = recent_piece<decltype(dtype)::value, kN>(a, which, seq, first + row, head, element);
              write_piece(tensor, a.kinds[which], there && at.page >= 0, at, head, element, piece);
            });
          });
        };
        if (bits_of(a.kinds[which]) == 4) {  // a scale of MXFP4's, or two of NVFP4's
          pieces(std::integral_constant<int, 32>());
        } else {
          pieces(std::integral_constant<int, 16>());
        }
      } else {
        float* const x = shared + warp_id() * tensor.head_dim;
        for (std::int32_t t = first + warp_id(); t < last; t += kWarps) {
          const RowPlace at = old_place(a, seq, t);
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
        constexpr int kN = 16;
        for_each_tier_piece<kN>(a, end - first, [&](std::int32_t row, int element, bool there) {
          const std::int32_t t = first + row;
          const RowPlace at = ring_place(a, seq, t);
          float x[kN];
          load_tier_input(input, seq.first_input + (t - seq.step.length_before), head, element, x);
          if (tensor.rotation != 0) rotate_tier_piece(tensor, x);
          if (!there || at.page < 0) return;
          auto* const to = reinterpret_cast<Words<16>*>(tensor.view.mutable_row(at.page, at.row, head) + 2 * element);
          with_dtype(tensor.view.format, [&](auto dtype) {
            const auto codes = tier_codes<decltype(dtype)::value>(x);
            FP4PA_UNROLL
            for (int i = 0; i < 2; ++i) to[i] = codes.words[i];
          });
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
                   core::Divisor::of(static_cast<std::uint32_t>(old_tier.page_size)),
                   core::Divisor::of(static_cast<std::uint32_t>(recent.page_size)),
                   {core::Divisor::of(static_cast<std::uint32_t>(old_tier.head_dim) / 16),
                    core::Divisor::of(static_cast<std::uint32_t>(old_tier.head_dim) / 32)},
                   old_tier.num_kv_heads,
                   core::ring_tokens(r.cache.ring_pages, recent.page_size),
                   {},
                   1,
                   1};
  const bool groups = args.old_tier[1].view.scale_along_tokens();
  bool pieces = true;
  for (int i = 0; i < 2; ++i) {
    args.kinds[i] = kind_of(args.old_tier[i]);
    pieces = pieces && aligned(args.inputs[i]) && in_lanes(args.old_tier[i]) && kind_of(args.recent[i]) == PieceKind::kHalves;
  }
  if (groups && args.kinds[1] == PieceKind::kNvfp4FourOverSix) pieces = false;  // as of append
  // A block has so many tokens as leave the device eight blocks a multiprocessor, and up to kMostShare.
  constexpr std::int64_t kMostShare = 128;
  constexpr std::int64_t kMostColumns = 65535;
  const std::int64_t columns = std::min(2 * std::int64_t{args.heads}, kMostColumns);
  const std::int64_t share =
      std::clamp<std::int64_t>(r.num_tokens * columns / (8 * std::int64_t{device.multiprocessors}), 1, kMostShare);
  args.columns = static_cast<std::int32_t>(columns);
  const std::size_t row_bytes = sizeof(float) * static_cast<std::size_t>(old_tier.head_dim);
  const std::size_t shared = pieces ? 0 : (groups ? kMaxGroup : kWarps) * row_bytes;
  const auto quantise = !pieces ? quantise_left<RowsGo::kByWarps>
                        : groups ? quantise_left<RowsGo::kByGroups> : quantise_left<RowsGo::kByPieces>;
  const auto launch_blocks = [&](auto kernel, std::int64_t tokens, std::size_t shared_bytes, const char* what) {
    args.share = static_cast<std::int32_t>(tokens);
    const std::int64_t blocks = std::max<std::int64_t>((r.num_tokens + tokens - 1) / tokens, 1);
    return launch(kernel, grid(blocks, columns), kThreads, shared_bytes, exec.stream, args, what);
  };
  if (const Status s = launch_blocks(quantise, share, shared, "launching append_two_tier's quantisation"); s != Status::kOk) return s;
  // Of a prompt the ring has room for its end alone: most blocks would find nothing to do.
  const std::int64_t kept_share = share == kMostShare ? 4 * share : share;
  return launch_blocks(pieces ? keep_recent<true> : keep_recent<false>, kept_share, 0, "launching append_two_tier's copy into the ring");
}

}  // namespace fp4pa::FP4PA_GPU
