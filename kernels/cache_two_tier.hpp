// append_two_tier: what leaves the window into the old tier, then the new tokens into the ring. Two launches, because the
// second overwrites rows of the ring that the first reads. core/paging/two_tier.hpp has the picture.
#pragma once

#include "core/paging/page_table.hpp"
#include "core/paging/two_tier.hpp"
#include "kernels/cache_ops.hpp"
#include "kernels/cache_rows.hpp"

namespace fp4pa::FP4PA_GPU {

struct TwoTierArgs {
  CacheTensor old_tier[2];  // K, V
  CacheTensor recent[2];
  PlainRows inputs[2];
  core::PageTable old_pages;
  core::PageTable ring;
  std::int64_t num_old_pages, num_recent_pages;
  const std::int32_t* indptr;
  const std::int32_t* seq_lens;
  std::int32_t batch;
  std::int64_t num_tokens;
  std::int32_t window_tokens, group_tokens;
  std::int32_t old_page_size, recent_page_size;
  std::int32_t heads;
  core::PageCut cut;
  std::int32_t blocks;  // of the launches
  std::int32_t ring_tokens;
};

struct Sequence {
  std::int32_t index;
  std::int32_t first_input;
  core::TwoTierStep step;
};

/// What indptr says is kept within the tokens that were handed in; a length is kept between 0 and what leaves room for them.
FP4PA_DEVICE inline Sequence sequence_of(const TwoTierArgs& a, std::int32_t b) {
  const auto inside = [&](std::int32_t x) { return x < 0 ? 0 : x < a.num_tokens ? x : static_cast<std::int32_t>(a.num_tokens); };
  const std::int32_t first = inside(a.indptr[b]);
  const std::int32_t end = inside(a.indptr[b + 1]);
  const std::int32_t tokens = end > first ? end - first : 0;
  const std::int32_t longest = 0x7fffffff - tokens;
  const std::int32_t length = a.seq_lens[b] < 0 ? 0 : a.seq_lens[b] < longest ? a.seq_lens[b] : longest;
  return {b, first, core::two_tier_step(length, tokens, a.window_tokens, a.group_tokens, a.ring_tokens)};
}
/// Whether the ring's pages of tokens first to first + tokens - 1 that it holds already are in the pool.
FP4PA_DEVICE inline bool ring_holds(const TwoTierArgs& a, const Sequence& seq, std::int32_t first, std::int32_t tokens) {
  const std::int32_t end = first + tokens < seq.step.length_before ? first + tokens : seq.step.length_before;
  for (std::int32_t t = first; t < end; t += a.recent_page_size - t % a.recent_page_size) {
    const std::int64_t page = a.ring.page(seq.index, t / a.recent_page_size);
    if (page < 0 || page >= a.num_recent_pages) return false;
  }
  return true;
}

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

/// Items of all sequences, dealt to blocks in turn: f(sequence, item) for those of this block.
template <class Count, class F>
FP4PA_DEVICE void for_each_item(const TwoTierArgs& a, Count&& count, F&& f) {
  std::int64_t before = 0;
  for (std::int32_t b = 0; b < a.batch; ++b) {
    const Sequence seq = sequence_of(a, b);
    const std::int64_t items = count(seq);
    const std::int64_t skip = (block_id() - before % a.blocks + a.blocks) % a.blocks;
    for (std::int64_t item = skip; item < items; item += a.blocks) f(seq, item);
    before += items;
  }
}

/// A block per (piece, head): K and V of the piece's tokens.
FP4PA_KERNEL(quantise_pieces, kThreads, TwoTierArgs a) {
  FP4PA_DYNAMIC_SHARED(float, shared);  // [tokens of a piece, or warps, head_dim]
  const auto count = [&](const Sequence& seq) {
    return (a.cut.piece_of(seq.step.quantised_after) - a.cut.piece_of(seq.step.quantised_before)) * a.heads;
  };
  for_each_item(a, count, [&](const Sequence& seq, std::int64_t item) {
    const std::int64_t piece = a.cut.piece_of(seq.step.quantised_before) + item / a.heads;
    const auto head = static_cast<std::int32_t>(item % a.heads);
    const std::int32_t first = a.cut.first_token(piece);
    const std::int32_t tokens = a.cut.tokens(piece);
    const std::int32_t logical = first / a.old_page_size;
    if (logical >= a.old_pages.capacity(seq.index)) return;
    const std::int64_t page = a.old_pages.page(seq.index, logical);
    if (page < 0 || page >= a.num_old_pages || !ring_holds(a, seq, first, tokens)) return;
    const std::int32_t row = first % a.old_page_size;
    for (int which = 0; which < 2; ++which) {
      const CacheTensor& tensor = a.old_tier[which];
      sync_block();
      if (tensor.view.scale_along_tokens()) {
        for (int t = warp_id(); t < tokens; t += kWarps) {
          recent_value(a, which, seq, first + t, head, shared + t * tensor.head_dim);
        }
        sync_block();
        write_group(tensor, page, row, head, shared, tokens);
      } else {
        float* const x = shared + warp_id() * tensor.head_dim;
        for (int t = warp_id(); t < tokens; t += kWarps) {
          recent_value(a, which, seq, first + t, head, x);
          write_row(tensor, page, row + t, head, x);
        }
      }
    }
  });
}

/// A block per (token, head): the first two warps take K and V.
FP4PA_KERNEL(keep_recent, 2 * kLanes, TwoTierArgs a) {
  FP4PA_SHARED float rows[2][kMaxRow];
  const int which = warp_id();
  const auto count = [&](const Sequence& seq) {
    return static_cast<std::int64_t>(seq.step.length_after - seq.step.first_kept) * a.heads;
  };
  for_each_item(a, count, [&](const Sequence& seq, std::int64_t item) {
    const auto t = static_cast<std::int32_t>(seq.step.first_kept + item / a.heads);
    const auto head = static_cast<std::int32_t>(item % a.heads);
    const std::int64_t page = a.ring.page(seq.index, t / a.recent_page_size);
    if (page < 0 || page >= a.num_recent_pages) return;
    load_input(a.recent[which], a.inputs[which], seq.first_input + (t - seq.step.length_before), head, rows[which]);
    write_row(a.recent[which], page, t % a.recent_page_size, head, rows[which]);
  });
}

Status append_two_tier(const api::TwoTierAppend& r, const ExecDesc& exec) noexcept {
  DeviceProperties device{};
  if (const Status s = current_device(&device); s != Status::kOk) return s;
  const CacheTensor v = v_of(r.cache.old_tier);
  // Lengths are the device's: no more than the machine is asked for, and no more than one block per row.
  const std::int64_t rows =
      (r.num_tokens + r.batch * std::int64_t{r.cache.group_tokens}) * r.cache.old_tier.num_kv_heads;
  const std::int64_t most = 16 * std::int64_t{device.multiprocessors};
  const TwoTierArgs args{{k_of(r.cache.old_tier), v},
                         {k_of(r.cache.recent), v_of(r.cache.recent)},
                         {rows_of(r.k), rows_of(r.v)},
                         {r.old_table, r.old_table_stride, nullptr, 0},
                         {r.recent_table, r.cache.ring_pages, nullptr, r.cache.ring_pages},
                         r.cache.old_tier.num_pages,
                         r.cache.recent.num_pages,
                         r.indptr,
                         r.seq_lens,
                         r.batch,
                         r.num_tokens,
                         r.cache.window_tokens,
                         r.cache.group_tokens,
                         r.cache.old_tier.page_size,
                         r.cache.recent.page_size,
                         r.cache.old_tier.num_kv_heads,
                         {r.cache.old_tier.page_size, v.view.token_group()},
                         static_cast<std::int32_t>(rows < most ? rows : most),
                         core::ring_tokens(r.cache.ring_pages, r.cache.recent.page_size)};
  const std::size_t row_bytes = sizeof(float) * static_cast<std::size_t>(r.cache.old_tier.head_dim);
  const Status s = launch(quantise_pieces, grid(args.blocks), kThreads, kMaxGroup * row_bytes, exec.stream, args,
                          "launching append_two_tier's quantisation");
  if (s != Status::kOk) return s;
  return launch(keep_recent, grid(args.blocks), 2 * kLanes, 0, exec.stream, args,
                "launching append_two_tier's copy into the ring");
}

}  // namespace fp4pa::FP4PA_GPU
