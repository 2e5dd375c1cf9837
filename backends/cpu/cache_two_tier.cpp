// append_two_tier: new tokens into the recent ring, and what leaves the window into the 4-bit pages, once.
//
// Two passes with one barrier between them. The first quantises every group that has left the window, from the ring for
// tokens that were there and from the input - rounded through the ring's format - for those of the call itself. The second
// writes the last of the input's tokens that the ring has room for, over rows that the first pass has read.
// (core/paging/two_tier.hpp has the picture.) Since a row of the old tier depends only on the values the ring holds or would have held, and
// groups are always whole, the way the tokens were cut into calls leaves no trace.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "api/error.hpp"
#include "backends/cpu/cache_ops.hpp"
#include "backends/cpu/cache_tensor.hpp"
#include "backends/cpu/cache_threads.hpp"
#include "core/paging/page_table.hpp"
#include "core/paging/two_tier.hpp"

namespace fp4pa::cpu {
namespace {

// The call in the shape that both passes use.
struct Tables {
  core::PageTable old_pages;
  core::PageTable ring;
};

Tables tables_of(const api::TwoTierAppend& r) {
  return {{r.old_table, r.old_table_stride, nullptr, 0},
          {r.recent_table, r.cache.ring_pages, nullptr, r.cache.ring_pages}};
}

core::TwoTierStep step_of(const api::TwoTierAppend& r, std::int32_t seq) {
  return core::two_tier_step(r.seq_lens[seq], r.indptr[seq + 1] - r.indptr[seq], r.cache.window_tokens,
                             r.cache.group_tokens, core::ring_tokens(r.cache.ring_pages, r.cache.recent.page_size));
}

// Pages that hold tokens first .. last-1 of a sequence, each looked up once and compared with the pool.
Status check_pages(const char* table_name, const core::PageTable& table, std::int32_t seq, std::int32_t first,
                   std::int32_t last, const KvCacheDesc& tier) {
  if (first >= last) return Status::kOk;
  std::int32_t begin = first / tier.page_size;
  const std::int32_t end = (last - 1) / tier.page_size + 1;
  // Of a ring no page is worth a second look; a live range never spans more pages than the ring has, plus one.
  if (table.ring_pages != 0) begin = std::max(begin, end - table.ring_pages);
  for (std::int32_t page = begin; page < end; ++page) {
    const std::int32_t id = table.page(seq, page);
    if (id >= 0 && id < tier.num_pages) continue;
    return api::fail(Status::kBlockIdOutOfRange,
                     "append_two_tier: %s of sequence %d has page id %d at entry %d; the pool has pages 0 to %lld",
                     table_name, seq, id, table.ring_pages != 0 ? page % table.ring_pages : page,
                     static_cast<long long>(tier.num_pages - 1));
  }
  return Status::kOk;
}

Status check_sequence(const api::TwoTierAppend& r, const Tables& tables, std::int32_t seq) {
  const std::int32_t begin = r.indptr[seq];
  const std::int32_t end = r.indptr[seq + 1];
  if (end < begin) {
    return api::fail(Status::kInvalidIndptr, "append_two_tier: indptr[%d] = %d is less than indptr[%d] = %d", seq + 1,
                     end, seq, begin);
  }
  if (end > r.num_tokens) {
    return api::fail(Status::kInvalidIndptr, "append_two_tier: indptr[%d] = %d; the input has %lld tokens", seq + 1,
                     end, static_cast<long long>(r.num_tokens));
  }
  const std::int32_t length = r.seq_lens[seq];
  if (length < 0) {
    return api::fail(Status::kInvalidSize, "append_two_tier: seq_lens[%d] = %d; lengths are 0 or more", seq, length);
  }
  if (end - begin > std::numeric_limits<std::int32_t>::max() - length) {
    return api::fail(Status::kLengthExceedsTable,
                     "append_two_tier: sequence %d of %d tokens and %d new ones passes 2^31 - 1 tokens", seq, length,
                     end - begin);
  }
  if (end == begin) return Status::kOk;
  const core::TwoTierStep step = step_of(r, seq);
  const std::int64_t pages =
      core::old_pages(step.length_after, r.cache.window_tokens, r.cache.group_tokens, r.cache.old_tier.page_size);
  if (pages > tables.old_pages.capacity(seq)) {
    return api::fail(
        Status::kLengthExceedsTable,
        "append_two_tier: sequence %d will have %d tokens and need %lld old-tier pages of %d tokens; its row of "
        "old_table has %lld",
        seq, step.length_after, static_cast<long long>(pages), r.cache.old_tier.page_size,
        static_cast<long long>(tables.old_pages.capacity(seq)));
  }
  const Status old_status =
      check_pages("old_table", tables.old_pages, seq, step.quantised_before, step.quantised_after, r.cache.old_tier);
  if (old_status != Status::kOk) return old_status;
  // What is read from the ring, and what will be written to it.
  const std::int32_t read_end = std::min(step.quantised_after, step.length_before);
  const Status read_status =
      check_pages("recent_table", tables.ring, seq, step.quantised_before, read_end, r.cache.recent);
  if (read_status != Status::kOk) return read_status;
  return check_pages("recent_table", tables.ring, seq, step.first_kept, step.length_after, r.cache.recent);
}

Status check_request(const api::TwoTierAppend& r, const Tables& tables) {
  if (r.indptr[0] != 0) {
    return api::fail(Status::kInvalidIndptr, "append_two_tier: indptr[0] = %d; it must be 0", r.indptr[0]);
  }
  for (std::int32_t seq = 0; seq < r.batch; ++seq) {
    if (const Status s = check_sequence(r, tables, seq); s != Status::kOk) return s;
  }
  return Status::kOk;
}

// K or V in both tiers.
struct TierPair {
  CacheTensor old_tier;
  CacheTensor recent;
  const KvInput& input;
};

struct Sequence {
  std::int32_t index;
  std::int32_t first_input;  // row of the input that holds its token length_before
  core::TwoTierStep step;
};

// Token t as the recent tier holds it, or would hold it.
void recent_value(const TierPair& tensor, const Tables& tables, const Sequence& seq, std::int32_t page_size,
                  std::int32_t t, std::int32_t head, float* x) {
  if (t < seq.step.length_before) {
    tensor.recent.read_row(tables.ring.page(seq.index, t / page_size), t % page_size, head, x);
    return;
  }
  tensor.recent.load_input(tensor.input, seq.first_input + (t - seq.step.length_before), head, x);
  tensor.recent.round_through(head, x);
}

// One piece (V's token group, or a single token) of one head into the old tier.
void quantise_piece(const TierPair& tensor, const api::TwoTierAppend& r, const Tables& tables, const Sequence& seq,
                    std::int32_t first, std::int32_t tokens, std::int32_t head) {
  const std::int32_t page_size = r.cache.old_tier.page_size;
  const std::int32_t head_dim = tensor.old_tier.head_dim;
  const std::int64_t page = tables.old_pages.page(seq.index, first / page_size);
  const std::int32_t row = first % page_size;
  alignas(64) float x[kMaxGroup * kMaxRow];
  for (std::int32_t t = 0; t < tokens; ++t) {
    recent_value(tensor, tables, seq, r.cache.recent.page_size, first + t, head, x + t * head_dim);
  }
  if (tensor.old_tier.view.scale_along_tokens()) {
    tensor.old_tier.write_group(page, row, head, {x, head_dim, tokens});
  } else {
    for (std::int32_t t = 0; t < tokens; ++t) tensor.old_tier.write_row(page, row + t, head, x + t * head_dim);
  }
}

void keep_recent(const TierPair& tensor, const Tables& tables, const Sequence& seq, std::int32_t page_size,
                 std::int32_t t, std::int32_t head) {
  alignas(64) float x[kMaxRow];
  tensor.recent.load_input(tensor.input, seq.first_input + (t - seq.step.length_before), head, x);
  tensor.recent.write_row(tables.ring.page(seq.index, t / page_size), t % page_size, head, x);
}

Status append_with(const RowKernels& rows, const api::TwoTierAppend& r, const ExecDesc& exec) noexcept {
  const Tables tables = tables_of(r);
  if (const Status s = check_request(r, tables); s != Status::kOk) return s;

  const TierPair k{k_of(r.cache.old_tier, rows), k_of(r.cache.recent, rows), r.k};
  const TierPair v{v_of(r.cache.old_tier, rows), v_of(r.cache.recent, rows), r.v};
  const core::PageCut cut{r.cache.old_tier.page_size, v.old_tier.view.token_group()};
  const std::int32_t heads = r.cache.old_tier.num_kv_heads;
  const int threads = num_threads(exec, r.num_tokens * heads, 64);

#pragma omp parallel num_threads(threads)
  {
    for (std::int32_t b = 0; b < r.batch; ++b) {
      const Sequence seq{b, r.indptr[b], step_of(r, b)};
      const std::int64_t begin = cut.piece_of(seq.step.quantised_before);
      const std::int64_t items = (cut.piece_of(seq.step.quantised_after) - begin) * heads;
#pragma omp for schedule(static) nowait
      for (std::int64_t item = 0; item < items; ++item) {
        const std::int64_t piece = begin + item / heads;
        const auto head = static_cast<std::int32_t>(item % heads);
        quantise_piece(k, r, tables, seq, cut.first_token(piece), cut.tokens(piece), head);
        quantise_piece(v, r, tables, seq, cut.first_token(piece), cut.tokens(piece), head);
      }
    }
#pragma omp barrier
    for (std::int32_t b = 0; b < r.batch; ++b) {
      const Sequence seq{b, r.indptr[b], step_of(r, b)};
      const std::int64_t items = static_cast<std::int64_t>(seq.step.length_after - seq.step.first_kept) * heads;
#pragma omp for schedule(static) nowait
      for (std::int64_t item = 0; item < items; ++item) {
        const auto t = static_cast<std::int32_t>(seq.step.first_kept + item / heads);
        const auto head = static_cast<std::int32_t>(item % heads);
        keep_recent(k, tables, seq, r.cache.recent.page_size, t, head);
        keep_recent(v, tables, seq, r.cache.recent.page_size, t, head);
      }
    }
  }
  return Status::kOk;
}

}  // namespace

Status append_two_tier(const api::TwoTierAppend& request, const ExecDesc& exec) noexcept {
  return append_with(fastest_rows(), request, exec);
}

Status scalar::append_two_tier(const api::TwoTierAppend& request, const ExecDesc& exec) noexcept {
  return append_with(kScalarRows, request, exec);
}

}  // namespace fp4pa::cpu
