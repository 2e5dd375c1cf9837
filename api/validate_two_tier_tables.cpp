#include "api/validate_two_tier_tables.hpp"

#include <algorithm>
#include <limits>

#include "api/error.hpp"
#include "api/read_back.hpp"

namespace fp4pa::api {
namespace {

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
    return fail(Status::kBlockIdOutOfRange,
                     "append_two_tier: %s of sequence %d has page id %d at entry %d; allowed: 0 to %lld",
                     table_name, seq, id, table.ring_pages != 0 ? page % table.ring_pages : page,
                     static_cast<long long>(tier.num_pages - 1));
  }
  return Status::kOk;
}

Status check_first(const std::int32_t* indptr) {
  if (indptr[0] == 0) return Status::kOk;
  return fail(Status::kInvalidIndptr, "append_two_tier: indptr[0] = %d; allowed: 0", indptr[0]);
}

Status check_tokens(const std::int32_t* indptr, std::int32_t seq, std::int64_t num_tokens) {
  const std::int32_t begin = indptr[seq];
  const std::int32_t end = indptr[seq + 1];
  if (end < begin) {
    return fail(Status::kInvalidIndptr, "append_two_tier: indptr[%d] = %d is less than indptr[%d] = %d; allowed: at least that", seq + 1,
                end, seq, begin);
  }
  if (end <= num_tokens) return Status::kOk;
  return fail(Status::kInvalidIndptr, "append_two_tier: indptr[%d] = %d; the input has %lld tokens; allowed: up to that", seq + 1, end,
              static_cast<long long>(num_tokens));
}

Status check_sequence(const TwoTierAppend& r, const TwoTierTables& tables, std::int32_t seq) {
  FP4PA_RETURN_IF_FAILED(check_tokens(r.indptr, seq, r.num_tokens));
  const std::int32_t begin = r.indptr[seq];
  const std::int32_t end = r.indptr[seq + 1];
  const std::int32_t length = r.seq_lens[seq];
  if (length < 0) {
    return fail(Status::kInvalidSize, "append_two_tier: seq_lens[%d] = %d; allowed: 0 or more", seq, length);
  }
  if (end - begin > std::numeric_limits<std::int32_t>::max() - length) {
    return fail(Status::kLengthExceedsTable,
                     "append_two_tier: sequence %d of %d tokens and %d new ones passes 2^31 - 1 tokens", seq, length,
                     end - begin);
  }
  if (end == begin) return Status::kOk;
  const core::TwoTierStep step = step_of(r, seq);
  const std::int64_t pages =
      core::old_pages(step.length_after, r.cache.window_tokens, r.cache.group_tokens, r.cache.old_tier.page_size);
  if (pages > tables.old_pages.capacity(seq)) {
    return fail(
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

}  // namespace

TwoTierTables tables_of(const TwoTierAppend& r) noexcept {
  return {{r.old_table, r.old_table_stride, nullptr, 0}, {r.recent_table, r.cache.ring_pages, nullptr, r.cache.ring_pages}};
}

core::TwoTierStep step_of(const TwoTierAppend& r, std::int32_t seq) noexcept {
  return core::two_tier_step(r.seq_lens[seq], r.indptr[seq + 1] - r.indptr[seq], r.cache.window_tokens,
                             r.cache.group_tokens, core::ring_tokens(r.cache.ring_pages, r.cache.recent.page_size));
}

Status check_two_tier_indptr(const std::int32_t* indptr, std::int32_t batch, std::int64_t num_tokens) noexcept {
  Status s = check_first(indptr);
  for (std::int32_t seq = 0; s == Status::kOk && seq < batch; ++seq) s = check_tokens(indptr, seq, num_tokens);
  return s;
}

Status check_two_tier(const TwoTierAppend& r) noexcept {
  FP4PA_RETURN_IF_FAILED(check_first(r.indptr));
  const TwoTierTables tables = tables_of(r);
  for (std::int32_t seq = 0; seq < r.batch; ++seq) {
    FP4PA_RETURN_IF_FAILED(check_sequence(r, tables, seq));
  }
  return Status::kOk;
}

Status check_device_two_tier(const Backend& backend, const TwoTierAppend& r, void* stream) noexcept {
  std::unique_ptr<std::int32_t[]> indptr, seq_lens, old_table, recent_table;
  const auto here = [&](const char* what, const std::int32_t* from, std::int64_t count, std::unique_ptr<std::int32_t[]>& to) {
    return read_back(backend, "append_two_tier", what, from, count, stream, to);
  };
  const std::int64_t batch = r.batch;
  FP4PA_RETURN_IF_FAILED(here("entries of indptr", r.indptr, batch + 1, indptr));
  FP4PA_RETURN_IF_FAILED(here("lengths", r.seq_lens, batch, seq_lens));
  FP4PA_RETURN_IF_FAILED(here("old pages", r.old_table, batch * r.old_table_stride, old_table));
  FP4PA_RETURN_IF_FAILED(here("recent pages", r.recent_table, batch * r.cache.ring_pages, recent_table));
  return check_two_tier({r.cache, r.k, r.v, indptr.get(), seq_lens.get(), r.batch, r.num_tokens, old_table.get(),
                         r.old_table_stride, recent_table.get()});
}

}  // namespace fp4pa::api
